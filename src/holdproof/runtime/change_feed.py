"""What is new since a place: transitions of flows, questions, and their answers.

Rules:
- On SQLite what is written later has a larger number, and a place moves past all of it that it gave.
- On PostgreSQL transactions end in another order than they begin, and answers have but their moment everywhere: there
  a place stays behind what is younger than `SETTLED_S`, which is given again until then. Whoever follows drops what is
  known.
- Payloads are not told, only what happened to whom.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from holdproof.db import Query, Row, Tx, sql
from holdproof.errors import InvalidInputError
from holdproof.model.change_feed import Change, Cursor
from holdproof.model.times import later
from holdproof.runtime.logged_rows import BEGINNING

SETTLED_S: Final = 2.0
_PAGE: Final = 5_000
_MOVED: Final = ("flow_id", "root_flow_id", "agent_id", "flow_type", "from_status", "to_status", "reason", "ns")
_ASKED: Final = ("flow_id", "agent_id", "impact", "status", "reason", "deadline", "opened_by", "ns")
_ANSWERED: Final = ("flow_id", "agent_id", "impact", "status", "human_decision", "resolved_by", "comment", "ns")

_MOVES = sql(
    "SELECT t.id, t.created_at, t.dfid, t.root_dfid, f.agent_id, f.flow_type, t.from_status, t.to_status, t.reason,"
    " t.ns FROM flow_transitions t JOIN decision_flows f ON f.dfid = t.dfid WHERE t.id > :after AND t.id <= :last"
    " AND (CAST(:ns AS TEXT) IS NULL OR t.ns = :ns) AND (CAST(:agent_id AS TEXT) IS NULL OR f.agent_id = :agent_id)"
    " ORDER BY t.id"
)
_QUESTIONS = sql(
    "SELECT id, created_at, dfid, agent_id, impact, status, reason, deadline, opened_by, ns FROM escalation_requests"
    " WHERE id > :after AND id <= :last AND (CAST(:ns AS TEXT) IS NULL OR ns = :ns)"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id) ORDER BY id"
)
_ANSWERS = sql(
    "SELECT id, resolved_at, dfid, agent_id, impact, status, human_decision, resolved_by, comment, ns"
    " FROM escalation_requests WHERE id > :open AND (resolved_at, id) > (:at, :after)"
    " AND (resolved_at, id) <= (:last_at, :last) AND (CAST(:ns AS TEXT) IS NULL OR ns = :ns)"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id) ORDER BY resolved_at, id"
)
_MOVED_NEXT = sql("SELECT id, created_at FROM flow_transitions WHERE id > :after ORDER BY id LIMIT :limit")
_ASKED_NEXT = sql("SELECT id, created_at FROM escalation_requests WHERE id > :after ORDER BY id LIMIT :limit")
_ANSWERED_NEXT = sql(
    "SELECT id, resolved_at FROM escalation_requests WHERE id > :open AND (resolved_at, id) > (:at, :after)"
    " ORDER BY resolved_at, id LIMIT :limit"
)


def since(
    tx: Tx, place: Cursor, *, agent_id: str | None = None, ns: str | None = None
) -> tuple[tuple[Change, ...], Cursor]:
    """What is new since a place, a page of it, and the place to ask from next; for one agent, in one namespace, or all.

    The place moves past what is not told too: whoever hears of little does not look through all the rest again.
    """
    who = {"agent_id": agent_id, "ns": ns}
    settled = later(tx.now, -SETTLED_S)
    numbered = _numbered(tx)
    moves, (_, moved), _ = _page(tx, (_MOVED_NEXT, _MOVES), {"after": place.transition}, who, numbered)
    asked, (_, known), _ = _page(tx, (_ASKED_NEXT, _QUESTIONS), {"after": place.asked}, who, numbered)
    open = _answered(tx)  # before the answers are read: what is answered meanwhile is left for the next time
    last = {"after": place.answered, "at": place.answered_at or BEGINNING, "open": place.open}
    answers, answered, whole = _page(tx, (_ANSWERED_NEXT, _ANSWERS), last, who, settled)
    further = Cursor(moved, known, *answered, open if whole else place.open)
    news = [*_told("flow", _MOVED, moves), *_told("escalation", _ASKED, asked)]
    news += _told("resolution", _ANSWERED, answers)
    return tuple(sorted(news, key=lambda each: (each.at, each.kind))), further


def _numbered(tx: Tx) -> str:
    """Up to which moment what has a number has all before it."""
    return later(tx.now, -SETTLED_S) if tx.dialect == "postgres" else tx.now


def _page(
    tx: Tx, queries: tuple[Query, Query], given: dict[str, Any], who: dict[str, Any], settled: str
) -> tuple[list[Row], tuple[str, int], bool]:
    """Of the next rows, whosoever's, those to be told; up to where all are settled; and whether there are no more."""
    following, query = queries
    rows = tx.all(following, **given, limit=_PAGE)
    before = (given.get("at", ""), given["after"])
    if not rows:
        return [], before, True
    upto = {"last": rows[-1][0]} | ({"last_at": rows[-1][1]} if "at" in given else {})
    return tx.all(query, **given, **upto, **who), _past(rows, settled, before), len(rows) < _PAGE


def _past(found: list[Row], settled: str, before: tuple[str, int]) -> tuple[str, int]:
    """The last row before the first that others may still come before: its moment and number."""
    for row in found:
        if row[1] > settled:
            break
        before = (row[1], row[0])
    return before


def _told(kind: str, names: tuple[str, ...], found: list[Row]) -> Iterator[Change]:
    for number, at, *about in found:
        yield Change(kind, number, at, dict(zip(names, about, strict=True)))


_OPEN = sql(
    "SELECT coalesce((SELECT min(id) - 1 FROM escalation_requests WHERE status = 'PENDING'),"
    " (SELECT max(id) FROM escalation_requests), 0)"
)


def _answered(tx: Tx) -> int:
    """Up to where all questions are answered: no later answer can be to one of these."""
    found = tx.one(_OPEN)
    assert found is not None, "an aggregate has one row"
    return int(found[0])


_NOW = sql(
    "SELECT coalesce((SELECT id FROM flow_transitions WHERE created_at <= :settled ORDER BY id DESC LIMIT 1), 0),"
    " coalesce((SELECT id FROM escalation_requests WHERE created_at <= :settled ORDER BY id DESC LIMIT 1), 0)"
)


def now(tx: Tx) -> Cursor:
    """The place after everything that is there and settled; what is younger is given again (`begin`)."""
    found = tx.one(_NOW, settled=_numbered(tx))
    assert found is not None, "an aggregate has one row"
    return Cursor(found[0], found[1], later(tx.now, -SETTLED_S), 0, _answered(tx))


def begin(tx: Tx) -> tuple[Cursor, frozenset[tuple[str, int]]]:
    """Where to follow from, and what of that is old news: what is committed from now on is not, however it is dated."""
    place = now(tx)
    old, _ = since(tx, place)
    return place, frozenset((each.kind, each.id) for each in old)


def parse(text: str) -> Cursor:
    """A place as it was given out."""
    try:
        place = Cursor.parse(text)
        moment = later(place.answered_at, 0) if place.answered_at else ""
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError("this is no place in the events", value=text[:100]) from error
    if not all(0 <= each < 1 << 62 for each in (place.transition, place.asked, place.answered, place.open)):
        raise InvalidInputError("this is no place in the events", value=text[:100])
    return replace(place, answered_at=moment)
