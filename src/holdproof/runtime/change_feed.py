"""The change feed: flows that began, their transitions, new escalations and their resolutions since a cursor.

Rules:
- On SQLite ids are in commit order, and the cursor moves past everything it returned.
- On PostgreSQL ids are not in commit order, and resolutions are ordered only by time on both databases. The cursor
  therefore lags by `SETTLED_S`; events inside that window are delivered more than once. Consumers must deduplicate.
- That a flow began is a change from no status to CREATED, known by its id. Flows have no numbers and are followed by
  time: on SQLite, where times are in commit order, the cursor lags by a moment in which others may have begun too.
- A clock that was set back takes a cursor back with it, to what was delivered by number: a little comes twice then.
- Payloads are not delivered, only what happened to whom.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from holdproof.db import Query, Row, Tx, sql
from holdproof.errors import InvalidInputError
from holdproof.model.change_feed import Change, Cursor
from holdproof.model.times import BEGINNING, END, later
from holdproof.runtime import recorded

SETTLED_S: Final = 2.0
_SAME_MOMENT_S: Final = 0.1
"""Longer than the steps of any clock: what begins later has a later time."""
_PAGE: Final = 5_000

# What a change tells of, after its number and its moment, in the order of the queries below.
_FLOW_FIELDS: Final = ("flow_id", "root_flow_id", "agent_id", "flow_type", "from_status", "to_status", "reason", "ns")
_ESCALATION_FIELDS: Final = ("flow_id", "agent_id", "impact", "status", "reason", "deadline", "opened_by", "ns")
_RESOLUTION_FIELDS: Final = (
    *("flow_id", "agent_id", "impact", "status", "human_decision", "resolved_by", "comment", "ns"),
)

_TEXTS: Final = frozenset({"reason", "comment"})
"""What is sealed where the flow is a person's."""

_TRANSITIONS = sql(
    "SELECT t.id, t.created_at, t.dfid, t.root_dfid, f.agent_id, f.flow_type, t.from_status, t.to_status, t.reason,"
    " t.ns FROM flow_transitions t JOIN decision_flows f ON f.dfid = t.dfid AND f.ns = t.ns"
    " WHERE t.id > :after AND t.id <= :last"
    " AND (CAST(:ns AS TEXT) IS NULL OR t.ns = :ns) AND (CAST(:agent_id AS TEXT) IS NULL OR f.agent_id = :agent_id)"
    " ORDER BY t.id"
)
_BEGINNINGS = sql(
    "SELECT dfid, created_at, dfid, root_dfid, agent_id, flow_type, NULL, 'CREATED', NULL, ns FROM decision_flows"
    " WHERE created_at > :at AND created_at <= :last_at AND (CAST(:ns AS TEXT) IS NULL OR ns = :ns)"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id) ORDER BY created_at"
)
_ESCALATIONS = sql(
    "SELECT id, created_at, dfid, agent_id, impact, status, reason, deadline, opened_by, ns FROM escalation_requests"
    " WHERE id > :after AND id <= :last AND (CAST(:ns AS TEXT) IS NULL OR ns = :ns)"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id) ORDER BY id"
)
_RESOLUTIONS = sql(
    "SELECT id, resolved_at, dfid, agent_id, impact, status, human_decision, resolved_by, comment, ns"
    " FROM escalation_requests WHERE id > :open AND (resolved_at, id) > (:at, :after)"
    " AND (resolved_at, id) <= (:last_at, :last) AND (CAST(:ns AS TEXT) IS NULL OR ns = :ns)"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id) ORDER BY resolved_at, id"
)
# How far a page goes, whosesoever the rows are: so the cursor also advances past what a filter leaves out.
# A flow that an import dated ahead of the clock did not begin now.
_NEXT_BEGINNINGS = sql(
    "SELECT created_at FROM decision_flows WHERE created_at > :at AND created_at <= :latest"
    " ORDER BY created_at LIMIT :limit"
)
_NEXT_TRANSITIONS = sql("SELECT id, created_at FROM flow_transitions WHERE id > :after ORDER BY id LIMIT :limit")
_NEXT_ESCALATIONS = sql("SELECT id, created_at FROM escalation_requests WHERE id > :after ORDER BY id LIMIT :limit")
_NEXT_RESOLUTIONS = sql(
    "SELECT id, resolved_at FROM escalation_requests WHERE id > :open AND (resolved_at, id) > (:at, :after)"
    " ORDER BY resolved_at, id LIMIT :limit"
)


class _Page(NamedTuple):
    """Rows of one kind: those to deliver, how far all rows are settled, and whether there are no more."""

    rows: list[Row]
    at: str
    number: int
    is_last: bool


def since(
    tx: Tx, cursor: Cursor, *, agent_id: str | None = None, ns: str | None = None
) -> tuple[tuple[Change, ...], Cursor]:
    """Return a page of changes since a cursor, and the next cursor; of one agent, in one namespace, or all.

    The cursor also advances past filtered-out events, so a narrow filter does not rescan them.
    """
    cursor = _reached(tx, cursor)
    filters = {"agent_id": agent_id, "ns": ns}
    settled_by_id = _settled_by_id(tx)
    transitions = _page(
        tx, _NEXT_TRANSITIONS, _TRANSITIONS, {"after": cursor.transition}, filters=filters, horizon=settled_by_id
    )
    begun_flows, begun_at = _beginnings(tx, cursor.begun_at, filters)
    escalations = _page(
        tx, _NEXT_ESCALATIONS, _ESCALATIONS, {"after": cursor.escalation}, filters=filters, horizon=settled_by_id
    )
    # Read before the resolutions: what is resolved meanwhile is left for the next page.
    all_resolved = _all_resolved_up_to(tx)
    start = {"after": cursor.resolution, "at": cursor.resolved_at or BEGINNING, "open": cursor.resolved_up_to}
    horizon = later(tx.now, -SETTLED_S)
    resolutions = _page(tx, _NEXT_RESOLUTIONS, _RESOLUTIONS, start, filters=filters, horizon=horizon)
    following = Cursor(
        transition=transitions.number,
        escalation=escalations.number,
        resolved_at=resolutions.at,
        resolution=resolutions.number,
        resolved_up_to=all_resolved if resolutions.is_last else cursor.resolved_up_to,
        begun_at=begun_at,
    )
    changes = [
        *_changes(tx, "flow", _FLOW_FIELDS, begun_flows),
        *_changes(tx, "flow", _FLOW_FIELDS, transitions.rows),
        *_changes(tx, "escalation", _ESCALATION_FIELDS, escalations.rows),
        *_changes(tx, "resolution", _RESOLUTION_FIELDS, resolutions.rows),
    ]
    return tuple(sorted(changes, key=lambda each: (each.at, each.kind))), following


def _reached(tx: Tx, cursor: Cursor) -> Cursor:
    """Return a cursor that is not ahead of the clock: what happens now would be missed until that moment came again."""
    recent = later(tx.now, -SETTLED_S)
    if cursor.begun_at > tx.now:
        cursor = replace(cursor, begun_at=recent)
    if cursor.resolved_at > tx.now:
        cursor = replace(cursor, resolved_at=recent, resolution=0)
    return cursor


def _beginnings(tx: Tx, at: str, filters: dict[str, Any]) -> tuple[list[Row], str]:
    """Return the flows that began after a moment, and the moment up to which no earlier one can still appear.

    Those of one moment come together, however many: nothing of a flow says which of two was committed first.
    """
    moments = [moment for (moment,) in tx.all(_NEXT_BEGINNINGS, at=at, latest=later(tx.now, SETTLED_S), limit=_PAGE)]
    if not moments:
        return [], at
    horizon = later(tx.now, -_lag(tx))
    following = max((moment for moment in moments if moment <= horizon), default=at)
    return tx.all(_BEGINNINGS, at=at, last_at=moments[-1], **filters), following


def _lag(tx: Tx) -> float:
    """By how many seconds what is followed by the time of its beginning is settled."""
    return SETTLED_S if tx.dialect == "postgres" else _SAME_MOMENT_S


def _settled_by_id(tx: Tx) -> str:
    """The moment up to which no row with a smaller number can still appear."""
    return later(tx.now, -SETTLED_S) if tx.dialect == "postgres" else tx.now


def _page(
    tx: Tx, following: Query, query: Query, start: dict[str, Any], *, filters: dict[str, Any], horizon: str
) -> _Page:
    """Return the next rows after `start`: `following` finds how far the page goes, `query` what of it to deliver."""
    numbers = tx.all(following, **start, limit=_PAGE)
    at = start.get("at", "")
    number = start["after"]
    if not numbers:
        return _Page([], at, number, is_last=True)
    last, last_at = numbers[-1]
    upto = {"last": last, "last_at": last_at} if "at" in start else {"last": last}
    rows = tx.all(query, **start, **upto, **filters)
    for row_id, moment in numbers:
        if moment > horizon:  # others may still come before this one
            break
        at = moment
        number = row_id
    return _Page(rows, at, number, is_last=len(numbers) < _PAGE)


def _changes(tx: Tx, kind: str, names: tuple[str, ...], rows: list[Row]) -> Iterator[Change]:
    for number, at, *about in rows:
        fields = dict(zip(names, about, strict=True))
        opened = {name: recorded.open_text(tx, fields[name]) for name in _TEXTS & fields.keys()}
        yield Change(kind, number, at, {**fields, **opened})


_ALL_RESOLVED = sql(
    "SELECT coalesce((SELECT min(id) - 1 FROM escalation_requests WHERE status = 'PENDING'),"
    " (SELECT max(id) FROM escalation_requests), 0)"
)


def _all_resolved_up_to(tx: Tx) -> int:
    """The number up to which every escalation is resolved: no later resolution can be of one of these."""
    row = tx.one(_ALL_RESOLVED)
    assert row is not None, "an aggregate has one row"
    (number,) = row
    return int(number)


_MOST_BACK_S: Final = 60.0
"""How far back a follower may begin: a page that was just made, not one that slept."""

_NOW = sql(
    "SELECT coalesce((SELECT id FROM flow_transitions WHERE created_at <= :settled ORDER BY id DESC LIMIT 1), 0),"
    " coalesce((SELECT id FROM escalation_requests WHERE created_at <= :settled ORDER BY id DESC LIMIT 1), 0)"
)


def now(tx: Tx, *, moment: str = END) -> Cursor:
    """Return the cursor after everything that is settled; what is younger is delivered again (see `begin`).

    With `moment`, one within the last minute, it stands no later than that.
    """
    moment = max(min(moment, tx.now), later(tx.now, -_MOST_BACK_S))
    row = tx.one(_NOW, settled=min(moment, _settled_by_id(tx)))
    assert row is not None, "an aggregate has one row"
    transition, escalation = row
    # With the number 0 nothing of the past counts as resolved: what was resolved since `moment` is told too.
    resolved_up_to = _all_resolved_up_to(tx) if moment >= tx.now else 0
    return Cursor(transition, escalation, later(moment, -SETTLED_S), 0, resolved_up_to, later(moment, -_lag(tx)))


def begin(tx: Tx, *, moment: str = END) -> tuple[Cursor, frozenset[tuple[str, int | str]]]:
    """Return where to follow from, and the changes after it that are known already, by kind and id.

    Whatever is committed from now on is not among them, however it is dated. With `moment`, when a page was
    made, neither is what happened since.
    """
    cursor = now(tx, moment=moment)
    old, _ = since(tx, cursor)
    return cursor, frozenset((each.kind, each.id) for each in old if each.at <= moment)


def parse(text: str) -> Cursor:
    """Read a cursor that `since` or `now` gave out; InvalidInputError where it is none."""
    message = "cursor is not one of the change feed"
    try:
        cursor = Cursor.parse(text)
        moments = [later(each, 0) if each else "" for each in (cursor.resolved_at, cursor.begun_at)]
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError(message, field="cursor", value=text[:100]) from error
    numbers = (cursor.transition, cursor.escalation, cursor.resolution, cursor.resolved_up_to)
    if not all(0 <= number < 1 << 62 for number in numbers):
        raise InvalidInputError(message, field="cursor", value=text[:100])
    resolved_at, begun_at = moments
    return replace(cursor, resolved_at=resolved_at, begun_at=begun_at)
