"""The telemetry store: many events, queried by span, trace, instance, type and time.

Rules:
- `append` stores all its events or none; they are durable when it returns.
- Events come newest first; of those at the same moment, the one that arrived later.
- The newest events are rows. A thousand rows are sealed into a chunk; a batch of a thousand or more is sealed at once.
- One transaction changes chunks at a time: else repacking could restore events that another one has pruned.
- Retention goes by age: chunks past `hot_days` and `warm_days` are compressed harder, those past `cold_days` are
  removed. The file shrinks when events are removed.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from heapq import nlargest
from typing import Any, Final

from holdproof import validation
from holdproof.config import RetentionSettings
from holdproof.db import Call, Give, Read, Stream, Tx, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import InvalidInputError
from holdproof.executors import AsyncExecutor, Executor, Reads, Resource, Runs, RunsWith, StreamsWith, SyncExecutor
from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import to_micros
from holdproof.model.usage import Usage
from holdproof.storage import chunks
from holdproof.storage import usage as usages
from holdproof.storage.chunks import EventFilter, Line

_DAY: Final = 86_400_000_000
_EVER: Final = 2**62
_LONG_DAYS: Final = 1_000_000
_CHUNKS_A_STEP: Final = 50
_AGE: Final = "holdproof telemetry age"
_PAGE: Final = 64
_VACUUM_PAGES: Final = 2_000

Match = tuple[int, int, int, list[Any]]
"""Moment, chunk and position of an event, which order it among others, and its fields."""


# --- append --------------------------------------------------------------------------------------------------------

_ADD = sql("INSERT INTO telemetry_events (at, line) VALUES (:at, :line)")
_TAIL = sql("SELECT count(*) FROM telemetry_events")


def append(events: Iterable[TelemetryEvent]) -> Work[None]:
    """Store events, all of them or none."""
    lines = _lines(events)
    if lines:
        # Compressed here, in the thread of the caller: the writer must not spend its time on it.
        ready, rest = _split(lines)
        yield Write(lambda tx: _insert(tx, ready, rest))


def add(tx: Tx, events: Iterable[TelemetryEvent]) -> None:
    """Store events in a transaction of the caller."""
    _insert(tx, *_split(_lines(events)))


def _lines(events: Iterable[TelemetryEvent]) -> list[Line]:
    if not isinstance(events, Iterable):
        raise InvalidInputError("events must be a list of TelemetryEvent", field="events")
    return [chunks.line(event) for event in events]


def _split(lines: Sequence[Line]) -> tuple[list[dict[str, Any]], Sequence[Line]]:
    """Split lines into complete chunks and a rest."""
    complete = len(lines) - len(lines) % chunks.SIZE
    return [_sealed(lines[at : at + chunks.SIZE]) for at in range(0, complete, chunks.SIZE)], lines[complete:]


def _insert(tx: Tx, ready: Sequence[dict[str, Any]], rest: Sequence[Line]) -> None:
    for chunk in ready:
        _store(tx, **chunk)
    if rest:
        tx.many(_ADD, [{"at": each.at, "line": each.text} for each in rest])
        [(rows,)] = tx.all(_TAIL)
        if rows >= chunks.SIZE:
            seal(tx)


_STORE = sql(
    "INSERT INTO telemetry_chunks (first_at, last_at, events, codec, data)"
    " VALUES (:first_at, :last_at, :events, :codec, :data) RETURNING id"
)
_FIND = sql("INSERT INTO telemetry_finds (key, chunk) VALUES (:key, :chunk)")


def _sealed(lines: Sequence[Line]) -> dict[str, Any]:
    """Pack lines into a chunk, with the keys of its index."""
    moments = [each.at for each in lines]
    return {
        "keys": list(chunks.keys(each.names for each in lines)),
        "first_at": min(moments),
        "last_at": max(moments),
        "events": len(lines),
        "codec": chunks.HOT,
        "data": chunks.pack(each.text for each in lines),
    }


def _store(tx: Tx, *, keys: Sequence[int], **chunk: Any) -> None:
    [(number,)] = tx.all(_STORE, **chunk)
    # Sorted, so that neighbours in the index are inserted together.
    tx.many(_FIND, [{"key": key, "chunk": number} for key in sorted(keys)])


_TAKE = sql(
    "DELETE FROM telemetry_events WHERE id IN (SELECT id FROM telemetry_events ORDER BY at, id LIMIT :most)"
    " RETURNING at, id, line",
    postgres="DELETE FROM telemetry_events WHERE id IN (SELECT id FROM telemetry_events ORDER BY at, id LIMIT :most"
    " FOR UPDATE SKIP LOCKED) RETURNING at, id, line",
)


def seal(tx: Tx) -> int:
    """Move up to a thousand of the oldest rows into a chunk; return how many there were."""
    rows = sorted(tx.all(_TAKE, most=chunks.SIZE))
    if rows:
        text = "\n".join(line for _, _, line in rows)
        _store(tx, **_sealed(_lines_of(chunks.EVERYTHING, text)))
    return len(rows)


def _lines_of(conditions: EventFilter, text: str) -> list[Line]:
    """Parse the lines of a text that match, for another chunk."""
    return [chunks.line(chunks.event(parts)) for parts in conditions.among(text)]


# --- query ---------------------------------------------------------------------------------------------------------

_ROWS = sql(
    "SELECT id, line FROM telemetry_events WHERE at >= :since AND at <= :until AND instr(line, :needle) > 0",
    postgres="SELECT id, line FROM telemetry_events WHERE at >= :since AND at <= :until AND strpos(line, :needle) > 0",
)
_NEWEST = sql(
    "SELECT id, last_at FROM telemetry_chunks WHERE first_at <= :until AND last_at >= :since"
    " AND (last_at < :before OR (last_at = :before AND id < :id)) ORDER BY last_at DESC, id DESC LIMIT :limit"
)
_BY_KEY = sql(
    "SELECT c.id, c.last_at FROM telemetry_finds f JOIN telemetry_chunks c ON c.id = f.chunk"
    " WHERE f.key = :key AND c.first_at <= :until AND c.last_at >= :since"
    " AND (c.last_at < :before OR (c.last_at = :before AND c.id < :id)) ORDER BY c.last_at DESC, c.id DESC LIMIT :limit"
)
_CHUNK = sql("SELECT data, codec FROM telemetry_chunks WHERE id = :id")


def query(
    tx: Tx,
    span_id: str | None = None,
    limit: int = 100,
    *,
    event_type: str | None = None,
    trace_id: str | None = None,
    instance_id: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> list[TelemetryEvent]:
    """Return events that match all arguments, newest first; `since` and `until` are inclusive."""
    validation.count("limit", limit, most=2**63 - 1)
    first = -_EVER if since is None else chunks.moment(since)
    last = _EVER if until is None else chunks.moment(until)
    conditions = EventFilter(span_id, trace_id, instance_id, event_type, first, last).checked()
    return [chunks.event(parts) for *_, parts in _search(tx, conditions, limit)] if limit else []


def usage(
    tx: Tx, *, by: str = "model", since: str | None = None, until: str | None = None, limit: int = usages.MOST
) -> Usage:
    """Sum tokens, cost and time of the newest events, by model, agent, tool or type, and over time."""
    validation.count("limit", limit, least=1, most=2**31)
    return usages.sum_up(query(tx, limit=limit + 1, since=since, until=until), by=by, limit=limit)


def _search(tx: Tx, conditions: EventFilter, limit: int) -> list[Match]:
    rows = tx.all(_ROWS, since=conditions.since, until=conditions.until, needle=conditions.needle)
    matches = [(parts[0], _EVER, id, parts) for id, line in rows for parts in conditions.among(line)]
    best = nlargest(limit, matches)
    before = _EVER
    number = _EVER
    more = True
    while more:
        page = _page(tx, conditions, before, number)
        more = len(page) == _PAGE
        for number, before in page:
            # Chunks come newest first: none that follows can have an event newer than the oldest of the best.
            oldest_moment, *_ = best[-1] if best else (0,)
            if len(best) == limit and before < oldest_moment:
                return best
            [(data, codec)] = tx.all(_CHUNK, id=number)
            hits = conditions.among(chunks.unpack(data, codec))
            best = nlargest(limit, best + [(parts[0], number, at, parts) for at, parts in enumerate(hits)])
    return best


def _page(tx: Tx, conditions: EventFilter, before: int, number: int) -> list[tuple[Any, ...]]:
    """The next chunks that may have matching events, newest first."""
    bounds = {"since": conditions.since, "until": conditions.until, "before": before, "id": number, "limit": _PAGE}
    if conditions.key is None:
        return tx.all(_NEWEST, **bounds)
    return tx.all(_BY_KEY, key=conditions.key, **bounds)


_SNAPSHOT = sql(
    "SELECT id, NULL AS line, 0 AS at FROM telemetry_chunks UNION ALL SELECT id, line, at FROM telemetry_events"
)


def export() -> Stream[TelemetryEvent]:
    """Stream every event that exists when it begins: chunk by chunk in the order of their numbers, then single rows.

    Each is given once, also if it is sealed meanwhile; events that are removed meanwhile may be missed.
    """
    # All at once: on PostgreSQL a chunk with a lower number may become visible after one with a higher number.
    numbers, loose = yield from ask(Read(_snapshot))
    for number in numbers:
        text = yield from ask(Read(partial(_text, number=number)))
        for parts in chunks.EVERYTHING.among(text):
            yield Give(chunks.event(parts))
    for line in loose:
        for parts in chunks.EVERYTHING.among(line):
            yield Give(chunks.event(parts))


def _snapshot(tx: Tx) -> tuple[Sequence[int], list[str]]:
    """The numbers of all chunks, and the single rows; one statement, so of one moment."""
    rows = tx.all(_SNAPSHOT)
    loose = sorted((at, number, line) for number, line, at in rows if line is not None)
    return array("q", sorted(number for number, line, _ in rows if line is None)), [line for *_, line in loose]


def _text(tx: Tx, number: int) -> str:
    """The text of a chunk; empty if it was removed."""
    row = tx.one(_CHUNK, id=number)
    return "" if row is None else chunks.unpack(*row)


_COUNT = sql(
    "SELECT (SELECT count(*) FROM telemetry_events)"
    " + CAST((SELECT coalesce(sum(events), 0) FROM telemetry_chunks) AS BIGINT)"
)


def count(tx: Tx) -> int:
    """Return the number of events."""
    [(events,)] = tx.all(_COUNT)
    return int(events)


# --- age -----------------------------------------------------------------------------------------------------------


def prune(older_than_days: float) -> Work[int]:
    """Remove older events and shrink the file; return how many were removed."""
    validation.number("older_than_days", older_than_days, least=0, most=_LONG_DAYS)
    removed = 0
    while step := (yield from ask(Write(lambda tx: _prune(tx, _ago(tx, older_than_days))))):
        removed += step
    yield from shrink()
    return removed


def _ago(tx: Tx, days: float) -> int:
    return to_micros(tx.now) - round(days * _DAY)


_DROP_ROWS = sql(
    "DELETE FROM telemetry_events WHERE id IN (SELECT id FROM telemetry_events WHERE at < :limit LIMIT 10000)"
)
_OLD = sql(
    "SELECT id, last_at, events FROM telemetry_chunks WHERE first_at < :limit ORDER BY last_at, id LIMIT :most",
)
_DROP_CHUNK = sql("DELETE FROM telemetry_chunks WHERE id = :id")
_CUT = sql(
    "UPDATE telemetry_chunks SET data = :data, events = :events, first_at = :first_at WHERE id = :id",
)


def _prune(tx: Tx, limit: int) -> int:
    """Do one bounded step: rows, complete chunks, and the old part of chunks that have both; return how many events."""
    lock_exclusive(tx, _AGE)
    # Bounded steps: other writers get their turn in between.
    removed = tx.count(_DROP_ROWS, limit=limit)
    for number, last_at, events in tx.all(_OLD, limit=limit, most=_CHUNKS_A_STEP):
        if last_at < limit:
            tx.execute(_DROP_CHUNK, id=number)
            removed += events
        else:
            removed += events - _cut(tx, number, limit)
    return removed


def _cut(tx: Tx, number: int, limit: int) -> int:
    """Remove the events of a chunk before the limit; return how many remain."""
    [(data, codec)] = tx.all(_CHUNK, id=number)
    remaining = _lines_of(replace(chunks.EVERYTHING, since=limit), chunks.unpack(data, codec))
    packed = chunks.pack((each.text for each in remaining), codec)
    tx.execute(
        _CUT, id=number, data=packed, events=len(remaining), first_at=min(each.at for each in remaining), expect=1
    )
    return len(remaining)


def retain(retention: RetentionSettings) -> Work[int]:
    """Compress old chunks harder, and remove those past `cold_days`; return how many events were removed."""
    for codec, harder, days in ((chunks.HOT, chunks.WARM, retention.hot_days), _cold(retention)):
        while (yield from ask(Write(lambda tx: _repack(tx, codec, harder, days)))):  # noqa: B023
            pass
    removed = 0
    if retention.cold_days is not None:
        removed = yield from prune(retention.cold_days)
    else:
        yield from shrink()
    return removed


def _cold(retention: RetentionSettings) -> tuple[str, str, int]:
    return chunks.WARM, chunks.COLD, retention.warm_days


_LIGHT = sql(
    "SELECT id, data FROM telemetry_chunks WHERE codec = :codec AND last_at < :limit ORDER BY last_at, id LIMIT :most"
)
_PACKED = sql("UPDATE telemetry_chunks SET codec = :codec, data = :data WHERE id = :id")


def _repack(tx: Tx, codec: str, harder: str, days: int) -> int:
    lock_exclusive(tx, _AGE)
    light = tx.all(_LIGHT, codec=codec, limit=_ago(tx, days), most=_CHUNKS_A_STEP)
    for number, data in light:
        packed = chunks.pack([chunks.unpack(data, codec)], harder)
        tx.execute(_PACKED, id=number, codec=harder, data=packed, expect=1)
    return len(light)


_FREE = sql("SELECT freelist_count FROM pragma_freelist_count", postgres="SELECT 0")


def shrink() -> Work[None]:
    """Give free pages of a file back, in steps; a server does that itself."""
    while (yield from ask(Write(_shrink))):
        pass


def _shrink(tx: Tx) -> bool:
    [(before,)] = tx.all(_FREE)
    if before:
        tx.script(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
    # No fewer than before: the pragma does nothing for a file that was created without auto_vacuum.
    [(after,)] = tx.all(_FREE)
    return bool(after < before)


# --- the resource --------------------------------------------------------------------------------------------------


def _close(telemetry: "Telemetry[Any]") -> Work[None]:
    """Close it; may be called twice."""
    yield Call(telemetry.executor.database.close)


def _retain(telemetry: "Telemetry[Any]") -> Work[int]:
    """Compress old chunks harder, and remove those past `cold_days`; return how many events were removed."""
    return (yield from retain(telemetry.retention))


def _export(telemetry: "Telemetry[Any]") -> Stream[TelemetryEvent]:
    """Stream every event that exists when it begins, a chunk at a time."""
    del telemetry
    return (yield from export())


class Telemetry(Resource[Executor]):
    """Events in the order they happened."""

    group = "Inspect"

    append = Runs(append, example="@events.jsonl", creates=True)
    query = Reads(
        query,
        columns=("timestamp", "event_type", "instance_id", "span_id", "trace_id", "data"),
        bounds={"limit": (0, 2**63 - 1)},
        example="--event-type tool.call --since 2026-01-01T00:00:00Z",
    )
    count = Reads(count)
    usage = Reads(
        usage,
        bounds={"limit": (1, 2**31)},
        words={"by": ("model", "agent", "tool", "type")},
        parameters={
            "by": "What is summed together: model, agent, tool or type.",
            "limit": "How many of the newest events are read.",
        },
        example="--by agent --since 2026-01-01T00:00:00Z",
    )
    export = StreamsWith(_export, reads=True, alias="export telemetry", draw="lines", example="--out events.jsonl")
    prune = Runs(prune, example="730")
    retain = RunsWith(_retain)
    close = RunsWith(_close, internal=True, local=True)

    def __init__(self, executor: Executor, retention: RetentionSettings | None = None) -> None:
        super().__init__(executor)
        self.retention = retention or RetentionSettings()

    @property
    def executor(self) -> AsyncExecutor | SyncExecutor:
        """The executor of its database."""
        return self._executor

    @property
    def held(self) -> "Telemetry[Any]":
        """Itself: its retention and its executor."""
        return self
