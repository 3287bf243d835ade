"""What SQL of applications may do on a SQLite connection.

Rules:
- It reads every table of the file except `SECRET_TABLES`, and writes, creates and drops tables, views, indexes and
  triggers.
- It cannot change `RESERVED_TABLES` and `SECRET_TABLES`. It cannot alter or drop `MIGRATED_TABLES`, and nothing that it
  creates may depend on them: no trigger, index, view or foreign key. Holdproof's own statements would run a trigger
  with all rights, and could be stopped by a foreign key. On PostgreSQL its login could not either.
- No text or blob, of a row or on the way to one, is longer than `LONGEST_BYTES`.
- No other database: no ATTACH, no DETACH, no temporary tables, which would hide the tables of all other users.
- No settings: a PRAGMA may only read. No BEGIN, COMMIT or SAVEPOINT: Holdproof controls transactions.
- No code: no extensions, no virtual tables but full text and R-tree.
"""

from typing import Final

import apsw
import apsw.sqlite_extra

from holdproof.db.tx import MIGRATED_TABLES, RESERVED_TABLES, SECRET_TABLES

LONGEST_BYTES: Final = 16 << 20
_DENIED: Final = {
    apsw.SQLITE_ATTACH,
    apsw.SQLITE_DETACH,
    apsw.SQLITE_TRANSACTION,
    apsw.SQLITE_SAVEPOINT,
    apsw.SQLITE_CREATE_TEMP_INDEX,
    apsw.SQLITE_CREATE_TEMP_TABLE,
    apsw.SQLITE_CREATE_TEMP_TRIGGER,
    apsw.SQLITE_CREATE_TEMP_VIEW,
}
_CHANGE_ACTIONS: Final = {
    apsw.SQLITE_INSERT: 0,
    apsw.SQLITE_UPDATE: 0,
    apsw.SQLITE_DELETE: 0,
}
_SCHEMA_ACTIONS: Final = {
    apsw.SQLITE_DROP_TABLE: 0,
    apsw.SQLITE_ALTER_TABLE: 1,
    apsw.SQLITE_CREATE_INDEX: 1,
    apsw.SQLITE_DROP_INDEX: 1,
    apsw.SQLITE_CREATE_TRIGGER: 1,
    apsw.SQLITE_DROP_TRIGGER: 1,
}
# For each action of the authorizer: which of its two arguments is the table's name, and for which tables it is denied.
_TABLES: Final = {
    **{action: (at, RESERVED_TABLES | SECRET_TABLES) for action, at in _CHANGE_ACTIONS.items()},
    **{action: (at, MIGRATED_TABLES) for action, at in _SCHEMA_ACTIONS.items()},
    apsw.SQLITE_READ: (0, SECRET_TABLES),
}
_PRAGMAS_WITH_ARGUMENT: Final = {"foreign_key_check", "foreign_key_list", "index_info", "index_list", "index_xinfo"} | {
    "integrity_check",
    "quick_check",
    "table_info",
    "table_list",
    "table_xinfo",
}
_PRAGMAS: Final = frozenset({"encoding", "foreign_keys", "page_count", "page_size", "user_version"})
_MODULES: Final = frozenset({"fts5", "rtree"})


def allows(action: int, first: str | None, second: str | None) -> bool:
    """Return whether application SQL may do this; names come as they are written in the schema."""
    if action in _DENIED:
        return False
    if action in _TABLES:
        position, denied = _TABLES[action]
        return ((first, second)[position] or "").lower() not in denied
    if action == apsw.SQLITE_PRAGMA:
        return first in _PRAGMAS_WITH_ARGUMENT or (first in _PRAGMAS and second is None)
    if action == apsw.SQLITE_FUNCTION:
        return second != "load_extension"
    return action != apsw.SQLITE_CREATE_VTABLE or second in _MODULES


def dependent(connection: apsw.Connection) -> str | None:
    """Return what depends on a table of Holdproof's and is not Holdproof's own; None if nothing does.

    Asked of the schema after a statement that may have changed it, since its text can name a table in many ways, and
    SQLite asks the authorizer about bodies of triggers and views only when they are used.
    """
    ours = ", ".join(f"'{name}'" for name in sorted(MIGRATED_TABLES))
    for (table,) in connection.execute(_REFERENCES.format(ours=ours)):
        return f"the table {table} has a foreign key"
    for (name,) in connection.execute(_TRIGGERS.format(ours=ours)):
        return f"the trigger {name}"
    views = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view'")]
    return next((f"the view {name}" for name in views if _reads_ours(connection, name)), None)


_REFERENCES: Final = (
    "SELECT s.name FROM sqlite_schema s, pragma_foreign_key_list(s.name) f WHERE s.type = 'table'"
    ' AND s.name NOT IN ({ours}) AND lower(f."table") IN ({ours})'
)
_TRIGGERS: Final = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND lower(tbl_name) IN ({ours})"


def _reads_ours(connection: apsw.Connection, view: str) -> bool:
    """Return whether a view reads a table of Holdproof's, directly or through other views."""
    tables: set[str] = set()

    def note(action: int, first: str | None, *_: str | None) -> int:
        if action == apsw.SQLITE_READ:
            tables.add((first or "").lower())
        return apsw.SQLITE_OK

    previous = connection.authorizer
    connection.authorizer = note
    try:
        quoted = view.replace('"', '""')
        connection.execute(f'EXPLAIN SELECT * FROM "{quoted}"').fetchall()  # noqa: S608 (the name was quoted)
    except apsw.SQLError:
        # A view that cannot be used reads nothing yet; it is looked at again after the next change of the schema.
        return False
    finally:
        connection.authorizer = previous
    return not tables.isdisjoint(MIGRATED_TABLES)
