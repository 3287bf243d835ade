"""What SQL of applications may do on a SQLite connection.

Rules:
- It reads every table of the file except `SECRET_TABLES`, and writes, creates and drops tables, views, indexes and
  triggers.
- It cannot change `RESERVED_TABLES` and `SECRET_TABLES`, nor create a trigger that does, since Holdproof's own
  statements would fire it. It cannot alter or drop `MIGRATED_TABLES`; on PostgreSQL its login could not either.
- No text or blob, of a row or on the way to one, is longer than `LONGEST_BYTES`.
- No other database: no ATTACH, no DETACH, no temporary tables, which would hide the tables of all other users.
- No settings: a PRAGMA may only read. No BEGIN, COMMIT or SAVEPOINT: Holdproof controls transactions.
- No code: no extensions, no virtual tables but full text and R-tree.
"""

import re
from typing import Final

import apsw
import apsw.sqlite_extra

from holdproof.db.sql import first_word
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
    apsw.SQLITE_CREATE_INDEX: 1,
    apsw.SQLITE_DROP_INDEX: 1,
    apsw.SQLITE_CREATE_TRIGGER: 1,
    apsw.SQLITE_DROP_TRIGGER: 1,
}
_SCHEMA_ACTIONS: Final = {apsw.SQLITE_DROP_TABLE: 0, apsw.SQLITE_ALTER_TABLE: 1}
# For each action of the authorizer: which of its two arguments is the table's name, and for which tables it is denied.
_TABLES: Final = {
    **{action: (at, RESERVED_TABLES | SECRET_TABLES) for action, at in _CHANGE_ACTIONS.items()},
    **{action: (at, MIGRATED_TABLES) for action, at in _SCHEMA_ACTIONS.items()},
    apsw.SQLITE_READ: (0, SECRET_TABLES),
}
_TRIGGER: Final = re.compile(r"\bTRIGGER\b", re.IGNORECASE)
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


def creates_reserved_trigger(statement: str) -> bool:
    """Return whether a statement may create a trigger that names a reserved table.

    By the text, since SQLite asks the authorizer about a trigger's body only when the trigger fires.
    """
    is_trigger = first_word(statement) == "CREATE" and _TRIGGER.search(statement)
    return bool(is_trigger) and any(name in statement.lower() for name in RESERVED_TABLES | SECRET_TABLES)
