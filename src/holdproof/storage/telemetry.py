"""The telemetry store: events in bulk, found by span, trace, instance, type and time.

Rules:
- `append` keeps all its events or none; they survive the process when it returns.
- Events come newest first; of those at the same moment, the one that arrived later.
- The newest events are rows. Once there are a thousand they are sealed into a chunk; a batch of a thousand or more is
  sealed at once.
- A chunk is changed by one at a time: whoever packs it anew would else put back what another cut away meanwhile.
- Retention goes by age: chunks past `hot_days` and `warm_days` are packed harder, those past `cold_days` are removed.
  What is removed gives its space back.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from heapq import nlargest
from typing import Any, Final

from holdproof.config import Retention
from holdproof.db import Call, Give, Read, Stream, Tx, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import InvalidInputError
from holdproof.executors import AsyncExecutor, Executor, Reads, Resource, Runs, RunsWith, StreamsWith, SyncExecutor
from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import to_micros
from holdproof.storage import chunks, values
from holdproof.storage.chunks import Line, Wanted

_DAY: Final = 86_400_000_000
_EVER: Final = 2**62
_LONG_DAYS: Final = 1_000_000
_CHUNKS_A_STEP: Final = 50
_AGE: Final = "holdproof telemetry age"
_PAGE: Final = 64
_VACUUM_PAGES: Final = 2_000

Found = tuple[int, int, int, list[Any]]


# --- append --------------------------------------------------------------------------------------------------------

_ADD = sql("INSERT INTO telemetry_events (at, line) VALUES (:at, :line)")
_TAIL = sql("SELECT count(*) FROM telemetry_events")


def append(events: Iterable[TelemetryEvent]) -> Work[None]:
    """Keep events, all of them or none."""
    lines = _lines(events)
    if lines:
        ready, rest = _parted(lines)
        yield Write(lambda tx: _keep(tx, ready, rest))


def add(tx: Tx, events: Iterable[TelemetryEvent]) -> None:
    """Keep events in a transaction that does more than that."""
    _keep(tx, *_parted(_lines(events)))


def _lines(events: Iterable[TelemetryEvent]) -> list[Line]:
    if not isinstance(events, Iterable):
        raise InvalidInputError("events are given as a list", field="events")
    return [chunks.line(event) for event in events]


def _parted(lines: Sequence[Line]) -> tuple[list[dict[str, Any]], Sequence[Line]]:
    """Whole chunks, and what is left."""
    whole = len(lines) - len(lines) % chunks.SIZE
    return [_sealed(lines[at : at + chunks.SIZE]) for at in range(0, whole, chunks.SIZE)], lines[whole:]


def _keep(tx: Tx, ready: Sequence[dict[str, Any]], rest: Sequence[Line]) -> None:
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
    """Lines as a chunk and what it is found by."""
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
    tx.many(_FIND, [{"key": key, "chunk": number} for key in sorted(keys)])


_TAKE = sql(
    "DELETE FROM telemetry_events WHERE id IN (SELECT id FROM telemetry_events ORDER BY at, id LIMIT :most)"
    " RETURNING at, id, line",
    postgres="DELETE FROM telemetry_events WHERE id IN (SELECT id FROM telemetry_events ORDER BY at, id LIMIT :most"
    " FOR UPDATE SKIP LOCKED) RETURNING at, id, line",
)


def seal(tx: Tx) -> int:
    """Move a thousand of the oldest rows into a chunk; how many there were."""
    rows = sorted(tx.all(_TAKE, most=chunks.SIZE))
    if rows:
        _store(tx, **_sealed(_again(chunks.EVERYTHING, "\n".join(row[-1] for row in rows))))
    return len(rows)


def _again(wanted: Wanted, text: str) -> list[Line]:
    """Lines that were kept, for another chunk."""
    return [chunks.line(chunks.event(parts)) for parts in wanted.among(text)]


# --- query ---------------------------------------------------------------------------------------------------------

_ROWS = sql(
    "SELECT id, line FROM telemetry_events WHERE at >= :since AND at <= :until AND instr(line, :needle) > 0",
    postgres="SELECT id, line FROM telemetry_events WHERE at >= :since AND at <= :until AND strpos(line, :needle) > 0",
)
_NEWEST = sql(
    "SELECT id, last_at FROM telemetry_chunks WHERE first_at <= :until AND last_at >= :since"
    " AND (last_at < :before OR (last_at = :before AND id < :id)) ORDER BY last_at DESC, id DESC LIMIT :limit"
)
_FOUND = sql(
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
    """Events that match everything said, newest first; `since` and `until` are part of the time asked for."""
    values.count("limit", limit)
    first = -_EVER if since is None else chunks.moment(since)
    last = _EVER if until is None else chunks.moment(until)
    wanted = Wanted(span_id, trace_id, instance_id, event_type, first, last).checked()
    return [chunks.event(found[-1]) for found in _search(tx, wanted, limit)] if limit else []


def _search(tx: Tx, wanted: Wanted, limit: int) -> list[Found]:
    rows = tx.all(_ROWS, since=wanted.since, until=wanted.until, needle=wanted.needle)
    best = nlargest(limit, [(each[0], _EVER, row[0], each) for row in rows for each in wanted.among(row[1])])
    before, number = _EVER, _EVER
    more = True
    while more:
        page = _page(tx, wanted, before, number)
        more = len(page) == _PAGE
        for number, before in page:
            if len(best) == limit and before < best[-1][0]:
                return best
            [(data, codec)] = tx.all(_CHUNK, id=number)
            hits = wanted.among(chunks.unpack(data, codec))
            best = nlargest(limit, best + [(parts[0], number, place, parts) for place, parts in enumerate(hits)])
    return best


def _page(tx: Tx, wanted: Wanted, before: int, number: int) -> list[tuple[Any, ...]]:
    """The next chunks that may hold what is wanted, newest first."""
    bounds = {"since": wanted.since, "until": wanted.until, "before": before, "id": number, "limit": _PAGE}
    if wanted.key is None:
        return tx.all(_NEWEST, **bounds)
    return tx.all(_FOUND, key=wanted.key, **bounds)


_PLACES = sql(
    "SELECT id, NULL AS line, 0 AS at FROM telemetry_chunks UNION ALL SELECT id, line, at FROM telemetry_events"
)


def export() -> Stream[TelemetryEvent]:
    """Every event that is there when it begins: chunk by chunk in the order of their numbers, then what is in none.

    Each is given once, also if it is sealed meanwhile; what is removed meanwhile may be missed. Where events are is
    read at once: a chunk whose number is lower than another's may become visible after it.
    """
    numbers, loose = yield from ask(Read(_places))
    for number in numbers:
        text = yield from ask(Read(partial(_text, number=number)))
        for parts in chunks.EVERYTHING.among(text):
            yield Give(chunks.event(parts))
    for line in loose:
        for parts in chunks.EVERYTHING.among(line):
            yield Give(chunks.event(parts))


def _places(tx: Tx) -> tuple[Sequence[int], list[str]]:
    """The numbers of all chunks, and what is in none; one statement, so of one moment."""
    rows = tx.all(_PLACES)
    loose = sorted((at, number, line) for number, line, at in rows if line is not None)
    return array("q", sorted(number for number, line, _ in rows if line is None)), [line for *_, line in loose]


def _text(tx: Tx, number: int) -> str:
    """What a chunk holds; nothing if it was removed."""
    row = tx.one(_CHUNK, id=number)
    return "" if row is None else chunks.unpack(*row)


_COUNT = sql(
    "SELECT (SELECT count(*) FROM telemetry_events)"
    " + CAST((SELECT coalesce(sum(events), 0) FROM telemetry_chunks) AS BIGINT)"
)


def count(tx: Tx) -> int:
    """How many events there are."""
    [(events,)] = tx.all(_COUNT)
    return int(events)


# --- age -----------------------------------------------------------------------------------------------------------


def prune(older_than_days: float) -> Work[int]:
    """Remove what is older and give its space back; how many events that were."""
    values.number("older_than_days", older_than_days, least=0, most=_LONG_DAYS)
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
    """A bounded step: rows, whole chunks, and the old part of chunks that hold both."""
    lock_exclusive(tx, _AGE)
    removed = tx.count(_DROP_ROWS, limit=limit)
    for number, last_at, events in tx.all(_OLD, limit=limit, most=_CHUNKS_A_STEP):
        if last_at < limit:
            tx.execute(_DROP_CHUNK, id=number)
            removed += events
        else:
            removed += events - _cut(tx, number, limit)
    return removed


def _cut(tx: Tx, number: int, limit: int) -> int:
    """Leave of a chunk what is not before the limit; how many events are left."""
    [(data, codec)] = tx.all(_CHUNK, id=number)
    kept = _again(replace(chunks.EVERYTHING, since=limit), chunks.unpack(data, codec))
    packed = chunks.pack((each.text for each in kept), codec)
    tx.execute(_CUT, id=number, data=packed, events=len(kept), first_at=min(each.at for each in kept), expect=1)
    return len(kept)


def retain(retention: Retention) -> Work[int]:
    """Pack what has grown older harder, and remove what is past its time; how many events were removed."""
    for codec, harder, days in ((chunks.HOT, chunks.WARM, retention.hot_days), _cold(retention)):
        while (yield from ask(Write(lambda tx: _repack(tx, codec, harder, days)))):  # noqa: B023
            pass
    removed = 0
    if retention.cold_days is not None:
        removed = yield from prune(retention.cold_days)
    else:
        yield from shrink()
    return removed


def _cold(retention: Retention) -> tuple[str, str, int]:
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
    """Give free pages of a file back, in steps; a server does so by itself."""
    while (yield from ask(Write(_shrink))):
        pass


def _shrink(tx: Tx) -> bool:
    [(free,)] = tx.all(_FREE)
    if free:
        tx.script(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
    return bool(tx.all(_FREE)[0][0] < free)


# --- the noun ------------------------------------------------------------------------------------------------------


def _close(telemetry: "Telemetry[Any]") -> Work[None]:
    """Close it; may be called twice."""
    yield Call(telemetry.face.database.close)


def _retain(telemetry: "Telemetry[Any]") -> Work[int]:
    """Pack what has grown older harder, and remove what is past its time; how many events were removed."""
    return (yield from retain(telemetry.retention))


def _export(telemetry: "Telemetry[Any]") -> Stream[TelemetryEvent]:
    """Every event there is when it begins, a chunk at a time."""
    del telemetry
    return (yield from export())


class Telemetry(Resource[Executor]):
    """Events in the order they happened."""

    group = "Inspect"

    append = Runs(append, example="@events.jsonl")
    query = Reads(
        query,
        columns=("timestamp", "event_type", "instance_id", "span_id", "trace_id", "data"),
        example="--event-type tool.call --since 2026-01-01T00:00:00Z",
    )
    count = Reads(count)
    export = StreamsWith(_export, reads=True, example="--out events.jsonl")
    prune = Runs(prune, example="730")
    retain = RunsWith(_retain)
    close = RunsWith(_close, internal=True, local=True)

    def __init__(self, face: Executor, retention: Retention | None = None) -> None:
        super().__init__(face)
        self.retention = retention or Retention()

    @property
    def face(self) -> AsyncExecutor | SyncExecutor:
        """What it runs on."""
        return self._face

    @property
    def held(self) -> "Telemetry[Any]":
        """Itself: its retention and its face."""
        return self
