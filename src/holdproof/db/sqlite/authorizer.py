"""What SQL that is not ours may do on a SQLite connection.

Rules:
- It reads every table of the file but those that hold a secret (`SECRET_TABLES`), and writes, makes and drops tables, views,
  indexes and triggers.
- What Holdproof keeps for itself (`RESERVED_TABLES`, `SECRET_TABLES`) it cannot change, nor can a trigger that it makes, which our own
  statements would set off. What our migrations made (`MIGRATED_TABLES`) it cannot alter or drop, as no login of a server can.
- No text or blob, of a row or on the way to one, is longer than `LONGEST_BYTES`.
- No other database: no ATTACH, no DETACH, no temporary tables, which would hide those of everybody else.
- No settings: a PRAGMA may only ask. No BEGIN, COMMIT or SAVEPOINT: transactions are ours.
- No code: no extensions, no virtual tables but full text and R-tree.
"""

import re
from typing import Final

import apsw
import apsw.sqlite_extra

from holdproof.db.sql import first_word
from holdproof.db.tx import MIGRATED_TABLES, RESERVED_TABLES, SECRET_TABLES

LONGEST_BYTES: Final = 16 << 20
_NEVER: Final = {
    apsw.SQLITE_ATTACH,
    apsw.SQLITE_DETACH,
    apsw.SQLITE_TRANSACTION,
    apsw.SQLITE_SAVEPOINT,
    apsw.SQLITE_CREATE_TEMP_INDEX,
    apsw.SQLITE_CREATE_TEMP_TABLE,
    apsw.SQLITE_CREATE_TEMP_TRIGGER,
    apsw.SQLITE_CREATE_TEMP_VIEW,
}
_CHANGES: Final = {
    apsw.SQLITE_INSERT: 0,
    apsw.SQLITE_UPDATE: 0,
    apsw.SQLITE_DELETE: 0,
    apsw.SQLITE_CREATE_INDEX: 1,
    apsw.SQLITE_DROP_INDEX: 1,
    apsw.SQLITE_CREATE_TRIGGER: 1,
    apsw.SQLITE_DROP_TRIGGER: 1,
}
_RESHAPES: Final = {apsw.SQLITE_DROP_TABLE: 0, apsw.SQLITE_ALTER_TABLE: 1}
# Where the table's name stands in what SQLite asks about, and of which tables it is not allowed.
_TABLES: Final = {
    **{action: (at, RESERVED_TABLES | SECRET_TABLES) for action, at in _CHANGES.items()},
    **{action: (at, MIGRATED_TABLES) for action, at in _RESHAPES.items()},
    apsw.SQLITE_READ: (0, SECRET_TABLES),
}
_TRIGGER: Final = re.compile(r"\bTRIGGER\b", re.IGNORECASE)
_ASKS_ABOUT: Final = {"foreign_key_check", "foreign_key_list", "index_info", "index_list", "index_xinfo"} | {
    "integrity_check",
    "quick_check",
    "table_info",
    "table_list",
    "table_xinfo",
}
_ASKS: Final = frozenset({"encoding", "foreign_keys", "page_count", "page_size", "user_version"})
_MODULES: Final = frozenset({"fts5", "rtree"})


def allows(action: int, first: str | None, second: str | None) -> bool:
    """Whether SQL that is not ours may do this; names arrive as they are written in the schema."""
    if action in _NEVER:
        return False
    if action in _TABLES:
        at, ours = _TABLES[action]
        return ((first, second)[at] or "").lower() not in ours
    if action == apsw.SQLITE_PRAGMA:
        return first in _ASKS_ABOUT or (first in _ASKS and second is None)
    if action == apsw.SQLITE_FUNCTION:
        return second != "load_extension"
    return action != apsw.SQLITE_CREATE_VTABLE or second in _MODULES


def lays_a_trap(statement: str) -> bool:
    """Whether it may make a trigger over what is kept; SQLite looks into a trigger only when it goes off."""
    made = first_word(statement) == "CREATE" and _TRIGGER.search(statement)
    return bool(made) and any(name in statement.lower() for name in RESERVED_TABLES | SECRET_TABLES)
