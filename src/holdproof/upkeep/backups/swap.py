"""Exchanging a store's files for restored ones: all of them or none, whenever the process dies.

Everything new is staged inside the data folder, then a journal (`restore.json`) is put in place by one rename: that is
the moment the restore counts. From there on any process that opens the store first finishes the exchange.

Rules:
- Before the journal stands, the old state is untouched; once it stands, the new state is what anybody will ever see.
- Every step can be repeated: what has moved already is not moved again.
- What was there goes to `before-restore-<time>/` in the data folder; nothing is deleted, not even what appeared while
  the exchange stood in the middle.
- What is staged for one server's database is neither taken nor thrown away by whoever opens another.
- Keys and configuration are put where there are none, and never replace any.
- An open store holds `store.lock` shared, an exchange holds it alone; the lock goes with the process.
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
_PATIENCE_S, _LOOK_S = 10.0, 0.1


class StoreLock:
    """That a store is open here (shared), or that its files are being exchanged (alone)."""

    def __init__(self, paths: Paths, *, alone: bool, patience_s: float = _PATIENCE_S) -> None:
        self._handle = -1
        with disk.translated(paths.data):
            handle = os.open(paths.data / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    os.close(handle)
                    what = "the store is open elsewhere" if alone else "the store is being restored"
                    raise BusyError(f"{what}: {paths.data}", path=str(paths.data)) from error
            time.sleep(0.02)
        self._handle = handle

    def end(self) -> None:
        """Let go; may be called twice. Unlocks what a forked child inherited, too: it cannot use the store anyway."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def staging(paths: Paths) -> Path:
    """An empty folder for what is to come; what an earlier try left there is removed. Needs the lock, alone."""
    folder = paths.data / _STAGED
    disk.remove_tree(folder)
    with disk.translated(folder):
        folder.mkdir(mode=0o700)
    return folder


def commit(paths: Paths, *, aside: str, out: Sequence[str]) -> None:
    """Let the staged files take the place of the live ones named in `out`; durable when it returns."""
    going = [name for name in out if os.path.lexists(paths.data / name)]
    with disk.translated(paths.data):
        disk.sync_tree(paths.data / _STAGED)
        disk.write(paths.data / JOURNAL, json.dumps({"v": 1, "aside": aside, "out": going}).encode())
    _carry_out(paths)


def prepare(paths: Paths, *, aside: str, out: Sequence[str], origin: str, url: str) -> None:
    """Say what is to be exchanged once a server's database is at that origin: `settle` does it, or forgets it."""
    going = [name for name in out if os.path.lexists(paths.data / name)]
    plan = {"v": 1, "aside": aside, "out": going, "origin": origin, "database": _named(url)}
    with disk.translated(paths.data):
        disk.sync_tree(paths.data / _STAGED)
        disk.write(paths.data / _PENDING, json.dumps(plan).encode())


def settle(paths: Paths, origin: str, url: str) -> None:
    """After a server's database was exchanged, or that died in the middle: its files follow the log's origin."""
    pending = paths.data / _PENDING
    if not pending.exists():
        return
    with disk.translated(pending), pending.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # of several that open the store at once, one does it
        if not pending.exists():
            return
        plan = json.load(file)
        if plan["origin"] == origin:
            pending.rename(paths.data / JOURNAL)
            folders.sync(paths.data)
            _carry_out(paths)
        elif plan["database"] == _named(url):
            pending.unlink()
            discard(paths)


def _named(url: str) -> str:
    """Which database that is, without the words that open it."""
    parts = urlsplit(url)
    asked = sorted(each for each in parse_qsl(parts.query) if each[0] not in ("user", "password"))
    words = [parts.hostname, parts.port, parts.path, *asked]
    return sha256(json.dumps(words).encode()).hexdigest()


def discard(paths: Paths) -> None:
    """Forget what was staged."""
    disk.remove_tree(paths.data / _STAGED)


def under_way(paths: Paths) -> bool:
    """Whether an exchange counts already, or may: then nothing staged is thrown away."""
    return (paths.data / JOURNAL).exists() or (paths.data / _PENDING).exists()


def enter(paths: Paths) -> StoreLock:
    """Be present in a store whose files are all there: what was left in the middle until just now is finished first."""
    while True:
        finish(paths)
        presence = StoreLock(paths, alone=False)
        if not (paths.data / JOURNAL).exists():
            return presence
        presence.end()  # an exchange began, and its process died, while we waited


def finish(paths: Paths) -> bool:
    """Finish an exchange that a dying process left in the middle; whether there was one."""
    deadline = time.monotonic() + _PATIENCE_S
    while (paths.data / JOURNAL).exists():
        try:
            presence = StoreLock(paths, alone=True, patience_s=_LOOK_S)
        except BusyError:  # whoever is at it may be done before he goes
            if time.monotonic() >= deadline:
                raise
            continue
        try:
            if (paths.data / JOURNAL).exists():  # or another process was faster
                _carry_out(paths)
        finally:
            presence.end()
        return True
    return False


def _carry_out(paths: Paths) -> None:
    with disk.translated(paths.data):
        plan = json.loads(disk.read(paths.data / JOURNAL, 1 << 20))
        aside, staged = paths.data / plan["aside"], paths.data / _STAGED
        aside.mkdir(mode=0o700, exist_ok=True)
        for name in plan["out"]:
            if not os.path.lexists(aside / name):
                with suppress(FileNotFoundError):
                    (paths.data / name).rename(aside / name)
        folders.sync(aside)
        for place, home in (("keys", paths.keys), ("config", paths.config)):
            _place(staged / place, home)
        for found in sorted(staged.iterdir()) if staged.is_dir() else ():
            _make_room(paths.data / found.name, aside)
            found.rename(paths.data / found.name)
        folders.sync(paths.data)
        (paths.data / JOURNAL).unlink()
        folders.sync(paths.data)
    disk.remove_tree(staged)


def _make_room(place: Path, aside: Path) -> None:
    """Keep aside what took a place while nobody finished the exchange."""
    names = (place.name, *(f"{place.name}.{number}" for number in range(2, 1000)))
    if os.path.lexists(place):
        place.rename(aside / next(name for name in names if not os.path.lexists(aside / name)))


def _place(staged: Path, home: Path) -> None:
    """Keys and configuration, where there are none; another file system, so copied and linked into place."""
    for file in disk.files(staged) if staged.is_dir() else ():
        folders.make(home)
        copied = home / f".{file.name}.restoring"
        copied.unlink(missing_ok=True)
        disk.copy(file, copied)
        with suppress(FileExistsError):
            os.link(copied, home / file.name)
        copied.unlink()
        folders.sync(home)
    disk.remove_tree(staged)
