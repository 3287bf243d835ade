"""Plain Python models of flows, locks, idempotency, escalations, retries and skills, walked beside a real store."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdproof import errors, sync
from holdproof.model.flows import STATUSES, TERMINAL, is_legal
from holdproof.testing import FrozenClock

_PICK = st.integers(0, 10**6)


class Machine(RuleBasedStateMachine):
    """A walk in a store that others walked in before: every walk has an agent of its own."""

    store: ClassVar[sync.Holdproof]
    clock: ClassVar[FrozenClock]
    walks: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        Machine.walks += 1
        self.name, self.now = f"walker{Machine.walks}", 0.0
        self.store.agents.register(self.name, version="1.0.0")

    def running(self) -> str:
        flow_id = self.store.flows.start(self.name).flow_id
        self.store.flows.transition(flow_id, "RUNNING")
        return flow_id

    @rule(seconds=st.sampled_from([1, 5, 10, 30]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.now += seconds


class FlowMachine(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.flows: dict[str, list[str]] = {}

    @rule()
    def start(self) -> None:
        self.flows[self.store.flows.start(self.name).flow_id] = []

    @precondition(lambda self: self.flows)
    @rule(pick=_PICK, to=st.sampled_from(sorted(STATUSES)))
    def move(self, pick: int, to: str) -> None:
        flow_id, path = list(self.flows.items())[pick % len(self.flows)]
        if is_legal(path[-1] if path else "CREATED", to):
            path.append(to)
            assert self.store.flows.transition(flow_id, to).status == to
        else:
            with pytest.raises(errors.IllegalTransitionError):
                self.store.flows.transition(flow_id, to)

    @invariant()
    def the_store_agrees(self) -> None:
        for flow in self.store.flows.list(agent_id=self.name, limit=1000).items:
            path = self.flows[flow.flow_id]
            assert flow.status == (path[-1] if path else "CREATED")
            assert (flow.started_at is not None) == ("RUNNING" in path)
            assert (flow.completed_at is not None) == (flow.status in TERMINAL)
        if self.flows:
            flow_id = next(reversed(self.flows))
            assert [one.to_status for one in self.store.flows.transitions(flow_id)] == self.flows[flow_id]


@dataclass
class Held:
    amount: float
    capacity: float | None
    until: float


class LockMachine(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.flows = [self.running() for _ in range(3)]
        self.held: dict[str, dict[str, Held]] = {"a": {}, "b": {}}
        self.fences = {"a": 0, "b": 0}

    def fits(self, resource: str, flow_id: str, amount: float, capacity: float | None) -> bool:
        others = [held for flow, held in self.alive(resource).items() if flow != flow_id]
        if not others:
            return True
        if capacity is None or any(held.capacity is None for held in others):
            return False
        room = min([capacity, *(held.capacity for held in others if held.capacity is not None)])
        return sum(held.amount for held in others) + amount <= room

    def alive(self, resource: str) -> dict[str, Held]:
        return {flow: held for flow, held in self.held[resource].items() if held.until > self.now}

    @rule(
        pick=_PICK,
        resources=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, 6), min_size=1),
        capacity=st.sampled_from([None, 6, 8, 10]),
        ttl=st.sampled_from([5, 20]),
    )
    def acquire(self, pick: int, resources: dict[str, int], capacity: float | None, ttl: int) -> None:
        flow_id = self.flows[pick % 3]
        wanted = {f"{self.name} {name}": float(amount) for name, amount in resources.items()}
        if not all(self.fits(name, flow_id, amount, capacity) for name, amount in resources.items()):
            with pytest.raises(errors.ContentionTimeoutError):
                self.store.locks.try_acquire(flow_id, wanted, capacity=capacity, ttl_s=ttl)
            return
        for lock in self.store.locks.try_acquire(flow_id, wanted, capacity=capacity, ttl_s=ttl):
            name = lock.resource_id[-1]
            self.held[name][flow_id] = Held(resources[name], capacity, self.now + ttl)
            assert lock.fence > self.fences[name]
            self.fences[name] = lock.fence

    @rule(pick=_PICK, name=st.sampled_from(["a", "b"]))
    def release(self, pick: int, name: str) -> None:
        flow_id = self.flows[pick % 3]
        self.store.locks.release(flow_id, f"{self.name} {name}")
        self.held[name].pop(flow_id, None)

    @rule(pick=_PICK, name=st.sampled_from(["a", "b"]))
    def extend(self, pick: int, name: str) -> None:
        flow_id = self.flows[pick % 3]
        if flow_id in self.alive(name):
            self.store.locks.extend(flow_id, f"{self.name} {name}", ttl_s=20)
            self.held[name][flow_id].until = self.now + 20
        else:
            with pytest.raises(errors.LockLostError):
                self.store.locks.extend(flow_id, f"{self.name} {name}", ttl_s=20)

    @rule(pick=_PICK, end=st.sampled_from(["COMPLETED", "FAILED", "CANCELLED"]))
    def end(self, pick: int, end: str) -> None:
        flow_id = self.flows[pick % 3]
        self.store.flows.transition(flow_id, end)
        for held in self.held.values():
            held.pop(flow_id, None)
        self.flows[pick % 3] = self.running()

    @invariant()
    def the_store_agrees(self) -> None:
        for name in self.held:
            locks = self.store.locks.list(resource=f"{self.name} {name}").items
            assert {lock.flow_id: lock.amount for lock in locks} == {
                flow_id: held.amount for flow_id, held in self.alive(name).items()
            }


@dataclass
class Known:
    request: int
    state: str
    until: float
    result: Any = None


class _CrashError(BaseException):
    """A process that dies while it executes."""


class IdempotencyMachine(Machine):
    TTL, LEASE = 20, 10

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, Known] = {}

    def call(self, key: str, request: int, outcome: str, again: bool, calls: list[int]) -> Any:
        def fn() -> int | None:
            calls.append(1)
            if outcome == "crash":
                raise _CrashError
            if outcome in {"retry", "replay"}:
                raise ZeroDivisionError
            return None if outcome == "none" else len(self.keys)

        return self.store.idempotency.once(
            f"{self.name} {key}",
            request,
            fn,
            ttl_s=self.TTL,
            lease_s=self.LEASE,
            on_error="replay" if outcome == "replay" else "retry",
            on_unknown="retry" if again else "ask",
        )

    @rule(
        key=st.sampled_from(["a", "b"]),
        request=st.sampled_from([1, 1, 1, 2]),
        outcome=st.sampled_from(["value", "none", "crash", "retry", "replay"]),
        again=st.booleans(),
    )
    def once(self, key: str, request: int, outcome: str, again: bool) -> None:
        known, calls = self.keys.get(key), list[int]()
        if known is not None and known.state in {"DONE", "FAILED"} and known.until <= self.now:
            known = None
        if known is not None and known.state == "RUNNING" and known.until > self.now and known.request == request:
            return  # it would wait for the lease, and time stands still
        expected = self.expected(known, request, outcome, again)
        if expected is None:
            assert self.call(key, request, outcome, again, calls) == (
                known.result if known and known.state == "DONE" else None if outcome == "none" else len(self.keys)
            )
        else:
            with pytest.raises(expected):
                self.call(key, request, outcome, again, calls)
        executes = known is None or (known.state == "RUNNING" and again and known.request == request)
        assert len(calls) == executes
        if executes:
            self.learn(key, request, outcome)

    def expected(self, known: Known | None, request: int, outcome: str, again: bool) -> type[BaseException] | None:
        if known is not None:
            if known.request != request:
                return errors.IdempotencyConflictError
            if known.state == "FAILED":
                return errors.ReplayedError
            if known.state == "DONE":
                return None
            if not again:
                return errors.UnknownOutcomeError
        return {"crash": _CrashError, "retry": ZeroDivisionError, "replay": ZeroDivisionError}.get(outcome)

    def learn(self, key: str, request: int, outcome: str) -> None:
        if outcome == "retry":
            self.keys.pop(key, None)
        elif outcome == "crash":
            self.keys[key] = Known(request, "RUNNING", self.now + self.LEASE)
        elif outcome == "replay":
            self.keys[key] = Known(request, "FAILED", self.now + self.TTL)
        else:
            result = None if outcome == "none" else len(self.keys)
            self.keys[key] = Known(request, "DONE", self.now + self.TTL, result)

    @rule(key=st.sampled_from(["a", "b"]))
    def settle(self, key: str) -> None:
        known = self.keys.get(key)
        if known is not None and known.state == "RUNNING" and known.until <= self.now:
            self.store.idempotency.settle(f"{self.name} {key}", "by hand", ttl_s=self.TTL)
            self.keys[key] = Known(known.request, "DONE", self.now + self.TTL, "by hand")
        else:
            with pytest.raises((errors.ConflictError, errors.NotFoundError)):
                self.store.idempotency.settle(f"{self.name} {key}", "by hand", ttl_s=self.TTL)

    @rule(key=st.sampled_from(["a", "b"]))
    def forget(self, key: str) -> None:
        known = self.keys.get(key)
        may = known is not None and (known.state != "RUNNING" or known.until <= self.now)
        assert self.store.idempotency.delete(f"{self.name} {key}") == may
        if may:
            del self.keys[key]


@dataclass
class Asked:
    flow_id: str
    deadline: float
    status: str = "PENDING"


@dataclass
class Agent:
    spent: list[float] = field(default_factory=list)
    suspended: bool = False


class EscalationMachine(Machine):
    BUDGET, WINDOW = 2, 3600

    def __init__(self) -> None:
        super().__init__()
        self.agent, self.asked = Agent(), dict[int, Asked]()

    @rule(deadline=st.sampled_from([5, 20, 1000]))
    def request(self, deadline: int) -> None:
        if self.agent.suspended:
            return
        flow_id = self.running()
        self.store.agents.set_budget(self.name, per_hour=self.BUDGET, on_exhausted="suspend")
        ask: dict[str, Any] = {"reason": "?", "deadline_s": deadline}
        if sum(at > self.now - self.WINDOW for at in self.agent.spent) < self.BUDGET:
            self.agent.spent.append(self.now)
            made = self.store.escalations.request(flow_id, **ask)
            self.asked[made.id] = Asked(flow_id, self.now + deadline)
            return
        with pytest.raises(errors.BudgetExhaustedError):
            self.store.escalations.request(flow_id, **ask)
        self.agent.suspended = True
        assert self.store.flows.get(flow_id).status == "CANCELLED"

    @precondition(lambda self: self.agent.suspended)
    @rule()
    def reinstate(self) -> None:
        assert self.store.agents.get(self.name).suspension_reason == "ESCALATION_BUDGET_EXHAUSTED"
        self.store.agents.set_status(self.name, "ACTIVE")
        self.agent.suspended = False

    @precondition(lambda self: self.asked)
    @rule(pick=_PICK, decision=st.sampled_from(["approve", "reject", "cancel"]))
    def resolve(self, pick: int, decision: str) -> None:
        id, asked = list(self.asked.items())[pick % len(self.asked)]
        if asked.status != "PENDING":
            with pytest.raises(errors.AlreadyResolvedError):
                self.store.escalations.resolve(id, decision, by="ann")
        elif asked.deadline <= self.now:
            with pytest.raises(errors.DeadlinePassedError):
                self.store.escalations.resolve(id, decision, by="ann")
            asked.status = "REJECTED"
        else:
            self.store.escalations.resolve(id, decision, by="ann")
            asked.status = {"approve": "APPROVED", "reject": "REJECTED", "cancel": "CANCELLED"}[decision]

    @precondition(lambda self: self.asked)
    @rule(pick=_PICK)
    def expire(self, pick: int) -> None:
        id, asked = list(self.asked.items())[pick % len(self.asked)]
        if asked.status == "PENDING" and asked.deadline <= self.now:
            asked.status = "REJECTED"
        assert self.store.escalations.expire(id).status == asked.status

    @invariant()
    def the_store_agrees(self) -> None:
        status_after = {"PENDING": "WAITING_ESCALATION", "APPROVED": "RUNNING", "REJECTED": "FAILED"}
        pending = {one.id for one in self.store.escalations.list(status="PENDING", agent_id=self.name).items}
        assert pending == {id for id, asked in self.asked.items() if asked.status == "PENDING"}
        for asked in list(self.asked.values())[-3:]:
            assert self.store.flows.get(asked.flow_id).status == status_after.get(asked.status, asked.status)
        assert (self.store.agents.get(self.name).status == "SUSPENDED") == self.agent.suspended


@dataclass
class Tried:
    count: int = 0
    most: int = 3
    policy: str = "LINEAR"
    free_at: float = 0.0


class RetryMachine(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.tried: dict[str, Tried] = {}

    @rule()
    def start(self) -> None:
        self.tried[self.running()] = Tried()

    @precondition(lambda self: self.tried)
    @rule(
        pick=_PICK,
        most=st.sampled_from([None, 2, 5]),
        policy=st.sampled_from(["LINEAR", "NONE", "EXPONENTIAL_BACKOFF"]),
    )
    def reject(self, pick: int, most: int | None, policy: str) -> None:
        flow_id, tried = list(self.tried.items())[pick % len(self.tried)]
        if tried.count >= tried.most:
            with pytest.raises(errors.FlowEndedError):
                self.store.retries.reject(flow_id, max_retries=most, policy=policy)
            return
        tried.count, tried.most, tried.policy = tried.count + 1, most or tried.most, policy
        retry = self.store.retries.reject(flow_id, max_retries=most, policy=policy, base_s=4)
        longest = {"LINEAR": 4 * tried.count, "NONE": 0, "EXPONENTIAL_BACKOFF": 4 * 2 ** (tried.count - 1)}[policy]
        tried.free_at = self.now + longest
        assert (retry.rejection_count, retry.max_retries, retry.retry_policy) == (tried.count, tried.most, policy)

    @invariant()
    def the_store_agrees(self) -> None:
        for flow_id, tried in list(self.tried.items())[-3:]:
            ended = tried.count >= tried.most
            assert self.store.flows.get(flow_id).status == ("FAILED" if ended else "RUNNING")
            if ended or tried.free_at <= self.now or tried.policy != "EXPONENTIAL_BACKOFF":
                assert self.store.retries.allowed(flow_id) == (not ended and tried.free_at <= self.now)


@dataclass
class SkillModel:
    """A skill file as it lies there, and what was said and found of it."""

    content: bytes | None = None
    linked: bool = False
    approved: bytes | None = None
    listed: bool = False
    locked: bool = False

    @property
    def state(self) -> str:
        if self.locked:
            return "LOCKED"
        if self.approved is not None:
            return "APPROVED"
        return "REVOKED" if self.listed else "UNAPPROVED"


class SkillMachine(Machine):
    """Files that change, vanish and become links beside approvals, revocations and loads."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdproof-skills-")).resolve()
        self.skills = {self.folder / name: SkillModel() for name in ("a.org", "b.md")}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def _pick(self, pick: int) -> tuple[Path, SkillModel]:
        return list(self.skills.items())[pick % len(self.skills)]

    @rule(
        pick=_PICK,
        content=st.sampled_from([b"* A\n", b"* A\n ", b"# B\n```\nx\n```\n", b"", None]),
        linked=st.booleans(),
    )
    def change(self, pick: int, content: bytes | None, linked: bool) -> None:
        path, skill = self._pick(pick)
        path.unlink(missing_ok=True)
        skill.content, skill.linked = content, linked and content is not None
        if content is not None:
            target = path.with_suffix(".target") if linked else path
            target.write_bytes(content)
            if linked:
                path.symlink_to(target)

    @rule(pick=_PICK)
    def approve(self, pick: int) -> None:
        path, skill = self._pick(pick)
        if skill.content is None or skill.linked:
            with pytest.raises((errors.NotFoundError, errors.InvalidInputError)):
                self.store.skills.approve(str(path), by="walker")
            return
        self.store.skills.approve(str(path), by="walker")
        skill.approved, skill.listed, skill.locked = skill.content, True, False

    @rule(pick=_PICK)
    def revoke(self, pick: int) -> None:
        path, skill = self._pick(pick)
        if skill.approved is None:
            with pytest.raises(errors.NotFoundError):
                self.store.skills.revoke(str(path), by="walker")
            return
        self.store.skills.revoke(str(path), by="walker")
        skill.approved, skill.locked = None, False

    @rule(pick=_PICK)
    def load(self, pick: int) -> None:
        path, skill = self._pick(pick)
        gone = skill.content is None and (skill.approved is not None or not skill.listed)
        if not skill.locked and gone:
            with pytest.raises(errors.NotFoundError):
                self.store.skills.load(str(path))
        elif not skill.locked and skill.approved is not None and skill.content == skill.approved and not skill.linked:
            assert self.store.skills.load(str(path)).data == skill.approved
        else:
            with pytest.raises(errors.SkillLockedError):
                self.store.skills.load(str(path))
            # Nothing is locked of a file that nobody ever approved.
            skill.locked = skill.locked or skill.listed

    @invariant()
    def the_store_agrees(self) -> None:
        for path, skill in self.skills.items():
            assert self.store.skills.status(str(path)).state == skill.state


MACHINES = [FlowMachine, LockMachine, IdempotencyMachine, EscalationMachine, RetryMachine, SkillMachine]
