"""Slower disks for every contestant alike: a preloaded shim that sleeps after fsync and fdatasync."""

import os
import shutil
import sqlite3  # noqa: TID251 -- a peer, not the product
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

_SOURCE = Path(__file__).with_name("slowsync.c")
_MARK = "SLOWSYNC_US"


class SlowSyncError(Exception):
    """The shim cannot be built, or does not work here."""


def active() -> bool:
    """Whether this process runs under the shim."""
    return _MARK in os.environ


def run_again(arguments: Sequence[str], fsync_ms: float) -> int:
    """Run `python -m bench` once more, under the shim; returns its exit code."""
    with tempfile.TemporaryDirectory(prefix="bench-slowsync-") as folder:
        os.chmod(folder, 0o755)  # the PostgreSQL server runs as another user and must read it
        library = _compile(Path(folder))
        environment = {**os.environ, "LD_PRELOAD": str(library), _MARK: str(round(fsync_ms * 1000))}
        return subprocess.run([sys.executable, "-m", "bench", *arguments], env=environment, check=False).returncode


def _compile(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux"):
        raise SlowSyncError("--fsync-ms works on Linux only (it preloads a shim)")
    if compiler is None:
        raise SlowSyncError("--fsync-ms needs a C compiler (cc); install one or leave the option out")
    library = folder / "slowsync.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise SlowSyncError(f"the shim does not compile: {built.stderr.strip()}")
    library.chmod(0o755)
    return library


def check(fsync_ms: float) -> dict[str, float]:
    """How long one durable commit takes, in ms; an error if the shim does not slow both SQLite libraries."""
    with tempfile.TemporaryDirectory(prefix="bench-sync-") as folder:
        took = {name: _commit_ms(Path(folder, name), opener) for name, opener in _OPENERS.items()}
        took["fdatasync"] = _fdatasync_ms(Path(folder, "plain"))
    late = [name for name, ms in took.items() if ms < fsync_ms]
    if late:
        raise SlowSyncError(f"the shim does not reach {', '.join(late)}: figures would not be comparable")
    return {name: round(ms, 3) for name, ms in took.items()}


def _open_sqlite3(path: Path) -> Callable[[str], object]:
    return sqlite3.connect(path, isolation_level=None).execute


def _open_apsw(path: Path) -> Callable[[str], object]:
    return apsw.Connection(str(path)).execute


_OPENERS: dict[str, Callable[[Path], Callable[[str], object]]] = {
    "sqlite3": _open_sqlite3,
    "apsw": _open_apsw,
}


def _commit_ms(path: Path, opener: Callable[[Path], Callable[[str], object]]) -> float:
    execute = opener(path)
    for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE t(a)"):
        execute(statement)
    return _median_ms(lambda: execute("INSERT INTO t VALUES (1)"))


def _fdatasync_ms(path: Path) -> float:
    with path.open("wb", buffering=0) as file:

        def append() -> None:
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())

        return _median_ms(append)


def _median_ms(act: Callable[[], object], times: int = 9) -> float:
    took = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        took.append((time.perf_counter() - start) * 1000)
    return statistics.median(took)
