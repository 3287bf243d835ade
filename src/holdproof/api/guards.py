"""What guards flows: locks, single executions, limits of retries, and undoing of what failed."""

from typing import TYPE_CHECKING

from holdproof.executors import OWN_FLOW, AgentRule, Executor, Reads, Resource, Runs, Writes
from holdproof.executors.exit_codes import exit_absent
from holdproof.lazy import lazy_functions

if TYPE_CHECKING:
    from holdproof.runtime import idempotency, locks, retries, sagas
else:
    globals().update(lazy_functions("holdproof.runtime", "idempotency locks retries sagas"))


class Locks(Resource[Executor]):
    """Resources that flows hold."""

    group = "Run"

    # `acquire` waits between transactions, so that it holds no connection; `try_acquire` is one transaction.
    acquire = Runs(locks.acquire, agent=OWN_FLOW)
    try_acquire = Writes(locks.try_acquire, agent=OWN_FLOW, tool="decide")
    extend = Writes(locks.extend, agent=OWN_FLOW)
    release = Writes(
        locks.release,
        agent=OWN_FLOW,
        tool="decide",
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 portfolio:BTC",
        exit_code=exit_absent,
    )
    release_all = Writes(locks.release_all, agent=OWN_FLOW)
    list = Reads(
        locks.list,
        agent=OWN_FLOW,
        columns=("resource_id", "flow_id", "amount", "capacity", "fence", "acquired_at", "expires_at"),
        example="--resource portfolio:BTC",
    )


class Idempotency(Resource[Executor]):
    """One key, one execution."""

    group = "Run"
    grantable = True

    once = Runs(idempotency.once, calls=("fn",), creates=True)
    get = Reads(idempotency.get)
    list = Reads(
        idempotency.list,
        columns=("key", "state", "created_at", "expires_at", "error"),
        example="--state UNKNOWN",
        parameters={"state": "Only those in this state: UNKNOWN where a call was started and never finished."},
        words={"state": ("RUNNING", "UNKNOWN", "DONE", "FAILED")},
    )
    # Settles a call in doubt by hand, where only a person can tell whether it happened.
    settle = Writes(idempotency.settle)
    delete = Writes(idempotency.delete)


class Retries(Resource[Executor]):
    """How often a flow's intent may be rejected."""

    group = "Run"

    reject = Writes(retries.reject, agent=AgentRule({"flow_id": "flow"}, never=("max_retries",)))
    get = Reads(retries.get, agent=OWN_FLOW)
    allowed = Reads(retries.allowed, agent=OWN_FLOW)


class Sagas(Resource[Executor]):
    """Flows that failed half way, and undoing what they did."""

    group = "Run"

    mark_dirty = Writes(sagas.mark_dirty, agent=OWN_FLOW)
    get = Reads(sagas.get, agent=OWN_FLOW, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304")
    list = Reads(sagas.list, columns=("flow_id", "failed_step", "created_at", "partial_state"))
    compensate = Runs(sagas.compensate, calls=("fn",))
    clear = Writes(sagas.clear, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --by ann", exit_code=exit_absent)
