"""Activity: how many flows started and ended and how many escalations were answered, by hour and agent.

Rules:
- What has passed is counted once, by the sweep, into a row for each hour, namespace and agent; what is younger is
  counted when somebody asks. So an answer is always whole, and costs by its range, not by the number of flows.
- Of two sweeps at the same moment one counts: the moment up to which it is counted moves in the same transaction.
- A row that is committed later than `SETTLED_S` after its own moment may be missing from the counts.
- A flow ends once: one whose steps are undone counts as failed when that is done, unless it had ended before.
- Flows that are deleted later stay counted: they did happen.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.db import Query, Read, Tx, Work, Write, ask, sql
from holdproof.model.activity import ActivityCount, AnswerTimes
from holdproof.model.namespaces import MAIN
from holdproof.model.times import BEGINNING, END, later, to_micros

SETTLED_S: Final = 60.0
_IDLE_S: Final = 3_600.0
_BATCH: Final = 20_000
_MOST_BATCHES: Final = 100
_MOST_ROWS: Final = 10_000
_MOST_ANSWERS: Final = 1_000
_FACT: Final = "activity_counted_until"

_NAMES: Final = ("started", "completed", "failed", "cancelled", "escalations", "answers", "expired")
_COLUMNS: Final = ", ".join(_NAMES)
_UTC: Final = "to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24')"
_HOUR: Final = "substr(at, 1, 13)"


def _sums(*flags: str) -> str:
    return ", ".join(f"sum({each}) AS {name}" for each, name in zip(flags, _NAMES, strict=True))


def _is(column: str, *words: str) -> str:
    literals = ", ".join(f"'{word}'" for word in words)
    return f"CASE WHEN {column} IN ({literals}) THEN 1 ELSE 0 END"


_ENDS: Final = (_is("became", "COMPLETED"), _is("became", "FAILED", "COMPENSATED"), _is("became", "CANCELLED"))


# What happened after `since` up to `until`, each source by its index on time.
_HAPPENED: Final = (
    "SELECT ns, agent_id, created_at AS at, 1 AS started, '' AS became, 0 AS escalations, 0 AS answers, 0 AS expired"
    " FROM decision_flows WHERE created_at > :since AND created_at <= :until"
    " UNION ALL SELECT t.ns, f.agent_id, t.created_at, 0, t.to_status, 0, 0, 0"
    " FROM flow_transitions t"
    " JOIN decision_flows f ON f.dfid = t.dfid AND f.ns = t.ns WHERE t.created_at > :since AND t.created_at <= :until"
    " AND t.to_status IN ('COMPLETED', 'FAILED', 'COMPENSATED', 'CANCELLED')"
    " AND (t.from_status <> 'COMPENSATING' OR NOT EXISTS (SELECT 1 FROM flow_transitions e WHERE e.dfid = t.dfid"
    " AND e.ns = t.ns AND e.id < t.id AND e.to_status IN ('FAILED', 'CANCELLED')))"
    " UNION ALL SELECT ns, agent_id, created_at, 0, '', 1, 0, 0 FROM escalation_requests"
    " WHERE created_at > :since AND created_at <= :until"
    " UNION ALL SELECT ns, agent_id, resolved_at, 0, '', 0, CASE WHEN resolved_by = 'deadline' THEN 0 ELSE 1 END,"
    " CASE WHEN resolved_by = 'deadline' THEN 1 ELSE 0 END FROM escalation_requests"
    " WHERE resolved_at > :since AND resolved_at <= :until"
)
_COUNTS: Final = (
    f"SELECT ns, {_HOUR} AS hour, agent_id, "  # noqa: S608 (ours)
    + _sums("started", *_ENDS, *_NAMES[4:])
    + f" FROM ({_HAPPENED}) AS happened GROUP BY 1, 2, 3"
)


def _both(text: str) -> Query:
    return sql(text, postgres=text.replace(_HOUR, _UTC))


# --- counting what has passed --------------------------------------------------------------------------------------

_COUNT = _both(_COUNTS)
_ADD = sql(
    f"INSERT INTO activity_hours (ns, hour, agent_id, {_COLUMNS}) VALUES (:ns, :hour, :agent_id, "  # noqa: S608 (ours)
    + ", ".join(f":{name}" for name in _NAMES)
    + ") ON CONFLICT (ns, hour, agent_id) DO UPDATE SET "
    + ", ".join(f"{name} = activity_hours.{name} + excluded.{name}" for name in _NAMES)
)
_UNTIL = sql("SELECT value FROM store_facts WHERE key = :fact")
_BEGIN = sql(
    "INSERT INTO store_facts (key, value, updated_at) VALUES (:fact, :value, :now) ON CONFLICT (key) DO NOTHING"
)
_MOVE = sql("UPDATE store_facts SET value = :until, updated_at = :now WHERE key = :fact AND value = :since")
_END_OF_BATCH: Final = {
    table: sql(
        f"SELECT created_at FROM {table} WHERE created_at > :since AND created_at <= :until"  # noqa: S608 (ours)
        " ORDER BY created_at LIMIT 1 OFFSET :batch"
    )
    for table in ("flow_transitions", "decision_flows", "escalation_requests")
}


class _Batch(NamedTuple):
    since: str
    until: str
    rows: list[Any]


def count_passed() -> Work[int]:
    """Count what has passed since it was counted last; return how many batches that took."""
    done = 0
    while done < _MOST_BATCHES:
        batch = yield from ask(Read(_read_batch))
        if batch is None:
            break
        yield from ask(Write(lambda tx: _store(tx, batch)))  # noqa: B023 (awaited here)
        done += 1
    return done


def counted_until(tx: Tx) -> str:
    """Return the moment up to which everything is counted."""
    row = tx.one(_UNTIL, fact=_FACT)
    return BEGINNING if row is None else str(next(iter(row)))


def _read_batch(tx: Tx) -> _Batch | None:
    """Count the next stretch of time; None where all that is settled is counted."""
    since = counted_until(tx)
    until = later(tx.now, -SETTLED_S)
    if since >= until:
        return None
    # A stretch ends where one of the tables has enough for a batch; whatever bears that very moment belongs to it.
    for query in _END_OF_BATCH.values():
        row = tx.one(query, since=since, until=until, batch=_BATCH)
        if row is not None:
            until = min(until, str(next(iter(row))))
    rows = tx.all(_COUNT, since=since, until=until)
    # Where nothing happens nothing is written: an idle store stays as it is.
    if not rows and later(since, _IDLE_S) > until:
        return None
    return _Batch(since, until, rows)


def _store(tx: Tx, batch: _Batch) -> None:
    if batch.since == BEGINNING:
        tx.execute(_BEGIN, fact=_FACT, value=BEGINNING, now=tx.now)
    # Another sweep may have counted the same stretch meanwhile: then this one adds nothing.
    if tx.count(_MOVE, fact=_FACT, since=batch.since, until=batch.until, now=tx.now) == 0:
        return
    names = ("ns", "hour", "agent_id", *_NAMES)
    if batch.rows:
        tx.many(_ADD, [dict(zip(names, row, strict=True)) for row in batch.rows])


# --- asking ----------------------------------------------------------------------------------------------------------

_BUCKETS: Final = {"hour": "hour", "day": "substr(hour, 1, 10)", "all": "''"}


def _stats(bucket: str, agent: str) -> Query:
    text = (
        f"SELECT {_BUCKETS[bucket]}, {agent}, {_sums(*_NAMES)} FROM ("  # noqa: S608 (ours)
        f"SELECT ns, hour, agent_id, {_COLUMNS} FROM activity_hours"
        f" WHERE ns = :ns AND hour >= :from_hour AND hour < :to_hour UNION ALL {_COUNTS}) AS counts"
        " WHERE ns = :ns AND hour >= :from_hour AND hour < :to_hour GROUP BY 1, 2 ORDER BY 1, 2 LIMIT :limit"
    )
    return _both(text)


_STATS: Final = {
    (bucket, by_agent): _stats(bucket, "agent_id" if by_agent else "''")
    for bucket in _BUCKETS
    for by_agent in (False, True)
}


def stats(
    tx: Tx, *, by: str = "hour", by_agent: bool = False, since: str = BEGINNING, until: str = END, ns: str = MAIN
) -> tuple[ActivityCount, ...]:
    """Count flows and escalations by hour, by day, or all together; the hours of `since` and `until` count whole."""
    validation.one_of("by", by, _BUCKETS)
    rows = tx.all(
        _STATS[by, by_agent],
        ns=ns,
        from_hour=validation.moment("since", since)[:13],
        # The hour of `until` counts too: `~` comes after every digit.
        to_hour=f"{validation.moment('until', until)[:13]}~",
        since=counted_until(tx),
        until=END,
        limit=_MOST_ROWS,
    )
    return tuple(ActivityCount(bucket, agent_id, *map(int, counts)) for bucket, agent_id, *counts in rows)


_ANSWERED = sql(
    "SELECT created_at, resolved_at FROM escalation_requests WHERE resolved_at >= :since AND resolved_at < :until"
    " AND ns = :ns AND resolved_by <> 'deadline' ORDER BY resolved_at DESC LIMIT :limit"
)


def answer_times(tx: Tx, *, since: str = BEGINNING, until: str = END, ns: str = MAIN) -> AnswerTimes:
    """Return how long people took to answer escalations: of the newest thousand of a range."""
    rows = tx.all(
        _ANSWERED,
        since=validation.moment("since", since),
        until=validation.moment("until", until),
        ns=ns,
        limit=_MOST_ANSWERS,
    )
    waits: Sequence[float] = [
        (to_micros(resolved_at) - to_micros(created_at)) / 1e6 for created_at, resolved_at in rows
    ]
    return AnswerTimes(len(waits), median(waits) if waits else None, max(waits, default=None))
