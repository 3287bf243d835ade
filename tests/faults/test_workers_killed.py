"""kill -9 over four workers of a mixed load: queues with limits, schedules, timers, signals, children.

Whatever is killed and whenever: what was acknowledged is there and ends, what was confirmed is not run again, limits
hold, every instant of a schedule has one flow, and the store verifies. HOLDPROOF_KILLS says how many kills; by default
there are few.
"""

import os
import random
import select
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.filling import settled
from holdproof import sync
from holdproof.db import Tx, sql
from holdproof.model.times import to_micros
from tests.conformance.decisions import OnPostgres, OnSqlite, OnStore
from tests.faults import mixed_worker
from tests.faults.children import Child, child
from tests.faults.mixed_worker import EACH, RATED, SHARED, SIGNALS, World

KILLS = int(os.environ.get("HOLDPROOF_KILLS", "8"))
WORKERS = 4
SEED = 18
ALL_AT_ONCE = 3
EACH_AT_ONCE = 2
RATE = 10
RATE_PERIOD_S = 1.0
_STUCK_S = 120


# --- the workers ---------------------------------------------------------------------------------------------------


@dataclass
class Member:
    """A worker of the fleet, and what it has acknowledged so far."""

    process: Child
    stack: ExitStack
    data: bytes = b""
    acknowledged_at: float | None = None

    @property
    def lines(self) -> list[str]:
        """Every whole line; one that a kill cut short was not acknowledged."""
        return self.data.decode().split("\n")[:-1]


@dataclass
class Fleet:
    """Four worker processes; one that is killed is replaced."""

    words: tuple[str, ...]
    members: list[Member] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    dead: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """When killed processes were gone, by their id: the system gives an id to another one after a while."""
    started: int = 0

    def start(self) -> None:
        """Start one more worker."""
        stack = ExitStack()
        process = stack.enter_context(child("mixed_worker", *self.words, f"{SEED} {self.started}"))
        self.started += 1
        self.members.append(Member(process, stack))

    def listen(self, seconds: float) -> None:
        """Take in what the workers acknowledge, for that long at most."""
        pipes = {member.process.pipe.fileno(): member for member in self.members}
        for pipe in select.select([*pipes], [], [], seconds)[0]:
            chunk = os.read(pipe, 1 << 16)
            assert chunk, "a worker ended by itself"
            member = pipes[pipe]
            member.data += chunk
            member.acknowledged_at = member.acknowledged_at or time.monotonic()

    def kill(self, member: Member) -> None:
        """kill -9; what it had acknowledged counts."""
        self.members.remove(member)
        pid = member.process.process.pid
        member.process.kill()
        self.dead[str(pid)].append(time.monotonic())
        while chunk := os.read(member.process.pipe.fileno(), 1 << 16):
            member.data += chunk
        self._dismiss(member)

    def join(self) -> None:
        """Wait for workers that were asked to end."""
        for member in self.members:
            member.process.process.join(60)
            assert member.process.process.exitcode == 0
            self._dismiss(member)
        self.members = []

    def _dismiss(self, member: Member) -> None:
        self.acknowledged += member.lines
        member.stack.close()

    def dismiss_all(self) -> None:
        """Leave no process behind."""
        for member in self.members:
            member.stack.close()


@contextmanager
def fleet(*words: str) -> Iterator[Fleet]:
    """Four workers, none of which is left when the block is."""
    workers = Fleet(words)
    try:
        for _ in range(WORKERS):
            workers.start()
        yield workers
    finally:
        workers.dismiss_all()


# --- what happened in the world ------------------------------------------------------------------------------------


@dataclass
class Chronicle:
    """What the flows did to the world, in its order."""

    path: Path
    offset: int = 0
    runs: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    """The tokens of each step that ran, in order, by flow and step."""
    confirmed: dict[tuple[str, str], str] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    """Lines of steps that ran although they had been confirmed."""
    spans: list[tuple[float, str, str, str]] = field(default_factory=list)
    """When, which process, which flow, and whether it begins or ends."""

    def read(self) -> None:
        """Take in what was written since."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.decode().splitlines():
            self._take(line)

    def _take(self, line: str) -> None:
        at, pid, flow_id, what, *words = line.split(" ")
        if what in ("begins", "ends", "lost"):
            self.spans.append((float(at), pid, flow_id, what))
            return
        key, token = words
        if what == "ran":
            if (flow_id, key) in self.confirmed:
                self.repeated.append(line)
            self.runs[flow_id, key].append(token)
        else:
            self.confirmed[flow_id, key] = token

    def most_at_once(self, flows: set[str], dead: dict[str, list[float]], *, each: bool) -> int:
        """Return how many of the flows ran at once, over all processes or in `each`.

        What a killed process had begun counts until it was gone; what lost its lease had no place from then on.
        """
        open_spans: dict[tuple[str, str], float] = {}
        events: list[tuple[float, int, str]] = []
        for at, pid, flow_id, what in self.spans:
            if flow_id not in flows:
                continue
            if what == "begins":
                open_spans[pid, flow_id] = at
                continue
            begin = open_spans.pop((pid, flow_id))
            if what == "ends":
                events += [(begin, 1, pid), (at, -1, pid)]
        for (pid, _), begin in open_spans.items():
            events += [(begin, 1, pid), (min(at for at in dead[pid] if at >= begin), -1, pid)]
        counts: Counter[str] = Counter()
        most = 0
        for _, change, pid in sorted(events):
            counts[pid if each else ""] += change
            most = max(most, *counts.values())
        return most


# --- the test ------------------------------------------------------------------------------------------------------

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


class WorkersKilled(OnStore):
    @pytest.mark.timeout(7200)
    def test_a_mixed_load_survives_kills_of_its_workers(self, tmp_path: Path) -> None:
        chance = random.Random(SEED)
        world = World(tmp_path)
        chronicle = Chronicle(tmp_path / "log")
        target: dict[str, Any] = self.target()
        with self.open() as store:
            first_instant = prepare(store, world)
            with fleet(str(target["home"]), str(target.get("url", "")), str(tmp_path)) as workers:
                for number in range(KILLS):
                    kill_one(workers, store, chronicle, chance)
                    (tmp_path / "kills").write_text(f"{number + 1}")
                store.schedules.pause("tick")
                world.stop()
                drain(workers, store, chronicle)
                world.end()
                workers.join()
            rows = [FlowRow(*row) for row in store.read(lambda tx: tx.all(_FLOWS))]
            judge_flows(store, rows, workers.acknowledged, chronicle)
            judge_limits(rows, chronicle, workers.dead)
            judge_instants(store, rows, first_instant)
            settled(store)
            report = store.verify.run(full=True, lock=False)
            assert report.findings == [], report.to_dict()
            print(f"{KILLS} kills, {len(rows)} flows, {len(workers.acknowledged)} acknowledgements")


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
    return [(queue, worker, int(count)) for queue, worker, count in tx.all(_LIVE, now=tx.now)]


def judge_leases(leases: Iterable[tuple[str, str, int]]) -> None:
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


def judge_instants(store: sync.Holdproof, rows: list[FlowRow], first: str) -> None:
    """Every instant from the first to the last fired one has exactly one flow."""
    fired = sorted(store.flows.result(row.flow_id)[0] for row in rows if row.created_by_id == "tick")
    seconds = [to_micros(at) / 1e6 for at in fired]
    begin = to_micros(first) / 1e6
    assert seconds == [begin + number for number in range(len(fired))]
    assert store.schedules.get("tick").fired_until >= fired[-1]


class TestSqlite(OnSqlite, WorkersKilled): ...


class TestPostgres(OnPostgres, WorkersKilled): ...


# --- the judges can fail ---------------------------------------------------------------------------------------------


def chronicle_of(folder: Path, *lines: str) -> Chronicle:
    (folder / "log").write_text("".join(f"{line}\n" for line in lines))
    chronicle = Chronicle(folder / "log")
    chronicle.read()
    return chronicle


def test_a_confirmed_step_that_runs_again_is_noticed(tmp_path: Path) -> None:
    chronicle = chronicle_of(tmp_path, "1 7 f ran pay a", "2 7 f confirmed pay a", "3 8 f ran pay b")
    assert chronicle.repeated == ["3 8 f ran pay b"]
    assert chronicle.runs["f", "pay"] == ["a", "b"]


def test_flows_that_run_at_once_are_counted_until_their_process_is_gone(tmp_path: Path) -> None:
    chronicle = chronicle_of(tmp_path, "1 7 f begins", "2 8 g begins", "3 8 g ends", "5 8 h begins", "6 8 h ends")
    assert chronicle.most_at_once({"f", "g", "h"}, {"7": [0.5, 4.0, 9.0]}, each=False) == 2
    assert chronicle.most_at_once({"f", "h"}, {"7": [0.5, 4.0, 9.0]}, each=False) == 1
    assert chronicle.most_at_once({"f", "g", "h"}, {"7": [0.5, 4.0, 9.0]}, each=True) == 1


@pytest.mark.parametrize(
    "leases", [[(SHARED, "a", 2), (SHARED, "b", 2)], [(EACH, "a", 3)]], ids=["over all workers", "of one worker"]
)
def test_a_lease_too_many_is_noticed(leases: list[tuple[str, str, int]]) -> None:
    with pytest.raises(AssertionError):
        judge_leases(leases)


def test_a_start_too_many_is_noticed(tmp_path: Path) -> None:
    moments = [f"2026-01-01T00:00:00.{number:06}Z" for number in range(RATE + 1)]
    rows = [FlowRow(moment, "mail", "COMPLETED", moment, None, RATED) for moment in moments]
    with pytest.raises(AssertionError, match="more than 10 starts"):
        judge_limits(rows, chronicle_of(tmp_path), {})
    judge_limits(rows[:RATE], chronicle_of(tmp_path), {})
