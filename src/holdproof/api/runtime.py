"""Flows and what guards them: the resources of the runtime, one declaration per method."""

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
    escalations,
    exports,
    feedback,
    flow_queries,
    flows,
    functions,
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
from holdproof.upkeep import sweep

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
    """Durable workflow runs, and the leases of their workers."""

    start = Writes(flows.start)
    transition = Writes(flows.transition)
    cancel = Writes(flows.cancel)
    get = Reads(flows.get)
    tree = Reads(flow_queries.tree)
    list = Reads(flow_queries.list)
    transitions = Reads(flow_queries.transitions)
    timeline = Reads(timelines.timeline)
    pace = Reads(flow_queries.pace)
    orphans = Reads(leases.orphans)
    lease = Writes(leases.lease)
    heartbeat = Writes(leases.heartbeat)
    release = Writes(leases.release)
    recover = RunsWith(functions.recover)
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
        """Open a flow of an agent as a block, or resume one; `opening` is what `flows.start` takes, and `lease_s`."""
        return FlowBlock(self._face, runs.enter(agent_id, resume=resume, **with_namespace(self._face, opening)))


class Contexts(Resource[Executor]):
    """The inputs that flows decide with."""

    put = Writes(contexts.put)
    update = Writes(contexts.update)
    get = Reads(contexts.get)
    versions = Reads(contexts.versions)
    take = Writes(contexts.take)


class State(Resource[Executor]):
    """What agents keep from one flow to the next."""

    put = Writes(state.put)
    update = Writes(state.update)
    get = Reads(state.get)
    versions = Reads(state.versions)


class Feedback(Resource[Executor]):
    """How flows turned out."""

    record = Writes(feedback.record)
    list = Reads(feedback.list)


class Audit(Resource[Executor]):
    """What happened in flows."""

    record = Writes(audit.record)
    get = Reads(audit.get)
    list = Reads(audit.list)
    export = StreamsWith(exports.events, reads=True)


class Ledger(Resource[Executor]):
    """The one verified intent of each flow."""

    append = Writes(ledger.append)
    get = Reads(ledger.get)
    list = Reads(ledger.list)


class Locks(Resource[Executor]):
    """Resources that flows hold."""

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
    delete = Writes(idempotency.delete)


class Retries(Resource[Executor]):
    """How often a flow's intent may be rejected."""

    reject = Writes(retries.reject)
    get = Reads(retries.get)
    allowed = Reads(retries.allowed)


class Sagas(Resource[Executor]):
    """Flows that failed half way, and undoing what they did."""

    mark_dirty = Writes(sagas.mark_dirty)
    get = Reads(sagas.get)
    list = Reads(sagas.list)
    compensate = Runs(sagas.compensate)
    clear = Writes(sagas.clear)


class Escalations(Resource[Executor]):
    """Requests for human decisions."""

    request = Writes(escalations.request)
    resolve = Writes(escalations.resolve)
    expire = Writes(escalations.expire)
    get = Reads(inbox.get)
    list = Reads(inbox.list)
    count = Reads(inbox.count)
    budget = Reads(budgets.get)
    wait = Runs(inbox.wait)


class Sweep(Resource[Executor]):
    """Removal of what has expired."""

    run = Runs(sweep.run)


class RuntimeResources(Generic[Executor]):
    """The resources of the runtime, of a client."""

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

    def flow(
        self,
        *,
        name: str | None = None,
        version: str = "1.0",
        agent: str | None = None,
        lease_s: float = leases.LEASE_S,
        **opening: Any,
    ) -> Callable[[Callable[Concatenate[OpenFlow[Executor], P], R]], FlowFunction[P, R]]:
        """Register a function as a flow, so that `flows.recover` can run it again on any worker.

        Its first parameter is the open flow, the others are JSON; `opening` is what `flows.start` takes. Calling it
        opens a flow of the agent and returns what the function returns. `name` is the function's unless it is given.
        """
        return lambda fn: register(
            self._registry,
            self._face,
            fn,
            name=name or fn.__name__,
            version=version,
            lease_s=lease_s,
            opening={"agent_id": agent, **opening},
        )
