"""Changing many flows at once: cancel, try again, delete; each by the filters of `flows.list`.

Rules:
- At least one filter is named, so that no slip changes every flow of a namespace.
- Each flow is a transaction of its own: one that cannot be changed is named with the reason, and the others go on.
- A dry run names the flows by the same query, and changes nothing.
- A failed flow is tried again as a fork with real effects: at the step that failed, with what was done before shared;
  from the start where its steps were undone. One that was forked already is not tried twice.
- Flows are deleted as retention deletes them: whole trees that have ended, their entries stay in the log, a pruning
  names them, and every proof stays valid.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from holdproof import validation
from holdproof.crypto import canonical
from holdproof.db import Read, Tx, Work, Write, ask
from holdproof.errors import ConflictError, HoldproofError, InvalidInputError
from holdproof.evidence import prunings
from holdproof.model.flows import TERMINAL, BulkChange, Flow
from holdproof.model.namespaces import MAIN
from holdproof.model.times import BEGINNING, END
from holdproof.runtime import flow_search, flows, forks, retention
from holdproof.runtime.flow_search import Filters

_CANCELLABLE: Final = frozenset({"CREATED", "RUNNING", "WAITING_ESCALATION"})
_FAILED: Final = frozenset({"FAILED", "COMPENSATED"})
_PAGE: Final = 200
_MOST: Final = 100_000
Change = Callable[[Tx, Flow], str | None]
"""Changes one flow; returns the id of the flow that runs in its place, if one does."""


def cancel_many(
    *,
    reason: str = "cancelled together with others",
    text: str = "",
    status: str | None = None,
    agent_id: str | None = None,
    flow_type: str | None = None,
    attributes: Mapping[str, str] | None = None,
    error: str = "",
    inputs: str = "",
    trouble: str | None = None,
    since: str = BEGINNING,
    until: str = END,
    limit: int = _MOST,
    dry_run: bool = False,
    ns: str = MAIN,
) -> Work[BulkChange]:
    """Cancel the open flows that match, and those that they started; one with steps to undo goes on to COMPENSATING."""
    filters = Filters(
        text=text,
        status=status,
        agent_id=agent_id,
        flow_type=flow_type,
        attributes=attributes,
        error=error,
        inputs=inputs,
        trouble=trouble,
        since=since,
        until=until,
        ns=ns,
    )
    return (yield from _change(filters, _CANCELLABLE, partial(_cancel, reason=reason), limit, dry_run))


def retry_many(
    *,
    text: str = "",
    status: str | None = None,
    agent_id: str | None = None,
    flow_type: str | None = None,
    attributes: Mapping[str, str] | None = None,
    error: str = "",
    inputs: str = "",
    trouble: str | None = None,
    since: str = BEGINNING,
    until: str = END,
    limit: int = _MOST,
    dry_run: bool = False,
    ns: str = MAIN,
) -> Work[BulkChange]:
    """Run the failed flows that match again, each as a fork at the step that failed; workers run them."""
    filters = Filters(
        text=text,
        status=status,
        agent_id=agent_id,
        flow_type=flow_type,
        attributes=attributes,
        error=error,
        inputs=inputs,
        trouble=trouble,
        since=since,
        until=until,
        ns=ns,
    )
    return (yield from _change(filters, _FAILED, _retry, limit, dry_run))


def delete_many(
    *,
    text: str = "",
    status: str | None = None,
    agent_id: str | None = None,
    flow_type: str | None = None,
    attributes: Mapping[str, str] | None = None,
    error: str = "",
    inputs: str = "",
    trouble: str | None = None,
    since: str = BEGINNING,
    until: str = END,
    limit: int = _MOST,
    who: str = "operator",
    dry_run: bool = False,
    ns: str = MAIN,
) -> Work[BulkChange]:
    """Delete the ended flows that match, with all below them; their entries stay in the log, and proofs stay valid."""
    validation.name("who", who)
    filters = Filters(
        text=text,
        status=status,
        agent_id=agent_id,
        flow_type=flow_type,
        attributes=attributes,
        error=error,
        inputs=inputs,
        trouble=trouble,
        since=since,
        until=until,
        ns=ns,
    )
    return (yield from _change(filters, TERMINAL, partial(_delete, filters=filters, who=who), limit, dry_run))


def _change(filters: Filters, statuses: frozenset[str], change: Change, limit: int, dry_run: bool) -> Work[BulkChange]:
    if replace(filters, ns=MAIN) == Filters():
        raise InvalidInputError("name at least one filter: status, agent_id, flow_type, since, …", field="status")
    validation.count("limit", limit, least=1)
    matching = yield from _matching(filters, statuses, limit)
    changed: list[str] = []
    successors: list[str] = []
    refused: list[str] = []
    for flow in matching:
        try:
            successor = None if dry_run else (yield from ask(Write(_one(change, flow))))
        except HoldproofError as error:
            refused.append(f"{flow.flow_id}: {error.message}")
            continue
        changed.append(flow.flow_id)
        successors += [successor] if successor is not None else []
    return BulkChange(dry_run, tuple(changed), tuple(successors), tuple(refused))


def _one(change: Change, flow: Flow) -> Callable[[Tx], str | None]:
    return lambda tx: change(tx, flow)


def _matching(filters: Filters, statuses: frozenset[str], limit: int) -> Work[list[Flow]]:
    """Return the flows to change, read before the first is: a change may move flows out of the filter."""
    matching: list[Flow] = []
    cursor: str | None = None
    while True:
        page = yield from ask(Read(partial(flow_search.find, filters=filters, cursor=cursor, limit=_PAGE)))
        matching += [flow for flow in page.items if flow.status in statuses]
        cursor = page.next_cursor
        if cursor is None or len(matching) >= limit:
            return matching[:limit]


def _cancel(tx: Tx, flow: Flow, reason: str) -> None:
    # A child of one that was cancelled before it has ended already.
    if not flows.lock(tx, flow.flow_id, ns=flow.ns).ended:
        flows.cancel(tx, flow.flow_id, reason=reason, ns=flow.ns)


def _retry(tx: Tx, flow: Flow) -> str:
    return forks.retry(tx, flow.flow_id, ns=flow.ns).flow_id


def _delete(tx: Tx, flow: Flow, filters: Filters, who: str) -> None:
    if flow.parent_flow_id is not None:
        raise ConflictError(f"it is part of the flow {flow.root_flow_id}, and deleted with it", flow_id=flow.flow_id)
    handles = retention.remove_tree(tx, flow.flow_id, ns=flow.ns)
    if not handles:
        raise ConflictError("it, or a flow below it, is open, dirty, asked about, forked or held", flow_id=flow.flow_id)
    rule: dict[str, Any] = {name: value for name, value in filters.params().items() if value not in {None, ""}}
    named = {table: tuple(each) for table, each in handles.items()}
    prunings.record(tx, "flows", named, rule=canonical.dump_text(rule), who=who, count=1, ns=flow.ns)
