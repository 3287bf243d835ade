"""Flows and their events for other programs: one after the other, in bounded memory.

Rules:
- In the order of their ids, which is that in which they were opened or written; what comes meanwhile may be missed.
- Each is whole: a flow is read with its transitions and its steps in one snapshot.
"""

from functools import partial

from holdproof.db import Give, Read, Stream, Tx, ask
from holdproof.model.flows import Flow, FlowRecord
from holdproof.model.records import AuditEvent
from holdproof.runtime import audit, flow_queries, steps
from holdproof.runtime.logged_rows import BEGINNING, MAIN

_PAGE = 100


def flows(held: object, *, since: str = BEGINNING, ns: str = MAIN) -> Stream[FlowRecord]:
    """Every flow that was opened since then, each with its transitions and its steps."""
    del held  # whatever the noun holds
    after: str | None = ""
    while after is not None:
        records, after = yield from ask(Read(partial(_flows, since=since, after=after, ns=ns)))
        for record in records:
            yield Give(record)


def _flows(tx: Tx, *, since: str, after: str, ns: str) -> tuple[list[FlowRecord], str | None]:
    page = flow_queries.list(tx, since=since, after=after, limit=_PAGE, ns=ns)
    return [_record(tx, flow, ns) for flow in page.flows], page.next


def _record(tx: Tx, flow: Flow, ns: str) -> FlowRecord:
    return FlowRecord(flow, flow_queries.transitions(tx, flow.flow_id, ns=ns), steps.list(tx, flow.flow_id, ns=ns))


def events(
    held: object,
    *,
    event_type: str | None = None,
    severity: str | None = None,
    since: str = BEGINNING,
    ns: str = MAIN,
) -> Stream[AuditEvent]:
    """Every event of a flow that matches everything said, oldest first."""
    del held  # whatever the noun holds
    after: int | None = 0
    while after is not None:
        search = partial(audit.search, event_type=event_type, severity=severity, since=since, limit=_PAGE, ns=ns)
        page = yield from ask(Read(partial(search, after=after)))
        for event in page.events:
            yield Give(event)
        after = page.next
