"""`Tx`, what an operation is given: statements, the moment, ids; nothing else.

Rules:
- One transaction has one moment: `tx.now` does not move while it runs.
- Rows are plain tuples, the same on every database: times and JSON are text, blobs are bytes, truth is 0 or 1.
- An operation that swallows a database error fails with it all the same: no database would honour what follows.
- What an operation hands to the commit hooks (`tx.note`) or to waiters (`tx.notify`) counts only if the operation does.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

from holdproof.db.clock import Clock, Ids, Random
from holdproof.db.sql import Dialect, Query, first_word, may_ask
from holdproof.errors import ForbiddenSqlError, HoldproofError, ReadLimitError
from holdproof.model.times import to_text

Row = tuple[Any, ...]
Notes = dict[str, list[Any]]
Refusal = Callable[[str], HoldproofError]
"""Makes an error; it is told what happened."""

WAKE = "wake"
RESERVED_TABLES: Final = frozenset({"schema_migrations"})
"""Tables that SQL which is not ours may read, but never change."""
SECRET_TABLES: Final = frozenset({"subject_facts"})
"""Tables that SQL which is not ours may not even read: they hold a secret."""
ANSWER_BYTES: Final = 64 << 20
"""How much SQL that is not ours may answer: more is asked for in pages."""
_ROWS_AT_A_TIME: Final = 1_000
MIGRATED_TABLES: Final = RESERVED_TABLES | {
    *("agent_state", "dreams", "embedding_metadata", "instances", "prompt_checkpoints", "schema_version", "shapes"),
    *("cli_session_agents", "cli_session_artifacts", "cli_session_events", "cli_sessions"),
    *("self_grow_nursery", "self_grow_proposals", "self_grow_rollback_tokens"),
    *("blob_facts", "blob_objects", "blobs", "legacy_moves", "service_subjects", "subject_facts", "upkeep"),
    *("vector_facts", "vector_moves", "vectors"),
}
"""Tables of the membrane that our migrations made: SQL which is not ours neither alters nor drops them."""

_POOL = 1024


def bounded_rows(rows: Iterable[Row]) -> list[Row]:
    """The rows of an answer to SQL that is not ours, as long as they are not too much to hold."""
    found: list[Row] = []
    size, coming = 0, iter(rows)
    while page := [*islice(coming, _ROWS_AT_A_TIME)]:
        found += page
        size += sum(len(cell) for row in page for cell in row if isinstance(cell, str | bytes)) + 8 * len(page)
        if size > ANSWER_BYTES:
            raise ReadLimitError(f"an answer has at most {ANSWER_BYTES} bytes; ask for it in pages", most=ANSWER_BYTES)
    return found


class Nothing(Enum):
    """The absence of an answer, where None is one."""

    NOTHING = 0


NOTHING: Final = Nothing.NOTHING


@dataclass(frozen=True, slots=True)
class Refused:
    """An operation's answer when it must record *and* refuse: its writes are committed, then the error is raised."""

    error: Exception


class Answer(NamedTuple):
    """What a text of SQL gave: names and rows of its last statement, and how many rows all of them touched."""

    columns: tuple[str, ...]
    rows: list[Row]
    touched: int


class Tx(ABC):
    """One transaction on one connection."""

    dialect: ClassVar[Dialect]

    __slots__ = ("_clock", "_drawn", "_ids", "_micros", "_new_notes", "_now", "_pool", "_random", "broken", "notes")

    def __init__(self, clock: Clock, random: Random, ids: Ids | None = None) -> None:
        self._clock, self._random, self._ids = clock, random, ids or Ids(random)
        self._micros, self._now = 0, ""
        self._pool, self._drawn = b"", 0
        self._new_notes: list[tuple[str, Any]] = []
        self.notes: Notes = {}
        self.broken: HoldproofError | None = None

    @abstractmethod
    def execute(self, query: Query, /, *, expect: int | None = None, **params: Any) -> None:
        """Run a statement that needs no answer; `expect` is the number of rows it must touch, else ExpectationError.

        On PostgreSQL it is pipelined: a failure surfaces at the next answer or at the commit.
        """

    @abstractmethod
    def guard(self, query: Query, refusal: Refusal, /, **params: Any) -> None:
        """Run a statement that must touch one row, else that refusal is raised; pipelined as `execute` is."""

    @abstractmethod
    def count(self, query: Query, /, **params: Any) -> int:
        """Run a statement and answer how many rows it touched."""

    @abstractmethod
    def many(self, query: Query, rows: Iterable[Mapping[str, Any]], /) -> None:
        """Run one statement for each set of parameters; no answer."""

    @abstractmethod
    def script(self, text: str, /) -> None:
        """Run several statements without parameters: migrations only."""

    def ask(self, text: str, params: Mapping[str, Any], /) -> Answer:
        """Run SQL that is not ours, one statement or several; a parameter that is missing is NULL.

        What it may do is bounded: it stays in its database, changes nothing of `RESERVED_TABLES`, no setting and no transaction.
        It reads nothing of `SECRET_TABLES`, and gives no more than `ANSWER_BYTES` (ReadLimitError).
        """
        answer = Answer((), [], 0)
        for statement in self.split(text):
            if not may_ask(statement):
                refused = f"{first_word(statement) or statement[:20]} is not for SQL of services"
                raise ForbiddenSqlError(refused, statement=first_word(statement))
            found = self.ask_one(statement, params)
            answer = found._replace(touched=answer.touched + found.touched)
        return answer

    @abstractmethod
    def split(self, text: str, /) -> Iterable[str]:
        """The statements of a text that is not ours."""

    @abstractmethod
    def ask_one(self, statement: str, params: Mapping[str, Any], /) -> Answer:
        """One statement of `ask`."""

    @abstractmethod
    def fetch(self, query: Query, params: Mapping[str, Any], /) -> list[Row]:
        """Every row of a query whose parameters are gathered already: what `all` and `one` are made of."""

    def all(self, query: Query, /, **params: Any) -> list[Row]:
        """Every row of a query."""
        return self.fetch(query, params)

    def one(self, query: Query, /, **params: Any) -> Row | None:
        """The only row of a query, or None."""
        rows = self.fetch(query, params)
        assert len(rows) <= 1, f"{query} gave {len(rows)} rows where one was promised"
        return rows[0] if rows else None

    @property
    def now(self) -> str:
        """The moment of this transaction, ISO-8601 UTC with microseconds."""
        if not self._micros:
            self._micros = self._clock()
            self._now = to_text(self._micros)
        return self._now

    def new_id(self) -> str:
        """A new UUIDv7, sorted by time."""
        if not self._micros:
            self._micros = self._clock()
            self._now = to_text(self._micros)
        return self._ids.new(self._micros)

    def random(self, size: int) -> bytes:
        """Random bytes, for salts and secrets."""
        start, end = self._drawn, self._drawn + size
        if end > len(self._pool):  # asking the system for a few at a time costs more than the bytes
            self._pool, start, end = self._random(max(size, _POOL)), 0, size
        self._drawn = end
        return self._pool[start:end]

    def note(self, topic: str, value: Any) -> None:
        """Hand a value to the commit hooks, which find it in `tx.notes[topic]` if this operation succeeds."""
        self._new_notes.append((topic, value))

    def notify(self, *topics: str) -> None:
        """Wake those who wait for these topics once this is committed."""
        self._new_notes.extend((WAKE, topic) for topic in topics)

    # What the engine calls around operations.

    def reset(self) -> None:
        """Begin a new transaction: another moment, no notes."""
        self._micros = 0
        self.notes = {}
        self.discard_notes()

    def accept_notes(self) -> None:
        """An operation succeeded: its notes count."""
        if self._new_notes:
            for topic, value in self._new_notes:
                self.notes.setdefault(topic, []).append(value)
            self._new_notes.clear()

    def discard_notes(self) -> None:
        """An operation failed: its notes are forgotten."""
        self._new_notes.clear()
        self.broken = None
