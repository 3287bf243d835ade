"""Messages: what others tell a flow, and what it tells other flows.

Rules:
- A message waits for its flow, also one that has not reached `receive` yet; it is received once, in the order in which
  messages of its topic were sent, over crashes and racing workers: the step that receives it and the message are
  changed in one transaction.
- What a flow sends is recorded as a step of the sender, in the transaction that delivers it: it is sent once.
- A signal with an idempotency key is delivered once; the same key with another message is refused.
- An ended flow, and one that is being undone, takes no messages: FlowEndedError.
- Before a message is received it is compared with its entry in the log: TamperedError, and the flow stops.
- Values are sealed for the person whose flow receives them.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Final

from holdproof import validation
from holdproof.db import Tx, Work, sql
from holdproof.errors import FlowEndedError, IdempotencyConflictError
from holdproof.evidence import logged_tables
from holdproof.evidence.tables import Table
from holdproof.model.flows import Flow
from holdproof.model.messages import Message
from holdproof.model.namespaces import MAIN
from holdproof.model.typed_json import Recordable
from holdproof.runtime import flows, own_steps, recorded
from holdproof.runtime.flow_run import FlowRun
from holdproof.runtime.own_steps import StepOutcome
from holdproof.runtime.suspension import WorkerLease

MESSAGES: Final = Table(
    "flow_messages",
    Message,
    kind="message",
    key="message_id",
    logged=(
        *("message_id", "dfid", "n", "topic", "value", "value_hash", "sent_by", "idempotency_key", "sent_at"),
        *("received_at", "ns"),
    ),
    columns={"recorded": "value"},
)
_NOTHING: Final = StepOutcome("null")

# --- sending -----------------------------------------------------------------------------------------------------


def signal(
    tx: Tx,
    flow_id: str,
    topic: str,
    value: Recordable = None,
    *,
    idempotency_key: str | None = None,
    by: str | None = None,
    ns: str = MAIN,
) -> Message:
    """Send a message to a flow, which receives it with `flow.receive(topic)`, now or when it gets there.

    With an idempotency key it is sent once, however often this is called. Raises FlowEndedError where the flow has
    ended.
    """
    text = own_steps.encoded(value, "the message")
    key = None if idempotency_key is None else validation.name("idempotency_key", idempotency_key)
    sender = None if by is None else validation.name("by", by)
    return _deliver(tx, flow_id, own_steps.name("topic", topic), text, key=key, sent_by=sender, ns=ns)


def send(run: FlowRun, flow_id: str, topic: str, value: Recordable = None) -> Work[None]:
    """Send a message to another flow, once whatever happens; see `flows.signal`."""
    own_steps.name("topic", topic)
    text = own_steps.encoded(value, "the message")
    arguments = recorded.dump({"args": [flow_id, topic, recorded.parse(text)], "kwargs": {}})
    lease = run.lease
    deliver = partial(
        _deliver, flow_id=flow_id, topic=topic, text=text, key=None, sent_by=f"flow:{lease.flow_id}", ns=lease.ns
    )
    yield from own_steps.record(
        run, f"send {topic}", lambda tx: deliver(tx).message_id, arguments=arguments, locks=(flow_id,)
    )


_NEXT = sql("SELECT coalesce(max(n), 0) + 1 FROM flow_messages WHERE dfid = :dfid AND ns = :ns")
_SAME_KEY = sql(MESSAGES.select("WHERE dfid = :dfid AND ns = :ns AND idempotency_key = :key", leaf=True))
_ADD = sql(MESSAGES.insert())


def _deliver(tx: Tx, flow_id: str, topic: str, text: str, *, key: str | None, sent_by: str | None, ns: str) -> Message:
    # The lock makes senders take turns: their messages are numbered in the order of their commits.
    flow = flows.lock(tx, flow_id, ns=ns)
    value_hash = recorded.fingerprint(tx, text, flow.subject)
    if key is not None and (row := tx.one(_SAME_KEY, dfid=flow_id, ns=ns, key=key)) is not None:
        earlier = MESSAGES.record(row)
        if (earlier.value.topic, earlier.columns["value_hash"]) != (topic, value_hash):
            raise IdempotencyConflictError(
                "another message was sent to this flow with this key", flow_id=flow_id, idempotency_key=key
            )
        return _shown(tx, earlier.value)
    refuse_ended(flow)
    next_row = tx.one(_NEXT, dfid=flow_id, ns=ns)
    assert next_row is not None, "an aggregate has one row"
    (n,) = next_row
    row_columns: dict[str, Any] = {
        "message_id": tx.new_id(),
        "dfid": flow_id,
        "n": n,
        "topic": topic,
        "value": recorded.store(tx, text, flow.subject),
        "value_hash": value_hash,
        "sent_by": sent_by,
        "idempotency_key": key,
        "sent_at": tx.now,
        "received_at": None,
        "ns": ns,
    }
    MESSAGES.add(tx, _ADD, row_columns)
    flows.wake(tx, flow_id, ns=ns)
    return replace(MESSAGES.from_columns(row_columns), recorded=recorded.parse(text))


def refuse_ended(flow: Flow) -> None:
    """Raise FlowEndedError for a flow that will look at nothing more: it has ended, or is being undone."""
    if flow.ended or flow.status == "COMPENSATING":
        raise FlowEndedError(f"flow {flow.flow_id} is {flow.status}", flow_id=flow.flow_id, flow_status=flow.status)


# --- receiving ---------------------------------------------------------------------------------------------------


def receive(run: FlowRun, topic: str, *, timeout_s: float | None = None) -> Work[Recordable]:
    """Return the next message of a topic, once it is there; None after `timeout_s`."""
    own_steps.name("topic", topic)
    ended = yield from own_steps.wait(
        run,
        f"receive {topic}",
        partial(_take, lease=run.lease, topic=topic),
        waits_for=f"a message of topic {topic}",
        timeout_s=timeout_s,
        late=_NOTHING,
    )
    return own_steps.shown(run, ended.result)


_OLDEST = logged_tables.selecting(
    MESSAGES.logged,
    "message_id",
    "t.dfid = :dfid AND t.ns = :ns AND t.n = (SELECT min(m.n) FROM flow_messages m"
    " WHERE m.dfid = :dfid AND m.ns = :ns AND m.topic = :topic AND m.received_at IS NULL)",
)
_RECEIVE = sql(MESSAGES.update("received_at", where="message_id = :message_id AND leaf_ver = :leaf_ver - 1"))


def _take(tx: Tx, lease: WorkerLease, topic: str) -> StepOutcome | None:
    """Receive the oldest message of a topic, compared with its entry; None where there is none."""
    rows = logged_tables.confirm(tx, MESSAGES.logged, _OLDEST, dfid=lease.flow_id, ns=lease.ns, topic=topic)
    if not rows:
        return None
    [columns] = rows
    MESSAGES.change(tx, _RECEIVE, MESSAGES.stored(columns), {"received_at": tx.now})
    # As it stands in the message: large parts are stored once, and it is sealed for the same person.
    return StepOutcome(columns["value"])


# --- reading -----------------------------------------------------------------------------------------------------

_LIST = sql(
    MESSAGES.select("WHERE dfid = :dfid AND ns = :ns AND (CAST(:topic AS TEXT) IS NULL OR topic = :topic) ORDER BY n")
)


def list(tx: Tx, flow_id: str, *, topic: str | None = None, ns: str = MAIN) -> tuple[Message, ...]:
    """Return the messages to a flow, in the order they were sent; those without `received_at` wait for it."""
    flows.get(tx, flow_id, ns=ns)
    return tuple(_shown(tx, each) for each in MESSAGES.all(tx, _LIST, dfid=flow_id, ns=ns, topic=topic))


def _shown(tx: Tx, message: Message) -> Message:
    return replace(message, recorded=recorded.load(tx, message.recorded))
