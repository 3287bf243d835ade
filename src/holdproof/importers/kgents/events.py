"""`telemetry.db` of kgents: events, appended in one transaction.

Rules:
- Events have no ids, so content that was imported once is never appended again. Of a source that grew during an
  import, the next run appends what is new.
- An event without a type or a readable time is counted and not imported.
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
from holdproof.importers.kgents.source import Contents, LegacyData, Report, differs
from holdproof.model.storage import TelemetryEvent
from holdproof.storage import chunks, telemetry
from holdproof.storage.open_stores import OpenStores

_BATCH: Final = 1_000
_MOST_AT_ONCE: Final = 20_000
_UNFIT: Final = "events without a type, without a time that can be read, or with data that is no JSON"
_NAMES: Final = ("instance_id", "project_hash", "span_id", "trace_id")


class Events(LegacyData):
    """`telemetry.db`."""

    kind = "telemetry"
    rewritable = False
    _fingerprint = ""

    def read(self, report: Report) -> Contents:
        """See LegacyData."""
        contents = Contents()
        for number, event in enumerate(self._events(contents), 1):
            contents.add("events", _line(event))
            report("read events", number, 0)
        self._fingerprint = contents.fingerprint
        return contents

    def executor(self, stores: OpenStores) -> SyncExecutor:
        """See LegacyData."""
        executor: SyncExecutor = stores.open("telemetry").executor
        return executor

    def write(self, tx: Tx) -> Counter[str]:
        """See LegacyData."""
        appended = self._appended(tx) if journal.begun(tx, str(self.path)) else Counter[str]()
        contents = Contents()
        moved = 0
        walk = self._events(Contents())
        # Events are streamed from the file: telemetry may be larger than memory.
        while batch := list(islice(walk, _BATCH)):
            new = []
            for event in batch:
                contents.add("events", _line(event))
                appended[_content(event)] -= 1
                if appended[_content(event)] < 0:
                    new.append(event)
            telemetry.add(tx, new)
            moved += len(new)
        # The journal names the content that was read: if another was written, a later run would append it again.
        if contents.fingerprint != self._fingerprint:
            raise BusyError(
                f"{self.path} changed while it was read; stop the program that uses it", path=str(self.path)
            )
        return Counter({"events": moved})

    def _appended(self, tx: Tx) -> Counter[str]:
        """What an earlier, interrupted run has appended already of a source that grew since."""
        appended: Counter[str] = Counter()
        walk = self._events(Contents())
        while batch := list(islice(walk, _BATCH)):
            for event in batch:
                if (content := _content(event)) not in appended:
                    at = {"since": event.timestamp, "until": event.timestamp}
                    existing = telemetry.query(tx, event.span_id, _MOST_AT_ONCE, event_type=event.event_type, **at)
                    appended[content] = sum(_content(each) == content for each in existing)
        return appended

    def verify(self, stores: OpenStores, report: Report) -> None:
        """See LegacyData: each event exists as often as in the source."""
        walk = self._events(Contents())
        store = stores.open("telemetry")
        count = 0
        while batch := list(islice(walk, _BATCH)):
            _compare(store, sorted(batch, key=_moment))
            count += len(batch)
            report("verify events", count, 0)

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
    """Raise unless all events exist; a batch whose time span has too many others is halved."""
    existing = store.query(limit=_MOST_AT_ONCE, since=batch[0].timestamp, until=batch[-1].timestamp)
    if len(existing) == _MOST_AT_ONCE and _moment(batch[0]) < _moment(batch[-1]):
        half = len(batch) // 2
        _compare(store, batch[:half])
        _compare(store, batch[half:])
        return
    missing = Counter(map(_content, batch)) - Counter(map(_content, existing))
    # More events than a query returns within one microsecond cannot be compared.
    if missing and len(existing) < _MOST_AT_ONCE:
        raise differs(f"an event between {batch[0].timestamp} and {batch[-1].timestamp}")


def _content(event: TelemetryEvent) -> str:
    return json.dumps(event.to_dict(), sort_keys=True)


def _event(row: dict[str, Any]) -> TelemetryEvent:
    data = row.get("data")
    try:
        value = json.loads(data) if isinstance(data, str) else {}
    except (ValueError, RecursionError):
        value = data
    more = {name: value for name, value in row.items() if name not in {"event_type", "timestamp", "data", *_NAMES}}
    facts = value if isinstance(value, dict) else {"said": value}
    legacy = {name: value for name, value in more.items() if value is not None and name != "id"}
    names = {name: None if row.get(name) is None else str(row[name]) for name in _NAMES}
    return TelemetryEvent(
        _text(row["event_type"]), _text(row["timestamp"]), facts | ({"legacy": legacy} if legacy else {}), **names
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
