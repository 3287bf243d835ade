"""`telemetry.db` of kgents: events, appended in one transaction.

Rules:
- Events have no identity of their own, so a content that was taken over once is never appended again. Of a source that
  grew while it was taken over, the next run appends what is new.
- An event without a type or a time that can be read is counted and left.
"""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from holdproof.db import Tx
from holdproof.db.sqlite.readonly import foreign_rows, foreign_tables
from holdproof.errors import BusyError, FormatError, InvalidInputError
from holdproof.executors import SyncExecutor
from holdproof.importers.kgents import journal
from holdproof.importers.kgents.source import Contents, Source, Tell, differs
from holdproof.model.storage import TelemetryEvent
from holdproof.storage import chunks, telemetry
from holdproof.storage.lazy_stores import LazyStores

_BATCH: Final = 1_000
_MOST_AT_ONCE: Final = 20_000
_UNFIT: Final = "events without a type, without a time that can be read, or with data that is no JSON"
_NAMES: Final = ("instance_id", "project_hash", "span_id", "trace_id")


class Events(Source):
    """`telemetry.db`."""

    kind = "telemetry"
    again = False
    _seen = ""

    def read(self, tell: Tell) -> Contents:
        """See Source."""
        contents = Contents()
        for number, event in enumerate(self._events(contents), 1):
            contents.add("events", _line(event))
            tell("read events", number, 0)
        self._seen = contents.fingerprint
        return contents

    def face(self, stores: LazyStores) -> SyncExecutor:
        """See Source."""
        face: SyncExecutor = stores.open("telemetry").face
        return face

    def write(self, tx: Tx) -> Counter[str]:
        """See Source."""
        known = self._known(tx) if journal.begun(tx, str(self.path)) else Counter[str]()
        written, moved = Contents(), 0
        walk = self._events(Contents())
        while batch := list(islice(walk, _BATCH)):
            fresh = []
            for event in batch:
                written.add("events", _line(event))
                known[_content(event)] -= 1
                fresh += [event] if known[_content(event)] < 0 else []
            telemetry.add(tx, fresh)
            moved += len(fresh)
        if written.fingerprint != self._seen:  # what is not as it was read would be appended once more by a later run
            raise BusyError(f"{self.path} changed while it was read; end what uses it", path=str(self.path))
        return Counter({"events": moved})

    def _known(self, tx: Tx) -> Counter[str]:
        """Of a source that grew since a run that did not come to its end: what that run has appended already."""
        known: Counter[str] = Counter()
        walk = self._events(Contents())
        while batch := list(islice(walk, _BATCH)):
            for event in batch:
                if (content := _content(event)) not in known:
                    at = {"since": event.timestamp, "until": event.timestamp}
                    there = telemetry.query(tx, event.span_id, _MOST_AT_ONCE, event_type=event.event_type, **at)
                    known[content] = sum(_content(each) == content for each in there)
        return known

    def verify(self, stores: LazyStores, tell: Tell) -> None:
        """See Source: among those of its time there is each event, as often as in the source."""
        walk, store, done = self._events(Contents()), stores.open("telemetry"), 0
        while batch := list(islice(walk, _BATCH)):
            _compare(store, sorted(batch, key=_moment))
            done += len(batch)
            tell("verify events", done, 0)

    def _events(self, contents: Contents) -> Iterator[TelemetryEvent]:
        with foreign_rows(self.path, self._table()) as (_, rows):
            for row in rows:
                event = _event(row)
                try:
                    chunks.line(event)
                except (InvalidInputError, UnicodeError):
                    contents.skipped[_UNFIT] += 1
                    continue
                yield event

    def _table(self) -> str:
        with foreign_tables(self.path) as listed:
            names = [name for name, _ in listed]
        for name in names:
            with foreign_rows(self.path, name) as (columns, _):
                if {"event_type", "timestamp"} <= set(columns):
                    return name
        raise FormatError(f"{self.path} has no table of events", path=str(self.path))


def _line(event: TelemetryEvent) -> str:
    return json.dumps(event.to_dict())


def _moment(event: TelemetryEvent) -> int:
    return chunks.moment(event.timestamp)


def _compare(store: Any, batch: list[TelemetryEvent]) -> None:
    """Whether events in order of time are all there; halved where their time has too many others."""
    there = store.query(limit=_MOST_AT_ONCE, since=batch[0].timestamp, until=batch[-1].timestamp)
    if len(there) == _MOST_AT_ONCE and _moment(batch[0]) < _moment(batch[-1]):
        half = len(batch) // 2
        _compare(store, batch[:half])
        _compare(store, batch[half:])
        return
    lost = Counter(map(_content, batch)) - Counter(map(_content, there))
    if lost and len(there) < _MOST_AT_ONCE:
        raise differs(f"an event between {batch[0].timestamp} and {batch[-1].timestamp}")


def _content(event: TelemetryEvent) -> str:
    return json.dumps(event.to_dict(), sort_keys=True)


def _event(row: dict[str, Any]) -> TelemetryEvent:
    data = row.get("data")
    try:
        said = json.loads(data) if isinstance(data, str) else {}
    except (ValueError, RecursionError):
        said = data
    more = {name: value for name, value in row.items() if name not in {"event_type", "timestamp", "data", *_NAMES}}
    facts = said if isinstance(said, dict) else {"said": said}
    kept = {name: value for name, value in more.items() if value is not None and name != "id"}
    names = {name: None if row.get(name) is None else str(row[name]) for name in _NAMES}
    return TelemetryEvent(
        _text(row["event_type"]), _text(row["timestamp"]), facts | ({"legacy": kept} if kept else {}), **names
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
