"""Import of a SQLite database of the Decision Intelligence Runtime (DIR).

Rules:
- Nothing of DIR's tables is dropped. Every row gets a verdict: TAKEN unchanged; ADAPTED, with a note of what is
  different; KEPT aside where it cannot become a row here, with the reason. What the row here does not hold unchanged
  (row numbers, spellings of times, values that did not fit) is in `imported_rows`.
- Nothing here is overwritten: if an agent, a flow or a key of that name exists, the source's is KEPT.
- Rows get `legacy_import` leaves: the log saw them arrive, not happen.
- Transitions keep their statuses, legal or not. The status and times of a flow follow from them, since DIR itself
  never changes them; where the source disagrees, a further transition is added.
- Rows about a flow or an agent that the source does not have create it, as in the adapter.
- A flow and its transitions are written together. A second import of the same rows changes nothing; one of a later
  state brings what is new.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Final

from holdproof.db import Call, Query, Tx, Work, ask, sql
from holdproof.db.sqlite.readonly import foreign_tables
from holdproof.errors import ContentionTimeoutError, FormatError
from holdproof.evidence import import_records
from holdproof.evidence.tables import IMPORTED, Table, numbered
from holdproof.importers import driver
from holdproof.importers.dir_rows import COLUMNS, OLD_TABLES, RowPlan, column_kinds, plan
from holdproof.importers.driver import Progress
from holdproof.model.flows import TERMINAL
from holdproof.model.imports import TakenRow, Takeover
from holdproof.model.namespaces import MAIN
from holdproof.model.times import later
from holdproof.runtime import autocreate, checks, locks
from holdproof.runtime.agents import AGENTS
from holdproof.runtime.audit import AUDIT
from holdproof.runtime.contexts import CONTEXT
from holdproof.runtime.escalation_rows import ESCALATIONS
from holdproof.runtime.feedback import FEEDBACK
from holdproof.runtime.flows import FLOWS, TRANSITIONS
from holdproof.runtime.ledger import LEDGER
from holdproof.runtime.state import STATE
from holdproof.store.context import Context

_YEAR_S: Final = 365 * 86_400.0


@dataclass(slots=True)
class DirSource:
    """The rows of DIR's tables, and how many rows other tables have."""

    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)


Unit = list[RowPlan]
"""Rows that are written together: a flow and its transitions, or one row."""


def run(
    context: Context,
    source: str | Path,
    *,
    dry_run: bool = False,
    ns: str = MAIN,
    progress: Progress | None = None,
) -> Work[Takeover]:
    """Import a DIR database; with `dry_run` only report what each row is."""
    del context
    path = Path(source)
    tables: DirSource = yield from ask(Call(lambda: load(path)))
    rows = yield from driver.import_units(
        list(plan_units(tables)),
        write=_Writer(path.name, ns).write,
        preview=lambda _, unit: [_outcome(each, "") for each in unit],
        size=len,
        dry_run=dry_run,
        progress=progress,
    )
    return Takeover(str(source), rows, tables.others, dry_run)


def load(path: Path) -> DirSource:
    """Read the database, read-only; raises FormatError if it has none of DIR's tables."""
    source = DirSource()
    with foreign_tables(path) as tables:
        for name, each in tables:
            table = OLD_TABLES.get(name, name)
            if table in COLUMNS:
                source.tables.setdefault(table, []).extend(each)
            else:
                source.others[name] = sum(1 for _ in each)
    if not source.tables:
        raise FormatError(f"{path} has none of DIR's tables", path=str(path))
    return source


def plan_units(source: DirSource) -> Iterator[Unit]:
    """Plan each row: agents first, then flows with their transitions, parents before children."""
    counts: Counter[str] = Counter()
    plans = {
        table: [plan(table, row, driver.fingerprint(row, counts, of=table)) for row in source.tables.get(table, [])]
        for table in COLUMNS
    }
    # Transitions without a flow of their own in the source form units by flow id, after all flows.
    moves: dict[str, Unit] = {}
    for each in plans.pop("flow_transitions"):
        moves.setdefault(each.values["dfid"] if each.values else "", []).append(each)
    yield from ([each] for each in plans.pop("agent_registry"))
    for flow in _parents_first(plans.pop("decision_flows")):
        yield [flow, *moves.pop(flow.values["dfid"], [])] if flow.values else [flow]
    yield from moves.values()
    yield from ([each] for rest in plans.values() for each in rest)


def _parents_first(plans: list[RowPlan]) -> Iterator[RowPlan]:
    """Sort flows: those without a parent in the source, then their children, and so on; cycles come last."""
    names = {each.values["dfid"] for each in plans if each.values}
    children: dict[str | None, list[RowPlan]] = {}
    for each in plans:
        parent = each.values["dfid_parent"] if each.values else None
        children.setdefault(parent if parent in names else None, []).append(each)
    # Breadth first: a child is never written before its parent.
    waiting = deque(children.pop(None, []))
    while waiting:
        flow = waiting.popleft()
        yield flow
        waiting.extend(children.pop(flow.values["dfid"], []) if flow.values else [])
    # Cycles cannot be written as they are; each of their flows is kept aside with the reason.
    for ring in children.values():
        yield from ring


def _outcome(each: RowPlan, done: str) -> TakenRow:
    return TakenRow(each.table, each.source_id, each.verdict, done, "; ".join(each.notes))


# --- writing -----------------------------------------------------------------------------------------------------


class _NoPlaceError(Exception):
    """A row cannot be stored here, for the reason in the message; nothing of it was written."""


_FLOW = sql("SELECT status, root_dfid FROM decision_flows WHERE dfid = :dfid AND ns = :ns")
_AGENT = sql("SELECT 1 FROM agent_registry WHERE agent_id = :agent_id AND ns = :ns")


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes rows of one source into one namespace."""

    source: str
    ns: str

    def write(self, tx: Tx, unit: Unit) -> list[TakenRow]:
        """Write the new rows of a unit, then the status of their flow."""
        rows = [self._write_row(tx, each) for each in unit]
        new = [each for each, row in zip(unit, rows, strict=True) if row.done == "imported" and row.verdict != "KEPT"]
        of_flow = [each for each in new if each.table in {"decision_flows", "flow_transitions"}]
        # The flow itself is the first of its unit; transitions alone mean that it was imported before.
        if of_flow and of_flow[0].values:
            self._settle(tx, of_flow[0].values["dfid"])
            if of_flow[0].table == "decision_flows":
                self._conclude(tx, of_flow[0].values)
        return rows

    def _write_row(self, tx: Tx, each: RowPlan) -> TakenRow:
        if (record := import_records.find(tx, each.key, ns=self.ns)) is not None:
            verdict, note = record
            return TakenRow(each.table, each.source_id, verdict, "known", note)
        row: dict[str, Any] | None = None
        try:
            if each.values is not None:
                row, notes = self._insert(tx, each.table, each.values)
                each = replace(each, notes=(*each.notes, *notes))
        except _NoPlaceError as reason:
            each = replace(each, values=None, notes=(str(reason),))
        columns = {
            "importer": "dir",
            "source": self.source,
            "source_table": each.table,
            "source_id": each.source_id,
            "row_key": _row_key(each.table, row),
            "verdict": each.verdict,
            "note": "; ".join(each.notes),
        }
        import_records.add(tx, each.key, columns, each.beside(row), ns=self.ns)
        return _outcome(each, "imported")

    def _insert(self, tx: Tx, table: str, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Write a row; return it as written, and notes about what had to be created for it."""
        # A time that is missing or unreadable becomes that of the import, because the column needs one.
        row = {**values, **{name: tx.now for name in _times(table) if values[name] is None}, "ns": self.ns}
        if table in _EXISTS and tx.one(_EXISTS[table], **row) is not None:
            raise _NoPlaceError(f"one with that {_UNIQUE[table]} exists already and is not overwritten")
        notes = self._ensure_owners(tx, table, row)
        _ADAPT.get(table, _unchanged)(tx, row)
        if table == "resource_locks":
            _lock(tx, row)
        elif table in _RECORDS:
            _put(tx, table, row)
        else:
            tx.execute(_ADD[table], **row, expect=1)
        return row, notes

    def _ensure_owners(self, tx: Tx, table: str, row: Mapping[str, Any]) -> list[str]:
        """Create the agent and the flow of a row if they are missing; return notes about it."""
        if table in {"agent_registry", "idempotency_cache"}:
            return []
        agent_id = row.get("agent_id")
        dfid = None if table == "decision_flows" else row.get("dfid")
        # Both are read before either is created: creating the flow may create its agent.
        lacks_agent = bool(agent_id) and tx.one(_AGENT, agent_id=agent_id, ns=self.ns) is None
        lacks_flow = bool(dfid) and tx.one(_FLOW, dfid=dfid, ns=self.ns) is None
        notes = []
        if lacks_agent:
            notes.append("its agent was missing and was created")
            autocreate.agent(tx, str(agent_id), ns=self.ns)
        if lacks_flow:
            notes.append("its flow was missing and was created")
            autocreate.flow(tx, str(dfid), agent_id=agent_id, ns=self.ns)
        return notes

    def _settle(self, tx: Tx, dfid: str) -> None:
        """Set status and times of a flow as its transitions imply."""
        [(created_at,)] = tx.all(_CREATED, dfid=dfid, ns=self.ns)
        rows = tx.all(_MOVES, dfid=dfid, ns=self.ns)
        stands = checks.expected_state(created_at, [checks.TransitionRow(*row) for row in rows])
        times = {"started_at": stands.started_at, "completed_at": stands.completed_at, "updated_at": stands.updated_at}
        tx.execute(_STAND, dfid=dfid, ns=self.ns, status=stands.status, **times, expect=1)

    def _conclude(self, tx: Tx, source: Mapping[str, Any]) -> None:
        """Add transitions if the source gives the flow another status than its transitions imply."""
        [(stands, root_dfid)] = tx.all(_FLOW, dfid=source["dfid"], ns=self.ns)
        status = source["status"]
        if status in {"CREATED", stands}:
            return
        path = [(status, source["completed_at"] or source["updated_at"] or tx.now)]
        if stands == "CREATED" and status != "CANCELLED":
            path.insert(0, ("RUNNING", source["started_at"] or source["created_at"] or tx.now))
        for to, at in dict(path).items():
            move = {"dfid": source["dfid"], "root_dfid": root_dfid, "from_status": stands, "to_status": to}
            _put(tx, "flow_transitions", move | {"created_at": at, "reason": checks.IMPORTED, "ns": self.ns})
            stands = to
        self._settle(tx, source["dfid"])


# --- statements --------------------------------------------------------------------------------------------------

# Named one by one: a list of all tables holds only those whose modules happen to be imported already.
_RECORDS: Final[dict[str, Table[Any]]] = {
    table.name: table for table in (AGENTS, FLOWS, TRANSITIONS, CONTEXT, STATE, FEEDBACK, ESCALATIONS, LEDGER, AUDIT)
}
"""Tables under the log: their rows are written with a leaf."""
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
    columns = (*(name for name, _ in column_kinds(table)), "ns", *_MORE.get(table, ()))
    return sql(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{each}' for each in columns)})")  # noqa: S608


_ADD: Final = {table: _insert(table) for table in COLUMNS if table != "resource_locks"}
_NEXT: Final = {name: numbered("SELECT {id}", name) for name, table in _RECORDS.items() if table.key == "id"}
_EXISTS: Final = {
    table: sql(f"SELECT 1 FROM {table} WHERE {name} = :{name} AND ns = :ns")  # noqa: S608
    for table, name in _UNIQUE.items()
}
_CREATED = sql("SELECT created_at FROM decision_flows WHERE dfid = :dfid AND ns = :ns")
_MOVES = sql(
    "SELECT dfid, ns, id, from_status, to_status, created_at, reason FROM flow_transitions"
    " WHERE dfid = :dfid AND ns = :ns ORDER BY id"
)
_STAND = sql(
    "UPDATE decision_flows SET status = :status, started_at = :started_at, completed_at = :completed_at,"
    " updated_at = :updated_at WHERE dfid = :dfid AND ns = :ns"
)


def _put(tx: Tx, table: str, row: dict[str, Any]) -> None:
    """Write a row under the log."""
    logged = _RECORDS[table]
    if table in _NEXT:
        [(row["id"],)] = tx.all(_NEXT[table])
    columns = (*logged.projection.columns, *_MORE.get(table, ()))
    logged.add(tx, _ADD[table], {name: row.get(name) for name in columns}, kind=IMPORTED)


def _row_key(table: str, written: Mapping[str, Any] | None) -> str:
    """The key of the row here; empty if there is none."""
    if written is None:
        return ""
    return str(written.get("resource_id" if table == "resource_locks" else _UNIQUE.get(table, "id"), ""))


def _times(table: str) -> list[str]:
    """The columns of a table that must hold a time."""
    return [name for name, kind in column_kinds(table) if kind == "time"]


# --- what some tables need besides: changes of the row before it is written -----------------------------------------


def _unchanged(tx: Tx, row: dict[str, Any]) -> None:
    del tx, row


def _flow(tx: Tx, row: dict[str, Any]) -> None:
    if row["dfid_parent"] is None:
        row["root_dfid"] = row["dfid"]
        return
    parent = tx.one(_FLOW, dfid=row["dfid_parent"], ns=row["ns"])
    if parent is None:
        raise _NoPlaceError("its parent is not here")
    _, parent_root = parent
    row["root_dfid"] = row["root_dfid"] or parent_root


_NATIVE = sql(
    "SELECT count(*) FROM flow_transitions WHERE dfid = :dfid AND ns = :ns AND coalesce(reason, '') <> :imported"
)


def _transition(tx: Tx, row: dict[str, Any]) -> None:
    [(native,)] = tx.all(_NATIVE, dfid=row["dfid"], ns=row["ns"], imported=checks.IMPORTED)
    if native:
        raise _NoPlaceError("its flow went on here after an earlier import")
    row["root_dfid"] = row["root_dfid"] or row["dfid"]
    row["reason"] = checks.IMPORTED


def _key(tx: Tx, row: dict[str, Any]) -> None:
    del tx
    row["expires_at"] = row["expires_at"] or later(row["created_at"], _YEAR_S)
    row["state"] = "DONE"


def _escalation(tx: Tx, row: dict[str, Any]) -> None:
    del tx
    if row["status"] == "RESOLVED":  # older versions of DIR had one status for both outcomes
        row["status"] = "REJECTED" if (row["human_decision"] or "").upper() == "ABORT" else "APPROVED"
    row["root_dfid"] = row["root_dfid"] or row["dfid"]
    row |= {"kind": "approval", "on_deadline": "reject", "opened_by": "agent"}


_ADAPT: Final[dict[str, Callable[[Tx, dict[str, Any]], None]]] = {
    "decision_flows": _flow,
    "flow_transitions": _transition,
    "idempotency_cache": _key,
    "escalation_requests": _escalation,
}

_HOLDS = sql("SELECT 1 FROM resource_locks WHERE ns = :ns AND resource_id = :resource_id AND dfid = :dfid")
_DATED = sql(
    "UPDATE resource_locks SET acquired_at = :acquired_at, expires_at = :expires_at"
    " WHERE ns = :ns AND resource_id = :resource_id AND dfid = :dfid"
)


def _lock(tx: Tx, row: Mapping[str, Any]) -> None:
    """Reserve what the flow held in the source, until the same time."""
    key = {name: row[name] for name in ("ns", "resource_id", "dfid")}
    flow = tx.one(_FLOW, dfid=row["dfid"], ns=row["ns"])
    if flow is None:
        raise _NoPlaceError("its flow is not here")
    status, _ = flow
    if status in TERMINAL:
        raise _NoPlaceError("its flow has ended, and holds nothing")
    if row["amount"] == 0 or tx.one(_HOLDS, **key) is not None:
        raise _NoPlaceError("it holds nothing" if row["amount"] == 0 else "the flow holds it here already")
    amounts = {row["resource_id"]: row["amount"]}
    # DIR does not record capacities, so none is checked: its manager granted the amount.
    try:
        locks.reserve(tx, row["dfid"], amounts, expected=dict.fromkeys(amounts, inf), ns=row["ns"])
    except ContentionTimeoutError as error:
        raise _NoPlaceError(str(error)) from error
    tx.execute(_DATED, **key, acquired_at=row["acquired_at"], expires_at=row["expires_at"], expect=1)
