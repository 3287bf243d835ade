"""kill -9 over four workers of a mixed load: queues with limits, schedules, timers, signals, children.

Whatever is killed and whenever: what was acknowledged is there and ends, what was confirmed is not run again, limits
hold, every instant of a schedule has one flow, and the store verifies.

python -m proof kills --rounds 1000 --database postgres --seed 18
"""

import argparse
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from harness.filling import settled
from holdproof import sync
from holdproof.db import Tx, sql
from holdproof.model.times import to_micros
from proof.report import Proof, Say
from proof.workflows import mixed_worker, sittings
from proof.workflows.chronicle import Chronicle
from proof.workflows.fleet import WORKERS, Fleet, fleet
from proof.workflows.mixed_worker import EACH, RATED, SHARED, SIGNALS, World
from proof.workflows.sittings import Counts, Place, Plan

ALL_AT_ONCE: Final = 3
EACH_AT_ONCE: Final = 2
RATE: Final = 10
RATE_PERIOD_S: Final = 1.0
_STUCK_S: Final = 120


def sitting(place: Place, kills: int, chance: random.Random) -> Counts:
    """Kill workers that many times while they work, let the others finish, and judge everything that was done."""
    world = World(place.folder)
    chronicle = Chronicle(place.folder / "log")
    words = (str(place.home), place.url or "", str(place.folder))
    with place.open() as store:
        first_instant = prepare(store, world)
        with fleet(*words, seed=str(chance.random())) as workers:
            for _ in range(kills):
                kill_one(workers, store, chronicle, chance)
            store.schedules.pause("tick")
            world.stop()
            drain(workers, store, chronicle)
            world.end()
            workers.join()
        rows = [FlowRow(*row) for row in store.read(lambda tx: tx.all(_FLOWS))]
        judge_flows(store, rows, workers.acknowledged, chronicle)
        judge_limits(rows, chronicle, workers.dead)
        fired = judge_instants(store, rows, first_instant)
        settled(store)
        report = store.verify.run(full=True, lock=False)
        assert report.findings == [], report.to_dict()
    return {
        "flows": len(rows),
        "acknowledged": len(workers.acknowledged),
        "steps confirmed": len(chronicle.confirmed),
        "steps run more than once before they were confirmed": sum(len(runs) > 1 for runs in chronicle.runs.values()),
        "instants fired": fired,
        "leases lost": sum(what == "lost" for *_, what in chronicle.spans),
    }


PLAN: Final = Plan(
    "kills",
    "whichever worker is killed and whenever, no acknowledged flow is lost, no confirmed step runs again, no limit of"
    " a queue is exceeded, and every instant of a schedule has one flow",
    sitting,
    rounds=1_000,
    rounds_a_sitting=50,
)


def arguments(parser: Any) -> None:
    """How many kills, on which database, for how long."""
    sittings.arguments(parser, PLAN)


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Kill; the counts."""
    return sittings.run(given, say, PLAN)


# --- kills -----------------------------------------------------------------------------------------------------------

_LIVE = sql(
    "SELECT queue, worker, count(*) FROM flow_leases WHERE worker <> '' AND expires_at > :now AND queue <> ''"
    " GROUP BY queue, worker"
)
_FLOWS = sql(
    "SELECT f.dfid, f.flow_type, f.status, f.started_at, f.created_by_id, c.queue FROM decision_flows f"
    " JOIN flow_calls c ON c.dfid = f.dfid AND c.ns = f.ns ORDER BY f.started_at"
)


@dataclass(frozen=True)
class FlowRow:
    """What is judged of a flow."""

    flow_id: str
    kind: str
    status: str
    started_at: str
    created_by_id: str | None
    queue: str | None


def prepare(store: sync.Holdproof, world: World) -> str:
    """Create queues and schedules; return the first instant."""
    store.agents.register("trader", version="1.0.0")
    store.queues.create(SHARED, concurrency=ALL_AT_ONCE)
    store.queues.create(EACH, worker_concurrency=EACH_AT_ONCE)
    store.queues.create(RATED, rate_limit=RATE, rate_period_s=RATE_PERIOD_S)
    functions = mixed_worker.register(store, world)
    schedule = store.schedules.create(
        "tick", functions["tick"], cron="* * * * * *", catch_up="all", instant_as="at", queue=EACH
    )
    return schedule.next_at


def kill_one(workers: Fleet, store: sync.Holdproof, chronicle: Chronicle, chance: random.Random) -> None:
    """Kill one of the workers, some time after its first acknowledgement, and start another."""
    victim = workers.members[chance.randrange(WORKERS)]
    delay_s = chance.uniform(0, 0.4)
    while victim.acknowledged_at is None or time.monotonic() < victim.acknowledged_at + delay_s:
        workers.listen(0.05)
        attend(store, chronicle)
    workers.kill(victim)
    workers.start()


def attend(store: sync.Holdproof, chronicle: Chronicle) -> None:
    """Answer truthfully what is asked about steps in doubt, and see that no more is leased than limits allow."""
    for asked in store.escalations.list(status="PENDING").items:
        chronicle.read()
        tokens = chronicle.runs[asked.flow_id, asked.context["step"]]
        answer = "happened" if tokens else "did_not_happen"
        store.escalations.resolve(asked.id, answer, by="auditor", result=tokens[-1] if tokens else None)
    judge_leases(store.read(live_leases))


def live_leases(tx: Tx) -> list[tuple[str, str, int]]:
    """How many flows of each queue each worker holds now."""
    return [(queue, worker, int(count)) for queue, worker, count in tx.all(_LIVE, now=tx.now)]


def judge_leases(leases: Iterable[tuple[str, str, int]]) -> None:
    """No more flows are leased than the limits of their queues allow."""
    shared = 0
    for queue, _, count in leases:
        shared += count if queue == SHARED else 0
        assert queue != EACH or count <= EACH_AT_ONCE
    assert shared <= ALL_AT_ONCE


def drain(workers: Fleet, store: sync.Holdproof, chronicle: Chronicle) -> None:
    """Bring what killed submitters left out, and wait until every flow has ended."""
    for row in store.read(lambda tx: tx.all(_FLOWS)):
        flow = FlowRow(*row)
        if flow.kind == "listen":
            for number in range(SIGNALS):
                mixed_worker.signal(store, flow.flow_id, number)
    moved_at = time.monotonic()
    earlier: object = None
    while lengths := store.queues.lengths():
        workers.listen(0.05)
        attend(store, chronicle)
        chronicle.read()
        if (state := (lengths, chronicle.offset)) != earlier:
            earlier = state
            moved_at = time.monotonic()
        assert time.monotonic() < moved_at + _STUCK_S, f"nothing moves any more: {lengths}"


# --- judges --------------------------------------------------------------------------------------------------------


def judge_flows(store: sync.Holdproof, rows: list[FlowRow], acknowledged: list[str], chronicle: Chronicle) -> None:
    """Nothing acknowledged is lost, everything ended as it should, and nothing confirmed ran again."""
    kinds = {row.flow_id: row.kind for row in rows}
    chronicle.read()
    assert [row for row in rows if row.status != "COMPLETED"] == []
    assert chronicle.repeated == []
    asked_for: dict[str, int] = {}
    for line in acknowledged:
        what, flow_id, *words = line.split(" ")
        assert flow_id in kinds, f"{line} was acknowledged and is gone"
        if what == "flow":
            asked_for[flow_id] = int(words[1])
    for row in rows:
        value, tokens = store.flows.result(row.flow_id)
        for key, token in tokens.items():
            # The newest run is the recorded one: a run after it would be one of a confirmed step.
            assert chronicle.runs[row.flow_id, key][-1] == token, (row, key)
        if row.flow_id in asked_for:
            assert value == expected(row, asked_for[row.flow_id])


def expected(row: FlowRow, n: int) -> Any:
    """The value that a flow must have returned which was enqueued with `n`."""
    if row.kind == "listen":
        return [n, *(f"{row.flow_id} {number}" for number in range(SIGNALS))]
    if row.kind == "family":
        return [n, f"{n} here", f"{n} 0", f"{n} 1"]
    return n


def judge_limits(rows: list[FlowRow], chronicle: Chronicle, dead: dict[str, list[float]]) -> None:
    """No limit was exceeded, at any moment."""
    shared = {row.flow_id for row in rows if row.queue == SHARED}
    each = {row.flow_id for row in rows if row.queue == EACH}
    assert chronicle.most_at_once(shared, dead, each=False) <= ALL_AT_ONCE
    assert chronicle.most_at_once(each, dead, each=True) <= EACH_AT_ONCE
    starts = sorted(to_micros(row.started_at) for row in rows if row.queue == RATED)
    for first, beyond in zip(starts, starts[RATE:], strict=False):
        assert beyond - first >= RATE_PERIOD_S * 1e6, f"more than {RATE} starts from {first} to {beyond}"


def judge_instants(store: sync.Holdproof, rows: list[FlowRow], first: str) -> int:
    """Every instant from the first to the last fired one has exactly one flow; how many there are."""
    fired = sorted(store.flows.result(row.flow_id)[0] for row in rows if row.created_by_id == "tick")
    seconds = [to_micros(at) / 1e6 for at in fired]
    begin = to_micros(first) / 1e6
    assert seconds == [begin + number for number in range(len(fired))]
    assert store.schedules.get("tick").fired_until >= fired[-1]
    return len(fired)
