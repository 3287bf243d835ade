"""Who else there is: clients that submit flows, keepers that take up what others left, operators, sweepers."""

from functools import partial
from typing import Any

from holdproof.db import Read, Work, Write, ask
from holdproof.db.effects import call
from holdproof.errors import (
    AlreadyResolvedError,
    CompensationFailedError,
    ConflictError,
    DeadlinePassedError,
    HoldproofError,
    IllegalTransitionError,
    NotFoundError,
)
from holdproof.model.coordination import Escalation
from holdproof.runtime import (
    agents,
    escalations,
    flow_search,
    flows,
    functions,
    idempotency,
    inbox,
    leases,
    sagas,
    sweeps,
)
from holdproof.runtime.functions import FunctionSpec, LeasedCall
from proof.simulation.acts import KEY_TTL_S, Scene
from proof.simulation.engine import HOUR, WEEK, Script
from proof.simulation.flows import FUNCTION, conduct, within
from proof.simulation.world import TroubleError


def client(scene: Scene, agent: str, every_s: float, worker: str) -> Script:
    """An agent's program: on some Monday mornings, as all others do, it opens a flow, or a few at once."""
    engine = scene.engine
    while True:
        monday = WEEK - engine.passed_s % WEEK + engine.rng.expovariate(1 / 600)
        yield engine.sleep(monday + WEEK * round(engine.rng.expovariate(WEEK / every_s)))
        if scene.closing:
            return
        for _ in range(1 if engine.rng.random() < 0.8 else 4):
            flow_id = scene.next_flow(agent)
            if engine.rng.random() < 0.5:
                engine.spawn(worker, conduct(scene, flow_id, agent=agent, worker=worker), flow_id=flow_id)
            elif (yield from call(scene.submit, agent, flow_id)):
                scene.conduct(flow_id)
            scene.outbox.pop(agent, None)


def keeper(scene: Scene, worker: str) -> Script:
    """Take up flows whose worker is gone, and those that were submitted and never begun; two may do so at once."""
    engine = scene.engine
    kind = FunctionSpec(*FUNCTION, lease_s=0.5 * HOUR, agent_id=None)
    while True:
        yield engine.sleep(engine.rng.uniform(1, 12) * HOUR)
        for orphan in (yield from ask(Read(lambda tx: leases.orphans(tx, limit=20)))):
            engine.counts["orphans"] += 1
            if orphan.name is None or engine.rng.random() < 0.2:
                scene.conduct(orphan.flow_id)
        while taken := (
            yield from ask(Write(lambda tx: functions.lease_orphan(tx, kind, worker, "main", suspends=False)))
        ):
            assert isinstance(taken, LeasedCall), "nobody edits records here"
            engine.counts["recovered"] += 1
            engine.spawn(worker, within(scene, taken.run), flow_id=taken.run.lease.flow_id)
        waiting = yield from ask(Read(lambda tx: flow_search.list(tx, status="CREATED", limit=20)))
        for flow in waiting.items:
            scene.conduct(flow.flow_id)


def sweeper(scene: Scene, _: str) -> Script:
    """Put away what time has ended; after that nothing is overdue that was so when it began."""
    while True:
        yield scene.engine.sleep(scene.engine.rng.uniform(4, 24) * HOUR)
        began = yield from ask(Read(lambda tx: tx.now))
        swept = yield from sweeps.run()
        scene.engine.counts["deadlines swept"] += swept.escalations
        late = yield from ask(Read(lambda tx: inbox.list(tx, status="PENDING", order="due", limit=1)))
        for asked in late.items:
            if asked.deadline is not None and asked.deadline <= began:
                scene.engine.break_("a deadline was not honoured", asked.id, asked.deadline)


def operator(scene: Scene, name: str, _: str) -> Script:
    """A person: answers what is asked, mends what is dirty or unknown, lets agents in again, cancels now and then."""
    engine = scene.engine
    while True:
        yield engine.sleep(engine.rng.uniform(1, 12) * HOUR)
        asked = yield from ask(Read(lambda tx: inbox.list(tx, status="PENDING", limit=40)))
        for one in asked.items:
            if engine.rng.random() < 0.7:
                yield from _answer(scene, name, one)
        dirty = yield from ask(Read(lambda tx: sagas.list(tx, limit=10)))
        for flow in dirty.items:
            yield from _mend(scene, name, flow.flow_id)
        for key in sorted(scene.unknown):
            yield from _settle(scene, key)
        suspended = yield from ask(Read(lambda tx: agents.list(tx, status="SUSPENDED", limit=10)))
        for agent in suspended.items:
            yield from ask(Write(partial(_let_in, agent_id=agent.agent_id)))
            engine.counts["agents let in again"] += 1
        if engine.rng.random() < 0.1:
            yield from _cancel(scene, name)


def _let_in(tx: Any, agent_id: str) -> None:
    agents.set_status(tx, agent_id, "ACTIVE", reason="spoken to")


def _answer(scene: Scene, name: str, asked: Escalation) -> Work[None]:
    """Answer after a while: others may be faster, or the deadline."""
    rng = scene.engine.rng
    yield scene.engine.sleep(rng.expovariate(1 / HOUR))
    how: dict[str, Any] = {"by": name}
    if asked.kind == "in_doubt":
        how["decision"] = rng.choices(("did_not_happen", "happened", "undo"), (6, 2, 2))[0]
        how |= {"result": {"by hand": asked.id}} if how["decision"] == "happened" else {}
    else:
        how["decision"] = rng.choices(("approve", "reject", "cancel"), (8, 1, 1))[0]
        changes = how["decision"] == "approve" and rng.random() < 0.2
        how |= {"proposal": {"by hand": asked.id}} if changes else {}
    try:
        yield from ask(Write(partial(escalations.resolve, id=asked.id, **how)))
        scene.engine.counts["answers"] += 1
    except (AlreadyResolvedError, DeadlinePassedError) as error:
        scene.engine.counts[f"answers refused: {error.code}"] += 1


def _mend(scene: Scene, name: str, flow_id: str) -> Work[None]:
    """Undo what a flow could not undo itself; it may fail, or another operator may be at it."""
    rng = scene.engine.rng
    strategy = rng.choices(("REVERT", "CLOSE_ALL", "NOOP", "ALERT_HUMAN", "clear"), (5, 3, 2, 0.3, 1))[0]
    fails = rng.random() < 0.2 and not scene.closing

    def undo(_: Any) -> bool:
        if fails and rng.random() < 0.5:
            raise TroubleError("still broken")
        return not fails

    try:
        if strategy == "clear":
            yield from ask(Write(partial(sagas.clear, flow_id=flow_id, by=name)))
        else:
            fn = undo if strategy in {"REVERT", "CLOSE_ALL"} else None
            yield from sagas.compensate(flow_id, strategy, fn, worker=name, lease_s=HOUR)
        scene.world.mended.add(flow_id)
        scene.engine.counts["mended"] += 1
    except (CompensationFailedError, ConflictError, NotFoundError, IllegalTransitionError) as error:
        scene.engine.counts[f"not mended: {error.code}"] += 1


def _settle(scene: Scene, key: str) -> Work[None]:
    """Say what became of a call whose outcome is unknown, or free its key."""
    known = scene.world.keys[key]
    try:
        if scene.engine.rng.random() < 0.5:
            known.settled.append("by hand")
            known.expires = scene.engine.clock.micros + round(KEY_TTL_S * 1e6)
            yield from ask(Write(partial(idempotency.settle, key=key, result="by hand", ttl_s=KEY_TTL_S)))
        else:
            known.allowed += 1
            yield from ask(Write(partial(idempotency.delete, key=key)))
        scene.engine.counts["keys settled"] += 1
    except (ConflictError, NotFoundError):
        scene.engine.counts["keys settled already"] += 1
    scene.unknown.discard(key)


def _cancel(scene: Scene, name: str) -> Work[None]:
    page = yield from ask(Read(lambda tx: flow_search.list(tx, status="RUNNING", limit=20)))
    if not page.items:
        return
    flow_id = scene.engine.rng.choice(page.items).flow_id
    try:
        yield from ask(Write(partial(flows.cancel, flow_id=flow_id, reason=f"cancelled by {name}")))
        scene.engine.counts["cancelled"] += 1
    except HoldproofError as error:
        scene.engine.counts[f"not cancelled: {error.code}"] += 1
