"""One target in a process of its own, so that whatever an input does to it can be seen from outside.

Rules:
- What comes out of a target is a value or a HoldproofError. Anything else is a crash; more than `CPU_S` seconds of work
  is a hang, a peak of memory far beyond the input a blow-up.
- The input at hand lies in a file that is mapped into memory: if the process dies, its parent still has it.
- Inputs that reach lines that no other reached are kept, and damaged further; one in a few is traced for that.
"""

import json
import mmap
import random
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final

from harness.damaged_bytes import mutant
from holdproof.errors import HoldproofError
from proof.fuzz.targets import Target, find

CPU_S: Final = 3.0
MEMORY: Final = 2 << 30
"""How much address space a target may have beyond what it began with."""
PEAK: Final = 96 << 20
"""By how much one input may raise the peak of memory, beside a hundred times its own size."""
HELD: Final = 1 << 20
_TRACED: Final = 8
_KEPT: Final = 300
_FOUND: Final = 10


class HangError(BaseException):
    """An input took too long."""


class Reached:
    """Which lines of ours inputs have reached."""

    def __init__(self) -> None:
        self.lines: set[tuple[int, int]] = set()
        self._fresh = 0

    def trace(self, target: Target, data: bytes) -> bool:
        """Run an input traced; whether it reached a line that none had before."""
        self._fresh = 0
        sys.settrace(self._call)
        try:
            target.run(data)
        finally:
            sys.settrace(None)
        return self._fresh > 0

    @property
    def fresh(self) -> bool:
        """Whether the last one did, though it ended with an error."""
        return self._fresh > 0

    def _call(self, frame: FrameType, *_: Any) -> Any:
        return self._line if "holdproof" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        place = (id(frame.f_code), frame.f_lineno)
        if event == "line" and place not in self.lines:
            self.lines.add(place)
            self._fresh += 1
        return self._line


def fuzz(name: str, seed: int, seconds: float, most: int, held: "mmap.mmap | bytearray") -> dict[str, Any]:
    """Try inputs for so long, or so many; what came of them."""
    target, rng = find(name), random.Random(f"{seed} {name}")
    counts: Counter[str] = Counter()
    found: list[dict[str, str]] = []
    reached, told = Reached(), set[str]()
    target.ready()
    seeds = list(target.seeds())
    corpus, last = list(seeds), time.monotonic() + seconds
    with _limited():
        while time.monotonic() < last and counts["inputs"] < most and len(found) < _FOUND:
            number = counts["inputs"]
            data = seeds[number] if number < len(seeds) else mutant(corpus, target.marks, rng)[:HELD]
            held[: 8 + len(data)] = len(data).to_bytes(8, "big") + data
            counts["inputs"] += 1
            trouble = _tried(target, data, counts, reached, corpus)
            if trouble is not None and trouble.splitlines()[0][:200] not in told:
                told.add(trouble.splitlines()[0][:200])
                found.append({"target": name, "input": data.hex(), "trouble": trouble})
    counts["lines reached"], counts["corpus"] = len(reached.lines), len(corpus)
    return {"counts": dict(counts), "found": found}


def _tried(target: Target, data: bytes, counts: Counter[str], reached: Reached, corpus: list[bytes]) -> str | None:
    """One input; what is wrong with what came of it."""
    before = _peak()
    traced = counts["inputs"] % _TRACED == 0 or counts["inputs"] <= len(corpus)
    signal.setitimer(signal.ITIMER_PROF, CPU_S * (10 if traced else 1))
    trouble: str | None = None
    try:
        reached.trace(target, data) if traced else target.run(data)
        counts["read"] += 1
    except HoldproofError:
        counts["refused"] += 1
    except HangError:
        trouble = f"hang: more than {CPU_S} s of work"
    except MemoryError:
        trouble = "blow-up: out of memory"
    except Exception as error:
        trouble = f"crash: {type(error).__name__} in {_where(error)}: {error!s:.200}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if traced and reached.fresh and len(corpus) < _KEPT:
        corpus.append(data)
    if trouble is None and (grown := _peak() - before) > PEAK + 100 * len(data):
        trouble = f"blow-up: {grown >> 20} MiB for {len(data)} bytes"
    return trouble


def _where(error: BaseException) -> str:
    """The last line of ours that an exception came through."""
    place, step = "", error.__traceback__
    while step is not None:
        path = step.tb_frame.f_code.co_filename
        if "holdproof/" in path or "proof/" in path:
            place = f"{path.rpartition('holdproof/')[2]}:{step.tb_lineno}"
        step = step.tb_next
    return place


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class _limited:
    """Time and memory that an input may use."""

    def __enter__(self) -> None:
        def late(*_: Any) -> None:
            raise HangError

        self._before = signal.signal(signal.SIGPROF, late)
        pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
        self._space = resource.getrlimit(resource.RLIMIT_AS)
        if pages:
            soft = pages * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (soft, self._space[1]))

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._before)
        resource.setrlimit(resource.RLIMIT_AS, self._space)


def main(arguments: list[str]) -> None:
    """`TARGET SEED SECONDS MOST HELD`: fuzz, and print what came of it as JSON."""
    name, seed, seconds, most, path = arguments
    with Path(path).open("r+b") as file, mmap.mmap(file.fileno(), 8 + HELD) as held:
        print(json.dumps(fuzz(name, int(seed), float(seconds), int(most), held)))


if __name__ == "__main__":
    main(sys.argv[1:])
