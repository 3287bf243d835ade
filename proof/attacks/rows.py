"""Every table under the log: every column changed, a row deleted, forged, swapped, taken from another namespace.

And every column outside it that is declared as covered all the same (`model/coverage.py`): changed, it must be noticed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import psycopg

from harness.filling import running, settled
from harness.raw_access import Past
from holdproof.model.coverage import Cover
from holdproof.upkeep import kernel_tables
from proof.attacks.attacked_store import OTHER, Place
from proof.attacks.matrix import FULL, NOTHING, OPENING, PLAIN, REFUSED, ROWS, Attack

AREA: Final = "rows"
DECLARED: Final = "columns declared as covered"
_TILE: Final = 256

_OTHER_SQLITE: Final = (
    "CASE typeof({0}) WHEN 'text' THEN {0} || 'x' WHEN 'null' THEN 'x' WHEN 'blob' THEN zeroblob(16)"
    " ELSE {0} + 1000 END"
)
_OTHER_POSTGRES: Final = {
    "json": "CAST('{{\"x\": 1}}' AS JSON)",
    "jsonb": "CAST('{{\"x\": 1}}' AS JSONB)",
    "text": "coalesce({0}, '') || 'x'",
    "bigint": "coalesce({0}, 0) + 1000",
    "integer": "coalesce({0}, 0) + 1000",
    "double precision": "coalesce({0}, 0) + 1",
    "bytea": "decode(repeat('00', 16), 'hex')",
    "timestamp with time zone": "coalesce({0}, now()) + interval '1 second'",
}
_UNIQUE_SQLITE: Final = (
    "SELECT i.name FROM pragma_index_list('{0}') l, pragma_index_info(l.name) i WHERE l.\"unique\" = 1"
    " UNION SELECT name FROM pragma_table_info('{0}') WHERE pk > 0"
)
_UNIQUE_POSTGRES: Final = (
    "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)"
    " WHERE i.indrelid = 'kernel.{0}'::regclass AND i.indisunique"
)
_CHECKS: Final = "SELECT conname FROM pg_constraint WHERE conrelid = 'kernel.{0}'::regclass AND contype = 'c'"

OUTSIDE: Final = {
    ("access_tokens", "last_used_at"): "no leaf covers when a token was last used",
    ("subjects", "name_hash"): "no leaf covers it; a name that is not found cannot be erased by name",
    ("subjects", "key"): "no leaf covers it, since it is destroyed at erasure; sealed content no longer opens",
}
"""Columns of covered tables that no leaf covers and nothing follows from."""
_SEARCH: Final = "object_search"
"""The index of the text search has no columns of its own to change: `callers` attacks it."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as an attacker sees it: its columns and their types, and which of them no two rows share."""

    name: str
    columns: dict[str, str]
    unique: frozenset[str]


def tables(past: Past) -> list[Table]:
    """Every table under the log."""
    return [_table(past, each.table) for each in kernel_tables.LOGGED.values()]


def _table(past: Past, name: str) -> Table:
    if past.url is None:
        columns = {row[0]: "" for row in past.ask(f"SELECT name FROM pragma_table_info('{name}')")}
        unique = past.ask(_UNIQUE_SQLITE.format(name))
    else:
        listed = "SELECT column_name, data_type FROM information_schema.columns"
        columns = dict(past.ask(f"{listed} WHERE table_schema = 'kernel' AND table_name = ?", name))
        unique = past.ask(_UNIQUE_POSTGRES.format(name))
    return Table(name, columns, frozenset(row[0] for row in unique if row[0]))


def attacks(past: Past) -> Iterator[Attack]:
    """All attacks on rows that this database has tables for."""
    for table in tables(past):
        for column in table.columns:
            yield _attack(table, f"{column} changed", partial(_change, table, column), _design(table, column))
        for name, act in _whole(table).items():
            yield _attack(table, name, act)


def declared(past: Past) -> Iterator[Attack]:
    """Every column of a table without entries that is rebuilt and compared, or is the log itself, changed."""
    for name, columns in kernel_tables.UNLOGGED.items():
        if name == _SEARCH:
            continue
        table = _table(past, name)
        for column, coverage in columns.items():
            if coverage.cover in (Cover.ENTRY, Cover.REBUILT) and column in table.columns:
                act = partial(_change_declared, table, column)
                expected = ("TAMPERED", "ROLLED_BACK", "FORKED", REFUSED)
                by = (PLAIN, FULL, OPENING)
                yield Attack(DECLARED, f"{name}: {column} changed", ROWS, act, expected, by, locks=None)


def _change_declared(table: Table, column: str, place: Place) -> None:
    """Change the last row; where the table has none yet, the store first gets so large that it has."""
    if not _count(place, table):
        with place.open() as store:
            flow_id = running(store, attributes={"colour": "red"})
            for number in range(_TILE):
                store.audit.record(flow_id, "SEEN", detail={"number": number})
            settled(store)
    assert _count(place, table), f"{table.name} is empty: nothing would be attacked"
    _change(table, column, place)


def _count(place: Place, table: Table) -> int:
    [(count,)] = place.past.ask(f"SELECT count(*) FROM {table.name}")
    return int(count)


def _design(table: Table, column: str) -> str:
    return OUTSIDE.get((table.name, column), "")


def _attack(table: Table, name: str, act: Callable[[Place], None], design: str = "") -> Attack:
    where = f"{table.name}: {name}"
    if design:
        return Attack(AREA, where, ROWS, act, ("VALID",), (NOTHING,), locks=False, design=design)
    if table.name == "schema_migrations":  # another version's store is not even opened
        return Attack(AREA, where, ROWS, act, ("TAMPERED", REFUSED), (PLAIN, OPENING), locks=None)
    # Without its record, a restore gave up heads that this home knows: two findings, the worse one is the verdict.
    expected = ("TAMPERED", "ROLLED_BACK") if table.name == "restores" else ("TAMPERED",)
    return Attack(AREA, where, ROWS, act, expected, names=table.name)


def _whole(table: Table) -> dict[str, Callable[[Place], None]]:
    """Attacks on whole rows."""
    found: dict[str, Callable[[Place], None]] = {
        "a row deleted": partial(_delete, table),
        "a row forged under the leaf of another": partial(_forge, table, {}),
        "a row forged under a leaf of nobody": partial(
            _forge, table, {"leaf_id": "'019a0000-0000-7000-8000-000000000000'"}
        ),
        "two rows swapped": partial(_swap, table),
    }
    if "ns" in table.columns:
        found["a row taken to another namespace"] = partial(_forge, table, {"ns": f"'{OTHER}x'"})
    return found


# --- what is done ------------------------------------------------------------------------------------------------


def _last(past: Past, table: Table) -> str:
    where = "rowid" if past.url is None else "ctid"
    return f"{where} = (SELECT max({where}) FROM {table.name})"


def _other(past: Past, table: Table, column: str) -> str:
    return (_OTHER_SQLITE if past.url is None else _OTHER_POSTGRES[table.columns[column]]).format(column)


def _change(table: Table, column: str, place: Place) -> None:
    past = place.past
    _insist(past, table, f"UPDATE {table.name} SET {column} = {_other(past, table, column)} WHERE {_last(past, table)}")


def _delete(table: Table, place: Place) -> None:
    place.past.ask(f"DELETE FROM {table.name} WHERE {_last(place.past, table)}")


def _forge(table: Table, fixed: dict[str, str], place: Place) -> None:
    """Put in a copy of a row that is the same but for what no two rows may share."""
    past = place.past
    values = [
        fixed.get(column) or (_other(past, table, column) if column in table.unique - {"leaf_id"} else column)
        for column in table.columns
    ]
    names = ", ".join(table.columns)
    _insist(
        past,
        table,
        f"INSERT INTO {table.name} ({names}) SELECT {', '.join(values)} FROM {table.name} WHERE {_last(past, table)}",
    )


def _swap(table: Table, place: Place) -> None:
    """Two rows change places: each has the leaf and the salt of the other."""
    marks = place.past.ask(f"SELECT leaf_id, leaf_ver, leaf_salt FROM {table.name} WHERE leaf_id IS NOT NULL")
    (one, *first), (two, *second) = marks[0], marks[-1]
    update = f"UPDATE {table.name} SET leaf_id = ?, leaf_ver = ?, leaf_salt = ? WHERE leaf_id = ?"
    place.past.ask(update, "aside", *first, one)
    place.past.ask(update, one, *first, two)
    place.past.ask(update, two, *second, "aside")


def _insist(past: Past, table: Table, statement: str) -> None:
    """Where a constraint is in the way, whoever owns the schema drops it first."""
    try:
        past.ask(statement)
    except psycopg.errors.CheckViolation:
        for (name,) in past.ask(_CHECKS.format(table.name)):
            past.ask(f"ALTER TABLE {table.name} DROP CONSTRAINT {name}")
        past.ask(statement)
