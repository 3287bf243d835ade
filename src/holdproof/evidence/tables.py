"""Table descriptors: a logged table's columns are written once, and its rows come back as named values.

    AGENTS = Table("agent_registry", Agent, kind="agent", key="agent_id", logged=("agent_id", "contract", …))

    _ADD = sql(AGENTS.insert())
    _FIND = sql(AGENTS.select("WHERE agent_id = :agent_id", leaf=True))

    record = AGENTS.record(row)                                       # a row that was selected with `leaf`
    return AGENTS.change(tx, _CHANGE, record, {"status": status})     # the next version of the row, with its leaf

Rules:
- A descriptor gives texts of SQL; each query stays a `sql(…)` constant above its caller; one test explains them all.
- `logged` is what the leaf commits to, and never changes: another list of columns is another projection version.
- A row and its leaf are written together (`add`, `change`); each version of a record is another leaf of its handle.
- Selected columns come in the order of the value's fields, then the other logged ones, then `leaf_id` and `leaf_ver`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from holdproof import paging
from holdproof.db import Query, Row, Tx, sql
from holdproof.db.sql import binder
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.leaves import Projection, Stamp
from holdproof.model.coverage import Columns
from holdproof.model.page import Page
from holdproof.model.value import column_of

T = TypeVar("T")

IMPORTED: Final = "legacy_import"
"""The leaf type of an imported row: the log saw it arrive, not happen."""
_LEAF: Final = ("leaf_id", "leaf_ver", "leaf_salt")


def _id_of(value: Any) -> tuple[int]:
    return (value.id,)


@dataclass(frozen=True, slots=True)
class StoredRecord(Generic[T]):
    """A row as it is stored, by column, and the value it stands for; what is needed to write its next version."""

    value: T
    columns: Mapping[str, Any]
    leaf_id: str
    leaf_ver: int


class Table(Generic[T]):
    """A logged table: its columns, its key, the type of its leaves, and the value that a row stands for."""

    def __init__(
        self,
        name: str,
        value: type[T],
        *,
        kind: str,
        key: str,
        logged: tuple[str, ...],
        columns: Mapping[str, str] | None = None,
        loads: Mapping[str, Callable[[Any], Any]] | None = None,
        version: int = 1,
        older: tuple[tuple[str, ...], ...] = (),
        further: Columns | None = None,
        per_namespace: bool = False,
    ) -> None:
        """Describe a table.

        `columns` names the columns of fields that are called otherwise; `loads` says how columns are read that are not
        stored as they are shown, such as JSON. `older` are the lists of columns of versions 1, 2 … of the projection
        that entries written earlier have. `further` declares how columns are covered that are not logged;
        `per_namespace` says that two namespaces may each have a row of one key.
        """
        self.name = name
        self.kind = kind
        self.key = key
        self.projection = Projection(name, version, logged)
        self._value = value
        aliases = columns or {}
        names = [each.name for each in fields(value)]  # type: ignore[arg-type]
        # A dataclass's fields, by the columns they are read from.
        self._shown = tuple(aliases.get(name, column_of(name)) for name in names)
        self._cells: Callable[[T], tuple[Any, ...]] = attrgetter(*names)
        # Rows are read for every step and message: only the columns that are stored otherwise are looked at.
        self._loads = tuple((at, loads[name]) for at, name in enumerate(self._shown) if loads and name in loads)
        self._is_plain = not self._loads
        self._width = len(self._shown)
        self._pick = binder(self._shown)
        self.columns = tuple(dict.fromkeys((*self._shown, *logged)))
        # Verification walks a table by its key, from before every key: row numbers are positive, texts not empty.
        self.first: str | int = -1 if key == "id" and _is_number(value, "id") else ""
        self.logged = logged_tables.describe(
            self.projection,
            kinds=(kind, IMPORTED),
            key=key,
            first=self.first,
            older=tuple(Projection(name, n, columns) for n, columns in enumerate(older, 1)),
            further=further,
            per_namespace=per_namespace,
        )

    # --- texts of SQL ---

    def listed(self, alias: str = "", *, leaf: bool = False) -> str:
        """Return the columns for a SELECT; with `leaf` those that `record` reads."""
        prefix = f"{alias}." if alias else ""
        return ", ".join(f"{prefix}{column}" for column in (*self.columns, *(_LEAF[:2] if leaf else ())))

    def select(self, clauses: str, *, leaf: bool = False) -> str:
        """Return a SELECT of whole rows; `clauses` is what follows the table's name."""
        return f"SELECT {self.listed(leaf=leaf)} FROM {self.name} {clauses}"  # noqa: S608 (names come from code)

    def insert(self, *further: str) -> str:
        """Return the INSERT of a row's first version: the logged columns, those of the leaf, and `further` ones."""
        columns = (*self.projection.columns, *further, *_LEAF)
        parameters = ", ".join(f":{column}" for column in columns)
        return f"INSERT INTO {self.name} ({', '.join(columns)}) VALUES ({parameters})"  # noqa: S608 (as above)

    def update(self, *columns: str, where: str) -> str:
        """Return the UPDATE to a row's next version: these columns, and those of the leaf."""
        changes = ", ".join(f"{column} = :{column}" for column in (*columns, *_LEAF))
        return f"UPDATE {self.name} SET {changes} WHERE {where}"  # noqa: S608 (as above)

    # --- rows as values ---

    def from_row(self, row: Row) -> T:
        """Return the value of a selected row; further columns at its end are ignored."""
        cells = row[: self._width]
        if self._is_plain:  # flows, which are read most, take this way
            return self._value(*cells)
        loaded = [*cells]
        for at, load in self._loads:
            if loaded[at] is not None:
                loaded[at] = load(loaded[at])
        return self._value(*loaded)

    def from_columns(self, columns: Mapping[str, Any]) -> T:
        """Return the value of a row that is given by column."""
        return self.from_row(self._pick(columns))

    def to_columns(self, value: T) -> dict[str, Any]:
        """Return a value by column; only for tables whose columns are stored as they are shown."""
        assert self._is_plain, "a value that is stored otherwise is written by column"
        return dict(zip(self._shown, self._cells(value), strict=True))

    def record(self, row: Row) -> StoredRecord[T]:
        """Return a row that was selected with `leaf`, ready to be changed."""
        *cells, leaf_id, leaf_ver = row
        return StoredRecord(self.from_row(row), dict(zip(self.columns, cells, strict=True)), leaf_id, leaf_ver)

    def stored(self, columns: Mapping[str, Any]) -> StoredRecord[T]:
        """Return a row that `logged_tables.confirm` compared with its entry, ready to be changed."""
        cells = {column: columns[column] for column in self.columns}
        return StoredRecord(self.from_columns(columns), cells, columns["leaf_id"], columns["leaf_ver"])

    # --- reading ---

    def find(self, tx: Tx, query: Query, **params: Any) -> T | None:
        """Return the value of the only row of a query of this table, or None."""
        row = tx.one(query, **params)
        return None if row is None else self.from_row(row)

    def all(self, tx: Tx, query: Query, **params: Any) -> list[T]:
        """Return the values of every row of a query of this table."""
        return [*map(self.from_row, tx.fetch(query, params))]

    def page(self, tx: Tx, query: Query, cursor: str | None, limit: int, **params: Any) -> Page[T]:
        """Return a page of a listing by `id`, the newest first; the query takes `:before` and `:limit` too."""
        values = self.all(tx, query, **params, before=paging.last_id(cursor), limit=paging.fetch(limit))
        return paging.page(values, limit, _id_of)

    # --- writing ---

    def add(
        self, tx: Tx, query: Query, row: Mapping[str, Any], *, kind: str | None = None, handle: str | None = None
    ) -> Stamp:
        """Write the first version of a record, with its leaf; `row` holds every logged column.

        With `handle` the log has the record under that one, by which it is found even without its row.
        """
        mark = leaves.stamp(tx, kind or self.kind, self.projection, row, leaf_id=handle, ns=row["ns"])
        tx.execute(query, **row, leaf_id=mark.leaf_id, leaf_ver=mark.leaf_ver, leaf_salt=mark.leaf_salt, expect=1)
        return mark

    def change(self, tx: Tx, query: Query, record: StoredRecord[T], changes: Mapping[str, Any]) -> T:
        """Write the next version of a record, with its leaf, and return its value.

        Exactly one row must change: the query's WHERE refuses a record that was changed meanwhile.
        """
        return self.from_columns(self.write_next(tx, query, record, changes))

    def write_next(
        self, tx: Tx, query: Query, record: StoredRecord[T], changes: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Write the next version of a record as `change` does; return its columns, where nobody reads its value."""
        row = self.stamp_next(tx, record, changes)
        tx.execute(query, **row, expect=1)
        return row

    def stamp_next(self, tx: Tx, record: StoredRecord[T], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Log the next version of a record; return its columns, those of its leaf included, for the caller to write."""
        row = {**record.columns, **changes}
        version = record.leaf_ver + 1
        mark = leaves.stamp(tx, self.kind, self.projection, row, leaf_id=record.leaf_id, leaf_ver=version, ns=row["ns"])
        row["leaf_id"], row["leaf_ver"], row["leaf_salt"] = mark
        return row


def _is_number(value: type, field: str) -> bool:
    return any(each.name == field and each.type in (int, "int") for each in fields(value))


def numbered(text: str, table: str) -> Query:
    """Return a query in which `{id}` is the number of the table's next row.

    The leaf of a row names the row's number, so that it must be known before the row is written.
    """
    newest = f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'"  # noqa: S608 (names come from code)
    return sql(
        text.replace("{id}", f"coalesce(({newest}), 0) + 1"),
        postgres=text.replace("{id}", f"nextval('{table}_id_seq')"),
    )
