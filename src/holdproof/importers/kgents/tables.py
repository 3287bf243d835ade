"""Rows of kgents as rows of application tables.

Rules:
- A row that exists with the same values is known; one with other values is a conflict, never overwritten.
- Values without a column go to the row's `metadata` or `data`, under `legacy`; a table with neither refuses them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdproof.db import Query, Tx, sql
from holdproof.errors import ConflictError, FormatError

Row = dict[str, Any]
_COLUMN: Final = re.compile(r"(?P<name>\w+)(?::(?P<kind>int|real))?(?P<needed>!)?(?:=(?P<default>\S+))?")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, whether a value is required, and the default."""

    name: str
    kind: str | None
    needed: bool
    default: str | None


@dataclass(frozen=True)
class KgentsTable:
    """An application table; its first column is its key."""

    name: str
    columns: tuple[Column, ...]
    insert: Query
    select: Query

    @property
    def beside(self) -> str | None:
        """The column for values that have no column of their own."""
        return next((each.name for each in self.columns if each.name in {"metadata", "data"} and each.default), None)

    @property
    def key(self) -> str:
        """The primary key."""
        return self.columns[0].name


def _table(name: str, text: str) -> KgentsTable:
    matches = [match for word in text.split() if (match := _COLUMN.fullmatch(word))]
    columns = tuple(Column(each["name"], each["kind"], bool(each["needed"]), each["default"]) for each in matches)
    names = [each.name for each in columns]
    values = ", ".join(f":{each}" for each in names)
    return KgentsTable(
        name,
        columns,
        sql(f"INSERT INTO {name} ({', '.join(names)}) VALUES ({values}) ON CONFLICT ({names[0]}) DO NOTHING"),  # noqa: S608
        sql(f"SELECT {', '.join(names)} FROM {name} WHERE {names[0]} = :key"),  # noqa: S608
    )


# In the order in which they refer to each other. `!` marks a required value, `=` a default.
_ALL: Final = (
    _table(
        "instances",
        "id! hostname! pid:int! project_path project_hash started_at! last_heartbeat! status=active",
    ),
    _table(
        "shapes",
        "id! shape_type! intensity:real=1.0 persistence:real=1.0 interpretation project_hash instance_id observed_at!"
        " embedding_status=none",
    ),
    _table("dreams", "id! content! source_shapes! confidence:real=1.0 dreamed_at!"),
    _table(
        "embedding_metadata",
        "source_id! model_name! dimensions:int! created_at! needs_reembed:int=0 content",
    ),
    _table("agent_state", "agent_id! genus state updated_at"),
    _table(
        "prompt_checkpoints",
        "id! timestamp before_content after_content before_sections after_sections diff reason reasoning_traces"
        " parent_id",
    ),
    _table(
        "cli_sessions",
        "id! name! session_type=interactive state=active started_at! ended_at project_path project_hash flow_name"
        " flow_path budget_level=medium tokens_used:int=0 metadata={}",
    ),
    _table("cli_session_events", "id! session_id! timestamp event_type source message data={}"),
    _table(
        "cli_session_agents",
        "id! session_id! name genus status=pending started_at completed_at error metadata={}",
    ),
    _table(
        "cli_session_artifacts",
        "id! session_id! name path artifact_type created_at updated_at size_bytes:int=0 content_preview metadata={}",
    ),
    _table(
        "self_grow_proposals",
        "id! data content_hash context entity proposed_by proposed_at status=draft created_at updated_at",
    ),
    _table(
        "self_grow_nursery",
        "id! proposal_id data handle usage_count:int=0 success_count:int=0 failure_patterns germinated_by"
        " germinated_at promoted_at pruned_at rollback_token created_at updated_at",
    ),
    _table(
        "self_grow_rollback_tokens",
        "id! handle promoted_at expires_at spec_path impl_path spec_content impl_content created_at",
    ),
)
TABLES: Final = {table.name: table for table in _ALL}


def fit(table: KgentsTable, source_row: Mapping[str, Any], where: str) -> Row:
    """Convert a row; raises FormatError if that is impossible."""
    row: Row = {}
    for column in table.columns:
        value = source_row.get(column.name)
        row[column.name] = _value(column, column.default if value is None else value, where)
        if column.needed and row[column.name] is None:
            raise FormatError(f"{where} has no {column.name}", where=where, column=column.name)
    # Columns that kgents added later, or somebody else did.
    extra = {name: value for name, value in source_row.items() if name not in row and value is not None}
    if extra:
        if table.beside is None:
            raise FormatError(f"{where} has a column {min(extra)}, which {table.name} does not have", where=where)
        row[table.beside] = _merged(row[table.beside], extra)
    return row


def _value(column: Column, value: Any, where: str) -> Any:
    try:
        if value is None:
            return None
        if column.kind is not None:
            return int(value) if column.kind == "int" else float(value)
        text = value if isinstance(value, str) else _text(value)
        text.encode()
    except (ValueError, TypeError, OverflowError) as error:
        raise FormatError(
            f"{where}: {column.name} cannot be stored: {error}", where=where, column=column.name
        ) from error
    if "\0" in text:
        raise FormatError(f"{where}: {column.name} contains NUL", where=where, column=column.name)
    return text


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise TypeError("it is not a text")
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def _merged(text: str, extra: Row) -> str:
    """Add values without a column to a JSON object."""
    beside = {name: value.hex() if isinstance(value, bytes) else value for name, value in extra.items()}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    merged = {**value, "legacy": beside} if isinstance(value, dict) else {"legacy": {**beside, "said": value}}
    return json.dumps(merged, ensure_ascii=False, sort_keys=True, default=str)


def insert_row(tx: Tx, table: KgentsTable, row: Row) -> bool:
    """Insert a row; False if it exists with the same values, ConflictError with other ones."""
    if tx.count(table.insert, **row):
        return True
    if not same(tx, table, row):
        key = row[table.key]
        raise ConflictError(f"{table.name} has a row {key} with other values", table=table.name, key=key)
    return False


def same(tx: Tx, table: KgentsTable, row: Row) -> bool:
    """Whether a row exists with exactly these values."""
    existing = tx.one(table.select, key=row[table.key])
    if existing is None:
        return False
    # Both databases return values of their own types: they are compared as they would be written.
    return [_value(column, each, "") for column, each in zip(table.columns, existing, strict=True)] == [*row.values()]
