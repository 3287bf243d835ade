"""Exports: flows and audit events for other programs, one after the other, in bounded memory.

Rules:
- In the order of their ids, which is that in which they were opened or written; what is written during the export may
  be missing.
- Each is complete: a flow is read with its transitions and its steps in one transaction.
"""

from functools import partial

from holdproof.db import Give, Read, Stream, Tx, ask
from holdproof.model.flows import Flow, FlowRecord
from holdproof.model.namespaces import MAIN
from holdproof.model.records import AuditEvent
from holdproof.model.times import BEGINNING
from holdproof.runtime import audit, flow_queries, steps

_PAGE = 100


def flows(registry: object, *, since: str = BEGINNING, ns: str = MAIN) -> Stream[FlowRecord]:
    """Stream every flow that was opened since then, each with its transitions and its steps."""
    del registry  # what the resource holds; an export needs nothing of it
    after = ""
    while True:
        records = yield from ask(Read(partial(_flows, since=since, after=after, ns=ns)))
        for record in records:
            yield Give(record)
        if len(records) < _PAGE:
            return
        after = records[-1].flow.flow_id


def _flows(tx: Tx, *, since: str, after: str, ns: str) -> list[FlowRecord]:
    flows = flow_queries.scan(tx, since=since, after=after, limit=_PAGE, ns=ns)
    return [_record(tx, flow, ns) for flow in flows]


def _record(tx: Tx, flow: Flow, ns: str) -> FlowRecord:
    return FlowRecord(flow, flow_queries.transitions(tx, flow.flow_id, ns=ns), steps.list(tx, flow.flow_id, ns=ns))


def events(
    context: object,
    *,
    event_type: str | None = None,
    severity: str | None = None,
    since: str = BEGINNING,
    ns: str = MAIN,
) -> Stream[AuditEvent]:
    """Stream every audit event that matches the filters, oldest first."""
    del context  # as above
    after = 0
    scan = partial(audit.scan, event_type=event_type, severity=severity, since=since, limit=_PAGE, ns=ns)
    while True:
        page = yield from ask(Read(partial(scan, after=after)))
        for event in page:
            yield Give(event)
        if len(page) < _PAGE:
            return
        after = page[-1].id
