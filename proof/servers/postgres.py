"""PostgreSQL behind a network that fails, and a server that is killed: one fault after the other in a whole scenario.

After each round the network is good again, and the store is opened anew, past the proxy: the oracle finds everything
acknowledged, nothing half there and nothing twice, and the whole store verifies.
"""

import logging
import os
import random
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg

from harness.servers import Postgres
from harness.tcp_proxy import DOWN, KINDS, UP, Fault, Proxy, to_unix
from holdproof import errors, sync
from holdproof.db.postgres import liveness
from proof import scenario
from proof.oracle import Oracle, told
from proof.servers.concurrent_callers import ConcurrentCallers
from proof.servers.tally import Tally

SERVER: Final = ("kill backend", "kill server", "restart fast", "restart immediate")
ALL: Final = (*KINDS, *SERVER)
_SILENCE_S: Final = 1.0
_HUNG_S: Final = 120.0
_STORMS: Final = 3
"""Every third round is one of many callers."""
_TURNS: Final = 60
_BYTES: Final = {UP: 4_000, DOWN: 7_000}
"""How much is carried between two faults, on the average."""
_WRITERS: Final = (
    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'holdproof-%-%-%' ORDER BY backend_start"
)


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
        self.outside = self._folder / f"store{self._made}"
        self.home = self.outside / "home"
        self.outside.mkdir(parents=True)
        self.server.sql(f"CREATE DATABASE {self.name}")

    def drop(self) -> None:
        """Let go of what `fresh` made."""
        self.server.sql(f"DROP DATABASE {self.name} WITH (FORCE)")
        shutil.rmtree(self.outside, ignore_errors=True)

    def through(self) -> sync.Holdproof:
        """The store, by way of the proxy."""
        url = f"postgresql://postgres@127.0.0.1:{self.proxy.port}/{self.name}?sslmode=disable&gssencmode=disable"
        return sync.open(self.home, url, workers=2, readers=1)

    def past(self) -> sync.Holdproof:
        """The store, past the proxy; a transaction whose client is gone holds its locks until the server ends it."""
        deadline = time.monotonic() + _HUNG_S
        while True:
            try:
                return sync.open(self.home, self.server.url(self.name), workers=1, readers=1)
            except errors.BusyError:
                if time.monotonic() > deadline:
                    raise

    def kill_backend(self) -> None:
        """SIGKILL to one that works for a writer; the server ends all others and starts anew."""
        with suppress(psycopg.OperationalError), psycopg.connect(self.server.url(self.name)) as connection:
            pids = [pid for (pid,) in connection.execute(_WRITERS).fetchall()]
            if pids:
                os.kill(pids[0], signal.SIGKILL)
            for _ in range(200 if pids else 0):  # until this one is ended as well
                connection.execute("SELECT 1")
                time.sleep(0.05)

    def ready(self) -> None:
        """Wait until the server takes connections; one that is stopped while it recovers may never end."""
        deadline = time.monotonic() + _HUNG_S
        while time.monotonic() < deadline:
            with suppress(psycopg.OperationalError), psycopg.connect(self.server.url(), connect_timeout=5):
                return
            time.sleep(0.05)


@contextmanager
def hurried() -> Iterator[None]:
    """A server that says nothing is asked after sooner than users would want it."""
    usual, liveness.SILENCE_S = liveness.SILENCE_S, _SILENCE_S
    try:
        yield
    finally:
        liveness.SILENCE_S = usual


@contextmanager
def _quiet() -> Iterator[None]:
    """What fails here is meant to."""
    log = logging.getLogger("holdproof")
    usual = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(usual)


def run(
    tally: Tally,
    server: Postgres,
    folder: Path,
    seed: int,
    rounds: int,
    kinds: tuple[str, ...] = ALL,
    first: int = 0,
    titles: tuple[str, ...] = (),
) -> None:
    """So many rounds of the whole scenario, or of some chapters; `first` begins later, to see one again."""
    ground = Ground(server, folder)
    with hurried(), _quiet():
        try:
            for number in range(first, first + rounds):
                attack = Attack(tally, ground, seed, number, kinds)
                if number % _STORMS == _STORMS - 1:
                    _storm(ground, attack)
                    continue
                chapters = scenario.chapters(seed, f"r{number}")
                _round(ground, attack, [each for each in chapters if not titles or each.name in titles])
        finally:
            ground.proxy.close()


def _round(ground: Ground, attack: "Attack", chapters: list[scenario.Chapter]) -> None:
    """Chapters under one fault after the other, on one store that has to live through all of them."""
    ground.fresh()
    try:
        store = ground.through()
        try:
            refused = list[Exception]()
            given = chapters, store, ground.outside, attack.hear, refused
            answered = attack.under(lambda: _play(*given))
            attack.refused(refused)
        finally:
            ground.proxy.heal()
            store.close()
        if answered:
            _inspect(ground, attack)
    finally:
        ground.drop()


def _storm(ground: Ground, attack: "Attack") -> None:
    """Many callers at once."""
    ground.fresh()
    try:
        store = ground.through()
        try:
            storm = ConcurrentCallers(_TURNS, attack.heard)
            answered = attack.under(lambda: storm.on(store))
            attack.refused(storm.refused)
        finally:
            ground.proxy.heal()
            store.close()
        if answered:
            with ground.past() as fresh:
                for harm, what in storm.harms(fresh):
                    attack.blame(harm, what)
            _inspect(ground, attack)
    finally:
        ground.drop()


class Attack:
    """Faults of one round, one armed when the one before has struck; all follows from the seed and the number."""

    def __init__(self, tally: Tally, ground: Ground, seed: int, number: int, kinds: tuple[str, ...]) -> None:
        self._tally, self._ground, self._chance = tally, ground, random.Random(f"{seed} {number}")
        self._kinds, self._weights = kinds, [1 if kind in SERVER else 3 for kind in kinds]
        self._over, self._acted = threading.Event(), threading.Event()
        self._heard_at = time.monotonic()
        self.kind, self.oracle, self.struck = "", Oracle(), list[str]()
        self.again = f"--place postgres --seed {seed} --place-round {number}"

    def under(self, work: Callable[[], None]) -> bool:
        """Attack while somebody works; False if somebody never got an answer."""
        playing = threading.Thread(target=work, daemon=True)
        striking = threading.Thread(target=self._strike, daemon=True)
        striking.start()
        playing.start()
        while playing.is_alive() and time.monotonic() - self._heard_at < _HUNG_S:
            playing.join(0.2)
        self._over.set()
        striking.join(_HUNG_S)
        if playing.is_alive() or striking.is_alive():
            self.blame("hung", f"no answer in {_HUNG_S:g} s")
            return False
        return True

    def refused(self, found: list[Exception]) -> None:
        """Count errors, each of which must have a type."""
        self._tally.count("postgres", self.kind, refused=len(found))
        for error in found:
            if isinstance(error, scenario.DoneTwiceError):
                self.blame("twice", str(error))
            elif not isinstance(error, errors.HoldproofError):
                self.blame("untyped", repr(error))

    def hear(self, line: dict[str, Any]) -> None:
        """What the scenario says."""
        self._heard_at = time.monotonic()
        self.oracle.hear(line)
        if "done" in line:
            self.heard()

    def heard(self) -> None:
        """Somebody got an answer."""
        self._heard_at = time.monotonic()
        if self.kind:
            self._tally.count("postgres", self.kind, acknowledged=1)

    def _strike(self) -> None:
        """Arm, wait, let it last, heal, and again."""
        proxy = self._ground.proxy
        while not self._over.is_set():
            fault = self._next()
            self.kind = fault.kind
            proxy.arm(fault)
            while not proxy.struck.wait(0.02) and not self._over.is_set():
                pass
            if proxy.struck.is_set():
                self.struck.append(fault.kind)
                self._tally.count("postgres", fault.kind, injected=1)
                self._over.wait(fault.lasts_s)
                if fault.act is not None:
                    self._acted.wait(_HUNG_S)
            proxy.heal()

    def _next(self) -> Fault:
        [kind] = self._chance.choices(self._kinds, self._weights)
        after = int(self._chance.expovariate(1 / _BYTES[DOWN if kind.endswith(DOWN) else UP]))
        self._acted.clear()
        acts: dict[str, Callable[[], None]] = {
            "kill backend": self._ground.kill_backend,
            "kill server": self._ground.server.kill,
            "restart fast": self._ground.server.restart,
            "restart immediate": lambda: self._ground.server.restart("immediate"),
        }
        act = acts.get(kind)
        return Fault(kind, after, self._chance.uniform(0.02, 1.0), None if act is None else lambda: self._act(act))

    def _act(self, act: Callable[[], None]) -> None:
        try:
            act()
            self._ground.ready()
        finally:
            self._acted.set()

    def blame(self, harm: str, what: str) -> None:
        """See Tally."""
        self._tally.blame("postgres", self.kind, harm, f"after {', '.join(self.struck)}: {what}", self.again)


def _play(
    chapters: list[scenario.Chapter],
    store: sync.Holdproof,
    outside: Path,
    tell: scenario.Tell,
    refused: list[Exception],
) -> None:
    """As `scenario.play`; what callers were refused with is kept, unless the scenario itself could not go on."""
    world = scenario.World(store, outside)
    for operation in (each for chapter in chapters for each in chapter.operations):
        tell(told("begun", operation.name, operation.facts))
        try:
            learned = operation.run(world) or ()
        except Exception as error:
            tell(told("failed", operation.name))
            if not _own(error):
                refused.append(error)
        else:
            tell(told("done", operation.name, learned))
    if twice := sorted({deed for deed in world.deeds if world.deeds.count(deed) > 1}):
        refused.append(scenario.DoneTwiceError(", ".join(twice)))


def _own(error: Exception) -> bool:
    """Whether it was the scenario that found nothing to go on with, because what came before had failed."""
    trace: Any = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return bool(trace.tb_frame.f_code.co_filename == scenario.__file__)


def _inspect(ground: Ground, attack: Attack) -> None:
    """Open the store anew, past the proxy, and ask everybody."""
    with ground.past() as fresh:
        found = attack.oracle.check(fresh)
        report = fresh.verify.run(full=True, lock=False)
    for line in found.lost:
        attack.blame("lost", line)
    for line in found.partial:
        attack.blame("twice" if _twice(line) else "partial", line)
    if not report.verdict.sound:
        attack.blame("undetected", f"{report.verdict.word}: {[each.to_dict() for each in report.findings[:3]]}")


def _twice(line: str) -> bool:
    """Whether what is wrong is that something is there as often again."""
    return '["VALID", "VALID"]' in line or line.startswith(("event ", "question ", "span "))
