"""What agents decide, on the async face: a noun for each module of the runtime."""

from typing import Any

from holdfast.db import Database
from holdfast.ops.async_face import AsyncFace
from holdfast.ops.block_async import AsyncFlow
from holdfast.ops.verbs import AsyncNoun, AsyncRead, AsyncRun, AsyncWrite
from holdfast.runtime import (
    agents,
    audit,
    contexts,
    escalations,
    feedback,
    flows,
    idempotency,
    inbox,
    leases,
    ledger,
    lineage,
    locks,
    retries,
    runs,
    sagas,
    state,
    steps,
    sweeps,
)


class Agents(AsyncNoun):
    """Agents: who may act, under which contract."""

    register = AsyncWrite(agents.register)
    authenticate = AsyncRead(agents.authenticate)
    get = AsyncRead(agents.get)
    list = AsyncRead(agents.list)
    set_status = AsyncWrite(agents.set_status)


class Flows(AsyncNoun):
    """Decision flows, and the workers that have them in hand."""

    start = AsyncWrite(flows.start)
    transition = AsyncWrite(flows.transition)
    get = AsyncRead(flows.get)
    tree = AsyncRead(lineage.tree)
    list = AsyncRead(lineage.list)
    transitions = AsyncRead(lineage.transitions)
    lease = AsyncWrite(leases.lease)
    heartbeat = AsyncWrite(leases.heartbeat)
    release = AsyncWrite(leases.release)
    recover = AsyncWrite(leases.recover)
    steps = AsyncRead(steps.list)

    def run(self, agent_id: str | None = None, *, resume: str | None = None, **opening: Any) -> AsyncFlow:
        """A new flow of an agent as a block, or one to resume; `opening` is what `flows.start` takes, and `lease_s`."""
        return AsyncFlow(self._face, runs.enter(agent_id, resume=resume, **opening))


class Contexts(AsyncNoun):
    """What flows are given to decide with."""

    put = AsyncWrite(contexts.put)
    update = AsyncWrite(contexts.update)
    read = AsyncRead(contexts.read)
    take = AsyncWrite(contexts.take)


class State(AsyncNoun):
    """What agents keep from one flow to the next."""

    put = AsyncWrite(state.put)
    update = AsyncWrite(state.update)
    read = AsyncRead(state.read)


class Feedback(AsyncNoun):
    """How decisions turned out."""

    record = AsyncWrite(feedback.record)
    trajectory = AsyncRead(feedback.trajectory)


class Audit(AsyncNoun):
    """What happened in flows."""

    record = AsyncWrite(audit.record)
    for_flow = AsyncRead(audit.for_flow)
    search = AsyncRead(audit.search)


class Ledger(AsyncNoun):
    """The one verified intent of each flow."""

    append = AsyncWrite(ledger.append)
    get = AsyncRead(ledger.get)
    list = AsyncRead(ledger.list)


class Locks(AsyncNoun):
    """Resources in the hands of flows."""

    acquire = AsyncRun(locks.acquire)
    try_acquire = AsyncWrite(locks.try_acquire)
    extend = AsyncWrite(locks.extend)
    release = AsyncWrite(locks.release)
    release_all = AsyncWrite(locks.release_all)
    list = AsyncRead(locks.list)


class Idempotency(AsyncNoun):
    """One key, one execution."""

    once = AsyncRun(idempotency.once)
    get = AsyncRead(idempotency.get)
    settle = AsyncWrite(idempotency.settle)
    forget = AsyncWrite(idempotency.forget)


class Retries(AsyncNoun):
    """How often a flow's intent may be rejected."""

    reject = AsyncWrite(retries.reject)
    get = AsyncRead(retries.get)
    allowed = AsyncRead(retries.allowed)


class Sagas(AsyncNoun):
    """Flows that failed half way, and undoing what they did."""

    mark_dirty = AsyncWrite(sagas.mark_dirty)
    get = AsyncRead(sagas.get)
    list_dirty = AsyncRead(sagas.list_dirty)
    compensate = AsyncRun(sagas.compensate)
    clear = AsyncWrite(sagas.clear)


class Escalations(AsyncNoun):
    """Questions to people."""

    request = AsyncWrite(escalations.request)
    resolve = AsyncWrite(escalations.resolve)
    expire = AsyncWrite(escalations.expire)
    get = AsyncRead(inbox.get)
    pending = AsyncRead(inbox.pending)
    wait = AsyncRun(inbox.wait)


class Sweep(AsyncNoun):
    """What time has ended, put away."""

    run = AsyncRun(sweeps.run)


class AsyncDecisions(AsyncFace):
    """The nouns of the runtime, on one store."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.agents = Agents(self)
        self.flows = Flows(self)
        self.contexts = Contexts(self)
        self.state = State(self)
        self.feedback = Feedback(self)
        self.audit = Audit(self)
        self.ledger = Ledger(self)
        self.locks = Locks(self)
        self.idempotency = Idempotency(self)
        self.retries = Retries(self)
        self.sagas = Sagas(self)
        self.escalations = Escalations(self)
        self.sweep = Sweep(self)
