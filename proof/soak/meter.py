"""What a store costs while it lives: memory, files, threads, and how long each act takes."""

import gc
import math
import os
import sys
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import apsw

from holdproof import sync
from holdproof.config import Paths

_KEPT: Final = ("log_leaves", "log_tiles", "log_stems", "prunings", "battles", "object_versions", "escalation_budget")
"""Tables of which nothing is removed: the log, what was let go, signed evidence; that an object had a version which was
pruned; and what agents spent, since a window may be of any length."""
_TABLES: Final = (
    "SELECT s.tbl_name, sum(d.pgsize) FROM dbstat d JOIN sqlite_schema s ON s.name = d.name"
    " WHERE d.aggregate = TRUE GROUP BY s.tbl_name"
)
_MB: Final = 1e6
MACHINE: Final = "ten bare rows, ms"
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

Sample = dict[str, float]


class Series:
    """Samples, kept so that they themselves are no growth to speak of: one block of numbers each."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._rows: list[array[float]] = []

    def add(self, sample: Sample) -> None:
        """Keep a sample; what it does not say is not a number."""
        self.lines += [line for line in sample if line not in self.lines]
        self._rows.append(array("d", [sample.get(line, math.nan) for line in self.lines]))

    def __len__(self) -> int:
        return len(self._rows)

    def points(self, line: str) -> list[tuple[float, float]]:
        """When a line was sampled, and what it was."""
        at = self.lines.index(line)
        return [(row[0], row[at]) for row in self._rows if len(row) > at and not math.isnan(row[at])]

    def values(self, line: str) -> list[float]:
        """A line alone; empty for one that was never sampled."""
        return [value for _, value in self.points(line)] if line in self.lines else []

    def groups(self, most: int) -> Iterator[Sequence[Sample]]:
        """Neighbours together, at most so many groups."""
        size = -(-len(self._rows) // most) or 1
        for at in range(0, len(self._rows), size):
            yield [dict(zip(self.lines, row, strict=False)) for row in self._rows[at : at + size]]


class Meter:
    """Takes samples; whoever works notes how long it took."""

    def __init__(self, store: sync.Holdproof) -> None:
        self._store, self._paths = store, store.core.paths
        self._lock = threading.Lock()
        self._taken: defaultdict[str, list[float]] = defaultdict(list)
        self.counts: defaultdict[str, int] = defaultdict(int)
        self._hand = ThreadPoolExecutor(1)
        self._beside = apsw.Connection(str(self._paths.data.parent / "bare.db"))
        self._beside.execute("PRAGMA journal_mode=WAL; CREATE TABLE bare (x)").fetchall()
        self._spent_s, self._done = time.process_time(), 0

    def close(self) -> None:
        """Let go of what it measures beside."""
        self._hand.shutdown()
        self._beside.close()

    def note(self, act: str, seconds: float) -> None:
        """An act is done."""
        with self._lock:
            self._taken[act].append(seconds)
            self.counts[act] += 1

    def sample(self, at_s: float) -> Sample:
        """How things stand, and how long acts took since the last sample."""
        gc.collect()  # what only waits to be collected is no leak
        found = {"at_s": round(at_s, 1), **_process(), **_files(self._paths), **self._tables()}
        found[MACHINE] = self._bare()
        found["CPU ms an act, upkeep and all"] = self._cost()
        with self._lock:
            taken, self._taken = self._taken, defaultdict(list)
        for act, seconds in taken.items():
            ordered = sorted(seconds)
            found[f"{act} p50 ms"] = round(1000 * ordered[len(ordered) // 2], 3)
            found[f"{act} p99 ms"] = round(1000 * ordered[len(ordered) * 99 // 100], 3)
        return found

    def _cost(self) -> float:
        """What an act took of the processor since the last sample; others on the machine are not in it."""
        spent_s, done = time.process_time(), sum(self.counts.values())
        cost = 1000 * (spent_s - self._spent_s) / max(1, done - self._done)
        self._spent_s, self._done = spent_s, done
        return round(cost, 3)

    def _bare(self) -> float:
        """Ten rows without us, each handed to another thread and back: how busy others keep the machine."""
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(10):
                self._hand.submit(self._row).result()
            taken.append(time.perf_counter() - began)
        self._hand.submit(self._beside.execute, "DELETE FROM bare").result()
        return round(1000 * sorted(taken)[len(taken) // 2], 3)

    def _row(self) -> None:
        self._beside.execute("INSERT INTO bare VALUES (1)")

    def _tables(self) -> Sample:
        connection = apsw.Connection(str(self._paths.kernel_db), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            sizes = {str(name): int(size) for name, size in connection.execute(_TABLES)}
        finally:
            connection.close()
        leaves = self._store.log.head().checkpoint.size
        kept = sum(sizes.get(name, 0) for name in _KEPT)
        return {
            "kernel, what may go MB": round((sum(sizes.values()) - kept) / _MB, 3),
            "kernel, bytes a leaf kept for good": round(kept / leaves, 1),
            "leaves": leaves,
        }


def _process() -> Sample:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "memory MB": round(pages * _PAGE / _MB, 2),
        "Python blocks": sys.getallocatedblocks(),
        "open files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


def _files(paths: Paths) -> Sample:
    def size(*found: Path) -> float:
        return round(sum(_size(each) for each in found) / _MB, 3)

    databases = (paths.kernel_db, paths.membrane_db, paths.telemetry_db)
    return {
        "kernel.db MB": size(paths.kernel_db),
        "membrane.db MB": size(paths.membrane_db),
        "telemetry.db MB": size(paths.telemetry_db),
        "write-ahead logs MB": size(*(each.with_name(f"{each.name}-wal") for each in databases)),
        "blobs MB": size(*paths.blobs.rglob("*")),
        "images MB": size(*paths.images.rglob("*")),
        "image files": sum(1 for each in paths.images.rglob("*") if each.is_file()),
        "cache MB": size(*paths.cache.rglob("*")),
        "heads MB": size(paths.heads),
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # removed meanwhile
        return 0
