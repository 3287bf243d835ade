"""Leaves: what a row commits to in the log.

A leaf is canonical JSON under 1 KiB:
`{"h":hex,"id":handle,"ns":…,"p":"<table>/<projection version>","t":type,"ts":…,"v":1,"ver":n}` with
`h = SHA-256(salt16 ‖ JCS(projection of the row))`.

Rules:
- The handle is random and stands for the record in all its versions; nothing personal is in a leaf.
- The salt lies beside the row and goes with it, so an erased row cannot be guessed from its leaf.
- A projection names its columns and never changes; another list of columns is another projection version.
- A row and its leaf are written in one transaction (`stamp`), so state and evidence commit together or not at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple

from holdfast.crypto import canonical
from holdfast.db import Tx
from holdfast.db.sql import sql_postgres
from holdfast.errors import InvalidInputError

TOPIC: Final = "leaf"
TYPES: Final = frozenset(
    {"agent", "audit", "context", "dbom", "decision", "erasure", "escalation", "feedback", "file", "key", "ledger"}
    | {"legacy_import", "lockdown", "restore", "schema", "skill", "snapshot", "state", "step", "transition"}
)
_SALT_BYTES = 16
_MOST_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Projection:
    """Which columns of a table a leaf commits to."""

    table: str
    version: int
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """As it stands in a leaf."""
        return f"{self.table}/{self.version}"

    def commit(self, salt: bytes, row: Mapping[str, Any]) -> str:
        """The commitment to a row, in hex."""
        content = canonical.dumps({column: _plain(row[column]) for column in self.columns})
        return sha256(salt + content).hexdigest()


class Stamp(NamedTuple):
    """The columns that tie a row to its leaf."""

    leaf_id: str
    leaf_ver: int
    leaf_salt: bytes


class Leaf(NamedTuple):
    """A leaf on its way into the log."""

    id: str
    ver: int
    text: str


def stamp(
    tx: Tx,
    kind: str,
    projection: Projection,
    row: Mapping[str, Any],
    *,
    leaf_id: str | None = None,
    leaf_ver: int = 1,
    ns: str = "main",
) -> Stamp:
    """Log a row as it is about to be written; give a later version its record's handle and the next number."""
    if kind not in TYPES:
        raise InvalidInputError(f"{kind!r} is no type of leaf", type=kind)
    handle, salt = leaf_id or tx.new_id(), tx.random(_SALT_BYTES)
    text = (
        f'{{"h":"{projection.commit(salt, row)}","id":"{handle}","ns":{canonical.quote(ns)},"p":"{projection.name}",'
        f'"t":"{kind}","ts":"{tx.now}","v":1,"ver":{leaf_ver}}}'
    )
    append(tx, Leaf(handle, leaf_ver, text))
    return Stamp(handle, leaf_ver, salt)


_PENDING = sql_postgres("INSERT INTO log_pending (id, ver, leaf) VALUES (:id, :ver, :leaf)")


def append(tx: Tx, leaf: Leaf) -> None:
    """Add a leaf inside the caller's transaction: integrated at its commit, or on PostgreSQL by the sequencer."""
    if len(leaf.text) > _MOST_BYTES:
        raise InvalidInputError("a leaf has at most 1 KiB", length=len(leaf.text))
    if tx.dialect == "postgres":
        tx.execute(_PENDING, id=leaf.id, ver=leaf.ver, leaf=leaf.text, expect=1)
    else:
        tx.note(TOPIC, leaf)


def _plain(value: Any) -> Any:
    """A column as JSON: bytes as hex; what JCS cannot carry is refused there."""
    return value.hex() if isinstance(value, bytes) else value
