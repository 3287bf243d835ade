"""One run: who is there, how long it goes on, and how it is brought to an end."""

import time
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdproof.evidence import log
from holdproof.testing import FrozenClock
from proof.report import Say
from proof.simulation import ending, people
from proof.simulation.acts import Scene
from proof.simulation.engine import DAY, HOUR, WEEK, Chances, Engine
from proof.simulation.flows import conduct
from proof.simulation.rules import PER_HOUR, Rules
from proof.simulation.simulated_store import Opening
from proof.simulation.world import World

_EFFECTS: Final = 65
"""How many effects a Monday of an agent takes, about: so the steps and days asked for say how often it has one."""
_LAST: Final = 100_000
_VERIFY: Final = 20_000


@dataclass(frozen=True, slots=True)
class Size:
    """How much is simulated."""

    agents: int
    steps: int
    days: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one run; `root` is that of its log at the end."""

    place: str
    counts: dict[str, int]
    broken: list[str]
    root: str
    days: float


def simulate(place: str, opening: Opening, clock: FrozenClock, seed: int, size: Size, say: Say) -> Outcome:
    """One run from beginning to end."""
    scene, rules = begin(opening, clock, seed, size)
    engine = scene.engine
    try:
        while engine.counts["steps"] < size.steps and engine.passed_s < size.days * DAY and engine.step():
            if engine.counts["steps"] % _VERIFY == 0:
                _pause(place, engine, opening)
                say(f"  {place}: {engine.counts['steps']:,} steps, day {engine.passed_s / DAY:.0f}")
        days = engine.passed_s / DAY
        root = end(scene, rules)
        return Outcome(place, dict(engine.counts), engine.broken, root, days)
    finally:
        engine.store.close()


def begin(opening: Opening, clock: FrozenClock, seed: int, size: Size) -> tuple[Scene, Rules]:
    """A store with its agents, workers and people, at the first moment."""
    engine = Engine(opening(), clock, seed, Chances())
    scene = Scene(seed, engine, World(engine.break_, clock))
    rules = Rules(engine, scene.world)
    engine.watch = rules.after
    engine.hire(max(4, size.agents // 20))
    every_s = max(HOUR, size.days * size.agents * _EFFECTS / max(1, size.steps) * DAY - WEEK)
    scene.conduct = lambda flow_id: engine.spawn(engine.someone(), conduct(scene, flow_id), flow_id=flow_id)
    for number in range(size.agents):
        agent = f"a{number:05}"
        engine.store.agents.register(agent, version="1.0.0")
        engine.store.agents.set_budget(agent, per_hour=PER_HOUR, on_exhausted="suspend")
        engine.store.state.put(agent, {})
        engine.post(partial(people.client, scene, agent, every_s))
    for name in ("Ann", "Bob"):
        engine.post(partial(people.keeper, scene))
        engine.post(partial(people.operator, scene, name))
    engine.post(partial(people.sweeper, scene))
    return scene, rules


def _pause(place: str, engine: Engine, opening: Opening) -> None:
    """Verify what there is; a store in a file is closed and opened again before."""
    if place == "file":
        engine.store.close()
        engine.store = opening()
        engine.counts["reopened"] += 1
    _verified(engine, full=False)


def _verified(engine: Engine, *, full: bool) -> None:
    for _ in range(500):  # on PostgreSQL leaves are under a head a moment later
        if not engine.store.read(log.pending):
            break
        time.sleep(0.02)
    report = engine.store.verify.run(full=full, lock=False)
    engine.counts["verifications"] += 1
    for finding in report.findings:
        engine.break_("the store does not verify", finding.place, finding.what)


def end(scene: Scene, rules: Rules) -> str:
    """No more flows, no more crashes: time goes on until all has ended, or clearly never will. The root of the log."""
    engine = scene.engine
    scene.closing, engine.chances = True, Chances(0, 0, 0)
    for number in range(1, _LAST):
        engine.step()
        if number % 200 == 0 and engine.store.read(ending.quiet):
            break
    for finding in engine.store.read(lambda tx: [*ending.findings(tx, rules)]):
        engine.break_(finding)
    _verified(engine, full=True)
    engine.counts["flows"] = len(rules.world.submitted)
    return engine.store.read(log.head).checkpoint.root.hex()
