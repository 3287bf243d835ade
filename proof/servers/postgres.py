"""PostgreSQL behind a network that fails, and a server that is killed: a chapter of the scenario for every fault.

After each fault the network is good again, and the store is opened anew, past the proxy: the oracle finds everything
acknowledged, nothing half there and nothing twice, the whole store verifies, and the store that went through it works.
"""

import os
import random
import shutil
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from holdfast import errors, sync
from holdfast.db.postgres import asking
from proof import scenario
from proof.oracle import Oracle, told
from proof.servers.tally import Tally
from proof.servers.tcp import DOWN, KINDS, UP, Fault, Proxy, to_unix
from tests.servers import Postgres

CHAPTERS: Final = ("decisions", "guards", "evidence", "memory", "threads", "services", "upkeep")
SERVER: Final = ("kill backend", "kill server", "restart fast", "restart immediate")
ALL: Final = (*KINDS, *SERVER)
_SILENCE_S: Final = 1.0
_HUNG_S: Final = 120.0
_ROUNDS_A_STORE: Final = 12
_WRITERS: Final = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'holdfast-%-%-%' ORDER BY backend_start"


class Ground:
    """A server, a proxy before it, and a database in it, new now and then."""

    def __init__(self, server: Postgres, folder: Path) -> None:
        self.server, self._folder = server, folder
        self.proxy = Proxy(to_unix(server.socket))
        self._made = 0

    def fresh(self) -> None:
        """Another database and another home."""
        self._made += 1
        self.name = f"p{uuid.uuid4().hex[:12]}"
        self.home = self._folder / f"home{self._made}"
        self.outside = self._folder / f"outside{self._made}"
        self.outside.mkdir(parents=True)
        self.server.sql(f"CREATE DATABASE {self.name}")

    def drop(self) -> None:
        """Let go of what `fresh` made."""
        self.server.sql(f"DROP DATABASE {self.name} WITH (FORCE)")
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.rmtree(self.outside, ignore_errors=True)

    def through(self) -> sync.Holdfast:
        """The store, by way of the proxy."""
        url = f"postgresql://postgres@127.0.0.1:{self.proxy.port}/{self.name}?sslmode=disable&gssencmode=disable"
        return sync.open(self.home, url, workers=2, readers=1)

    def past(self) -> sync.Holdfast:
        """The store, past the proxy."""
        return sync.open(self.home, self.server.url(self.name), workers=1, readers=1)

    def kill_backend(self) -> None:
        """SIGKILL to one that works for a writer; the server ends all others and starts anew."""
        with psycopg.connect(self.server.url(self.name)) as connection:
            pids = [pid for (pid,) in connection.execute(_WRITERS).fetchall()]
        if pids:
            os.kill(pids[0], signal.SIGKILL)


@contextmanager
def hurried() -> Iterator[None]:
    """A server that says nothing is asked after sooner than users would want it."""
    usual, asking.SILENCE_S = asking.SILENCE_S, _SILENCE_S
    try:
        yield
    finally:
        asking.SILENCE_S = usual


def run(
    tally: Tally, server: Postgres, folder: Path, seed: int, rounds: int, kinds: tuple[str, ...], first: int = 0
) -> None:
    """So many rounds, each kind of fault in turn; `first` begins later, to see one again."""
    ground = Ground(server, folder)
    with hurried():
        try:
            for begun in range(first, first + rounds, _ROUNDS_A_STORE):
                _store(tally, ground, seed, range(begun, min(begun + _ROUNDS_A_STORE, first + rounds)), kinds)
        finally:
            ground.proxy.close()


def _store(tally: Tally, ground: Ground, seed: int, rounds: range, kinds: tuple[str, ...]) -> None:
    """Some rounds on one store, which is opened once and has to live through all of them."""
    ground.fresh()
    try:
        oracle, store = Oracle(), ground.through()
        try:
            sizes = _measure(ground, store, oracle, seed)
            for number in rounds:
                if not _round(tally, ground, store, oracle, Round(seed, number, kinds, sizes)):
                    return
        finally:
            ground.proxy.heal()
            store.close()
    finally:
        ground.drop()


class Round:
    """What a round is about; all of it follows from the seed and its number."""

    def __init__(self, seed: int, number: int, kinds: tuple[str, ...], sizes: dict[str, dict[str, int]]) -> None:
        chance = random.Random(f"{seed} {number}")
        self.kind = kinds[number % len(kinds)]
        self.chapter = chance.choice(CHAPTERS)
        self.name, self.seed = f"r{number}", seed
        way = DOWN if self.kind.endswith(DOWN) else UP
        self.after, self.lasts_s = chance.randrange(sizes[self.chapter][way]), chance.uniform(0.05, 2.0)
        self.again = f"--only postgres --seed {seed} --round {number}"

    def fault(self, ground: Ground) -> Fault:
        """What strikes, and after how many bytes."""
        acts: dict[str, Callable[[], None]] = {
            "kill backend": ground.kill_backend,
            "kill server": ground.server.kill,
            "restart fast": ground.server.restart,
            "restart immediate": lambda: ground.server.restart("immediate"),
        }
        return Fault(self.kind, self.after, self.lasts_s, acts.get(self.kind))

    def operations(self) -> scenario.Chapter:
        """The chapter, under the name of the round."""
        found = [each for each in scenario.chapters(self.seed, self.name) if each.name == self.chapter]
        return found[0]


def _measure(ground: Ground, store: sync.Holdfast, oracle: Oracle, seed: int) -> dict[str, dict[str, int]]:
    """Play everything once without any fault: how many bytes each chapter takes."""
    sizes = {}
    for chapter in scenario.chapters(seed, f"m{ground.name}"):
        before = dict(ground.proxy.carried)
        failed = scenario.play(chapter, store, ground.outside, oracle.hear)
        assert not failed, f"{chapter.name} fails without any fault"
        sizes[chapter.name] = {way: ground.proxy.carried[way] - before[way] for way in before}
    return sizes


def _round(tally: Tally, ground: Ground, store: sync.Holdfast, oracle: Oracle, this: Round) -> bool:
    """One fault in one chapter, and what it left; False if nothing more can be done with this store."""
    before, refused = oracle.acknowledged, list[Exception]()
    fault = this.fault(ground)
    playing = threading.Thread(target=_play, args=(this.operations(), store, ground.outside, oracle.hear, refused))
    ground.proxy.arm(fault)
    healing = threading.Timer(this.lasts_s, lambda: None)
    playing.start()
    if fault.kind == "stall all" and ground.proxy.struck.wait(_HUNG_S):
        healing = threading.Timer(this.lasts_s, ground.proxy.heal)
        healing.start()
    playing.join(_HUNG_S)
    struck = ground.proxy.struck.is_set()
    ground.proxy.heal()
    healing.cancel()
    if playing.is_alive():
        tally.blame("postgres", this.kind, "hung", f"{this.chapter} had no end in {_HUNG_S:g} s", this.again)
        return False
    done = oracle.acknowledged - before
    tally.count("postgres", this.kind, injected=int(struck), acknowledged=done, refused=len(refused))
    for error in refused:
        if not isinstance(error, errors.HoldfastError):
            tally.blame("postgres", this.kind, "untyped", f"{this.chapter}: {error!r}", this.again)
    _inspect(tally, ground, oracle, this)
    return True


def _play(
    chapter: scenario.Chapter, store: sync.Holdfast, outside: Path, tell: scenario.Tell, refused: list[Exception]
) -> None:
    """As `scenario.play`; what callers were refused with is kept, unless the scenario itself could not go on."""
    world = scenario.World(store, outside)
    for operation in chapter.operations:
        tell(told("begun", operation.name, operation.facts))
        try:
            learned = operation.run(world) or ()
        except Exception as error:
            tell(told("failed", operation.name))
            if not _own(error):
                refused.append(error)
        else:
            tell(told("done", operation.name, learned))


def _own(error: Exception) -> bool:
    """Whether it was the scenario that found nothing to go on with, because what came before had failed."""
    trace: Any = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return bool(trace.tb_frame.f_code.co_filename == scenario.__file__)


def _inspect(tally: Tally, ground: Ground, oracle: Oracle, this: Round) -> None:
    """Open the store anew, past the proxy, and ask everybody."""
    with ground.past() as fresh:
        found = oracle.check(fresh)
        report = fresh.verify.run(full=True, lock=False)
    for line in found.lost:
        tally.blame("postgres", this.kind, "lost", line, this.again)
    for line in found.partial:
        tally.blame("postgres", this.kind, "twice" if _twice(line) else "partial", line, this.again)
    if not report.verdict.sound:
        found_there = [each.to_dict() for each in report.findings[:3]]
        tally.blame("postgres", this.kind, "undetected", f"{report.verdict.word}: {found_there}", this.again)


def _twice(line: str) -> bool:
    """Whether what is wrong is that something is there as often again."""
    return '["VALID", "VALID"]' in line or line.startswith(("event ", "question ", "span "))
