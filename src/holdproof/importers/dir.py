"""A SQLite database of the Decision Intelligence Runtime (DIR), taken over as it is.

Rules:
- Nothing of DIR's tables is dropped. Every row gets a verdict: TAKEN as it is; ADAPTED, with a note of what is
  different; KEPT aside where it cannot become a row here, with the reason. What the row here does not hold as it was
  (numbers of rows, spellings of times, values that did not fit) stands in `imported_rows`.
- Nothing here is written over: where there is an agent, a flow or a key of that name already, the source's is KEPT.
- Rows get `legacy_import` leaves: the log saw them arrive, not happen.
- Transitions keep their words, legal or not. The status and times of a flow follow from them, since DIR itself never
  changes them; where the source says otherwise, a further transition says so.
- What is written about a flow or an agent that the source does not have, makes one, as in the adapter.
- A flow and its transitions arrive together. A second import of the same rows changes nothing; one of a later state
  brings what is new.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Final

from holdproof.db import Call, Query, Tx, Work, Write, ask, sql
from holdproof.db.sqlite.readonly import foreign_tables
from holdproof.errors import ContentionTimeoutError, FormatError
from holdproof.evidence.tables import IMPORTED, TABLES, numbered
from holdproof.importers import import_records, lossless
from holdproof.importers.dir_rows import COLUMNS, OLD_TABLES, Plan, plan
from holdproof.model.flows import TERMINAL
from holdproof.model.imports import TakenRow, Takeover
from holdproof.model.namespaces import MAIN
from holdproof.model.times import later
from holdproof.runtime import autocreate, checks, locks
from holdproof.store.context import Context

Progress = Callable[[int, int], None]
"""Told how many rows are done, of how many."""

_BATCH: Final = 200
_YEAR_S: Final = 365 * 86_400.0


@dataclass(slots=True)
class Source:
    """Everything that was read of a DIR database: the rows of DIR's tables, and how many others there are."""

    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)


Unit = list[Plan]
"""Rows that arrive together: a flow and its transitions, or one row."""


def run(
    context: Context,
    source: str | Path,
    *,
    dry_run: bool = False,
    ns: str = MAIN,
    progress: Progress | None = None,
) -> Work[Takeover]:
    """Import a DIR database; with `dry_run` only say what each row is."""
    del context
    path = Path(source)
    found: Source = yield from ask(Call(lambda: load(path)))
    units = list(judge(found))
    total, done = sum(map(len, units)), list[TakenRow]()
    for batch in _batches(units):
        if dry_run:
            done += [_told(each, "") for unit in batch for each in unit]
        else:
            arrive = _Arrival(path.name, ns)
            done += yield from ask(Write(lambda tx, a=arrive, b=batch: [row for unit in b for row in a.take(tx, unit)]))  # type: ignore[misc]
        if progress is not None:
            progress(len(done), total)
    return Takeover(str(source), done, found.others, dry_run)


def load(path: Path) -> Source:
    """Read the database, which is not touched; FormatError if it has none of DIR's tables."""
    found = Source()
    with foreign_tables(path) as tables:
        for name, each in tables:
            table = OLD_TABLES.get(name, name)
            if table in COLUMNS:
                found.tables.setdefault(table, []).extend(each)
            else:
                found.others[name] = sum(1 for _ in each)
    if not found.tables:
        raise FormatError(f"{path} has no table of DIR's", path=str(path))
    return found


def judge(source: Source) -> Iterator[Unit]:
    """What becomes of each row, agents first, then flows with their transitions, parents before children."""
    seen: Counter[str] = Counter()
    plans = {
        table: [plan(table, row, lossless.fingerprint(row, seen, of=table)) for row in source.tables.get(table, [])]
        for table in COLUMNS
    }
    moves: dict[str, Unit] = {}
    for each in plans.pop("flow_transitions"):
        moves.setdefault(each.values["dfid"] if each.values else "", []).append(each)
    yield from ([each] for each in plans.pop("agent_registry"))
    for flow in _parents_first(plans.pop("decision_flows")):
        yield [flow, *moves.pop(flow.values["dfid"], [])] if flow.values else [flow]
    yield from moves.values()
    yield from ([each] for rest in plans.values() for each in rest)


def _parents_first(plans: list[Plan]) -> Iterator[Plan]:
    """Flows whose parent is not among them, then their children, and so on; flows in a ring come last."""
    names = {each.values["dfid"] for each in plans if each.values}
    children: dict[str | None, list[Plan]] = {}
    for each in plans:
        parent = each.values["dfid_parent"] if each.values else None
        children.setdefault(parent if parent in names else None, []).append(each)
    waiting = deque(children.pop(None, []))
    while waiting:
        flow = waiting.popleft()
        yield flow
        waiting.extend(children.pop(flow.values["dfid"], []) if flow.values else [])
    for ring in children.values():
        yield from ring


def _batches(units: Iterable[Unit]) -> Iterator[list[Unit]]:
    batch: list[Unit] = []
    for unit in units:
        batch.append(unit)
        if sum(map(len, batch)) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _told(each: Plan, done: str) -> TakenRow:
    return TakenRow(each.table, each.source_id, each.verdict, done, "; ".join(each.notes))


# --- writing -----------------------------------------------------------------------------------------------------


class _Cannot(Exception):
    """A row has no place here, for the reason given; nothing of it was written."""


_FLOW = sql("SELECT ns, status, root_dfid FROM decision_flows WHERE dfid = :dfid")
_AGENT = sql("SELECT ns FROM agent_registry WHERE agent_id = :agent_id")


@dataclass(frozen=True, slots=True)
class _Arrival:
    """Rows of one source, on their way into one namespace."""

    source: str
    ns: str

    def take(self, tx: Tx, unit: Unit) -> list[TakenRow]:
        """Write the rows of a unit that are not there yet, then where their flow stands."""
        done = [self._one(tx, each) for each in unit]
        fresh = [each for each, row in zip(unit, done, strict=True) if row.done == "imported" and row.verdict != "KEPT"]
        moved = [each for each in fresh if each.table in {"decision_flows", "flow_transitions"}]
        if moved and moved[0].values:
            self._settle(tx, moved[0].values["dfid"])
            if moved[0].table == "decision_flows":
                self._conclude(tx, moved[0].values)
        return done

    def _one(self, tx: Tx, each: Plan) -> TakenRow:
        if (before := import_records.known(tx, each.key, ns=self.ns)) is not None:
            return TakenRow(each.table, each.source_id, before[0], "known", before[1])
        written: dict[str, Any] | None = None
        try:
            if each.values is not None:
                written, made = self._write(tx, each.table, each.values)
                each = replace(each, notes=(*each.notes, *made))
        except _Cannot as reason:
            each = replace(each, values=None, notes=(str(reason),))
        found = {"importer": "dir", "source": self.source, "source_table": each.table, "source_id": each.source_id}
        found |= {"row_key": _row_key(each.table, written), "verdict": each.verdict, "note": "; ".join(each.notes)}
        import_records.add(tx, each.key, found, each.beside(written), ns=self.ns)
        return _told(each, "imported")

    def _write(self, tx: Tx, table: str, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Write a row; what was written, and what had to be made for it."""
        row = {**values, **{name: tx.now for name in _times(table) if values[name] is None}, "ns": self.ns}
        if table in _THERE and tx.one(_THERE[table], **row) is not None:
            raise _Cannot(f"there is one of that {_UNIQUE[table]} already, which is not written over")
        made = self._needed(tx, table, row)
        _FITTED.get(table, _as_it_is)(tx, row)
        if table == "resource_locks":
            _lock(tx, row)
        elif table in _RECORDS:
            _put(tx, table, row)
        else:
            tx.execute(_ADD[table], **row, expect=1)
        return row, made

    def _needed(self, tx: Tx, table: str, row: Mapping[str, Any]) -> list[str]:
        """Make sure of the agent and the flow that a row speaks of."""
        if table in {"agent_registry", "idempotency_cache"}:
            return []
        agent_id, dfid = row.get("agent_id"), None if table == "decision_flows" else row.get("dfid")
        agent = tx.one(_AGENT, agent_id=agent_id) if agent_id else (self.ns,)
        flow = tx.one(_FLOW, dfid=dfid) if dfid else (self.ns,)
        if any(found is not None and found[0] != self.ns for found in (agent, flow)):
            raise _Cannot("its agent or its flow belongs to another namespace")
        if agent is None:
            autocreate.agent(tx, str(agent_id), ns=self.ns)
        if flow is None:
            autocreate.flow(tx, str(dfid), agent_id=agent_id, ns=self.ns)
        missing = (name for name, found in (("agent", agent), ("flow", flow)) if found is None)
        return [f"its {name} was not there and was made" for name in missing]

    def _settle(self, tx: Tx, dfid: str) -> None:
        """Bring status and times of a flow where its transitions lead."""
        flow = tx.one(_CREATED, dfid=dfid)
        assert flow is not None, "it was just written"
        stands = checks.expected_state(flow[0], [checks.TransitionRow(*row) for row in tx.all(_MOVES, dfid=dfid)])
        times = {"started_at": stands.started_at, "completed_at": stands.completed_at, "updated_at": stands.updated_at}
        tx.execute(_STAND, dfid=dfid, status=stands.status, **times, expect=1)

    def _conclude(self, tx: Tx, said: Mapping[str, Any]) -> None:
        """If the source has the flow elsewhere than its transitions lead, say so in further ones."""
        flow = tx.one(_FLOW, dfid=said["dfid"])
        assert flow is not None, "it was just written"
        stands, status = flow[1], said["status"]
        if status in {"CREATED", stands}:
            return
        path = [(status, said["completed_at"] or said["updated_at"] or tx.now)]
        if stands == "CREATED" and status != "CANCELLED":
            path.insert(0, ("RUNNING", said["started_at"] or said["created_at"] or tx.now))
        for to, at in dict(path).items():
            move = {"dfid": said["dfid"], "root_dfid": flow[2], "from_status": stands, "to_status": to}
            _put(tx, "flow_transitions", move | {"created_at": at, "reason": checks.IMPORTED, "ns": self.ns})
            stands = to
        self._settle(tx, said["dfid"])


# --- statements --------------------------------------------------------------------------------------------------

_RECORDS: Final = {table.name: table for table in TABLES if table.name in COLUMNS}
_MORE: Final = {"decision_flows": ("updated_at",), "idempotency_cache": ("state",)}
_UNIQUE: Final = {
    **dict.fromkeys(("agent_registry", "agent_state"), "agent_id"),
    **dict.fromkeys(("decision_flows", "flow_context", "saga_dirty_state", "intent_retry"), "dfid"),
    "decision_ledger_entries": "dfid",
    "idempotency_cache": "idempotency_key",
}

# Names come from code, never from a user.


def _insert(table: str) -> Query:
    if table in _RECORDS:
        return sql(_RECORDS[table].insert(*_MORE.get(table, ())))
    columns = (*(each.split(":")[0] for each in COLUMNS[table].split()), "ns", *_MORE.get(table, ()))
    return sql(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{each}' for each in columns)})")  # noqa: S608


_ADD: Final = {table: _insert(table) for table in COLUMNS if table != "resource_locks"}
_NEXT: Final = {name: numbered("SELECT {id}", name) for name, table in _RECORDS.items() if table.key == "id"}
_THERE: Final = {
    table: sql(f"SELECT 1 FROM {table} WHERE {name} = :{name}{' AND ns = :ns' * (name == 'idempotency_key')}")  # noqa: S608
    for table, name in _UNIQUE.items()
}
_CREATED = sql("SELECT created_at FROM decision_flows WHERE dfid = :dfid")
_MOVES = sql(
    "SELECT dfid, id, from_status, to_status, created_at, reason FROM flow_transitions WHERE dfid = :dfid ORDER BY id"
)
_STAND = sql(
    "UPDATE decision_flows SET status = :status, started_at = :started_at, completed_at = :completed_at,"
    " updated_at = :updated_at WHERE dfid = :dfid"
)


def _put(tx: Tx, table: str, row: dict[str, Any]) -> None:
    """Write a row under the log."""
    logged = _RECORDS[table]
    if table in _NEXT:
        number = tx.one(_NEXT[table])
        assert number is not None
        row["id"] = number[0]
    columns = (*logged.projection.columns, *_MORE.get(table, ()))
    logged.add(tx, _ADD[table], {name: row.get(name) for name in columns}, kind=IMPORTED)


def _row_key(table: str, written: Mapping[str, Any] | None) -> str:
    """The key of the row here; empty where there is none."""
    if written is None:
        return ""
    return str(written.get("resource_id" if table == "resource_locks" else _UNIQUE.get(table, "id"), ""))


def _times(table: str) -> list[str]:
    """The columns of a table that must hold a time."""
    return [name for name, kind in (each.split(":") for each in COLUMNS[table].split()) if kind == "time"]


# --- what some tables need besides -------------------------------------------------------------------------------


def _as_it_is(tx: Tx, row: dict[str, Any]) -> None:
    del tx, row


def _flow(tx: Tx, row: dict[str, Any]) -> None:
    if row["dfid_parent"] is None:
        row["root_dfid"] = row["dfid"]
        return
    parent = tx.one(_FLOW, dfid=row["dfid_parent"])
    if parent is None or parent[0] != row["ns"]:
        raise _Cannot("its parent is not here")
    row["root_dfid"] = row["root_dfid"] or parent[2]


_NATIVE = sql("SELECT count(*) FROM flow_transitions WHERE dfid = :dfid AND coalesce(reason, '') <> :imported")


def _transition(tx: Tx, row: dict[str, Any]) -> None:
    count = tx.one(_NATIVE, dfid=row["dfid"], imported=checks.IMPORTED)
    if count is not None and count[0]:
        raise _Cannot("its flow has gone on here")
    row["root_dfid"] = row["root_dfid"] or row["dfid"]
    row["reason"] = checks.IMPORTED


def _key(tx: Tx, row: dict[str, Any]) -> None:
    del tx
    row["expires_at"] = row["expires_at"] or later(row["created_at"], _YEAR_S)
    row["state"] = "DONE"


def _question(tx: Tx, row: dict[str, Any]) -> None:
    del tx
    if row["status"] == "RESOLVED":  # as DIR called both ends once
        row["status"] = "REJECTED" if (row["human_decision"] or "").upper() == "ABORT" else "APPROVED"
    row["root_dfid"] = row["root_dfid"] or row["dfid"]
    row |= {"on_deadline": "reject", "opened_by": "agent"}


_FITTED: Final[dict[str, Callable[[Tx, dict[str, Any]], None]]] = {
    "decision_flows": _flow,
    "flow_transitions": _transition,
    "idempotency_cache": _key,
    "escalation_requests": _question,
}

_HELD = sql("SELECT 1 FROM resource_locks WHERE ns = :ns AND resource_id = :resource_id AND dfid = :dfid")
_DATED = sql(
    "UPDATE resource_locks SET acquired_at = :acquired_at, expires_at = :expires_at"
    " WHERE ns = :ns AND resource_id = :resource_id AND dfid = :dfid"
)


def _lock(tx: Tx, row: Mapping[str, Any]) -> None:
    """Hold what the source's flow held, until when it held it; its capacity is its manager's to know."""
    held = {name: row[name] for name in ("ns", "resource_id", "dfid")}
    flow = tx.one(_FLOW, dfid=row["dfid"])
    if flow is None or flow[1] in TERMINAL:
        raise _Cannot("its flow has ended, and holds nothing")
    if row["amount"] == 0 or tx.one(_HELD, **held) is not None:
        raise _Cannot("it holds nothing" if row["amount"] == 0 else "the flow holds it here already")
    wanted = {row["resource_id"]: row["amount"]}
    try:
        locks.reserve(tx, row["dfid"], wanted, expected=dict.fromkeys(wanted, inf), ns=row["ns"])
    except ContentionTimeoutError as error:
        raise _Cannot(str(error)) from error
    tx.execute(_DATED, **held, acquired_at=row["acquired_at"], expires_at=row["expires_at"], expect=1)
