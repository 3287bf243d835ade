"""Tables under the log: each domain describes its own, and `upkeep/kernel_tables.py` lists them all for `verify`.

    LOGGED: Final = (logged_tables.describe(KEYRING, kinds=("key",), key="keyid"),)

Rules:
- The projection holds the row's key, so that no row can pass for another.
- A key that counts within its namespace only (`per_namespace`) is walked together with `ns`, or a row at the end of a
  page could hide a row of the same key behind it.
- A row carries `leaf_id`, `leaf_ver` and `leaf_salt`; versions of a record count 1, 2, 3 … under one handle.
- A record is removed from its table by erasure (its newest leaf is then of type `erasure`, under its own handle) or by
  retention (a pruning then names its handle).
- A table that ever had another list of columns names its older projections too.
- Columns that no projection holds are declared (`further`), with what covers them or why nothing does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from holdproof.crypto import canonical
from holdproof.db import Query, Row, Tx, sql
from holdproof.errors import FormatError, InvalidInputError, TamperedError
from holdproof.evidence.leaves import TOPIC, TYPES, Projection
from holdproof.model import coverage
from holdproof.model.coverage import Columns, Cover, Coverage
from holdproof.model.namespaces import MAIN

COLUMNS: Final = 8
"""How many columns of `LoggedTable.rows` come before those of the projections."""


class Place(NamedTuple):
    """Where a walk over a table stands: a row's key, and its namespace where keys count within one."""

    key: Any
    ns: str = ""

    def __str__(self) -> str:
        return str(self.key) if self.ns in {"", MAIN} else f"{self.key} of namespace {self.ns}"


class LoggedRow(NamedTuple):
    """The first columns of `LoggedTable.rows` and `LoggedTable.one`: a row's key and its leaf in the log."""

    key: Any
    leaf_id: Any
    leaf_ver: Any
    leaf_salt: Any
    leaf_index: int | None
    """Where the leaf of this version stands; None while it waits for the sequencer."""
    leaf: str | None
    newest: int | None
    """The newest version that the log has of this record."""
    first_index: int | None
    """Where the record's first version stands."""


def logged_row(row: Row) -> LoggedRow:
    """Name the columns of a row that come before those of its projections."""
    return LoggedRow(*row[:COLUMNS])


def mismatch(table: "LoggedTable", row: Row) -> str:
    """Say how a row and its leaf differ; empty where they agree. Whether it is the newest version is not asked here."""
    logged = logged_row(row)
    leaf = _parse(logged.leaf)
    if leaf is None:
        return "its leaf is not a leaf: the log was edited"
    if (leaf.get("id"), leaf.get("ver")) != (logged.leaf_id, logged.leaf_ver):
        return "its leaf speaks of another record: the log was edited"
    projection = table.projections.get(str(leaf.get("p")))
    if projection is None or leaf.get("t") not in table.kinds:
        return "its leaf is of another table or type: the leaf was swapped"
    content = dict(zip(table.columns, row[COLUMNS:], strict=True))
    # SQLite stores any type in any column: a salt that is not bytes was not written by Holdproof.
    salt = logged.leaf_salt if isinstance(logged.leaf_salt, bytes) else b""
    try:
        commitment = projection.commit(salt, content)
    except InvalidInputError:
        return "the row holds what Holdproof never writes"
    return "" if commitment == leaf.get("h") else "the row does not match its leaf: row, salt or leaf was edited"


def _parse(text: object) -> Mapping[str, Any] | None:
    try:
        value = canonical.loads(text.encode()) if isinstance(text, str) else None
    except (FormatError, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class LoggedTable:
    """A table under the log, and the queries that walk it."""

    table: str
    kinds: frozenset[str]
    projections: Mapping[str, Projection]
    columns: tuple[str, ...]
    first: str | int
    rows: Query
    """A page of rows: key, leaf_id, leaf_ver, leaf_salt, index and text of that leaf, newest version, index of the
    first version, the columns."""
    sizes: Query
    """How many bytes each row of such a page has, without reading them."""
    one: Query
    """The same for the row with that key."""
    current: Query
    """The same, also where the leaf it names waits for the sequencer."""
    strays: Query
    """Keys of rows that no walk from `first` on would meet."""
    missing: Query
    """Records in the log, within a range of leaves, that have no row."""
    key_of: Query
    """The key of the row with that handle."""
    written: Query
    """The places of the rows whose record has a leaf within a range of the log."""
    unlogged: Query
    """The first keys of rows that name no leaf, or one that the log does not have, each with what it names."""
    coverage: Columns
    """How every column of the table is covered."""
    per_namespace: bool = False
    """Whether two namespaces may each have a row of one key."""
    key: str = ""
    """The column that names a row."""

    @property
    def start(self) -> Place:
        """The place before every row."""
        return Place(self.first)

    def place(self, row: Row) -> Place:
        """Return the place of a row of `rows`; the walk goes on behind it."""
        key = logged_row(row).key
        return Place(key, row[self.column("ns")]) if self.per_namespace else Place(key)

    def column(self, name: str) -> int:
        """Return where a column of the projections stands in a row of `rows`."""
        return COLUMNS + self.columns.index(name)

    def page(self, after: Place, limit: int) -> dict[str, Any]:
        """Return the parameters of `rows` and `sizes` for the page behind a place."""
        bounds = {"after": after.key, "limit": limit}
        return {**bounds, "after_ns": after.ns} if self.per_namespace else bounds


def describe(
    projection: Projection,
    *,
    kinds: tuple[str, ...],
    key: str,
    first: str | int = "",
    older: tuple[Projection, ...] = (),
    further: Columns | None = None,
    per_namespace: bool = False,
) -> LoggedTable:
    """Describe a table for verification; `first` sorts before every key (-1 for numbers).

    `further` says how the columns are covered that no projection holds; `per_namespace` that the key counts within its
    namespace only.
    """
    assert key in projection.columns, "the projection holds the row's key"
    assert TYPES.issuperset(kinds), "leaf types are those of leaves.TYPES"
    projections = {each.name: each for each in (*older, projection)}
    columns = tuple(dict.fromkeys(column for each in projections.values() for column in each.columns))
    walk = _walk(key, per_namespace)
    one = f"WHERE t.{key} = :key{' AND t.ns = :ns' if per_namespace else ''}"
    selected = _select(projection.table, key, columns)
    with_pending = _select_pending(projection.table, key, columns)
    return LoggedTable(
        projection.table,
        frozenset(kinds),
        projections,
        columns,
        first,
        sql(f"{selected} {walk}", postgres=f"{with_pending} {walk}"),
        sql(
            _sizes(projection.table, [f"octet_length({each})" for each in columns], walk),
            postgres=_sizes(projection.table, [f"octet_length(CAST({each} AS TEXT))" for each in columns], walk),
        ),
        sql(f"{selected} {one}"),
        sql(f"{selected} {one}", postgres=f"{with_pending} {one}"),
        sql(
            f"SELECT CAST({key} AS TEXT) FROM {projection.table} WHERE {key} IS NULL OR {key} <= :first LIMIT 100"  # noqa: S608
        ),
        sql(_lost(projection.table, _NEWEST), postgres=_lost(projection.table, f"coalesce({_WAITING}, {_NEWEST})")),
        sql(f"SELECT CAST({key} AS TEXT) FROM {projection.table} WHERE leaf_id = :handle LIMIT 1"),  # noqa: S608
        sql(
            f"SELECT {key}{', ns' if per_namespace else ''} FROM {projection.table}"  # noqa: S608
            " WHERE leaf_id IN (SELECT id FROM log_leaves WHERE idx >= :start AND idx < :end)"
        ),
        sql(
            _unlogged(projection.table, key, "log_leaves"),
            postgres=_unlogged(projection.table, key, "log_leaves", "log_pending"),
        ),
        _coverage(projection, kinds, columns, further or {}),
        per_namespace,
        key,
    )


def _coverage(
    projection: Projection, kinds: tuple[str, ...], columns: tuple[str, ...], further: Columns
) -> dict[str, Coverage]:
    words = " or ".join(f"`{kind}`" for kind in dict.fromkeys(kinds))
    by_entry = coverage.columns(columns, Cover.ENTRY, f"the row's entry: type {words}, projection `{projection.name}`")
    ties = coverage.columns("leaf_id leaf_ver leaf_salt", Cover.ENTRY, "they lead to the entry, and are in it")
    return {**by_entry, **further, **ties}


# Names come from code, never from a user.

_FIRST: Final = (
    "CASE WHEN t.leaf_ver = 1 THEN l.idx ELSE (SELECT f.idx FROM log_leaves f WHERE f.id = t.leaf_id AND f.ver = 1) END"
)


def selecting(table: LoggedTable, key: str, where: str, postgres: str | None = None) -> Query:
    """Return the query of `confirm`: rows `t` that match, by key, each beside its entry.

    `postgres` is the condition for PostgreSQL, where that has to be written otherwise.
    """
    order = f" ORDER BY t.{key}"
    return sql(
        f"{_select(table.table, key, table.columns)} WHERE {where}{order}",
        postgres=f"{_select_pending(table.table, key, table.columns)} WHERE {postgres or where}{order}",
    )


def confirm(tx: Tx, table: LoggedTable, query: Query, **params: Any) -> list[Mapping[str, Any]]:
    """Return rows by column, each compared with its entry in the log; TamperedError for the first that differs."""
    return confirm_rows(table, read(tx, query, **params))


def read(tx: Tx, query: Query, **params: Any) -> tuple[Row, ...]:
    """Return the rows of a query of `selecting`, each beside its entry, for `confirm_rows`."""
    return tuple(_with_noted_leaf(tx, row) for row in tx.all(query, **params))


def confirm_rows(table: LoggedTable, rows: Iterable[Row]) -> list[Mapping[str, Any]]:
    """Do what `confirm` does with rows that were read before; equal rows always have the same outcome."""
    rows = tuple(rows)
    for row in rows:
        logged = logged_row(row)
        problem = mismatch(table, row) if logged.leaf is not None else "the row names a leaf that the log does not have"
        if not problem and logged.newest is not None and logged.newest > logged.leaf_ver:
            problem = f"version {logged.leaf_ver} of the row was put back; the log has {logged.newest}"
        if problem:
            raise TamperedError(f"{table.table} {logged.key}: {problem}", table=table.table, row=str(logged.key))
    return [_by_column(table, row) for row in rows]


def _by_column(table: LoggedTable, row: Row) -> Mapping[str, Any]:
    logged = logged_row(row)
    content = zip(table.columns, row[COLUMNS:], strict=True)
    return {"leaf_id": logged.leaf_id, "leaf_ver": logged.leaf_ver, **dict(content)}


def _with_noted_leaf(tx: Tx, row: Row) -> Row:
    """Return a row with its leaf also where this transaction has written it.

    On SQLite the leaves of a group enter the log at its commit: a row that an operation before this one wrote has none
    yet.
    """
    logged = logged_row(row)
    if logged.leaf is not None:
        return row
    texts = (text for handle, ver, text, _ in tx.noted(TOPIC) if (handle, ver) == (logged.leaf_id, logged.leaf_ver))
    return (*logged._replace(leaf=next(texts, None)), *row[COLUMNS:])


def _walk(key: str, per_namespace: bool) -> str:
    """Return the clauses of a page of the walk over a table `t`."""
    if per_namespace:
        return f"WHERE (t.{key}, t.ns) > (:after, :after_ns) ORDER BY t.{key}, t.ns LIMIT :limit"
    return f"WHERE t.{key} > :after ORDER BY t.{key} LIMIT :limit"


def _sizes(table: str, sizes: list[str], walk: str) -> str:
    total = " + ".join(f"coalesce({size}, 0)" for size in sizes)
    return f"SELECT {total} FROM {table} t {walk}"  # noqa: S608


def _select(table: str, key: str, columns: tuple[str, ...]) -> str:
    listed = ", ".join(f"t.{column}" for column in columns)
    return (
        f"SELECT t.{key}, t.leaf_id, t.leaf_ver, t.leaf_salt, l.idx, l.leaf,"  # noqa: S608
        f" (SELECT max(n.ver) FROM log_leaves n WHERE n.id = t.leaf_id), {_FIRST}, {listed}"
        f" FROM {table} t LEFT JOIN log_leaves l ON l.id = t.leaf_id AND l.ver = t.leaf_ver"
    )


def _select_pending(table: str, key: str, columns: tuple[str, ...]) -> str:
    """Return the same rows for PostgreSQL, where leaves wait in `log_pending` first."""
    listed = ", ".join(f"t.{column}" for column in columns)
    return (
        f"SELECT t.{key}, t.leaf_id, t.leaf_ver, t.leaf_salt, l.idx, coalesce(l.leaf, p.leaf),"  # noqa: S608
        " greatest((SELECT max(n.ver) FROM log_leaves n WHERE n.id = t.leaf_id),"
        f" (SELECT max(n.ver) FROM log_pending n WHERE n.id = t.leaf_id)), {_FIRST}, {listed}"
        f" FROM {table} t LEFT JOIN log_leaves l ON l.id = t.leaf_id AND l.ver = t.leaf_ver"
        " LEFT JOIN log_pending p ON p.id = t.leaf_id AND p.ver = t.leaf_ver"
    )


def _unlogged(table: str, key: str, *logs: str) -> str:
    unknown = " AND ".join(
        f"NOT EXISTS (SELECT 1 FROM {log} l WHERE l.id = t.leaf_id AND l.ver = t.leaf_ver)"  # noqa: S608
        for log in logs
    )
    return f"SELECT CAST(t.{key} AS TEXT), t.leaf_id FROM {table} t WHERE {unknown} LIMIT 100"  # noqa: S608


_NEWEST: Final = "(SELECT n.leaf FROM log_leaves n WHERE n.id = l.id ORDER BY n.ver DESC LIMIT 1)"
_WAITING: Final = "(SELECT n.leaf FROM log_pending n WHERE n.id = l.id ORDER BY n.ver DESC LIMIT 1)"


def _lost(table: str, newest: str) -> str:
    return (
        f"SELECT l.idx, l.id, l.leaf, {newest}"  # noqa: S608
        f" FROM log_leaves l LEFT JOIN {table} t ON t.leaf_id = l.id"
        " WHERE l.idx >= :start AND l.idx < :end AND l.ver = 1 AND l.leaf LIKE :like AND t.leaf_id IS NULL"
        " ORDER BY l.idx"
    )
