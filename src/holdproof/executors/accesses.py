"""Accesses: methods that give content to somebody say so to the store, which records it (evidence/accesses.py).

Rules:
- Only what a method gives its caller is an access. What the store opens to run a person's flow is not.
- An export is recorded before its last byte is given. A read is recorded by a write that is queued before its answer is
  given, and that nobody waits for: reads do not wait for a disk.
- Content is given also where nothing can be recorded: a store that is read-only or locked, a replay.
- Who it is, the server says for each request (`CALLER`); elsewhere it is the operator.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar

from holdproof.db import OPENED, Access, AccessRecorder, Database, Give, Read, Tx, Write
from holdproof.errors import HoldproofError
from holdproof.model.namespaces import MAIN

T = TypeVar("T")

CALLER: Final[ContextVar[str]] = ContextVar("holdproof_caller", default="operator")
"""Who calls the methods of a store, as entries name them."""
_LONGEST: Final = 200
_Writes = dict[Access, Callable[[Tx], None]]
_log = logging.getLogger("holdproof")


class AccessWatch:
    """Records whom one method of one store gives content to."""

    def __init__(
        self, database: Database, recorder: AccessRecorder, what: str, ns: str | None, *, subject: str, exports: bool
    ) -> None:
        self._database = database
        self._recorder = recorder
        self._what = what
        self._ns = ns
        self._subject = subject
        """The parameter that says what is exported."""
        self._exports = exports

    def reading(self, fn: Callable[[Tx], T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[Tx], T]:
        """Return a reading function that records what it opened, and that it exported."""
        # On the caller's side: the function may run on another thread.
        who = CALLER.get()

        def read(tx: Tx) -> T:
            # What a read before this one opened, and then failed.
            tx.take(OPENED)
            value = fn(tx)
            self._queue(self._accesses(who, tx.take(OPENED), args, kwargs))
            return value

        return read

    def working(self, work: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Drive work or a stream, and record what its reads opened before its answer or its items are given."""
        who = CALLER.get()
        opened: set[str] = set()
        recorded: set[Access] = set()
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                try:
                    effect = work.send(value) if error is None else work.throw(error)
                except StopIteration as stop:
                    yield from self._writes(who, opened, args, kwargs, recorded)
                    return stop.value
                if isinstance(effect, Give):
                    yield from self._writes(who, opened, args, kwargs, recorded)
                value, error = None, None
                try:
                    value = yield Read(_noting(effect.fn, opened), effect.long) if isinstance(effect, Read) else effect
                except GeneratorExit:
                    raise
                except BaseException as failure:
                    error = failure
        finally:
            work.close()

    def _writes(
        self, who: str, opened: set[str], args: tuple[Any, ...], kwargs: Mapping[str, Any], recorded: set[Access]
    ) -> Any:
        accesses = [each for each in self._accesses(who, frozenset(opened), args, kwargs) if each not in recorded]
        recorded.update(accesses)
        writes = self._pending(accesses)
        if not writes:
            return
        try:
            # One for all: a page may be about a thousand people.
            yield Write(partial(_write, writes))
        except HoldproofError as error:
            self._failed(writes, error)

    def _pending(self, accesses: list[Access]) -> _Writes:
        """Return the writes of those accesses that are not recorded yet."""
        writes = {access: self._recorder.record(access) for access in accesses}
        return {access: write for access, write in writes.items() if write is not None}

    def _accesses(
        self, who: str, opened: frozenset[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> list[Access]:
        if not opened and not self._exports:
            return []
        ns = str(kwargs.get("ns") or self._ns or MAIN)
        accesses = [Access("read", who, self._what, handle, ns) for handle in sorted(opened)]
        if self._exports:
            # Only the parameter that says what is exported: others may be secrets.
            value = args[0] if args else kwargs.get(self._subject, "")
            target = str(value)[:_LONGEST] if isinstance(value, str | int) else ""
            accesses.append(Access("export", who, self._what, target, ns))
        return accesses

    def _queue(self, accesses: list[Access]) -> None:
        """Submit the write that records accesses; nobody waits for it."""
        writes = self._pending(accesses)
        if not writes:
            return
        try:
            self._database.write(partial(_write, writes)).add_done_callback(partial(self._written, writes))
        # Whatever refuses writes here, as a replay does, does not refuse reads.
        except HoldproofError as error:
            self._failed(writes, error)

    def _written(self, writes: _Writes, future: "Future[None]") -> None:
        # A cancelled one wrote nothing either: the next read records it.
        error = CancelledError("cancelled") if future.cancelled() else future.exception()
        if error is not None:
            self._failed(writes, error)

    def _failed(self, writes: _Writes, error: BaseException) -> None:
        for access in writes:
            self._recorder.forget(access)
            _log.info("the log has no entry of %s by %s: %s", access.what, access.who, error)


def _write(writes: _Writes, tx: Tx) -> None:
    for write in writes.values():
        write(tx)


def _noting(fn: Callable[[Tx], T], opened: set[str]) -> Callable[[Tx], T]:
    def read(tx: Tx) -> T:
        tx.take(OPENED)
        value = fn(tx)
        opened.update(tx.take(OPENED))
        return value

    return read


def watch_of(resource: Any, method: str, *, subject: str, exports: bool) -> AccessWatch | None:
    """Return the watch of a resource's method; None where its database records no accesses."""
    executor = resource._executor
    database: Database | None = getattr(executor, "database", None)
    if database is None or database.hooks.accesses is None:
        return None
    name = next((name for name, each in vars(executor).items() if each is resource), type(resource).__name__)
    return AccessWatch(
        database, database.hooks.accesses, f"{name}.{method}", resource.ns, subject=subject, exports=exports
    )
