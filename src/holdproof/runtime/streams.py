"""Streams: what a flow gives out item by item while it runs, as the words of a model; readers resume at an offset.

Rules:
- Items are numbered 0, 1, 2 … in the order of their commits; nothing is written after the end.
- What the flow itself writes is recorded as a step: a flow that is run again writes nothing twice. Inside a step items
  are written directly; a step that runs again writes its items again.
- A reader gets every item from its offset on, each compared with its entry in the log (TamperedError for one that was
  edited, or is missing before a later one), and ends where the stream is closed or the flow has ended.
- Values are sealed for the person whose flow it is.
"""

from functools import partial
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.db import Give, Read, Stream, Tx, Wait, Work, Write, ask, sql
from holdproof.errors import ConflictError, TamperedError, TimeoutExpiredError
from holdproof.evidence import logged_tables
from holdproof.evidence.tables import Table
from holdproof.model.messages import StreamItem
from holdproof.model.namespaces import MAIN
from holdproof.model.times import later
from holdproof.model.typed_json import Recordable
from holdproof.runtime import flow_run, flows, own_steps, recorded
from holdproof.runtime.flow_run import FlowRun
from holdproof.runtime.suspension import WorkerLease

ITEMS: Final = Table(
    "flow_stream_items",
    StreamItem,
    kind="stream",
    key="item_id",
    logged=("item_id", "dfid", "stream", "position", "value", "closed", "written_at", "ns"),
    # `offset` is a word of SQL.
    columns={"offset": "position", "recorded": "value"},
)
_PAGE: Final = 100


def write(run: FlowRun, stream: str, value: Recordable = None, *, in_step: bool = False) -> Work[None]:
    """Write the next item of a stream, for `flows.stream`; ConflictError after its end."""
    yield from _append(run, stream, own_steps.encoded(value, "the item"), in_step=in_step)


def close(run: FlowRun, stream: str, *, in_step: bool = False) -> Work[None]:
    """End a stream: its readers end too."""
    yield from _append(run, stream, None, in_step=in_step)


def _append(run: FlowRun, stream: str, text: str | None, *, in_step: bool) -> Work[None]:
    own_steps.name("stream", stream)
    add = partial(_add, lease=run.lease, stream=stream, text=text)
    if in_step or flow_run.is_inside_step(run):
        yield from ask(Write(partial(_add_leased, lease=run.lease, add=add)))
    else:
        yield from own_steps.record(run, f"{'close' if text is None else 'write'} {stream}", add)


def _add_leased(tx: Tx, lease: WorkerLease, add: Any) -> None:
    flow_run.lock_leased(tx, lease)
    add(tx)


_LAST = sql(
    "SELECT position, closed FROM flow_stream_items WHERE dfid = :dfid AND ns = :ns AND stream = :stream"
    " ORDER BY position DESC LIMIT 1"
)
_ADD = sql(ITEMS.insert())


def _add(tx: Tx, lease: WorkerLease, stream: str, text: str | None) -> int:
    """Write an item, or the end where there is no text, and return its offset."""
    last, closed = tx.one(_LAST, dfid=lease.flow_id, ns=lease.ns, stream=stream) or (-1, 0)
    if closed:
        raise ConflictError(f"the stream {stream} was closed", flow_id=lease.flow_id, stream=stream)
    if tx.limiter is not None and last < 0:
        tx.limiter.require(tx, lease.ns, "open_streams")
    row = {
        "item_id": tx.new_id(),
        "dfid": lease.flow_id,
        "stream": stream,
        "position": last + 1,
        "value": None if text is None else recorded.store(tx, text, lease.subject),
        "closed": int(text is None),
        "written_at": tx.now,
        "ns": lease.ns,
    }
    ITEMS.add(tx, _ADD, row)
    tx.notify(f"flow:{lease.flow_id}")
    return int(row["position"])


# --- reading -----------------------------------------------------------------------------------------------------


class _ItemPage(NamedTuple):
    """The next items of a stream, whether there will be no more, and when they were read."""

    items: list[StreamItem]
    ended: bool
    now: str


def read(
    registry: object,
    flow_id: str,
    stream: str,
    *,
    offset: int = 0,
    timeout_s: float | None = None,
    ns: str = MAIN,
) -> Stream[StreamItem]:
    """Stream the items that a flow writes, from an offset on, until it closes the stream or ends.

    Raises TimeoutExpiredError where the next item does not come within `timeout_s`.
    """
    del registry  # what the resource holds; reading needs nothing of it
    own_steps.name("stream", stream)
    position = validation.position("offset", offset)
    limit_s = None if timeout_s is None else validation.seconds("timeout_s", timeout_s)
    until = ""
    while True:
        page = yield from ask(Read(partial(_page, flow_id=flow_id, stream=stream, start=position, ns=ns)))
        for item in page.items:
            yield Give(item)
        position += len(page.items)
        if page.ended:
            return
        if page.items:
            until = ""
            continue
        if not until and limit_s is not None:
            until = later(page.now, limit_s)
        if until and page.now >= until:
            raise TimeoutExpiredError(
                f"item {position} of stream {stream} has not come", flow_id=flow_id, stream=stream
            )
        yield Wait(f"flow:{flow_id}", until or None)


_ITEMS = logged_tables.selecting(
    ITEMS.logged,
    "position",
    "t.dfid = :dfid AND t.ns = :ns AND t.stream = :stream AND t.position >= :start AND t.position < :end",
)


def _page(tx: Tx, flow_id: str, stream: str, start: int, ns: str) -> _ItemPage:
    # One snapshot: a flow that has ended in it has written all that it will ever write.
    flow = flows.get(tx, flow_id, ns=ns)
    rows = logged_tables.confirm(
        tx, ITEMS.logged, _ITEMS, dfid=flow_id, ns=ns, stream=stream, start=start, end=start + _PAGE
    )
    items: list[StreamItem] = []
    for columns in rows:
        if columns["position"] != start + len(items):
            missing = start + len(items)
            raise TamperedError(f"item {missing} of stream {stream} was removed", table=ITEMS.name, row=str(missing))
        if columns["closed"]:
            return _ItemPage(items, True, tx.now)
        items.append(StreamItem(columns["position"], recorded.load(tx, columns["value"]), columns["written_at"]))
    if rows:
        return _ItemPage(items, flow.ended and len(rows) < _PAGE, tx.now)
    # A reader may ask for what comes after the end.
    _, closed = tx.one(_LAST, dfid=flow_id, ns=ns, stream=stream) or (-1, 0)
    return _ItemPage([], flow.ended or bool(closed), tx.now)
