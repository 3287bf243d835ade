"""The relational store: SQL of services on application tables, with `:name` parameters.

Rules:
- A script is one transaction. A missing parameter is NULL; a `:` in a string or a cast is not a parameter.
- What SQL may do is bounded by the database (`Tx.ask`): it reaches neither the kernel nor any setting nor a secret, and
  returns 64 MiB at most, on SQLite no value of more than 16.
- A block is one transaction of its own: it sees what it wrote, and once a statement of it has failed, all of it has.
- A block that could not begin raises the reason at its first statement.
- A block holds the writer. One without a statement for `IDLE_S`, or one that lasts longer than `TOTAL_S` altogether, is
  rolled back, and raises at its next statement. Both limits are at most `MOST_S`: other writers wait meanwhile.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final

from holdproof import validation
from holdproof.db import Call, Read, SqlResult, Tx, Work, Write, ask
from holdproof.db.sql import kind_of, statements
from holdproof.errors import ClosedError, HoldproofError, IdleTransactionError, InvalidInputError, TransactionLimitError
from holdproof.executors import AsyncExecutor, Awaits, Executor, Resource, Runs, RunsWith, SyncExecutor, Writes
from holdproof.model.defaults import IDLE_S, TOTAL_S

Params = Mapping[str, Any]
Record = dict[str, Any]

MOST_S: Final = 300.0


def execute(tx: Tx, query: str, params: Params | None = None) -> int:
    """Run a statement, or a script of several; return how many rows it changed."""
    return tx.run_sql(query, _named(params)).touched


def executemany(tx: Tx, query: str, rows: Sequence[Params]) -> int:
    """Run one statement for each set of parameters; return how many rows that changed."""
    return sum(tx.run_sql(query, _named(row)).touched for row in rows)


def fetch_all(query: str, params: Params | None = None) -> Work[list[Record]]:
    """Return every row of a query, by column name."""
    named = _named(params)
    # A query that writes (INSERT … RETURNING) must go to the writer.
    reads = all(kind_of(statement) == "read" for statement in statements(query))
    result = yield from ask((Read if reads else Write)(lambda tx: tx.run_sql(query, named)))
    return _records(result)


def fetch_one(query: str, params: Params | None = None) -> Work[Record | None]:
    """Return the first row of a query, or None."""
    records = yield from fetch_all(query, params)
    return records[0] if records else None


def _named(params: Params | None) -> Params:
    if params is None:
        return {}
    if not isinstance(params, Mapping):
        raise InvalidInputError("parameters must be a mapping, like {'name': value}")
    return params


def _records(result: SqlResult) -> list[Record]:
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def close(executor: AsyncExecutor | SyncExecutor) -> Work[None]:
    """Close the database; may be called twice."""
    yield Call(executor.database.close)


class Relational(Resource[Executor]):
    """Application tables, by SQL."""

    execute = Writes(execute, creates=True)
    executemany = Writes(executemany, creates=True)
    fetch_all = Runs(fetch_all)
    fetch_one = Runs(fetch_one)
    close = RunsWith(close, internal=True, local=True)

    @property
    def held(self) -> AsyncExecutor | SyncExecutor:
        """The executor of its database."""
        return self._executor

    def transaction(self, *, idle_s: float = IDLE_S, total_s: float = TOTAL_S) -> "Transaction[Executor]":
        """Run several calls as one transaction: committed at the end of the block, rolled back by an exception.

        It is rolled back too after `idle_s` seconds without a call (IdleTransactionError), and after `total_s` seconds
        altogether (TransactionLimitError).
        """
        idle_s = validation.number("idle_s", idle_s, least=0.001, most=MOST_S)
        total_s = validation.number("total_s", total_s, least=0.001, most=MOST_S)
        return Transaction(self._executor, StatementFeed(idle_s, total_s))


class _UndoneError(Exception):
    """The block asked for its end without a commit."""


class StatementFeed:
    """Passes the statements of a block to its transaction, which runs on the writer's thread.

    The block runs in its own thread or loop and waits for a future per statement; the writer waits for the next one.
    """

    def __init__(self, idle_s: float, total_s: float) -> None:
        self._idle_s = idle_s
        self._total_s = total_s
        self._lock = threading.Lock()
        self._messages: SimpleQueue[tuple[Any, Future[Any]] | bool] = SimpleQueue()
        self._over: BaseException | None = None

    def run(self, tx: Tx) -> None:
        """The transaction: run the statements of the block until it ends or is idle for too long."""
        try:
            self._serve(tx)
        except BaseException as error:
            self._end(error)
            raise
        self._end(ClosedError("the transaction has ended"))

    def _serve(self, tx: Tx) -> None:
        failure: BaseException | None = None
        # From here: time in which it waited for the writer is not its own.
        deadline = time.monotonic() + self._total_s
        # A bool ends the block: True commits, False rolls back.
        while not isinstance(message := self._next(deadline), bool):
            fn, future = message
            # The caller gave up waiting for this statement before it ran.
            if not future.set_running_or_notify_cancel():
                continue
            try:
                # Like a server: after an error every further statement fails, and the end rolls back.
                if failure is not None:
                    raise failure
                future.set_result(fn(tx))
            except BaseException as error:
                failure = error
                future.set_exception(error)
        if failure is not None or not message:
            raise failure or _UndoneError

    def _next(self, deadline: float) -> tuple[Any, Future[Any]] | bool:
        remaining_s = deadline - time.monotonic()
        try:
            message = self._messages.get(timeout=max(0.0, min(self._idle_s, remaining_s)))
            # Every further call of a block that never pauses would hold the writer a little longer; its end would not.
            if remaining_s > 0 or isinstance(message, bool):
                return message
            self._messages.put(message)  # `_end` answers it
        except Empty:
            pass
        if time.monotonic() >= deadline:
            text = f"the transaction lasted longer than {self._total_s:g} s and was rolled back"
            raise TransactionLimitError(f"{text}; make it shorter, or give total_s", total_s=self._total_s)
        text = f"the transaction was idle for {self._idle_s:g} s and was rolled back"
        raise IdleTransactionError(text, idle_s=self._idle_s)

    def ended(self, ending: "Future[None]") -> None:
        """Fail statements that wait for an answer, when the transaction is over or never began."""
        error = ClosedError("the transaction was cancelled") if ending.cancelled() else ending.exception()
        self._end(error or ClosedError("the transaction has ended"))

    def _end(self, reason: BaseException) -> None:
        # A statement after the end must not enter the queue: nobody would ever answer it.
        with self._lock:
            self._over = self._over or reason
        with suppress(Empty):
            while True:
                message = self._messages.get_nowait()
                if not isinstance(message, bool) and message[1].set_running_or_notify_cancel():
                    message[1].set_exception(self._over)

    def send(self, fn: Any) -> "Future[Any]":
        """Queue a function for the transaction; its result arrives in the future."""
        future: Future[Any] = Future()
        with self._lock:
            if self._over is not None:
                raise self._over
            self._messages.put((fn, future))
        return future

    def finish(self, *, commit: bool) -> None:
        """Tell the transaction that the block has ended."""
        self._messages.put(commit)


def _execute(feed: StatementFeed, query: str, params: Params | None = None) -> "Future[int]":
    """Run a statement, or a script of several; how many rows it touched."""
    return feed.send(lambda tx: execute(tx, query, params))


def _executemany(feed: StatementFeed, query: str, rows: Sequence[Params]) -> "Future[int]":
    """Run one statement for each set of parameters; how many rows that touched."""
    return feed.send(lambda tx: executemany(tx, query, rows))


def _fetch_all(feed: StatementFeed, query: str, params: Params | None = None) -> "Future[list[Record]]":
    """Every row of a query, by column name."""
    return feed.send(lambda tx: _records(tx.run_sql(query, _named(params))))


def _fetch_one(feed: StatementFeed, query: str, params: Params | None = None) -> "Future[Record | None]":
    """The first row of a query, or None."""
    return feed.send(lambda tx: next(iter(_records(tx.run_sql(query, _named(params)))), None))


def _close(feed: StatementFeed) -> "Future[None]":
    """Refused: the end of the block ends it."""
    del feed
    raise InvalidInputError("a transaction is closed by the end of its block")


class Transaction(Resource[Executor]):
    """A block of calls that are committed together or not at all."""

    execute = Awaits(_execute, like=("relational", "execute"))
    executemany = Awaits(_executemany, like=("relational", "executemany"))
    fetch_all = Awaits(_fetch_all, like=("relational", "fetch_all"))
    fetch_one = Awaits(_fetch_one, like=("relational", "fetch_one"))
    close = Awaits(_close, local=True)

    _ending: "Future[None]"

    def __init__(self, executor: Executor, feed: StatementFeed) -> None:
        super().__init__(executor)
        self._feed = feed

    @property
    def held(self) -> StatementFeed:
        """The feed of its transaction."""
        return self._feed

    def transaction(self) -> "Transaction[Executor]":
        """Refused: transactions are not nested."""
        raise InvalidInputError("transactions cannot be nested; use this one")

    def _begin(self) -> None:
        self._ending = self._executor.start_once(self._feed.run)
        # If the transaction cannot even begin, waiting statements are failed by this.
        self._ending.add_done_callback(self._feed.ended)

    @staticmethod
    def _expected(error: BaseException | None) -> tuple[type[Exception], ...]:
        """Errors of the transaction that are not raised, because the block already raises its own."""
        return () if error is None else (_UndoneError, HoldproofError)

    async def __aenter__(self: "Transaction[AsyncExecutor]") -> "Transaction[AsyncExecutor]":
        self._begin()
        return self

    async def __aexit__(
        self: "Transaction[AsyncExecutor]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._feed.finish(commit=error is None)
        with suppress(*self._expected(error)):
            await self._executor.wait_for(self._ending)

    def __enter__(self: "Transaction[SyncExecutor]") -> "Transaction[SyncExecutor]":
        self._begin()
        return self

    def __exit__(
        self: "Transaction[SyncExecutor]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._feed.finish(commit=error is None)
        with suppress(*self._expected(error)):
            self._executor.wait_for(self._ending)
