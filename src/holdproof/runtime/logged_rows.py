"""What the nouns of the runtime share: rows under the log, JSON as text, and being alone with a record.

Rules:
- A row and its leaf are written together (`add`, `change`); each version of a record is another leaf of its handle.
- Work that reads before it writes is alone with what it read (`alone`): SQLite has one writer anyway, on PostgreSQL an
  advisory lock is held to the end of the transaction. Keys are taken in the order flow, agent, resources.
- JSON is stored as its canonical text (RFC 8785), or byte for byte as another kernel gave it; what is none is refused
  before anything is written.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from holdproof import validation as checks
from holdproof.crypto import canonical
from holdproof.db import Query, Row, Tx, sql
from holdproof.errors import InvalidInputError
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.leaves import Projection

T = TypeVar("T")

MAIN: Final = "main"
IMPORTED: Final = "legacy_import"
"""The leaf of a row that was taken over from elsewhere: the log saw it arrive, not happen."""
BEGINNING: Final = "0001-01-01T00:00:00.000000Z"
"""Before everything, where no moment is given."""
_LONGEST_WORDS: Final = 10_000

# --- under the log -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """A table whose rows are under the log."""

    projection: Projection
    kind: str
    key: str
    first: str | int


RECORDS: Final[list[Record]] = []


def register(projection: Projection, *, kind: str, key: str, first: str | int = "") -> Projection:
    """Name a table as being under the log, by its key; `first` lies before every key."""
    assert key in projection.columns, "the projection holds the row's key"
    RECORDS.append(Record(projection, kind, key, first))
    logged_tables.register(projection, kinds=(kind, IMPORTED), key=key, first=first)
    return projection


def add(tx: Tx, query: Query, kind: str, projection: Projection, row: Mapping[str, Any]) -> None:
    """Write the first version of a record, with its leaf."""
    mark = leaves.stamp(tx, kind, projection, row, ns=row["ns"])
    tx.execute(query, **row, leaf_id=mark.leaf_id, leaf_ver=mark.leaf_ver, leaf_salt=mark.leaf_salt, expect=1)


def change(
    tx: Tx, query: Query, kind: str, projection: Projection, row: Mapping[str, Any], *, leaf_id: str, leaf_ver: int
) -> None:
    """Write the next version of a record, with its leaf; `leaf_id` and `leaf_ver` are those of the last one."""
    mark = leaves.stamp(tx, kind, projection, row, leaf_id=leaf_id, leaf_ver=leaf_ver + 1, ns=row["ns"])
    tx.execute(query, **row, leaf_id=mark.leaf_id, leaf_ver=mark.leaf_ver, leaf_salt=mark.leaf_salt, expect=1)


def numbered(text: str, table: str) -> Query:
    """A query whose `{id}` is the number of the table's next row, which its leaf has to name before it is written."""
    # The table's name comes from code, never from a user.
    newest = f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'"  # noqa: S608
    return sql(
        text.replace("{id}", f"coalesce(({newest}), 0) + 1"),
        postgres=text.replace("{id}", f"nextval('{table}_id_seq')"),
    )


# --- values ------------------------------------------------------------------------------------------------------

name, number, limited = checks.name, checks.number, checks.limited
moment, position, LAST = checks.moment, checks.position, checks.LAST


def dump(value: Any) -> str:
    """A value as canonical JSON text; InvalidInputError where it has none."""
    return canonical.dumps(value).decode()


def given(what: str, text: Any) -> str:
    """A JSON text that somebody else wrote, to be kept byte for byte; InvalidInputError where it is none."""
    try:
        json.loads(text, parse_constant=_refuse)
        text.encode()
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInputError(f"{what} is no JSON: {error}", value=str(text)[:100]) from error
    return str(text)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def load(text: str | None) -> Any:
    """The value of a JSON column."""
    return None if text is None else json.loads(text)


def words(error: BaseException) -> str:
    """What an exception says, as a text that every database can keep: it may hold any bytes, and any number."""
    try:
        said = f"{type(error).__name__}: {error}"
    except Exception:
        said = f"{type(error).__name__}, which cannot say more"
    return said.encode(errors="backslashreplace").decode().replace("\0", "\\x00")[:_LONGEST_WORDS]


def one_of(what: str, value: str, allowed: frozenset[str]) -> str:
    """One of a few words."""
    if value not in allowed:
        raise InvalidInputError(f"{what} is one of {', '.join(sorted(allowed))}, not {value!r}", value=str(value))
    return value


def seconds(what: str, value: float, *, least: float = 0.0) -> float:
    """A span of time that a calendar can hold."""
    return number(what, value, least=least, most=3e9)


def paged(rows: list[Row], limit: int, read: Callable[[Row], T], key: Callable[[T], Any]) -> tuple[tuple[T, ...], Any]:
    """A page of values, and the key after which the next one begins: None at the end."""
    found = tuple(read(row) for row in rows)
    return found, key(found[-1]) if len(found) == limit else None
