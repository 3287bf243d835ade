"""What agents decide, on the sync face: a noun for each module of the runtime."""

from typing import Any

from holdfast.db import Database
from holdfast.ops.block_sync import SyncFlow
from holdfast.ops.sync_face import SyncFace
from holdfast.ops.verbs import SyncNoun, SyncRead, SyncRun, SyncWrite
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


class Agents(SyncNoun):
    """Agents: who may act, under which contract."""

    register = SyncWrite(agents.register)
    authenticate = SyncRead(agents.authenticate)
    get = SyncRead(agents.get)
    list = SyncRead(agents.list)
    set_status = SyncWrite(agents.set_status)


class Flows(SyncNoun):
    """Decision flows, and the workers that have them in hand."""

    start = SyncWrite(flows.start)
    transition = SyncWrite(flows.transition)
    get = SyncRead(flows.get)
    tree = SyncRead(lineage.tree)
    list = SyncRead(lineage.list)
    transitions = SyncRead(lineage.transitions)
    lease = SyncWrite(leases.lease)
    heartbeat = SyncWrite(leases.heartbeat)
    release = SyncWrite(leases.release)
    recover = SyncWrite(leases.recover)
    steps = SyncRead(steps.list)

    def run(self, agent_id: str | None = None, *, resume: str | None = None, **opening: Any) -> SyncFlow:
        """A new flow of an agent as a block, or one to resume; `opening` is what `flows.start` takes, and `lease_s`."""
        return SyncFlow(self._face, runs.enter(agent_id, resume=resume, **opening))


class Contexts(SyncNoun):
    """What flows are given to decide with."""

    put = SyncWrite(contexts.put)
    update = SyncWrite(contexts.update)
    read = SyncRead(contexts.read)
    take = SyncWrite(contexts.take)


class State(SyncNoun):
    """What agents keep from one flow to the next."""

    put = SyncWrite(state.put)
    update = SyncWrite(state.update)
    read = SyncRead(state.read)


class Feedback(SyncNoun):
    """How decisions turned out."""

    record = SyncWrite(feedback.record)
    trajectory = SyncRead(feedback.trajectory)


class Audit(SyncNoun):
    """What happened in flows."""

    record = SyncWrite(audit.record)
    for_flow = SyncRead(audit.for_flow)
    search = SyncRead(audit.search)


class Ledger(SyncNoun):
    """The one verified intent of each flow."""

    append = SyncWrite(ledger.append)
    get = SyncRead(ledger.get)
    list = SyncRead(ledger.list)


class Locks(SyncNoun):
    """Resources in the hands of flows."""

    acquire = SyncRun(locks.acquire)
    try_acquire = SyncWrite(locks.try_acquire)
    extend = SyncWrite(locks.extend)
    release = SyncWrite(locks.release)
    release_all = SyncWrite(locks.release_all)
    list = SyncRead(locks.list)


class Idempotency(SyncNoun):
    """One key, one execution."""

    once = SyncRun(idempotency.once)
    get = SyncRead(idempotency.get)
    settle = SyncWrite(idempotency.settle)
    forget = SyncWrite(idempotency.forget)


class Retries(SyncNoun):
    """How often a flow's intent may be rejected."""

    reject = SyncWrite(retries.reject)
    get = SyncRead(retries.get)
    allowed = SyncRead(retries.allowed)


class Sagas(SyncNoun):
    """Flows that failed half way, and undoing what they did."""

    mark_dirty = SyncWrite(sagas.mark_dirty)
    get = SyncRead(sagas.get)
    list_dirty = SyncRead(sagas.list_dirty)
    compensate = SyncRun(sagas.compensate)
    clear = SyncWrite(sagas.clear)


class Escalations(SyncNoun):
    """Questions to people."""

    request = SyncWrite(escalations.request)
    resolve = SyncWrite(escalations.resolve)
    expire = SyncWrite(escalations.expire)
    get = SyncRead(inbox.get)
    pending = SyncRead(inbox.pending)
    wait = SyncRun(inbox.wait)


class Sweep(SyncNoun):
    """What time has ended, put away."""

    run = SyncRun(sweeps.run)


class SyncDecisions(SyncFace):
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
