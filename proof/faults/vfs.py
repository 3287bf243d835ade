"""A VFS below Holdproof's own: every write, sync, open, truncation and deletion of SQLite passes here.

It is made the default one before the first database is opened. The layer that keeps page checksums puts itself on top
of whatever is the default, so nothing in Holdproof has to know.
"""

import os
from contextlib import suppress
from typing import Any, Final

import apsw

from proof.faults.watch import WATCH, FaultError

NAME: Final = "watched"
_BELOW: Final = "unix"
_CODES: Final = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "open": apsw.SQLITE_CANTOPEN,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
}
_JOURNALS: Final = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
"""Files whose first sync makes their folder durable too, if they are new."""


def _typed(fault: FaultError) -> Exception:
    return apsw.exception_for(apsw.SQLITE_FULL if fault.full else _CODES[fault.kind])


class WatchedFile(apsw.VFSFile):
    """One open file of SQLite."""

    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        given = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._path = os.path.abspath(given) if given else ""
        with WATCH.lock:
            try:
                WATCH.ask("open", self._path)
            except FaultError as fault:
                raise _typed(fault) from None
            created = bool(self._path) and not os.path.exists(self._path)
            super().__init__(_BELOW, name, flags)
            self._handle = WATCH.handle()
            self._folder_due = created and bool(flags[0] & _JOURNALS)
            WATCH.tell(self._path, "open", self._handle, self._path, created, False)

    def xWrite(self, data: bytes, offset: int) -> None:
        """Write, or fail half way."""
        with WATCH.lock:
            try:
                WATCH.ask("write", self._path, len(data))
            except FaultError as fault:
                if fault.kept:
                    super().xWrite(data[: fault.kept], offset)
                    WATCH.tell(self._path, "write", self._handle, offset, bytes(data[: fault.kept]))
                raise _typed(fault) from None
            super().xWrite(data, offset)
            WATCH.tell(self._path, "write", self._handle, offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        """Cut, or fail."""
        with WATCH.lock:
            self._ask("truncate")
            super().xTruncate(size)
            WATCH.tell(self._path, "truncate", self._handle, size)

    def xSync(self, flags: int) -> None:
        """Make durable, or fail; the folder of a new journal too."""
        with WATCH.lock:
            try:
                self._ask("sync")
            except apsw.Error:
                WATCH.tell(self._path, "unsynced", self._handle)
                raise
            super().xSync(flags)
            WATCH.tell(self._path, "sync", self._handle)
            if self._folder_due:
                WATCH.tell(self._path, "syncdir", os.path.dirname(self._path))
                self._folder_due = False

    def _ask(self, kind: str) -> None:
        try:
            WATCH.ask(kind, self._path)
        except FaultError as fault:
            raise _typed(fault) from None


class WatchedVfs(apsw.VFS):
    """The file system of SQLite."""

    def __init__(self) -> None:
        super().__init__(NAME, _BELOW, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> WatchedFile:
        """Open a file to be watched."""
        return WatchedFile(name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Delete, or fail."""
        path = os.path.abspath(filename)
        with WATCH.lock:
            try:
                WATCH.ask("delete", path)
            except FaultError as fault:
                raise _typed(fault) from None
            super().xDelete(filename, syncdir)
            WATCH.tell(path, "unlink", path)
            if syncdir:
                WATCH.tell(path, "syncdir", os.path.dirname(path))


class _Backup:
    """A backup whose end is an error of SQLite: apsw trips over one that a VFS in Python raised (SystemError)."""

    def __init__(self, real: apsw.Backup) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __enter__(self) -> "_Backup":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._real.finish()
        except SystemError:
            if kind is None:
                raise apsw.FullError("injected") from None


class _Connection(apsw.Connection):
    """A connection whose closing says nothing of a checkpoint that failed: SQLite says nothing either, apsw would."""

    def backup(self, *given: Any) -> Any:
        """Copy pages from another connection."""
        return _Backup(super().backup(*given))

    def close(self, force: bool = False) -> None:
        """Close it."""
        with suppress(apsw.Error):
            super().close(force)


_registered: list[WatchedVfs] = []


def install() -> None:
    """Register it, once."""
    if not _registered:
        _registered.append(WatchedVfs())
        apsw.Connection = _Connection  # type: ignore[misc]
