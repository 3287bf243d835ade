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

from holdfast.db import Query, Row, Tx, sql
from holdfast.errors import InvalidInputError
from holdfast.model.news import News, Place
from holdfast.model.times import later
from holdfast.runtime.rows import BEGINNING

SETTLED_S: Final = 2.0
_PAGE: Final = 1000
_MOVED: Final = ("dfid", "root_dfid", "agent_id", "flow_type", "from_status", "to_status", "reason", "ns")
_ASKED: Final = ("dfid", "agent_id", "impact", "status", "reason", "deadline", "opened_by", "ns")
_ANSWERED: Final = ("dfid", "agent_id", "impact", "status", "human_decision", "resolved_by", "comment", "ns")

_MOVES = sql(
    "SELECT t.id, t.created_at, t.dfid, t.root_dfid, f.agent_id, f.flow_type, t.from_status, t.to_status, t.reason,"
    " t.ns FROM flow_transitions t JOIN decision_flows f ON f.dfid = t.dfid WHERE t.id > :after"
    " AND (CAST(:ns AS TEXT) IS NULL OR t.ns = :ns) AND (CAST(:agent_id AS TEXT) IS NULL OR f.agent_id = :agent_id)"
    " ORDER BY t.id LIMIT :limit"
)
_QUESTIONS = sql(
    "SELECT id, created_at, dfid, agent_id, impact, status, reason, deadline, opened_by, ns FROM escalation_requests"
    " WHERE id > :after AND (CAST(:ns AS TEXT) IS NULL OR ns = :ns)"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id) ORDER BY id LIMIT :limit"
)
_ANSWERS = sql(
    "SELECT id, resolved_at, dfid, agent_id, impact, status, human_decision, resolved_by, comment, ns"
    " FROM escalation_requests WHERE id > :open AND (resolved_at, id) > (:at, :after)"
    " AND (CAST(:ns AS TEXT) IS NULL OR ns = :ns) AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id)"
    " ORDER BY resolved_at, id LIMIT :limit"
)


def since(
    tx: Tx, place: Place, *, agent_id: str | None = None, ns: str | None = None
) -> tuple[tuple[News, ...], Place]:
    """What is new since a place, and the place to ask from next; for one agent, in one namespace, or all."""
    who = {"agent_id": agent_id, "ns": ns}
    settled = later(tx.now, -SETTLED_S)
    numbered = settled if tx.dialect == "postgres" else tx.now
    moves = [*_pages(tx, _MOVES, {"after": place.transition, **who})]
    asked = [*_pages(tx, _QUESTIONS, {"after": place.asked, **who})]
    last = {"after": place.answered, "at": place.answered_at or BEGINNING, "open": place.open}
    answers = [*_pages(tx, _ANSWERS, {**last, **who})]
    _, moved = _past(moves, numbered, ("", place.transition))
    _, known = _past(asked, numbered, ("", place.asked))
    further = Place(moved, known, *_past(answers, settled, (place.answered_at, place.answered)), _answered(tx))
    news = [*_told("flow", _MOVED, moves), *_told("escalation", _ASKED, asked)]
    news += _told("resolution", _ANSWERED, answers)
    return tuple(sorted(news, key=lambda each: (each.at, each.kind))), further


def _pages(tx: Tx, query: Query, given: dict[str, Any]) -> Iterator[Row]:
    """Every row after a place, a page at a time."""
    while True:
        found = tx.all(query, **given, limit=_PAGE)
        yield from found
        if len(found) < _PAGE:
            return
        given["after"] = found[-1][0]
        if "at" in given:
            given["at"] = found[-1][1]


def _past(found: list[Row], settled: str, before: tuple[str, int]) -> tuple[str, int]:
    """The last row before the first that others may still come before: its moment and number."""
    for row in found:
        if row[1] > settled:
            break
        before = (row[1], row[0])
    return before


def _told(kind: str, names: tuple[str, ...], found: list[Row]) -> Iterator[News]:
    for number, at, *about in found:
        yield News(kind, number, at, dict(zip(names, about, strict=True)))


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
    "SELECT coalesce((SELECT max(id) FROM flow_transitions), 0), coalesce((SELECT max(id) FROM escalation_requests), 0)"
)


def now(tx: Tx) -> Place:
    """The place after everything that is there."""
    found = tx.one(_NOW)
    assert found is not None, "an aggregate has one row"
    return Place(found[0], found[1], tx.now, 0, _answered(tx))


def parse(text: str) -> Place:
    """A place as it was given out."""
    try:
        place = Place.parse(text)
        moment = later(place.answered_at, 0) if place.answered_at else ""
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError("this is no place in the events", value=text[:100]) from error
    if not all(0 <= each < 1 << 62 for each in (place.transition, place.asked, place.answered, place.open)):
        raise InvalidInputError("this is no place in the events", value=text[:100])
    return replace(place, answered_at=moment)
