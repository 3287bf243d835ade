"""Results: how a flow ended.

Rules:
- The result stands with the transition that ended the flow, under its entry; a flow that failed has its reason there.
  It is compared with that entry whenever it is given out.
- `wait` returns what the function returned, and raises FlowFailedError, or FlowEndedError for a flow that was
  cancelled.
"""

from typing import Any, NamedTuple, NoReturn

from holdproof import validation
from holdproof.db import Read, Tx, Wait, Work, ask, sql
from holdproof.errors import FlowEndedError, FlowFailedError, TimeoutExpiredError
from holdproof.evidence import logged_tables
from holdproof.model import typed_json
from holdproof.model.flows import OPEN, Flow, FlowResult
from holdproof.model.namespaces import MAIN
from holdproof.model.times import later
from holdproof.runtime import flows, recorded
from holdproof.runtime.flows import TRANSITIONS

# The last transition that says how a flow ended: those that undo it come after the one that failed it.
_ENDING = logged_tables.selecting(
    TRANSITIONS.logged,
    "id",
    "t.id = (SELECT max(e.id) FROM flow_transitions e WHERE e.dfid = :dfid AND e.ns = :ns"
    " AND (e.result IS NOT NULL OR e.reason IS NOT NULL))",
)


def get(tx: Tx, flow_id: str, *, ns: str = MAIN) -> FlowResult:
    """Return how a flow stands: its status and, once it has ended, its result or error, compared with the log."""
    flow = flows.get(tx, flow_id, ns=ns)
    if not flow.ended:
        return FlowResult(flow_id, flow.status, None, None)
    # What the flow returned is acted on: by its caller, by the flow that started it.
    for ending in logged_tables.confirm(tx, TRANSITIONS.logged, _ENDING, dfid=flow_id, ns=ns):
        return _result(tx, flow, ending["result"], ending["reason"])
    return _result(tx, flow, None, None)


_STORED = sql(
    "SELECT result, reason FROM flow_transitions WHERE dfid = :dfid AND ns = :ns"
    " AND (result IS NOT NULL OR reason IS NOT NULL) ORDER BY id DESC LIMIT 1"
)


def stored(tx: Tx, flow_id: str, *, ns: str) -> FlowResult:
    """Return how a flow stands as it is stored, to be shown: an edited record can be looked at too."""
    flow = flows.get(tx, flow_id, ns=ns)
    text, reason = tx.one(_STORED, dfid=flow_id, ns=ns) or (None, None)
    return _result(tx, flow, text, reason) if flow.ended else FlowResult(flow_id, flow.status, None, None)


def _result(tx: Tx, flow: Flow, text: str | None, reason: str | None) -> FlowResult:
    if flow.status == "COMPLETED":
        return FlowResult(flow.flow_id, flow.status, recorded.load(tx, text), None)
    return FlowResult(flow.flow_id, flow.status, None, recorded.open_text(tx, reason) or flow.status)


def wait(flow_id: str, *, timeout_s: float | None = None, ns: str = MAIN) -> Work[Any]:
    """Wait until a flow has ended, and return its result.

    Raises FlowFailedError where it failed, FlowEndedError where it was cancelled, and TimeoutExpiredError where it has
    not ended within `timeout_s`; it goes on then.
    """
    return value((yield from wait_ended(flow_id, timeout_s=timeout_s, ns=ns)))


def value(ended: FlowResult) -> Any:
    """Return what the function of an ended flow returned, as a value of this process; or raise how it failed."""
    if ended.status != "COMPLETED":
        _refuse(ended)
    return typed_json.decode(ended.result)


def wait_ended(flow_id: str, *, timeout_s: float | None = None, ns: str = MAIN) -> Work[FlowResult]:
    """Wait until a flow has ended, and return how; its result as tagged JSON."""
    until = ""
    while True:
        look = yield from ask(Read(lambda tx: _look(tx, flow_id, ns, timed=timeout_s is not None)))
        if isinstance(look, FlowResult):
            return look
        if timeout_s is not None:
            until = until or later(look.at, validation.seconds("timeout_s", timeout_s))
            if look.at >= until:
                raise TimeoutExpiredError(f"flow {flow_id} is still {look.status}", flow_id=flow_id, status=look.status)
        yield Wait(f"flow:{flow_id}", until or None)


class _Open(NamedTuple):
    """A flow that has not ended, and when it was looked at; '' where nobody asks for the time."""

    status: str
    at: str


_STATUS = sql("SELECT status FROM decision_flows WHERE dfid = :dfid AND ns = :ns")


def _look(tx: Tx, flow_id: str, ns: str, *, timed: bool) -> FlowResult | _Open:
    # Whoever waits looks again and again: only what has ended is worth reading whole.
    (status,) = tx.one(_STATUS, dfid=flow_id, ns=ns) or (None,)
    if status in OPEN:
        return _Open(status, tx.now if timed else "")
    return get(tx, flow_id, ns=ns)


def _refuse(ended: FlowResult) -> NoReturn:
    if ended.status == "CANCELLED":
        raise FlowEndedError(f"flow {ended.flow_id} was cancelled: {ended.error}", flow_id=ended.flow_id)
    message = f"flow {ended.flow_id} failed: {ended.error}"
    raise FlowFailedError(message, flow_id=ended.flow_id, flow_status=ended.status, error=ended.error)
