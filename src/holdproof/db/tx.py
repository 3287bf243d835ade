"""`Tx`, the argument of every operation: statements, the time, ids; nothing else.

Rules:
- One transaction has one time: `tx.now` does not move while it runs.
- Rows are plain tuples, the same on every database: times and JSON are text, blobs are bytes, truth is 0 or 1.
- An operation that swallows a database error fails with it all the same: the transaction is aborted by then.
- What an operation hands to the commit hooks (`tx.note`) or to waiters (`tx.notify`) counts only if the operation does.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from holdproof.db.clock import Clock, Ids, Random
from holdproof.db.sql import Dialect, Query, refusal
from holdproof.errors import HoldproofError, ReadLimitError
from holdproof.model.times import to_text

Row = tuple[Any, ...]
Notes = dict[str, list[Any]]
Refusal = Callable[[str], HoldproofError]
"""Makes an error from a message."""

WAKE = "wake"
OPENED: Final = "opened"
"""The topic under which a transaction notes whose encrypted content it opened: subjects, by handle."""
USED: Final = "used"
"""The topic under which a transaction notes what it read and wrote of memory (`Use`)."""
RESERVED_TABLES: Final = frozenset({"schema_migrations"})
"""Tables that SQL of applications may read, but never change."""
SECRET_TABLES: Final = frozenset({"subject_facts"})
"""Tables that SQL of applications may not even read: they hold secrets."""
MOST_RESULT_BYTES: Final = 64 << 20
"""The largest result of application SQL, in bytes; more must be read in pages."""
_ROWS_AT_A_TIME: Final = 1_000
MIGRATED_TABLES: Final = RESERVED_TABLES | {
    *("agent_state", "dreams", "embedding_metadata", "instances", "prompt_checkpoints", "schema_version", "shapes"),
    *("cli_session_agents", "cli_session_artifacts", "cli_session_events", "cli_sessions"),
    *("self_grow_nursery", "self_grow_proposals", "self_grow_rollback_tokens"),
    *("blob_facts", "blob_objects", "blobs", "legacy_moves", "service_subjects", "subject_facts", "upkeep"),
    *("vector_facts", "vector_moves", "vectors"),
}
"""Application tables that Holdproof's migrations created: SQL of applications can neither alter nor drop them."""
APPLICATION_SCHEMA: Final = "holdproof_application"
"""The schema of PostgreSQL in which SQL of applications creates its tables; Holdproof's own are in `membrane`.

The prefix sets it apart from a schema that somebody else has in the same database.
"""
DERIVED_TABLES: Final = frozenset({"membrane_login", "vector_index", "vector_index_mark"})
"""Tables beside them that hold what belongs to one server, or follows from other rows: never transferred."""

# Random bytes are drawn in blocks: a system call costs more than the few bytes of a salt.
_POOL = 1024


def bounded_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of application SQL; ReadLimitError once they are larger than `MOST_RESULT_BYTES`."""
    result: list[Row] = []
    size = 0
    source = iter(rows)
    # Counted page by page, so that a huge result is refused before it fills the memory.
    while page := [*islice(source, _ROWS_AT_A_TIME)]:
        result += page
        size += sum(len(cell) for row in page for cell in row if isinstance(cell, str | bytes)) + 8 * len(page)
        if size > MOST_RESULT_BYTES:
            raise ReadLimitError(
                f"a result has at most {MOST_RESULT_BYTES} bytes; read it in pages with LIMIT", most=MOST_RESULT_BYTES
            )
    return result


class Use(NamedTuple):
    """Something of memory that a transaction read or wrote."""

    action: str
    """`read` or `written`."""
    kind: str
    """`notes`, `threads` or `transcripts`."""
    ns: str
    key: int | str
    """The number of its row, or of a transcript its name."""


Flows = frozenset[tuple[str, str]]
"""Flows, by namespace and id."""


class Limiter(Protocol):
    """What holds namespaces to their limits, inside the transaction that would pass them (TenantLimitError)."""

    def spend(self, tx: "Tx", ns: str, size: int, *, must: bool) -> None:
        """Count an entry, its bytes and the content stored for it; `must` counts without refusing."""
        ...

    def store(self, tx: "Tx", ns: str, size: int, *, must: bool = False) -> None:
        """Count bytes that have no entry; `must` counts without refusing."""
        ...

    def admit(self, tx: "Tx", ns: str, size: int) -> None:
        """Refuse a change of so many bytes whose entry is counted without refusing."""
        ...

    def require(self, tx: "Tx", ns: str, name: str, adding: int = 1) -> None:
        """Refuse so many more of what is counted by its rows."""
        ...


class NotRun(Enum):
    """The absence of a result, where None is a possible one."""

    NOT_RUN = 0


NOT_RUN: Final = NotRun.NOT_RUN


@dataclass(frozen=True, slots=True)
class Refused:
    """The result of an operation that must record *and* refuse: its writes are committed, then the error is raised."""

    error: Exception


class SqlResult(NamedTuple):
    """The result of application SQL: columns and rows of its last statement, and how many rows all changed."""

    columns: tuple[str, ...]
    rows: list[Row]
    touched: int


class Tx(ABC):
    """One transaction on one connection."""

    dialect: ClassVar[Dialect]
    lock_seed: int
    """Hashed into the keys of advisory locks; see `advisory_locks`."""

    __slots__ = (
        *("_clock", "_ids", "_micros", "_new_notes", "_now", "_pool", "_pool_used", "_random"),
        *("broken", "limiter", "lock_seed", "notes", "stored_bytes"),
    )

    def __init__(self, clock: Clock, random: Random, ids: Ids | None = None) -> None:
        self._clock = clock
        self._random = random
        self._ids = ids or Ids(random)
        # 0 until somebody asks for the time of this transaction.
        self._micros = 0
        self._now = ""
        self._pool = b""
        self._pool_used = 0
        # Notes of the running operation; they move to `notes` if it succeeds.
        self._new_notes: list[tuple[str, Any]] = []
        self.notes: Notes = {}
        self.broken: HoldproofError | None = None
        self.lock_seed = 0
        self.limiter: Limiter | None = None
        """None while no namespace has limits: then nothing is counted."""
        self.stored_bytes = 0
        """Bytes of content that the running operation stored and that no entry was counted for yet."""

    @abstractmethod
    def execute(self, query: Query, /, *, expect: int | None = None, **params: Any) -> None:
        """Run a statement whose rows are not needed; ExpectationError unless it changes `expect` rows.

        On PostgreSQL it is pipelined: a failure surfaces at the next fetch or at the commit.
        """

    @abstractmethod
    def guard(self, query: Query, refusal: Refusal, /, **params: Any) -> None:
        """Run a statement that must change one row, else raise that refusal; pipelined as `execute` is."""

    @abstractmethod
    def count(self, query: Query, /, **params: Any) -> int:
        """Run a statement and return how many rows it changed."""

    @abstractmethod
    def many(self, query: Query, rows: Iterable[Mapping[str, Any]], /) -> None:
        """Run one statement for each set of parameters."""

    @abstractmethod
    def script(self, text: str, /) -> None:
        """Run several statements without parameters: migrations only."""

    def run_sql(self, text: str, params: Mapping[str, Any], /) -> SqlResult:
        """Run SQL of an application, one statement or several; a parameter that is missing is NULL.

        Limits: it stays in its database, changes no `RESERVED_TABLES`, no setting and no transaction; it reads no
        `SECRET_TABLES` and returns at most `MOST_RESULT_BYTES` (ReadLimitError). Else ForbiddenSqlError.
        """
        result = SqlResult((), [], 0)
        for statement in self.split(text):
            if (error := refusal(statement)) is not None:
                raise error
            last = self.run_statement(statement, params)
            result = last._replace(touched=result.touched + last.touched)
        return result

    @abstractmethod
    def split(self, text: str, /) -> Iterable[str]:
        """Split SQL of an application into its statements."""

    @abstractmethod
    def run_statement(self, statement: str, params: Mapping[str, Any], /) -> SqlResult:
        """Run one statement of `run_sql`."""

    @abstractmethod
    def fetch(self, query: Query, params: Mapping[str, Any], /) -> list[Row]:
        """Return every row of a query; like `all`, with the parameters as a mapping."""

    def all(self, query: Query, /, **params: Any) -> list[Row]:
        """Return every row of a query."""
        return self.fetch(query, params)

    def one(self, query: Query, /, **params: Any) -> Row | None:
        """Return the only row of a query, or None."""
        rows = self.fetch(query, params)
        assert len(rows) <= 1, f"{query} returned {len(rows)} rows where one was promised"
        for row in rows:
            return row
        return None

    def confine(self, ns: str | None) -> None:
        """Keep the statements that follow in one namespace, where the database can enforce it; None ends that.

        A second wall: operations name the namespace in their statements themselves.
        """
        del ns

    @property
    def now(self) -> str:
        """The time of this transaction, ISO-8601 UTC with microseconds."""
        if not self._micros:
            self._micros = self._clock()
            self._now = to_text(self._micros)
        return self._now

    def new_id(self) -> str:
        """Return a new UUIDv7; later ones sort later."""
        if not self._micros:
            self._micros = self._clock()
            self._now = to_text(self._micros)
        return self._ids.new(self._micros)

    def random(self, size: int) -> bytes:
        """Return random bytes, for salts and secrets."""
        if self._pool_used + size > len(self._pool):
            self._pool = self._random(max(size, _POOL))
            self._pool_used = 0
        start = self._pool_used
        self._pool_used += size
        return self._pool[start : self._pool_used]

    def note(self, topic: str, value: Any) -> None:
        """Pass a value to the commit hooks, which read it from `tx.notes[topic]` if this operation succeeds."""
        self._new_notes.append((topic, value))

    def notify(self, *topics: str) -> None:
        """Wake everybody who waits for these topics, once this is committed."""
        self._new_notes.extend((WAKE, topic) for topic in topics)

    # Below: called by the group writer and the readers around operations, never by operations.

    def reset(self) -> None:
        """Start a new transaction: another time, no notes."""
        self._micros = 0
        self.notes = {}
        self._new_notes.clear()
        self.broken = None
        self.limiter = None
        self.stored_bytes = 0

    def noted(self, topic: str) -> Iterator[Any]:
        """Yield what this transaction noted under a topic so far: operations before this one, and this one."""
        yield from self.notes.get(topic, ())
        yield from (value for each, value in self._new_notes if each == topic)

    def take(self, topic: str) -> frozenset[Any]:
        """Remove what the running operation noted under a topic, and return it."""
        # Most operations note no such thing: then nothing is built anew.
        for each, _ in self._new_notes:
            if each == topic:
                break
        else:
            return frozenset()
        values = frozenset(value for each, value in self._new_notes if each == topic)
        self._new_notes = [note for note in self._new_notes if note[0] != topic]
        return values

    def accept_notes(self) -> None:
        """Keep the notes of an operation that succeeded."""
        self.stored_bytes = 0
        if self._new_notes:
            for topic, value in self._new_notes:
                self.notes.setdefault(topic, []).append(value)
            self._new_notes.clear()

    def discard_notes(self) -> None:
        """Drop the notes of an operation that failed."""
        self.stored_bytes = 0
        self._new_notes.clear()
        self.broken = None
