"""What agents decide: a noun for each module of the runtime."""

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from holdproof.api.flow_block import FlowBlock, OpenFlow
from holdproof.api.flow_functions import FlowFunction, Registry, register
from holdproof.executors import Executor, Reads, Resource, Runs, RunsWith, StreamsWith, Writes, with_namespace
from holdproof.runtime import (
    agents,
    audit,
    budgets,
    contexts,
    decisions,
    escalations,
    exports,
    feedback,
    flow_queries,
    flows,
    idempotency,
    inbox,
    leases,
    ledger,
    locks,
    retries,
    runs,
    sagas,
    state,
    steps,
    timelines,
)
from holdproof.upkeep import housekeeping

P = ParamSpec("P")
R = TypeVar("R")


class Agents(Resource[Executor]):
    """Agents: who may act, under which contract."""

    register = Writes(agents.register, secret=True)
    authenticate = Reads(agents.authenticate)
    get = Reads(agents.get)
    list = Reads(agents.list)
    set_status = Writes(agents.set_status)


class Flows(Resource[Executor]):
    """FlowFunction flows, and the workers that have them in hand."""

    start = Writes(flows.start)
    transition = Writes(flows.transition)
    cancel = Writes(flows.cancel)
    get = Reads(flows.get)
    tree = Reads(flow_queries.tree)
    list = Reads(flow_queries.list)
    search = Reads(flow_queries.search)
    transitions = Reads(flow_queries.transitions)
    timeline = Reads(timelines.timeline)
    pace = Reads(flow_queries.pace)
    orphans = Reads(leases.orphans)
    lease = Writes(leases.lease)
    heartbeat = Writes(leases.heartbeat)
    release = Writes(leases.release)
    recover = RunsWith(decisions.recover)
    steps = Reads(steps.list)
    export = StreamsWith(exports.flows, reads=True)

    def __init__(self, face: Executor, registry: Registry) -> None:
        super().__init__(face)
        self._registry = registry

    @property
    def held(self) -> Registry:
        """The functions that are registered."""
        return self._registry

    def run(self, agent_id: str | None = None, *, resume: str | None = None, **opening: Any) -> FlowBlock[Executor]:
        """A new flow of an agent as a block, or one to resume; `opening` is what `flows.start` takes, and `lease_s`."""
        return FlowBlock(self._face, runs.enter(agent_id, resume=resume, **with_namespace(self._face, opening)))


class Contexts(Resource[Executor]):
    """What flows are given to decide with."""

    put = Writes(contexts.put)
    update = Writes(contexts.update)
    read = Reads(contexts.read)
    versions = Reads(contexts.versions)
    take = Writes(contexts.take)


class State(Resource[Executor]):
    """What agents keep from one flow to the next."""

    put = Writes(state.put)
    update = Writes(state.update)
    read = Reads(state.read)
    versions = Reads(state.versions)


class Feedback(Resource[Executor]):
    """How decisions turned out."""

    record = Writes(feedback.record)
    trajectory = Reads(feedback.trajectory)
    recent = Reads(feedback.recent)


class Audit(Resource[Executor]):
    """What happened in flows."""

    record = Writes(audit.record)
    get = Reads(audit.get)
    for_flow = Reads(audit.for_flow)
    search = Reads(audit.search)
    export = StreamsWith(exports.events, reads=True)


class Ledger(Resource[Executor]):
    """The one verified intent of each flow."""

    append = Writes(ledger.append)
    get = Reads(ledger.get)
    list = Reads(ledger.list)


class Locks(Resource[Executor]):
    """Resources in the hands of flows."""

    acquire = Runs(locks.acquire)
    try_acquire = Writes(locks.try_acquire)
    extend = Writes(locks.extend)
    release = Writes(locks.release)
    release_all = Writes(locks.release_all)
    list = Reads(locks.list)


class Idempotency(Resource[Executor]):
    """One key, one execution."""

    once = Runs(idempotency.once)
    get = Reads(idempotency.get)
    settle = Writes(idempotency.settle)
    forget = Writes(idempotency.forget)


class Retries(Resource[Executor]):
    """How often a flow's intent may be rejected."""

    reject = Writes(retries.reject)
    get = Reads(retries.get)
    allowed = Reads(retries.allowed)


class Sagas(Resource[Executor]):
    """Flows that failed half way, and undoing what they did."""

    mark_dirty = Writes(sagas.mark_dirty)
    get = Reads(sagas.get)
    list_dirty = Reads(sagas.list_dirty)
    compensate = Runs(sagas.compensate)
    clear = Writes(sagas.clear)


class Escalations(Resource[Executor]):
    """Questions to people."""

    request = Writes(escalations.request)
    resolve = Writes(escalations.resolve)
    expire = Writes(escalations.expire)
    get = Reads(inbox.get)
    pending = Reads(inbox.pending)
    due = Reads(inbox.due)
    list = Reads(inbox.list)
    waiting = Reads(inbox.waiting)
    budget = Reads(budgets.standing)
    wait = Runs(inbox.wait)


class Sweep(Resource[Executor]):
    """What time has ended, put away."""

    run = Runs(housekeeping.sweep)


class RuntimeResources(Generic[Executor]):
    """The nouns of the runtime, shown by a face."""

    def __init__(self, face: Executor) -> None:
        self._face: Executor = face
        self._registry: Registry = {}
        self.agents = Agents(face)
        self.flows = Flows(face, self._registry)
        self.contexts = Contexts(face)
        self.state = State(face)
        self.feedback = Feedback(face)
        self.audit = Audit(face)
        self.ledger = Ledger(face)
        self.locks = Locks(face)
        self.idempotency = Idempotency(face)
        self.retries = Retries(face)
        self.sagas = Sagas(face)
        self.escalations = Escalations(face)
        self.sweep = Sweep(face)

    def decision(
        self,
        *,
        flow_type: str,
        agent: str | None = None,
        flow_version: str = "1.0",
        lease_s: float = leases.LEASE_S,
        **opening: Any,
    ) -> Callable[[Callable[Concatenate[OpenFlow[Executor], P], R]], FlowFunction[P, R]]:
        """Register a function that works on a flow, so that `flows.recover` can run it again on any worker.

        Its first parameter is the flow, the others are JSON; `opening` is what `flows.start` takes. Calling it opens a
        flow of the agent and gives what the function gives.
        """
        return lambda fn: register(
            self._registry,
            self._face,
            fn,
            flow_type=flow_type,
            flow_version=flow_version,
            lease_s=lease_s,
            opening={"agent_id": agent, **opening},
        )
