"""What must hold after every step, looked at past the runtime: in the rows themselves, in one snapshot.

Rules:
- No resource is out beyond its capacity; what is exclusive has one holder; fencing tokens only grow.
- A flow moves along legal edges only, each transition from where the one before ended, at the moment it happened.
- A step is begun, and ends once; it is begun again only out of an unknown outcome. What it gave is what was executed.
- A question is settled once, by a person before its deadline or by its deadline after; budgets are never overdrawn.
- A completed or compensated flow holds no lock; a flow under way has a lease, one that waits has a question.
- The log only grows, and its head is the root of the leaves that are there.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from holdproof.crypto import checkpoint, frontier, merkle
from holdproof.crypto.frontier import Frontier
from holdproof.db import Call, Row, Tx, Write, sql
from holdproof.evidence import tree
from holdproof.model.flows import is_legal
from holdproof.model.times import later
from holdproof.runtime.escalations import EXHAUSTED, WINDOW_S
from proof.simulation.engine import Engine, Task
from proof.simulation.world import StepKey, World

PER_HOUR: Final = 3
"""The budget of every agent: DIR's."""
_DEFAULTS: Final = {"reject": "REJECTED", "approve": "APPROVED", "cancel": "CANCELLED"}
_STEP_EDGES: Final = {
    "": {"STARTED"},
    "STARTED": {"STARTED", "DONE", "FAILED", "UNKNOWN"},
    "UNKNOWN": {"STARTED", "DONE", "FAILED"},
    "DONE": set[str](),
    "FAILED": set[str](),
}
_EVERY: Final = 500

_MOVES = sql(
    "SELECT id, dfid, from_status, to_status, created_at FROM flow_transitions WHERE id > :last ORDER BY id LIMIT 1000"
)
_LOCKS = sql(
    "SELECT l.resource_id, l.dfid, l.amount, l.capacity, l.fence, f.status FROM resource_locks l"
    " JOIN decision_flows f ON f.dfid = l.dfid WHERE l.expires_at IS NULL OR l.expires_at > :now"
)
_STEPS = sql("SELECT name, n, state, leaf_ver, result FROM flow_steps WHERE dfid = :dfid")
_ASKED = sql("SELECT id, agent_id, opened_by, comment FROM escalation_requests WHERE id > :last ORDER BY id")
_PENDING = sql("SELECT id FROM escalation_requests WHERE status = 'PENDING'")
_SETTLED = sql("SELECT status, resolved_by, resolved_at, deadline, on_deadline FROM escalation_requests WHERE id = :id")
_SPENT = sql("SELECT count(*) FROM escalation_budget WHERE agent_id = :agent_id AND created_at > :since")
_LEAVES = sql("SELECT leaf FROM log_leaves WHERE idx >= :first ORDER BY idx")
_LOST = sql(
    "SELECT f.dfid, f.status FROM decision_flows f WHERE"
    " (f.status IN ('RUNNING', 'COMPENSATING') AND NOT EXISTS (SELECT 1 FROM flow_leases l WHERE l.dfid = f.dfid))"
    " OR (f.status = 'WAITING_ESCALATION' AND NOT EXISTS"
    " (SELECT 1 FROM escalation_requests e WHERE e.dfid = f.dfid AND e.status = 'PENDING'))"
)


@dataclass(slots=True)
class Rules:
    """What is known of the store from step to step."""

    engine: Engine
    world: World
    status: dict[str, str] = field(default_factory=dict)
    fences: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    holders: dict[tuple[str, int], str] = field(default_factory=dict)
    """Which flow had which fencing token."""
    steps: dict[StepKey, tuple[str, int]] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)
    log: Frontier = frontier.EMPTY
    _move: int = 0
    _asked: int = 0

    def after(self, task: Task) -> None:
        """Look at all that the step may have changed."""
        if isinstance(task.effect, Write | Call):
            self.engine.store.read(lambda tx: self.look(tx, task.flow_id))
        if self.engine.counts["steps"] % _EVERY == 0:
            self.engine.store.read(self.lost)

    def look(self, tx: Tx, flow_id: str) -> None:
        """Whether every rule holds that a step may have broken, in this flow or anywhere."""
        self._locks(tx)
        self._moves(tx)
        self._steps(tx, flow_id)
        self._questions(tx)
        self._log(tx)
        self.engine.counts["checks"] += 5

    def _locks(self, tx: Tx) -> None:
        held: defaultdict[str, list[Row]] = defaultdict(list)
        for row in tx.all(_LOCKS, now=tx.now):
            held[row[0]].append(row)
        for resource, rows in held.items():
            out = sum(float(row[2]) for row in rows)
            shared = [float(row[3]) for row in rows if row[3] is not None]
            if out > min(shared, default=out) or (len(rows) > 1 and len(shared) < len(rows)):
                self.engine.break_("a resource is out beyond its capacity", resource, [*map(tuple, rows)])
            if ended := [row[1] for row in rows if row[5] in {"COMPLETED", "COMPENSATED"}]:
                self.engine.break_("a flow that has ended holds a lock", resource, ended)
            self._fences(resource, rows)

    def _fences(self, resource: str, rows: list[Row]) -> None:
        """A token that nobody had before is greater than all that were there."""
        fresh = [row for row in rows if self.holders.get((resource, row[4])) != row[1]]
        if any(row[4] <= self.fences[resource] for row in fresh):
            self.engine.break_("a fencing token did not grow", resource, fresh, self.fences[resource])
        self.holders |= {(resource, row[4]): row[1] for row in fresh}
        self.fences[resource] = max(self.fences[resource], *(row[4] for row in rows))

    def _moves(self, tx: Tx) -> None:
        for number, flow_id, before, after, at in tx.all(_MOVES, last=self._move):
            self._move = number
            if before != self.status.get(flow_id, "CREATED") or not is_legal(before, after):
                self.engine.break_("a flow moved along no legal edge", flow_id, before, after, self.status.get(flow_id))
            if at != tx.now:
                self.engine.break_("a transition is not of its moment", flow_id, at, tx.now)
            self.status[flow_id] = after
            self.engine.counts["transitions"] += 1

    def _steps(self, tx: Tx, flow_id: str) -> None:
        for name, n, state, ver, result in tx.all(_STEPS, dfid=flow_id) if flow_id else ():
            key = (flow_id, name, n)
            before, seen = self.steps.get(key, ("", 0))
            if ver == seen:
                continue
            if state not in _STEP_EDGES[before] or ver != seen + 1:
                self.engine.break_("a step went a way that there is not", *key, before, state, seen, ver)
            self.world.begun[key] += state == "STARTED"
            self.steps[key] = (state, ver)
            given = None if result is None else json.loads(result)
            if state == "DONE" and not _by_hand(given) and not self.world.done[key]:
                self.engine.break_("a step is done that was never executed", *key)
            if state == "DONE" and isinstance(given, int) and given not in self.world.done[key]:
                self.engine.break_("a step gave what was never executed", *key, given)

    def _questions(self, tx: Tx) -> None:
        for number, agent, opened_by, comment in tx.all(_ASKED, last=self._asked):
            self._asked = number
            self.pending.add(number)
            if opened_by == "agent" and comment != EXHAUSTED:
                self._budget(tx, agent)
        pending = {row[0] for row in tx.all(_PENDING)}
        for number in sorted(self.pending ^ pending):
            row = tx.one(_SETTLED, id=number)
            if row is None or number in pending:
                self.engine.break_("a question was settled and is open again, or gone", number)
            elif (told := _unfair(*row)) is not None:
                self.engine.break_(told, number, *row)
            self.engine.counts["questions settled"] += 1
        self.pending = pending

    def _budget(self, tx: Tx, agent: str) -> None:
        [(spent,)] = tx.all(_SPENT, agent_id=agent, since=later(tx.now, -WINDOW_S))
        if not 0 < spent <= PER_HOUR:
            self.engine.break_("a budget is overdrawn, or a question cost nothing", agent, spent)

    def _log(self, tx: Tx) -> None:
        now = tree.state(tx)
        if now.size == self.log.size:
            return
        fresh = [row[0].encode() for row in tx.all(_LEAVES, first=self.log.size)][: now.size - self.log.size]
        self.log = frontier.append(self.log, merkle.leaf_hashes(fresh)).frontier
        said = checkpoint.parse(now.head.encode()).checkpoint
        if not said.size == now.size == self.log.size or said.root != self.log.root():
            self.engine.break_("the head of the log is not the root of its leaves", said.size, self.log.size)
            self.log = frontier.from_bytes(now.frontier)
        self.engine.counts["log leaves"] = now.size

    def lost(self, tx: Tx) -> None:
        """Whether every flow will be taken up by somebody."""
        for flow_id, status in tx.all(_LOST):
            self.engine.break_("a flow is lost: nobody will ever take it up", flow_id, status)
        self.engine.counts["checks"] += 1


def _by_hand(given: Any) -> bool:
    return isinstance(given, dict) and "by hand" in given


def _unfair(status: str, by: str, at: str, deadline: str | None, default: str) -> str | None:
    """What is wrong with the way a question was settled."""
    if by == "deadline":
        if deadline is None or at < deadline:
            return "a deadline took effect before it came"
        return None if status == _DEFAULTS[default] else "a deadline did not take its default"
    if by != "kernel" and deadline is not None and at >= deadline:
        return "a person answered after the deadline"
    return None
