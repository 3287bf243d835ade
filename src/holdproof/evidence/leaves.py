"""Leaves: the log entries that rows commit to.

A leaf is canonical JSON under 1 KiB:
`{"h":hex,"id":handle,"ns":…,"p":"<table>/<projection version>","t":type,"ts":…,"v":1,"ver":n}` with
`h = SHA-256(salt16 ‖ JCS(projection of the row))`.

Rules:
- The handle is random and identifies the record in all its versions; nothing personal is in a leaf.
- The salt is stored in the row and erased with it, so an erased row cannot be guessed from its leaf.
- A projection names its columns and never changes; another list of columns is another projection version.
- A row and its leaf are written in one transaction (`stamp`), so state and evidence commit together or not at all.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring as _quote  # what `canonical.quote` is, without the call
from typing import Any, Final, NamedTuple

from holdproof.crypto import canonical
from holdproof.db import Tx
from holdproof.db.sql import binder, sql_postgres
from holdproof.db.tx import Limiter
from holdproof.errors import InvalidInputError

TOPIC: Final = "leaf"
TYPES: Final = frozenset(
    {"access", "agent", "answer", "audit", "call", "context", "dbom", "decision", "delegation", "erasure", "escalation"}
    | {"feedback", "file", "key", "ledger", "legacy_import", "lockdown", "message", "notification", "passkey", "person"}
    | {"policy", "promise", "published", "queue", "restore", "schedule", "schema", "skill", "snapshot", "state", "step"}
    | {"stream", "token", "transition", "verification"}
)
_SALT_BYTES = 16
_MOST_BYTES = 1024
_MAX_INT = canonical.MAX_INT
_ID_AT = len('{"h":"",') + 64


@dataclass(frozen=True, slots=True)
class Projection:
    """Which columns of a table a leaf commits to."""

    table: str
    version: int
    columns: tuple[str, ...]
    name: str = field(init=False)
    """As it stands in a leaf."""
    _values: Callable[[Mapping[str, Any]], tuple[Any, ...]] = field(init=False, repr=False, compare=False)
    _form: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert len(set(self.columns)) == len(self.columns) > 0, "a projection names each of its columns once"
        assert all(column.isascii() for column in self.columns), "in ASCII, whose order is that of JCS"
        assert all(column.isidentifier() for column in self.columns), "by words that need no quoting"
        object.__setattr__(self, "name", f"{self.table}/{self.version}")
        ordered = tuple(sorted(self.columns))
        object.__setattr__(self, "_values", binder(ordered))
        object.__setattr__(self, "_form", "{" + ",".join(f'"{column}":%s' for column in ordered) + "}")

    def commit(self, salt: bytes, row: Mapping[str, Any]) -> str:
        """Return the commitment to a row, in hex."""
        return sha256(salt + self.content(row)).hexdigest()

    def content(self, row: Mapping[str, Any]) -> bytes:
        """Return the canonical bytes of a row: equal to `canonical.dumps`, with keys and order prepared once."""
        values = [
            _quote(value)
            if type(value) is str
            else "null"
            if value is None
            else str(value)
            if type(value) is int and -_MAX_INT <= value <= _MAX_INT
            else _encode(value)
            for value in self._values(row)
        ]
        try:
            return (self._form % tuple(values)).encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(f"no canonical JSON: {error}", table=self.table) from error


class Stamp(NamedTuple):
    """The columns that tie a row to its leaf."""

    leaf_id: str
    leaf_ver: int
    leaf_salt: bytes


Leaf = tuple[str, int, str]
"""A leaf as the log stores it: handle, version, text; a plain tuple, there are many."""

Source = tuple[tuple[str, str, str], str | None]
"""Whose entry it is: agent, kind and namespace, which make a stream (numbering.py), and the flow.

Without an agent (an empty text) it is that of the agent of its flow; without a flow as well, nobody's.
"""

StampedLeaf = tuple[str, int, str, Source | None]
"""A leaf on its way into the log, with whose entry it is; without that it gets no number."""

CONSEQUENCES: Final = frozenset(
    {"access", "answer", "delegation", "erasure", "key", "lockdown", "notification", "restore", "schema", "transition"}
    | {"verification"}
)
"""The types of entries that no limit of a namespace refuses: they record what happened, and end or undo things."""
UNNUMBERED: Final = frozenset({"schema", "restore"})
"""The types of entries that have no number: a migration writes the first before there is a stream."""


def stamp(
    tx: Tx,
    kind: str,
    projection: Projection,
    row: Mapping[str, Any],
    *,
    leaf_id: str | None = None,
    leaf_ver: int = 1,
    ns: str | None = None,
) -> Stamp:
    """Log a row that is about to be written; a later version gets its record's handle and the next number.

    Without `ns` it is an entry of the store itself: it stands under `main`, and counts for no tenant. Returns the
    columns to store with the row.
    """
    handle = leaf_id or tx.new_id()
    salt = tx.random(_SALT_BYTES)
    content = projection.content(row)
    if tx.limiter is not None and ns is not None:
        # A later version is what follows from what was admitted: a step's result, an answer, an end.
        tx.limiter.spend(tx, ns, len(content), must=leaf_ver > 1 or kind in CONSEQUENCES)
    # Projection.commit, without the call: this runs for every row that is written.
    digest = sha256(salt + content).hexdigest()
    space = "main" if ns is None else ns
    text = f'{{"h":"{digest}","id":"{handle}{_middle(space, projection.name, kind)}{tx.now}","v":1,"ver":{leaf_ver}}}'
    leaf = (handle, leaf_ver, text, source_of(kind, space, row))
    if tx.dialect == "sqlite" and text.isascii() and len(text) <= _MOST_BYTES:
        tx.note(TOPIC, leaf)  # `_add`, without the call
    else:
        _add(tx, leaf)
    return Stamp(handle, leaf_ver, salt)


class _Consequences:
    """A limiter that counts and refuses nothing; see db.tx.Limiter."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    def spend(self, tx: Tx, ns: str, size: int, *, must: bool) -> None:
        """See db.tx.Limiter."""
        del must
        self._limiter.spend(tx, ns, size, must=True)

    def store(self, tx: Tx, ns: str, size: int, *, must: bool = False) -> None:
        """See db.tx.Limiter."""
        del must
        self._limiter.store(tx, ns, size, must=True)

    def admit(self, tx: Tx, ns: str, size: int) -> None:
        """See db.tx.Limiter."""

    def require(self, tx: Tx, ns: str, name: str, adding: int = 1) -> None:
        """See db.tx.Limiter."""


@contextmanager
def consequences(tx: Tx) -> Iterator[None]:
    """Count what is written within, and refuse none of it: it follows from what was admitted, or undoes it."""
    limiter = tx.limiter
    tx.limiter = None if limiter is None else _Consequences(limiter)
    try:
        yield
    finally:
        tx.limiter = limiter


def source_of(kind: str, ns: str, row: Mapping[str, Any]) -> Source | None:
    """Return whose the entry of a row is; None for a type of entry that has no number."""
    if kind in UNNUMBERED:
        return None
    # Of a call the agent is whoever asked for it, which may be nobody: it is counted with its flow.
    return ("" if kind == "call" else row.get("agent_id") or "", kind, ns), row.get("dfid")


@lru_cache(maxsize=1024)
def _middle(ns: str, projection: str, kind: str) -> str:
    """Return the part of a leaf that many share; cached, since only handle, digest, time and version differ."""
    if kind not in TYPES:
        raise InvalidInputError(f"{kind!r} is no type of leaf", type=kind)
    return f'","ns":{canonical.quote(ns)},"p":{canonical.quote(projection)},"t":"{kind}","ts":"'


def is_filed(text: object, handle: object, ver: object) -> bool:
    """Whether a leaf is stored under its own handle and version; a lookup by these must not find another record's."""
    if not isinstance(text, str) or not isinstance(handle, str):
        return False
    return text.startswith(f'"id":"{handle}","ns":', _ID_AT) and text.endswith(f',"ver":{ver}}}')


# A version that is in the tree already is refused here, where its operation can still fail, as by the tree on SQLite.
_PENDING = sql_postgres(
    "INSERT INTO log_pending (id, ver, leaf, agent_id, dfid, sourced)"
    " SELECT CAST(:id AS TEXT), CAST(:ver AS BIGINT), CAST(:leaf AS TEXT), CAST(:agent_id AS TEXT),"
    " CAST(:dfid AS TEXT), CAST(:sourced AS BOOLEAN)"
    " WHERE NOT EXISTS (SELECT 1 FROM log_leaves WHERE id = :id AND ver = :ver)"
)


def append(tx: Tx, leaf: Leaf) -> None:
    """Add a leaf that is nobody's inside the caller's transaction; it gets no number."""
    _add(tx, (*leaf, None))


def _add(tx: Tx, leaf: StampedLeaf) -> None:
    """Add a leaf inside the caller's transaction: integrated at its commit, or on PostgreSQL by the sequencer."""
    handle, ver, text, source = leaf
    # Counted in bytes only where it may matter: ASCII has as many characters as bytes.
    if len(text) > _MOST_BYTES or (not text.isascii() and len(text.encode()) > _MOST_BYTES):
        raise InvalidInputError("a leaf has at most 1 KiB", length=len(text))
    if tx.dialect == "postgres":
        (agent_id, _, _), flow_id = source or (("", "", ""), None)
        is_sourced = source is not None
        tx.execute(
            _PENDING,
            id=handle,
            ver=ver,
            leaf=text,
            agent_id=agent_id or None,
            dfid=flow_id,
            sourced=is_sourced,
            expect=1,
        )
    # On PostgreSQL too: the note wakes the sequencer after the commit.
    tx.note(TOPIC, leaf)


def _encode(value: Any) -> str:
    """Encode a column that is neither text nor a usual number; values without canonical JSON are refused.

    Bytes are refused too: no projection has any, and as hex a row with bytes as its key would pass for the row with
    that text.
    """
    return canonical.dumps(value).decode()
