"""Swap a store's files for restored ones: all of them or none, whenever the process dies.

Everything new is staged inside the data folder, then a journal (`restore.json`) is put in place by one rename: that is
the commit point of a restore. From then on any process that opens the store first finishes the swap.

Rules:
- Before the journal exists the old state is untouched; once it exists, only the new state is ever visible.
- Every step can be repeated: a file that has moved already is not moved again.
- The old files go to `before-restore-<time>/` in the data folder; nothing is deleted, not even a file that appeared
  while the swap was interrupted.
- Files staged for one server's database are neither used nor removed by a process that opens another database.
- Keys and configuration are only added, never replaced.
- An open store holds `store.lock` in shared mode, a swap holds it exclusively; the lock ends with the process.
"""

import fcntl
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from holdproof import folders
from holdproof.config import Paths
from holdproof.content import disk
from holdproof.errors import BusyError

JOURNAL: Final = "restore.json"
_LOCK: Final = "store.lock"
_STAGED: Final = ".restoring"
_PENDING: Final = "restore-pending.json"
_TIMEOUT_S = 10.0
_RETRY_S = 0.1


class StoreLock:
    """The file lock of a home: shared while a store is open, exclusive while its files are swapped.

    Acquired when it is made; BusyError if that takes longer than `timeout_s`.
    """

    def __init__(
        self, paths: Paths, *, exclusive: bool, timeout_s: float = _TIMEOUT_S, flags: int = os.O_RDWR | os.O_CREAT
    ) -> None:
        self._handle = -1
        with disk.translated(paths.data):
            handle = os.open(paths.data / _LOCK, flags, 0o600)
        mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                # Polled rather than blocking: flock itself has no time-out.
                fcntl.flock(handle, mode | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    os.close(handle)
                    what = "the store is open elsewhere" if exclusive else "the store is being restored"
                    raise BusyError(f"{what}: {paths.data}", path=str(paths.data)) from error
            time.sleep(0.02)
        self._handle = handle

    def release(self) -> None:
        """Release the lock; may be called twice. Also unlocks a handle inherited by a fork, which cannot use it."""
        handle = self._handle
        self._handle = -1
        if handle >= 0:
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def staging(paths: Paths) -> Path:
    """Return an empty folder for the new files; removes what an earlier attempt left. Needs the exclusive lock."""
    folder = paths.data / _STAGED
    disk.remove_tree(folder)
    with disk.translated(folder):
        folder.mkdir(mode=0o700)
    return folder


def commit(paths: Paths, *, aside: str, out: Sequence[str]) -> None:
    """Replace the live files named in `out` by the staged ones; durable when it returns."""
    going = [name for name in out if os.path.lexists(paths.data / name)]
    with disk.translated(paths.data):
        # Staged bytes are durable before the journal that makes them count.
        disk.sync_tree(paths.data / _STAGED)
        disk.write(paths.data / JOURNAL, json.dumps({"v": 1, "aside": aside, "out": going}).encode())
    _apply_journal(paths)


def prepare(paths: Paths, *, aside: str, out: Sequence[str], origin: str, url: str) -> None:
    """Write down which files to swap once the server's database is at `origin`; `settle` swaps or discards them."""
    going = [name for name in out if os.path.lexists(paths.data / name)]
    plan = {"v": 1, "aside": aside, "out": going, "origin": origin, "database": _database_id(url)}
    with disk.translated(paths.data):
        disk.sync_tree(paths.data / _STAGED)
        disk.write(paths.data / _PENDING, json.dumps(plan).encode())


def settle(paths: Paths, origin: str, url: str) -> None:
    """Finish or discard a prepared swap, by whether the server's database has reached the origin it was made for.

    The database and the files cannot change in one transaction. The log's origin tells which came about: at the new
    origin the files follow, at another one the restore never committed.
    """
    pending = paths.data / _PENDING
    if not pending.exists():
        return
    with disk.translated(pending), pending.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # several processes may open the store at once; one does it
        if not pending.exists():
            return
        plan = json.load(file)
        if plan["origin"] == origin:
            pending.rename(paths.data / JOURNAL)
            folders.sync(paths.data)
            _apply_journal(paths)
        elif plan["database"] == _database_id(url):
            pending.unlink()
            discard(paths)


def _database_id(url: str) -> str:
    """Return a hash that identifies a database whatever credentials its URL carries."""
    parts = urlsplit(url)
    options = sorted((name, value) for name, value in parse_qsl(parts.query) if name not in ("user", "password"))
    words = [parts.hostname, parts.port, parts.path, *options]
    return sha256(json.dumps(words).encode()).hexdigest()


def discard(paths: Paths) -> None:
    """Remove the staged files."""
    disk.remove_tree(paths.data / _STAGED)


def under_way(paths: Paths) -> bool:
    """Whether a swap has committed or may have: then the staged files must stay."""
    return (paths.data / JOURNAL).exists() or (paths.data / _PENDING).exists()


def enter(paths: Paths) -> StoreLock:
    """Take the shared lock of a home, finishing an interrupted swap first."""
    while True:
        finish(paths)
        store_lock = StoreLock(paths, exclusive=False)
        if not (paths.data / JOURNAL).exists():
            return store_lock
        store_lock.release()  # another process committed a swap and died while we waited for the lock


def look(paths: Paths) -> StoreLock | None:
    """Take the shared lock of a home that is only read; None where there is no lock file, for none is created."""
    if not os.access(paths.data / _LOCK, os.R_OK):
        return None
    return StoreLock(paths, exclusive=False, flags=os.O_RDONLY)


def finish(paths: Paths) -> bool:
    """Finish a swap that a killed process left unfinished; return whether there was one."""
    deadline = time.monotonic() + _TIMEOUT_S
    while (paths.data / JOURNAL).exists():
        try:
            store_lock = StoreLock(paths, exclusive=True, timeout_s=_RETRY_S)
        except BusyError:  # its holder may finish the swap itself: look at the journal again
            if time.monotonic() >= deadline:
                raise
            continue
        try:
            if (paths.data / JOURNAL).exists():  # else another process was faster
                _apply_journal(paths)
        finally:
            store_lock.release()
        return True
    return False


def _apply_journal(paths: Paths) -> None:
    """Move the old files aside and the staged ones into place; safe to repeat after a kill at any line."""
    with disk.translated(paths.data):
        plan = json.loads(disk.read(paths.data / JOURNAL, 1 << 20))
        aside = paths.data / plan["aside"]
        staged = paths.data / _STAGED
        aside.mkdir(mode=0o700, exist_ok=True)
        for name in plan["out"]:
            # A name that is aside already was moved by an earlier attempt; the live file of that name is the new one.
            if not os.path.lexists(aside / name):
                with suppress(FileNotFoundError):
                    (paths.data / name).rename(aside / name)
        folders.sync(aside)
        for place, home in (("keys", paths.keys), ("config", paths.config)):
            _place(staged / place, home)
        for entry in sorted(staged.iterdir()) if staged.is_dir() else ():
            _make_room(paths.data / entry.name, aside)
            entry.rename(paths.data / entry.name)
        # The renames are durable before the journal goes: a power cut in between only repeats this function.
        folders.sync(paths.data)
        (paths.data / JOURNAL).unlink()
        folders.sync(paths.data)
    disk.remove_tree(staged)


def _make_room(place: Path, aside: Path) -> None:
    """Move aside a file that appeared at this place while the swap was interrupted."""
    names = (place.name, *(f"{place.name}.{number}" for number in range(2, 1000)))
    if os.path.lexists(place):
        place.rename(aside / next(name for name in names if not os.path.lexists(aside / name)))


def _place(staged: Path, home: Path) -> None:
    """Add keys or configuration files that are missing; copied, because the folder may be on another file system."""
    for file in disk.files(staged) if staged.is_dir() else ():
        folders.make(home)
        copied = home / f".{file.name}.restoring"
        copied.unlink(missing_ok=True)
        disk.copy(file, copied)
        with suppress(FileExistsError):  # a link, unlike a rename, never replaces a file that is there
            os.link(copied, home / file.name)
        copied.unlink()
        folders.sync(home)
    disk.remove_tree(staged)
