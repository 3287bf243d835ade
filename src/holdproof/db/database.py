"""`Database`: runs functions of a transaction; their work is durable when the result is delivered."""

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from copy import copy
from typing import Any, Protocol, TypeVar

from holdproof.db.clock import Clock
from holdproof.db.group_commit import Hooks
from holdproof.db.offline import REFUSAL
from holdproof.db.sql import Dialect
from holdproof.db.topics import Topics
from holdproof.db.tx import NOT_RUN, WAKE, Notes, NotRun, Refused, Tx
from holdproof.db.worker_pool import FUTURES, ONCE, READS, SERIALIZABLE, UNGATED, Job, WorkerPool
from holdproof.errors import ClosedError, ForkedError, HoldproofError

T = TypeVar("T")


class Backend(Protocol):
    """The parts of a database; `db/sqlite` and `db/postgres` each build one."""

    dialect: Dialect
    writer: WorkerPool
    reader: WorkerPool
    notifies: bool
    """Whether commits of other processes wake our waiters."""

    def peek(self, fn: Callable[[Tx], T], budget_s: float) -> "T | NotRun":
        """Run a short read on the calling thread; NOT_RUN if unsupported, no connection is free, or time is up."""
        ...

    def driver_of(self, connection: Any) -> Any:
        """Return the driver's connection under one of a caller's; ForeignTransactionError where there is none."""
        ...

    def write_in(
        self, connection: Any, fn: "Callable[[Tx], T | Refused]", hooks: Hooks, confirm: Callable[[], None]
    ) -> T:
        """Run a function of a transaction in the transaction of a caller, given the driver's connection.

        `confirm` is called when all was written; what it raises rolls that back.
        """
        ...

    def facts(self) -> dict[str, Any]:
        """Return location, versions and sizes, for `status`."""
        ...

    def check(self) -> list[str]:
        """Run the database's own integrity check; returns what is wrong, empty if sound."""
        ...

    def compact(self) -> None:
        """Return free space to the system while others keep working; may be called any number of times."""
        ...

    def disown(self) -> None:
        """Prepare the child of a fork: nothing of the parent may be touched."""
        ...

    def close(self) -> None:
        """Release what remains once both worker pools are closed."""
        ...


class Database:
    """One database, open. Thread-safe; does not survive fork()."""

    def __init__(self, backend: Backend, *, hooks: Hooks, topics: Topics, clock: Clock) -> None:
        self.backend = backend
        self.hooks = hooks
        self.topics = topics
        self.clock = clock
        self.dialect: Dialect = backend.dialect
        self.first_run = False
        self._closing = threading.Lock()
        self._closed = False
        # A list, so that the handles that `share` copies count together.
        self._handles = [1]
        hooks.after_commit.append(self._wake)
        _OPEN.add(self)

    def write(
        self, fn: Callable[[Tx], T], *, ungated: bool = False, serializable: bool = False, once: bool = False
    ) -> "Future[T]":
        """Run a function of a transaction; the future is done once its work is durable.

        `ungated` passes the gate (the lockdown's own records). `serializable` asks PostgreSQL for that isolation;
        SQLite always has it. `once` is for functions that cannot run again: serializable, in their own transaction.
        """
        # Not a function of its own: every write comes here.
        if (refusal := REFUSAL.get()) is not None:
            raise refusal()
        future: Future[T] = Future()
        flags = UNGATED * ungated | SERIALIZABLE * (serializable or once) | ONCE * once
        self.backend.writer.submit(Job(fn, FUTURES, future, flags))
        return future

    def driver_of(self, connection: Any) -> Any:
        """Return the driver's connection under one of a caller's, for `write_in`."""
        return self.backend.driver_of(connection)

    def write_in(
        self, connection: Any, fn: "Callable[[Tx], T | Refused]", confirm: Callable[[], None] = lambda: None
    ) -> T:
        """Run a function of a transaction in one that the caller owns, given the driver's connection; see Backend."""
        if (refusal := REFUSAL.get()) is not None:
            raise refusal()
        if self._closed or self._forked:
            raise ClosedError("the store is closed")
        try:
            return self.backend.write_in(connection, fn, self.hooks, confirm)
        except HoldproofError as error:
            if error.record is not None:
                # In a transaction of its own: whether or not the caller commits, a refusal stays recorded.
                self.write(error.record).result()
            raise

    def read(self, fn: Callable[[Tx], T]) -> "Future[T]":
        """Run a reading function on a snapshot that includes everything acknowledged before this call."""
        future: Future[T] = Future()
        self.backend.reader.submit(Job(fn, FUTURES, future, READS))
        return future

    def peek(self, fn: Callable[[Tx], T], budget_s: float) -> "T | NotRun":
        """Read on the caller's own thread, without a thread switch; NOT_RUN if the budget does not suffice."""
        return NOT_RUN if self._forked else self.backend.peek(fn, budget_s)

    @property
    def progress(self) -> int:
        """A number that grows with every job run: executors see by it whether the workers make progress."""
        return self.backend.writer.progress + self.backend.reader.progress

    @property
    def busy(self) -> bool:
        """Whether any job is queued or under way."""
        return self.backend.writer.busy or self.backend.reader.busy

    def share(self) -> "Database":
        """Return another handle on the same database, which closes when the last of its handles does."""
        other = copy(self)
        with self._closing:
            other._handles[0] += 1
        _OPEN.add(other)
        return other

    @property
    def closed(self) -> bool:
        """Whether this handle was closed."""
        return self._closed

    def close(self, timeout_s: float = 30.0) -> None:
        """Finish queued work, fail what cannot be finished in time, and close; may be called more than once."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            _OPEN.discard(self)
            self._handles[0] -= 1
            if self._forked or self._handles[0]:
                return
            self.backend.reader.close(timeout_s)
            self.backend.writer.close(timeout_s)
            self.backend.close()

    _forked = False

    def _disown(self) -> None:
        """Refuse all calls in the child of a fork: the threads are missing and the connections belong to the parent."""
        self._forked = True
        self.backend.disown()
        pid = os.getpid()
        for pool in (self.backend.writer, self.backend.reader):
            # A new error for each caller: tracebacks are attached to it.
            pool.disown(lambda: ForkedError(f"this store was opened before process {pid} was forked"))

    def _wake(self, notes: Notes) -> None:
        if topics := notes.get(WAKE):
            self.topics.signal(topics)


# Every open handle of this process, to be told of a fork.
_OPEN: "weakref.WeakSet[Database]" = weakref.WeakSet()


def _after_fork() -> None:
    for database in list(_OPEN):
        database._disown()


os.register_at_fork(after_in_child=_after_fork)
