"""Audit events by the hundred thousand on PostgreSQL, divided by months: plans, sizes, a month archived and dropped.

Rows and entries are made by the code that writes any event, with times of the past twelve months, and copied in; the
sequencer takes the entries into the log. Then no query that reads events may scan a table of them from end to end,
whether it is planned for its arguments or for any; the archive of a month must hold, its partition go, and the store
verify.
"""

import argparse
import json
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psycopg

from harness.servers import Postgres
from holdproof import sync
from holdproof.crypto import canonical
from holdproof.db import Query, sql
from holdproof.db.partitioned_schema import TABLE, month_name, months
from holdproof.evidence import leaves
from holdproof.model.times import END
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import BundleReport, Report
from holdproof.runtime import audit, retention
from holdproof.upkeep import archiving
from holdproof.upkeep.verification import archive_check
from proof.report import Proof, Say

CLAIM: Final = "Audit events by months: no query scans them all; an archived month holds, and goes as a whole."
_MONTHS: Final = 12
_FLOWS: Final = 500
_BATCH: Final = 10_000
_FEW: Final = 1_000
"""A table with fewer rows than this is read from end to end with reason."""

Connection = psycopg.Connection[Any]


def arguments(parser: argparse._ArgumentGroup) -> None:
    """The options of this proof."""
    parser.add_argument("--events", type=int, default=300_000, metavar="N", help="how many (default 300,000)")


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Fill a store of its own on a server of its own, and look."""
    server = Postgres(syncs=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _run(server, Path(folder), given, say)
    finally:
        server.stop()


def _run(server: Postgres, folder: Path, given: argparse.Namespace, say: Say) -> Proof:
    url = server.url("postgres")
    home = folder / "home"
    with sync.open(home, url) as store:
        store.agents.register("trader", version="1.0.0")
        for number in range(_FLOWS):
            store.flows.start("trader", flow_id=f"flow-{number}")
    sync.partition(home, url, months=2)
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        starts = _past_months(connection)
        counts: dict[str, int] = {"events": given.events}
        broken: list[str] = []
        with sync.open(home, url) as store:
            _fill(connection, given.events, starts, say)
            _sequenced(store, connection, say)
            connection.execute("VACUUM ANALYZE")
            rows = _sizes(connection)
            scans = [*_scans(connection)]
            counts["plans looked at"] = 2 * len(_QUERIES)
            broken += scans
            _archive(store, folder, starts[1], counts, broken, say)
            say("verifying")
            began = time.process_time()
            report = store.verify.run(full=True, lock=False)
            counts["CPU s of a full verification, this process"] = round(time.process_time() - began)
            counts["entries verified"] = report.head["size"]
            broken += _flaws("the store", report)
    return Proof("months", CLAIM, given.seed, counts, broken, rows)


def _past_months(connection: Connection) -> list[datetime]:
    """Give months of the past a partition each, as if the table had been divided then; return where they begin."""
    now = datetime.now(UTC)
    starts = months(now - timedelta(days=31 * _MONTHS), _MONTHS + 3)
    # Empty so far: nothing is lost with it.
    connection.execute(f"DROP TABLE kernel.{TABLE}_before".encode())
    for start, end in pairwise(starts):
        if end <= now:
            bounds = f"FROM ('{start.isoformat()}') TO ('{end.isoformat()}')"
            name = month_name(start)
            connection.execute(f"CREATE TABLE kernel.{name} PARTITION OF kernel.{TABLE} FOR VALUES {bounds}".encode())
    return [start for start, end in pairwise(starts) if end <= now]


# --- filling -----------------------------------------------------------------------------------------------------


class _Recorder:
    """What stamping a row asks of a transaction; the entry is noted, to be copied in beside the row."""

    dialect: Final = "sqlite"
    limiter: Final = None

    def __init__(self) -> None:
        self.now = _text(datetime.now(UTC))
        self._count = 0
        self.entries: list[tuple[str, int, str, Any]] = []

    def new_id(self) -> str:
        """Return an id that no other row has."""
        self._count += 1
        return str(uuid.uuid4())

    def random(self, size: int) -> bytes:
        """Return a salt."""
        return os.urandom(size)

    def note(self, topic: str, leaf: tuple[str, int, str, Any]) -> None:
        """Keep an entry."""
        del topic
        self.entries.append(leaf)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _fill(connection: Connection, events: int, starts: list[datetime], say: Say) -> None:
    for first in range(0, events, _BATCH):
        tx = _Recorder()
        numbers = range(first, min(events, first + _BATCH))
        rows = [_row(tx, number, starts[number * len(starts) // events]) for number in numbers]
        with connection.transaction(), connection.cursor() as cursor:
            with cursor.copy(f"COPY kernel.{TABLE} ({', '.join(rows[0])}) FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row([*row.values()])
            with cursor.copy(_COPY_ENTRIES) as copy:
                for handle, version, text, source in tx.entries:
                    (agent_id, _, _), flow_id = source
                    copy.write_row((handle, version, text, agent_id or None, flow_id, True))
        if first % 100_000 == 0:
            say(f"{first:,} events")


_COPY_ENTRIES: Final = b"COPY kernel.log_pending (id, ver, leaf, agent_id, dfid, sourced) FROM STDIN"


def _row(tx: Any, number: int, start: datetime) -> dict[str, Any]:
    flow = f"flow-{number * 7 % _FLOWS}"
    row: dict[str, Any] = {
        **dict.fromkeys(audit.AUDIT.columns),
        "id": number + 1,
        "dfid": flow,
        "root_dfid": flow,
        "event_type": f"TYPE_{number % 20}",
        "severity": "ERROR" if number % 100 == 0 else "INFO",
        "step_id": "step",
        "state": "RUNNING",
        "detail_json": canonical.dump_text({"n": number, "text": "what was looked at " * 5}),
        "created_at": _text(start + timedelta(seconds=number % 2_400_000)),
        "ns": "main",
    }
    return row | leaves.stamp(tx, "audit", audit.AUDIT.projection, row, ns="main")._asdict()


def _sequenced(store: sync.Holdproof, connection: Connection, say: Say) -> None:
    """Wait until every entry is under a signed head."""
    connection.execute(f"SELECT setval('kernel.{TABLE}_id_seq', (SELECT max(id) FROM kernel.{TABLE}))".encode())
    # Its commit wakes the sequencer.
    store.audit.record("flow-0", "FILLED")
    for step in range(6_000):
        [(waiting,)] = connection.execute("SELECT count(*) FROM kernel.log_pending").fetchall()
        if not waiting:
            return
        if step % 100 == 0:
            say(f"{waiting:,} entries wait")
        time.sleep(0.1)
    raise AssertionError("the sequencer did not end")


# --- looking -----------------------------------------------------------------------------------------------------


def _sizes(connection: Connection) -> list[Mapping[str, Any]]:
    rows = connection.execute(
        "SELECT c.relname, c.reltuples::bigint, pg_relation_size(c.oid), pg_indexes_size(c.oid) FROM pg_class c"
        " WHERE c.relnamespace = 'kernel'::regnamespace AND c.relkind = 'r' AND c.reltuples > %s ORDER BY 1",
        (_FEW,),
    )
    return [{"table": name, "rows": count, "bytes": size, "indexes": index} for name, count, size, index in rows]


_FILTERS: Final = {"event_type": None, "severity": None, "since": "0001-01-01T00:00:00Z", "ns": "main", "limit": 100}
_AT: Final = {"before": 2**62, "after": 0, "dfid": "flow-7", "id": 4711}
_QUERIES: Final[Mapping[str, tuple[Query, Mapping[str, Any]]]] = {
    "audit list": (audit._LIST, _FILTERS | _AT),
    "audit list, errors": (audit._LIST, _FILTERS | _AT | {"severity": "ERROR"}),
    "audit list --flow-id": (audit._LIST_OF_FLOW, _FILTERS | _AT),
    "audit get": (audit._GET, _FILTERS | _AT),
    "audit events": (audit._SCAN, _FILTERS | _AT),
    "audit events --flow-id": (audit._SCAN_OF_FLOW, _FILTERS | _AT),
    "retention archive, a page": (
        archiving._IDS,
        {"start": "2026-03-01T00:00:00Z", "end": "2026-04-01T00:00:00Z", "after": 0, "last": 2**62, "size": 2**62}
        | {"limit": 200},
    ),
    "retention archive, its rows": (archiving._SELECTED, {"ids": "[1,2,3]"}),
    "retention archive, removing": (archiving._REMOVE, {"ids": "[1,2,3]"}),
    "retention prune audit": (
        retention._APPEND_ONLY["audit"].remove,
        {"before": END, "newest": 1_000, "flow_type": None, "ns": "main", "limit": 100},
    ),
}


def _scans(connection: Connection) -> Iterator[str]:
    """Yield what is wrong with the plans of the queries that read events."""
    connection.execute("SET search_path TO kernel")
    large = {name for (name,) in connection.execute("SELECT relname FROM pg_class WHERE reltuples > %s", (_FEW,))}
    for mode in ("force_custom_plan", "force_generic_plan"):
        connection.execute(f"SET plan_cache_mode TO {mode}".encode())
        for name, (query, values) in _QUERIES.items():
            connection.execute(f"PREPARE asked AS {query.postgres}".encode())
            listed = ", ".join(_literal(values[each]) for each in query.names)
            [(plan,)] = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked ({listed})".encode()).fetchall()
            connection.execute("DEALLOCATE asked")
            for node in _nodes(plan[0]["Plan"] if isinstance(plan, list) else json.loads(plan)[0]["Plan"]):
                if node["Node Type"] == "Seq Scan" and node["Relation Name"] in large:
                    yield f"{name} ({mode}) reads {node['Relation Name']} from end to end"


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from _nodes(each)


def _literal(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'"


# --- archiving ---------------------------------------------------------------------------------------------------


def _archive(
    store: sync.Holdproof, folder: Path, start: datetime, counts: dict[str, int], broken: list[str], say: Say
) -> None:
    month = f"{start:%Y-%m}"
    say(f"archiving {month}")
    began = time.process_time()
    archived = store.retention.archive(month=month, to=folder / "archive")
    counts[f"events of {month} archived"] = archived.count
    counts["CPU s of archiving it, this process"] = round(time.process_time() - began)
    if not archived.dropped:
        broken.append(f"the partition of {month} was not dropped")
    for each in archived.archives:
        place = Path(each.place)
        counts["bytes of its archives"] = counts.get("bytes of its archives", 0) + sum(
            path.stat().st_size for path in place.iterdir()
        )
        began = time.process_time()
        report = archive_check.check(place)
        counts["CPU s of checking them"] = counts.get("CPU s of checking them", 0) + round(time.process_time() - began)
        broken += _flaws(place.name, report)
    stored = store.read(lambda tx: tx.all(_POSITIONS))
    counts["bytes of their places in the log"] = sum(size for (size,) in stored)


def _flaws(what: str, report: Report | BundleReport) -> Iterator[str]:
    """Yield what keeps a verification from being VALID."""
    if report.verdict is not Verdict.VALID:
        yield f"{what} is {report.verdict.word}"
    yield from (finding.what for finding in report.findings)


_POSITIONS = sql("SELECT length(positions) FROM retention_archives")
