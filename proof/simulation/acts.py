"""What agents do in a flow: a plan drawn from the flow's name, so that whoever takes it up again does the same.

Everything here is the runtime's own code (`runs`, `steps`, `locks`, `idempotency`, `state`), one effect at a time.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from holdproof.db import Read, Work, Write, ask
from holdproof.errors import (
    AgentInactiveError,
    AlreadyExistsError,
    ContentionTimeoutError,
    InsufficientCapacityError,
    ReplayedError,
    StaleVersionError,
    UnknownOutcomeError,
)
from holdproof.runtime import flow_steps, flows, idempotency, lock_waits, retries, runs, sagas, state
from holdproof.runtime.flow_run import FlowRun
from proof.simulation.engine import DAY, HOUR, Engine
from proof.simulation.world import TroubleError, World

CAPACITY: Final = 10.0
PURSE: Final = 100
KEY_TTL_S: Final = 5 * DAY
_POOLS: Final = tuple(f"pool {number}" for number in range(3))
_ROOMS: Final = tuple(f"room {number}" for number in range(3))
_WORDS: Final = ("step",) * 5 + ("undoable",) * 4 + ("lock", "lock", "ask", "once", "once", "spend", "think")
_RARE: Final = ("child", "reject", "trouble", "dirty")


@dataclass(slots=True)
class Scene:
    """What scripts share: the engine, the world, and which flows to take up."""

    seed: int
    engine: Engine
    world: World
    conduct: Callable[[str], None] = lambda _: None
    """Lets some worker take a flow up."""
    closing: bool = False
    unknown: set[str] = field(default_factory=set)
    """Keys whose callers were told that their outcome is unknown."""
    outbox: dict[str, str] = field(default_factory=dict)
    """What each agent was about to submit: a program that died before it heard submits that again."""
    numbers: Counter[str] = field(default_factory=Counter)

    def next_flow(self, agent: str) -> str:
        """The name of the flow that an agent submits next."""
        if agent not in self.outbox:
            self.numbers[agent] += 1
            self.outbox[agent] = f"{agent} {self.numbers[agent]:05}"
        return self.outbox[agent]

    def submit(self, agent: str, flow_id: str, *, parent: str | None = None) -> bool:
        """Submit a flow, as often as it takes: the second time it is there already. False if the agent may not."""
        kind = "child" if parent else "submitted"
        try:
            self.engine.store.flows.start(agent, flow_id=flow_id, parent=parent, flow_type=kind)
        except AlreadyExistsError:
            self.engine.counts["submitted again"] += 1
        except AgentInactiveError:
            return False
        self.world.submitted.add(flow_id)
        return True

    def plan(self, flow_id: str) -> tuple[list[str], random.Random]:
        """What a flow does, in order, the same for everyone; and what else is drawn for it."""
        rng = random.Random(f"{self.seed} {flow_id}")
        words = [rng.choice(_RARE if rng.random() < 0.12 else _WORDS) for _ in range(rng.randint(1, 6))]
        if flow_id.count("/") > 1:
            words = [word for word in words if word != "child"]
        if "undoable" in words:  # a flow whose steps are undone is marked by the runtime itself
            words = [word for word in words if word != "dirty"]
        return words, rng


def play(scene: Scene, run: FlowRun) -> Work[None]:
    """Do all that is planned for a flow."""
    words, rng = scene.plan(run.lease.flow_id)
    for number, word in enumerate(words):
        act = Act(scene, run, random.Random(rng.random()), f"{word}{number}")
        yield from getattr(act, word)()


@dataclass(slots=True)
class Act:
    """One thing that is done in a flow."""

    scene: Scene
    run: FlowRun
    rng: random.Random
    name: str

    @property
    def flow_id(self) -> str:
        """The flow."""
        return self.run.lease.flow_id

    @property
    def agent(self) -> str:
        """Whose flow it is."""
        return self.flow_id.partition(" ")[0]

    def count(self, what: str) -> None:
        """Count what happened."""
        self.scene.engine.counts[what] += 1

    def step(self, *, undo: bool = False) -> Work[None]:
        """A step, which may fail; what it does may be undone, and the undoing may fail."""
        policy = self.rng.choice(("ask", "ask", "retry", "fail"))
        act = partial(self.scene.world.act, self.flow_id, self.name, 1, fails=self.rng.random() < 0.06)
        back = partial(self.scene.world.act, self.flow_id, f"undo {self.name}", 1, fails=self.rng.random() < 0.1)
        caught = (TroubleError, ReplayedError) if self.rng.random() < 0.3 else ()
        compensate: Callable[[Any], Any] | None = (lambda _: back()) if undo else None
        try:
            yield from flow_steps.step(self.run, self.name, act, compensate=compensate, on_unknown=policy)  # type: ignore[arg-type]
        except caught:
            self.count("failures caught")

    def undoable(self) -> Work[None]:
        """A step that is undone if the flow fails."""
        yield from self.step(undo=True)

    def lock(self) -> Work[None]:
        """Some of a pool or two, or a room; more than there is, now and then."""
        rng = self.rng
        wanted = {pool: float(rng.randint(1, 6)) for pool in rng.sample(_POOLS, rng.randint(1, 2))}
        capacity: dict[str, float] = dict.fromkeys(wanted, CAPACITY)
        if rng.random() < 0.5:
            wanted, capacity = {rng.choice(_ROOMS): 1.0}, {}
        if rng.random() < 0.03:
            wanted, capacity = {_POOLS[0]: CAPACITY + 1}, {_POOLS[0]: CAPACITY}
        options = {"capacity": capacity, "ttl_s": rng.choice((HOUR, 6 * HOUR, 3 * DAY))}
        try:
            yield from lock_waits.lock(self.run, wanted, timeout_s=rng.choice((0.0, 60.0, 2 * HOUR)), **options)
            self.count("locks granted")
        except (ContentionTimeoutError, InsufficientCapacityError) as error:
            self.count(f"locks refused: {error.code}")
            if rng.random() < 0.5:
                raise

    def ask(self) -> Work[None]:
        """A question to a person, with a deadline or without."""
        rng = self.rng
        options: dict[str, Any] = {"deadline_s": rng.choice((None, 2 * HOUR, DAY)), "proposal": {"n": rng.randrange(9)}}
        options |= {"on_deadline": rng.choice(("reject", "approve", "cancel"))}
        self.count("questions")
        yield from runs.approve(self.run, self.name, **options, impact=rng.choice(("LOW_IMPACT", "HIGH_IMPACT")))

    def once(self) -> Work[None]:
        """A call that all flows of three days make together."""
        key = f"key {self.scene.engine.passed_s // (3 * DAY):.0f} {self.rng.randrange(3)}"
        replay = self.rng.random() < 0.5
        act = partial(self.scene.world.call, key, ttl_s=KEY_TTL_S, fails=self.rng.random() < 0.1, replay=replay)
        on_error: idempotency.OnError = "replay" if replay else "retry"
        known = self.scene.world.keys[key]
        try:
            given = yield from idempotency.once(key, key, act, ttl_s=KEY_TTL_S, lease_s=HOUR, on_error=on_error)
        except (TroubleError, ReplayedError):
            self.count("keys failed")
        except UnknownOutcomeError:
            self.count("keys unknown")
            self.scene.unknown.add(key)
        else:
            self.count("keys answered")
            if given not in known.executions and given not in known.settled:
                self.scene.engine.break_("a key gave what was never executed", key, given)

    def spend(self) -> Work[None]:
        """Spend from the agent's purse, once for this purpose; others spend from it at the same time."""
        agent, purpose, amount = self.agent, f"{self.flow_id} {self.name}", self.rng.randint(1, 30)
        for _ in range(9):
            purse = yield from ask(Read(lambda tx: state.get(tx, agent)))
            spent: dict[str, int] = purse.data
            if purpose not in spent and sum(spent.values()) + amount > PURSE:
                self.count("purses empty")
                return
            if purpose not in spent:
                news, seen = {**spent, purpose: amount}, purse.version
                try:
                    yield from ask(Write(partial(state.update, agent_id=agent, data=news, expected_version=seen)))
                except StaleVersionError:
                    self.count("purses stale")
                    continue
            self.scene.world.spent.setdefault(agent, {})[purpose] = amount
            return

    def think(self) -> Work[None]:
        """Nothing, for a while."""
        yield self.scene.engine.sleep(self.rng.uniform(60, HOUR))
        yield from runs.beat(self.run)

    def child(self) -> Work[None]:
        """Delegate to a flow of its own, and wait for its end, for a day or two at most."""
        flow_id, child, scene = self.flow_id, f"{self.flow_id}/{self.name}", self.scene

        def delegate() -> int:
            scene.submit(self.agent, child, parent=flow_id)
            return scene.world.act(flow_id, self.name, 1)

        yield from flow_steps.step(self.run, self.name, delegate, on_unknown="retry")
        if child not in scene.world.submitted:
            return
        self.count("children")
        scene.conduct(child)
        for _ in range(12):
            flow = yield from ask(Read(lambda tx: flows.get(tx, child)))
            if flow.ended:
                return
            yield scene.engine.sleep(self.rng.uniform(60, 4 * HOUR))
            yield from runs.beat(self.run)

    def reject(self) -> Work[None]:
        """An intent that is rejected now and then, and at last once too often."""
        flow_id, policy = self.flow_id, self.rng.choice(("EXPONENTIAL_BACKOFF", "LINEAR", "NONE"))
        for _ in range(self.rng.randint(1, 4)):
            yield from ask(Write(lambda tx: retries.reject(tx, flow_id, policy=policy, base_s=60)))
            self.count("rejections")
            while not (yield from ask(Read(lambda tx: retries.allowed(tx, flow_id)))):
                yield self.scene.engine.sleep(self.rng.uniform(30, 120))
                yield from runs.beat(self.run)

    def trouble(self) -> Work[None]:
        """Most of the time, an end that nobody expected."""
        if self.rng.random() < 0.7:
            raise TroubleError("as planned")
        yield from runs.beat(self.run)

    def dirty(self) -> Work[None]:
        """A flow that knows by itself what is to be undone, and fails."""
        flow_id, name = self.flow_id, self.name
        yield from ask(Write(lambda tx: sagas.mark_dirty(tx, flow_id, name, {"by": "itself"})))
        raise TroubleError("half way")
