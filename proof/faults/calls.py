"""The calls by which Python changes a disk, watched: what Holdproof writes beside SQLite's files goes through these.

`os.open`, `write`, `fsync`, `replace`, `rename`, `link`, `unlink`, `rmdir`, `mkdir`, and files opened by `open`, whose
buffers end in a raw file of ours. A child process takes them over for good; nothing gives them back.
"""

import builtins
import io
import os
from collections.abc import Callable
from typing import IO, Any, Final

from proof.faults.watch import WATCH, FaultError

_REAL: Final = {
    name: getattr(os, name)
    for name in ("open", "close", "write", "fsync", "replace", "rename", "link", "unlink", "remove", "rmdir", "mkdir")
}
_open = io.open
_OPEN: Final[dict[int, tuple[str, int, int]]] = {}
"""Descriptors that were opened here: path, handle and inode. Some are closed elsewhere, so the inode is compared."""


def _known(descriptor: int) -> tuple[str, int]:
    """The path and the handle of a descriptor; nothing for one that is not ours."""
    path, handle, inode = _OPEN.get(descriptor, ("", 0, 0))
    return (path, handle) if path and os.fstat(descriptor).st_ino == inode else ("", 0)


def _path(given: Any) -> str:
    """The absolute path of what a call was given."""
    return _known(given)[0] if isinstance(given, int) else os.path.abspath(os.fsdecode(os.fspath(given)))


def _ask(kind: str, path: str, size: int = 0) -> None:
    try:
        WATCH.ask(kind, path, size)
    except FaultError as fault:
        raise fault.system from None


def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """`os.open`."""
    name = _path(path) if dir_fd is None else ""
    if not WATCH.below(name):
        return int(_REAL["open"](path, flags, mode, dir_fd=dir_fd))
    with WATCH.lock:
        _ask("open", name)
        created = not os.path.lexists(name)
        handle = int(_REAL["open"](path, flags, mode))
        _OPEN[handle] = name, WATCH.handle(), os.fstat(handle).st_ino
        if not os.path.isdir(name):
            WATCH.tell(name, "open", _OPEN[handle][1], name, created, bool(flags & os.O_TRUNC))
        return handle


def close(handle: int) -> None:
    """`os.close`."""
    _OPEN.pop(handle, None)
    _REAL["close"](handle)


def write(handle: int, data: Any) -> int:
    """`os.write`: a disk that becomes full takes a part and says so, and nothing the next time."""
    return _written(handle, data, lambda some: int(_REAL["write"](handle, some)))


def _written(handle: int, data: Any, real: Callable[[Any], int]) -> int:
    path, number = _known(handle)
    if not WATCH.below(path):
        return real(data)
    with WATCH.lock:
        view = memoryview(data).cast("B")
        try:
            WATCH.ask("write", path, len(view))
        except FaultError as fault:
            if fault.kept:
                _note(path, number, handle, view[: fault.kept], real)
            raise fault.system from None
        return _note(path, number, handle, view, real)


def _note(path: str, number: int, handle: int, view: memoryview, real: Callable[[Any], int]) -> int:
    done = real(view)
    offset = os.lseek(handle, 0, os.SEEK_CUR) - done
    WATCH.tell(path, "write", number, offset, bytes(view[:done]))
    return done


def fsync(handle: Any) -> None:
    """`os.fsync`, of a file or a folder."""
    number = handle if isinstance(handle, int) else handle.fileno()
    path, file = _known(number)
    if not WATCH.below(path):
        _REAL["fsync"](handle)
        return
    with WATCH.lock:
        try:
            _ask("sync", path)
        except OSError:
            WATCH.tell(path, "unsynced", file)
            raise
        if os.path.isdir(path):
            WATCH.tell(path, "syncdir", path)
        else:
            WATCH.tell(path, "sync", file)


def _two(name: str, word: str) -> Callable[..., None]:
    """`replace`, `rename` and `link`."""

    def call(src: Any, dst: Any, **more: Any) -> None:
        old, new = _path(src), _path(dst)
        with WATCH.lock:
            _ask("rename", new)
            _REAL[name](src, dst, **more)
            WATCH.tell(new, word, old, new)

    return call


def _one(name: str, kind: str, word: str) -> Callable[..., None]:
    """`unlink`, `remove`, `rmdir` and `mkdir`."""

    def call(path: Any, *args: Any, **more: Any) -> None:
        place = _path(path) if more.get("dir_fd") is None else _beside(path, more["dir_fd"])
        with WATCH.lock:
            _ask(kind, place)
            _REAL[name](path, *args, **more)
            WATCH.tell(place, word, place)

    return call


def _beside(path: Any, folder: int) -> str:
    """The path of a name in an open folder (`shutil.rmtree` goes that way)."""
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))


class _Raw(io.FileIO):
    """The raw file below a buffer."""

    def write(self, data: Any) -> int:
        return _written(self.fileno(), data, lambda some: int(super(_Raw, self).write(some) or 0))

    def truncate(self, size: int | None = None) -> int:
        path, number = _known(self.fileno())
        with WATCH.lock:
            _ask("truncate", path)
            cut = super().truncate(size)
            WATCH.tell(path, "truncate", number, cut)
            return cut

    def close(self) -> None:
        if not self.closed:
            _OPEN.pop(self.fileno(), None)
        super().close()


def opened(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[str, int], int] | None = None,
) -> IO[Any]:
    """`open`: what is watched and written to goes through a raw file of ours."""
    path = _path(file) if isinstance(file, int | str | bytes | os.PathLike) else ""
    if not WATCH.below(path):
        return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    opener = opener or (lambda name, flags: open_(name, flags, 0o666))
    if not set(mode) & set("wax+"):
        return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw = _Raw(file, mode.replace("t", ""), closefd, None if isinstance(file, int) else opener)
    size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
    if "b" in mode and buffering == 0:
        return raw
    buffer = io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)
    return buffer if "b" in mode else io.TextIOWrapper(buffer, encoding, errors, newline)


def install() -> None:
    """Take the calls over."""
    os.open, os.close, os.write, os.fsync = open_, close, write, fsync  # type: ignore[assignment]
    os.replace, os.rename, os.link = _two("replace", "rename"), _two("rename", "rename"), _two("link", "link")
    os.unlink, os.remove = _one("unlink", "delete", "unlink"), _one("remove", "delete", "unlink")
    os.rmdir, os.mkdir = _one("rmdir", "delete", "rmdir"), _one("mkdir", "mkdir", "mkdir")
    io.open = builtins.open = opened  # type: ignore[assignment]
    io.FileIO = _Raw  # type: ignore[misc]
