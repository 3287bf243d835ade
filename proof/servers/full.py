"""A disk that fills up while something is written: at every page of it, or at every so many bytes.

After each try: nothing but whole files under final names and no temporary ones, what was there before still good, the
error typed and with a remedy. At the end of a walk there is room enough, and the same call on the same store succeeds.

Walks are made in a process of their own: a limit on the size of files holds for all of a process.
"""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from holdproof import errors
from proof.servers.control_files import ACTS, Act
from proof.servers.full_disk import Ceiling, Room, Volume, can_mount
from proof.servers.tally import Tally

ROOMS: Final[dict[str, Callable[[Path], Room]]] = {"size": Ceiling, "volume": Volume}
_MOST: Final = 64 << 20
_ASIDE: Final = "import sys; from proof.servers import full; full.main(sys.argv[1:])"


def run(tally: Tally, folder: Path, seed: int, tries: int) -> None:
    """Every act in every room we may have; `tries` is how many fillings of each, 0 for all of them."""
    rooms = list(ROOMS) if can_mount(folder / "probe") else ["size"]
    if len(rooms) == 1:
        tally.skipped.append("a volume that is full: only root may mount one; the limit on file sizes stood in")
    for room in rooms:
        walk_aside(tally, folder / room, room, tuple(ACTS), seed, tries)


def walk_aside(tally: Tally, folder: Path, room: str, acts: tuple[str, ...], seed: int, tries: int) -> None:
    """Walks in a process of their own."""
    words = [str(folder), room, ",".join(acts), str(seed), str(tries)]
    done = subprocess.run([sys.executable, "-c", _ASIDE, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        tally.blame("disk", room, "untyped", done.stderr[-2000:], f"--place disk --seed {seed}")
    else:
        tally.take(json.loads(done.stdout))


def walk(tally: Tally, folder: Path, room_name: str, act_name: str, seed: int, tries: int) -> None:
    """One act, at less and less full a disk, until it succeeds."""
    chance = random.Random(f"{seed} {room_name} {act_name}")
    room = ROOMS[room_name](folder / "disk")
    (folder / "disk").mkdir(parents=True, exist_ok=True)
    again = f"--place disk --seed {seed}"
    place = f"disk: {act_name}"
    try:
        act = ACTS[act_name](folder / "home", folder / "disk")
        with act.opened():
            act.prepare()
            for left in _fillings(act, room, chance, tries):
                problem = _tried(act, room, left)
                tally.count(place, room.name, injected=1, refused=1)
                if problem is not None:
                    tally.blame(place, room.name, *problem, again=f"{again} (with {left} bytes left)")
            problem = _at_last(act)
            tally.count(place, room.name, acknowledged=1)
            if problem is not None:
                tally.blame(place, room.name, *problem, again=again)
    finally:
        room.close()


def _fillings(act: Act, room: Room, chance: random.Random, tries: int) -> Iterator[int]:
    """How much room is left at each try: every amount that is not enough, or some of them."""
    enough = _enough(act, room)
    every = range(0, enough, room.step)
    yield from sorted(chance.sample(every, min(tries, len(every)))) if tries else every


def _enough(act: Act, room: Room) -> int:
    """The least that the act is done with, a step at a time; found by halving, each try on a state as before."""
    low, high = 0, room.step
    while not _succeeds(act, room, high):
        low, high = high, high * 2
        assert high < _MOST, "it fails whatever room there is"
    while high - low > room.step:
        middle = (low + high) // 2 // room.step * room.step
        low, high = (low, middle) if _succeeds(act, room, middle) else (middle, high)
    return high


def _succeeds(act: Act, room: Room, left: int) -> bool:
    try:
        with room.only(left):
            act.do()
    except errors.HoldproofError:
        return False
    act.undo()
    return True


def _tried(act: Act, room: Room, left: int) -> tuple[str, str] | None:
    """One try on a full disk; what went wrong beyond its failing."""
    try:
        with room.only(left):
            act.do()
    except errors.HoldproofError as error:
        if not isinstance(error, errors.DiskFullError) or not error.remedy:
            return "untyped", f"{type(error).__name__}: {error}"
    except Exception as error:
        return "untyped", f"{type(error).__name__}: {error}"
    else:  # it needed less than last time; that is no failure
        act.undo()
        return None
    return _harm(act)


def _at_last(act: Act) -> tuple[str, str] | None:
    """With room enough the same call succeeds, and the whole store verifies."""
    try:
        act.do()
    except Exception as error:
        return "lost", f"the next try with room enough failed: {type(error).__name__}: {error}"
    if (problem := act.after()) is not None:
        return "partial", problem
    report = act.store.verify.run(full=True, lock=False)
    return None if report.verdict.sound else ("undetected", f"the store does not verify: {report.to_dict()}")


def _harm(act: Act) -> tuple[str, str] | None:
    try:
        return act.harm()
    except Exception as error:
        return "lost", f"what was there before cannot be read: {type(error).__name__}: {error}"


def main(words: list[str]) -> None:
    """Some walks; their tally as JSON."""
    folder, room, acts, seed, tries = words
    tally = Tally()
    for act in acts.split(","):
        walk(tally, Path(folder, act), room, act, int(seed), int(tries))
    print(json.dumps(tally.given()))
