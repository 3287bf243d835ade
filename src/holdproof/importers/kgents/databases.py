"""SQLite files of kgents: `history.db` and `membrane.db`.

Rules:
- Foreign keys were off there: a child whose session is missing gets a new one, marked as such.
- Unknown tables are counted and not imported; a file of Holdproof itself is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdproof.db.sqlite.readonly import foreign_rows, foreign_tables
from holdproof.errors import FormatError
from holdproof.importers.kgents import tables
from holdproof.importers.kgents.row_source import Rows, RowSource
from holdproof.importers.kgents.source import Contents
from holdproof.importers.kgents.tables import TABLES, Row

_HISTORY: Final = {
    "sessions": "cli_sessions",
    "events": "cli_session_events",
    "agents": "cli_session_agents",
    "artifacts": "cli_session_artifacts",
}
_OTHER_NAMES: Final = {
    "cli_sessions": {"type": "session_type", "status": "state", "created_at": "started_at"},
    "cli_session_events": {"type": "event_type", "created_at": "timestamp"},
    "cli_session_artifacts": {"type": "artifact_type"},
}
_PARENTS: Final = {"cli_sessions": "session_id", "self_grow_proposals": "proposal_id"}
_CHILDREN: Final = {
    "cli_session_events": "cli_sessions",
    "cli_session_agents": "cli_sessions",
    "cli_session_artifacts": "cli_sessions",
    "self_grow_nursery": "self_grow_proposals",
}
_NEVER: Final = "1970-01-01T00:00:00Z"


class KgentsDatabase(RowSource):
    """A SQLite file whose tables become application tables."""

    kind = "membrane"
    names: Mapping[str, str] = {name: name for name in TABLES}
    """Its tables that are imported, and their names here."""
    needed: tuple[str, ...] = ()

    def rows(self, contents: Contents) -> Rows:
        """See RowSource."""
        tables_of_file = self._tables(contents)
        ids: dict[str, set[str]] = {parent: set() for parent in _PARENTS}
        for name, target in self.names.items():
            if name in tables_of_file:
                yield from self._rows(name, target, ids)

    def _tables(self, contents: Contents) -> set[str]:
        names: set[str] = set()
        with foreign_tables(self.path) as listed:
            for name, rows in listed:
                names.add(name)
                if name not in self.names and name != "schema_version" and (count := sum(1 for _ in rows)):
                    contents.skipped[f"rows of the unknown table {name}"] = count
        if "schema_migrations" in names:
            raise FormatError(f"{self.path} is a store of Holdproof, not of kgents", path=str(self.path))
        if missing := [name for name in self.needed if name not in names]:
            raise FormatError(f"{self.path} has no table {missing[0]}", path=str(self.path), table=missing[0])
        return names

    def _rows(self, name: str, target: str, ids: dict[str, set[str]]) -> Iterator[tuple[str, Row]]:
        table = TABLES[target]
        parent = _CHILDREN.get(target)
        with foreign_rows(self.path, name) as (_, rows):
            for number, source_row in enumerate(rows, 1):
                where = f"row {number} of {name} in {self.path.name}"
                row = tables.fit(table, _renamed(target, source_row), where)
                # Children come after their parents, so a parent that was not seen by now does not exist.
                if parent is not None and (of := row[_PARENTS[parent]]) is not None and of not in ids[parent]:
                    ids[parent].add(of)
                    yield parent, _missing_parent(parent, of, row)
                if target in ids:
                    ids[target].add(row["id"])
                yield target, row


class History(KgentsDatabase):
    """`history.db`: sessions of the command line."""

    kind = "sessions"
    names = _HISTORY
    needed = ("sessions",)


def _renamed(target: str, source_row: Row) -> Row:
    """A row under our column names; a numeric id is made unique across files."""
    names = {old: new for old, new in _OTHER_NAMES.get(target, {}).items() if new not in source_row}
    row = {names.get(name, name): value for name, value in source_row.items()}
    # Numbers start at 1 in every file, and ids here are shared by all imported files.
    if isinstance(row.get("id"), int):
        of: Any = row.get("session_id", "legacy")
        row["id"] = f"{of}/{target}/{row['id']}"
    return row


def _missing_parent(parent: str, of: str, child: Row) -> Row:
    """A parent for a child whose own is missing."""
    row = {"id": of, "name": "(lost)", "state": "interrupted", "status": "draft", "missing": "no row in the source"}
    row["started_at"] = child.get("timestamp") or child.get("started_at") or child.get("created_at") or _NEVER
    if parent == "cli_sessions":
        del row["status"]
        return tables.fit(TABLES[parent], row, f"session {of}")
    return tables.fit(TABLES[parent], {"id": of, "status": "draft"}, f"proposal {of}")
