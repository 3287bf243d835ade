"""SQLite files of kgents: `history.db` and `membrane.db`.

Rules:
- Foreign keys were off there: a child whose session is missing gets one, made for it and marked as such.
- Tables that are not ours are counted and left; a file of Holdproof itself is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdproof.db.sqlite.readonly import foreign_rows, foreign_tables
from holdproof.errors import FormatError
from holdproof.importers.kgents import tables
from holdproof.importers.kgents.plan import Plan, Rows
from holdproof.importers.kgents.source import Contents
from holdproof.importers.kgents.tables import TABLES, Row

_HISTORY: Final = {
    "sessions": "cli_sessions",
    "events": "cli_session_events",
    "agents": "cli_session_agents",
    "artifacts": "cli_session_artifacts",
}
_OTHER_WORDS: Final = {
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


class Database(Plan):
    """A SQLite file whose tables become tables of the membrane."""

    kind = "membrane"
    names: Mapping[str, str] = {name: name for name in TABLES}
    """Its tables that we know, and what they are here."""
    needed: tuple[str, ...] = ()

    def rows(self, contents: Contents) -> Rows:
        """See Plan."""
        there = self._tables(contents)
        ids: dict[str, set[str]] = {parent: set() for parent in _PARENTS}
        for name, target in self.names.items():
            if name in there:
                yield from self._rows(name, target, ids)

    def _tables(self, contents: Contents) -> set[str]:
        found: set[str] = set()
        with foreign_tables(self.path) as listed:
            for name, rows in listed:
                found.add(name)
                if name not in self.names and name != "schema_version" and (left := sum(1 for _ in rows)):
                    contents.skipped[f"rows of the table {name}, which is not ours"] = left
        if "schema_migrations" in found:
            raise FormatError(f"{self.path} is a store of Holdproof, not of kgents", path=str(self.path))
        if missing := [name for name in self.needed if name not in found]:
            raise FormatError(f"{self.path} has no table {missing[0]}", path=str(self.path), table=missing[0])
        return found

    def _rows(self, name: str, target: str, ids: dict[str, set[str]]) -> Iterator[tuple[str, Row]]:
        table, parent = TABLES[target], _CHILDREN.get(target)
        with foreign_rows(self.path, name) as (_, rows):
            for number, given in enumerate(rows, 1):
                where = f"row {number} of {name} in {self.path.name}"
                row = tables.fit(table, _renamed(target, given), where)
                if parent is not None and (of := row[_PARENTS[parent]]) is not None and of not in ids[parent]:
                    ids[parent].add(of)
                    yield parent, _made(parent, of, row)
                if target in ids:
                    ids[target].add(row["id"])
                yield target, row


class History(Database):
    """`history.db`: sessions of the command line."""

    kind = "sessions"
    names = _HISTORY
    needed = ("sessions",)


def _renamed(target: str, given: Row) -> Row:
    """A row under our words; a number as its id is made unlike that of any other file."""
    words = {old: new for old, new in _OTHER_WORDS.get(target, {}).items() if new not in given}
    row = {words.get(name, name): value for name, value in given.items()}
    if isinstance(row.get("id"), int):
        of: Any = row.get("session_id", "legacy")
        row["id"] = f"{of}/{target}/{row['id']}"
    return row


def _made(parent: str, of: str, child: Row) -> Row:
    """A parent for a child that has lost its own."""
    given = {"id": of, "name": "(lost)", "state": "interrupted", "status": "draft", "missing": "no row in the source"}
    given["started_at"] = child.get("timestamp") or child.get("started_at") or child.get("created_at") or _NEVER
    if parent == "cli_sessions":
        del given["status"]
        return tables.fit(TABLES[parent], given, f"session {of}")
    return tables.fit(TABLES[parent], {"id": of, "status": "draft"}, f"proposal {of}")
