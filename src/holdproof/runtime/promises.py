"""Promises: a flow waits for one answer of somebody who has no account, as a payment provider that calls back.

Rules:
- `create` gives the flow a token. Who has the token may resolve or reject the promise, once; the same answer again
  changes nothing, another one is AlreadyResolvedError.
- Only the token's hash is stored. The token is derived from a secret of the store, so that a flow that is run again has
  the same one; in a store that was restored without keys it cannot be shown again, and still settles its promise.
- Settling a promise wakes its flow in the same transaction. The flow compares the promise with its entry in the log
  before it goes by it: TamperedError, and the flow stops.
- How a wait ended (an answer, a rejection, the time limit) is recorded as a step, and the same when it is replayed.
"""

from base64 import urlsafe_b64encode
from dataclasses import replace
from functools import partial
from typing import Any, Final

from holdproof.content import encryption
from holdproof.crypto import canonical
from holdproof.db import Tx, Work, Write, ask, sql
from holdproof.errors import (
    AlreadyResolvedError,
    NotFoundError,
    PromiseRejectedError,
    TamperedError,
    TimeoutExpiredError,
    UnauthenticatedError,
)
from holdproof.evidence import logged_tables
from holdproof.evidence.tables import StoredRecord, Table
from holdproof.model import typed_json
from holdproof.model.messages import PromiseRecord, PromiseTicket
from holdproof.model.namespaces import MAIN
from holdproof.model.typed_json import Recordable
from holdproof.runtime import flows, messages, own_steps, recorded
from holdproof.runtime.flow_run import FlowRun
from holdproof.runtime.own_steps import StepOutcome
from holdproof.runtime.suspension import WorkerLease

PROMISES: Final = Table(
    "flow_promises",
    PromiseRecord,
    kind="promise",
    key="promise_id",
    logged=(
        *("promise_id", "dfid", "name", "n", "token_hash", "state", "value", "value_hash", "created_at"),
        *("settled_at", "ns"),
    ),
    columns={"recorded": "value"},
)
PATH: Final = "/v1/promises/resolve"
"""Where a server takes `{"token": …, "value": …}`."""
_PREFIX: Final = "hpp_"
_REJECTED: Final = "rejected"
_TIMEOUT: Final = "timeout"
_LATE: Final = StepOutcome("null", _TIMEOUT)

# --- in the flow -------------------------------------------------------------------------------------------------


def create(run: FlowRun, name: str) -> Work[PromiseTicket]:
    """Create a promise, once whatever happens, and return it with its token."""
    own_steps.name("name", name)
    lease = run.lease
    n = run.count("promise", name)
    promise_id: str = yield from own_steps.record(run, f"promise {name}", partial(_add, lease=lease, name=name, n=n))
    # In a writing transaction: a store that was restored without keys gets a new secret here.
    token = yield from ask(Write(partial(_token, promise_id=promise_id, ns=lease.ns)))
    run.promises[promise_id] = name if n == 1 else f"{name} {n}"
    return PromiseTicket(promise_id, name, token)


_ADD = sql(PROMISES.insert())


def _add(tx: Tx, lease: WorkerLease, name: str, n: int) -> str:
    promise_id = tx.new_id()
    row = {
        **dict.fromkeys(PROMISES.columns),
        "promise_id": promise_id,
        "dfid": lease.flow_id,
        "name": name,
        "n": n,
        "token_hash": _digest(_derived(tx, promise_id)),
        "state": "PENDING",
        "created_at": tx.now,
        "ns": lease.ns,
    }
    PROMISES.add(tx, _ADD, row)
    return promise_id


def _derived(tx: Tx, promise_id: str) -> str:
    secret = encryption.derive(tx, "promise", promise_id)
    return _PREFIX + urlsafe_b64encode(secret).rstrip(b"=").decode()


def _digest(token: str) -> str:
    return canonical.sha256_hex(token.encode(errors="surrogatepass"))


_HASH = sql("SELECT token_hash FROM flow_promises WHERE promise_id = :promise_id AND ns = :ns")


def _token(tx: Tx, promise_id: str, ns: str) -> str:
    """Return the token of a promise; empty where it was made with a secret that this copy of the store has not."""
    token = _derived(tx, promise_id)
    (expected,) = tx.one(_HASH, promise_id=promise_id, ns=ns) or (None,)
    return token if expected == _digest(token) else ""


def wait_for(run: FlowRun, promise: Any, *, timeout_s: float | None = None) -> Work[Recordable]:
    """Wait until a promise is settled, given as `flow.promise` returned it; return what it was resolved with.

    Raises PromiseRejectedError where it was rejected, and TimeoutExpiredError after `timeout_s`; the promise stays open
    then.
    """
    promise_id = str(getattr(promise, "promise_id", promise))
    label = run.promises.get(promise_id)
    if label is None:
        raise NotFoundError("pass what flow.promise returned", promise_id=promise_id)
    ended = yield from own_steps.wait(
        run,
        f"wait {label}",
        partial(_settled, lease=run.lease, promise_id=promise_id),
        waits_for=f"promise {label}",
        timeout_s=timeout_s,
        late=_LATE,
    )
    if ended.error == _TIMEOUT:
        raise TimeoutExpiredError(f"promise {label} is still open", promise_id=promise_id)
    if ended.error == _REJECTED:
        reason = typed_json.decode(ended.result)
        raise PromiseRejectedError(f"promise {label} was rejected: {reason}", promise_id=promise_id, reason=reason)
    return own_steps.shown(run, ended.result)


_ONE = logged_tables.selecting(
    PROMISES.logged, "promise_id", "t.promise_id = :promise_id AND t.dfid = :dfid AND t.ns = :ns"
)


def _settled(tx: Tx, lease: WorkerLease, promise_id: str) -> StepOutcome | None:
    """Return how a promise was settled, compared with its entry; None while it is open."""
    rows = logged_tables.confirm(tx, PROMISES.logged, _ONE, promise_id=promise_id, dfid=lease.flow_id, ns=lease.ns)
    if not rows:
        raise NotFoundError(f"flow {lease.flow_id} has no promise {promise_id}", promise_id=promise_id)
    [columns] = rows
    if columns["state"] == "PENDING":
        return None
    return StepOutcome(columns["value"], None if columns["state"] == "RESOLVED" else _REJECTED)


# --- outside -----------------------------------------------------------------------------------------------------


def resolve(tx: Tx, token: str, value: Recordable = None, *, ns: str | None = None) -> PromiseRecord:
    """Resolve a promise: its flow goes on with the value. The same value again changes nothing.

    Raises AlreadyResolvedError where it was settled otherwise, FlowEndedError where its flow has ended, and
    UnauthenticatedError for a token of no promise.
    """
    return _settle(tx, token, "RESOLVED", own_steps.encoded(value, "the value"), ns)


def reject(tx: Tx, token: str, reason: str, *, ns: str | None = None) -> PromiseRecord:
    """Reject a promise: its flow goes on with PromiseRejectedError. Raises what `resolve` raises."""
    return _settle(tx, token, "REJECTED", own_steps.encoded(reason, "the reason"), ns)


_FLOW_OF = sql("SELECT dfid, ns, promise_id FROM flow_promises WHERE token_hash = :token_hash")
_SETTLE = sql(
    PROMISES.update(
        *("state", "value", "value_hash", "settled_at"), where="promise_id = :promise_id AND leaf_ver = :leaf_ver - 1"
    )
)


def _settle(tx: Tx, token: str, state: str, text: str, ns: str | None) -> PromiseRecord:
    token_hash = _digest(str(token))
    flow_id, namespace, promise_id = tx.one(_FLOW_OF, token_hash=token_hash) or (None, None, None)
    if promise_id is None or ns not in {None, namespace}:
        raise UnauthenticatedError("this is the token of no promise", remedy="Use the token that the flow was given.")
    # Locked before the promise is read: of two who settle it at the same moment, the second sees what the first did.
    flow = flows.lock(tx, flow_id, ns=namespace)
    record = _confirmed(tx, promise_id, flow_id, namespace)
    if record.columns["token_hash"] != token_hash:
        raise TamperedError("the token's hash was edited", table=PROMISES.name, row=promise_id)
    value_hash = recorded.fingerprint(tx, text, flow.subject)
    if record.value.state != "PENDING":
        if (record.value.state, record.columns["value_hash"]) != (state, value_hash):
            raise AlreadyResolvedError(
                f"the promise was {record.value.state.lower()} before, and that stands",
                remedy="Nothing is to be done: a promise is settled once.",
                promise_id=promise_id,
            )
        return _shown(tx, record.value)
    messages.refuse_ended(flow)
    changes: dict[str, Any] = {
        "state": state,
        "value": recorded.store(tx, text, flow.subject),
        "value_hash": value_hash,
        "settled_at": tx.now,
    }
    promise = PROMISES.change(tx, _SETTLE, record, changes)
    flows.wake(tx, flow_id, ns=namespace)
    return _shown(tx, promise)


def _confirmed(tx: Tx, promise_id: str, flow_id: str, ns: str) -> StoredRecord[PromiseRecord]:
    rows = logged_tables.confirm(tx, PROMISES.logged, _ONE, promise_id=promise_id, dfid=flow_id, ns=ns)
    [columns] = rows
    return PROMISES.stored(columns)


_LIST = sql(PROMISES.select("WHERE dfid = :dfid AND ns = :ns ORDER BY promise_id"))


def list(tx: Tx, flow_id: str, *, ns: str = MAIN) -> tuple[PromiseRecord, ...]:
    """Return the promises of a flow, in the order they were made, without their tokens."""
    flows.get(tx, flow_id, ns=ns)
    return tuple(_shown(tx, each) for each in PROMISES.all(tx, _LIST, dfid=flow_id, ns=ns))


def _shown(tx: Tx, promise: PromiseRecord) -> PromiseRecord:
    return replace(promise, recorded=recorded.load(tx, promise.recorded))
