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
from concurrent.futures import Future
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
            for access in self._accesses(who, tx.take(OPENED), args, kwargs):
                self._queue(access)
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
        for access in self._accesses(who, frozenset(opened), args, kwargs):
            if access in recorded:
                continue
            recorded.add(access)
            write = self._recorder.record(access)
            if write is None:
                continue
            try:
                yield Write(write)
            except HoldproofError as error:
                self._failed(access, error)

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

    def _queue(self, access: Access) -> None:
        """Submit the write that records an access; nobody waits for it."""
        write = self._recorder.record(access)
        if write is None:
            return
        try:
            self._database.write(write).add_done_callback(partial(self._written, access))
        # Whatever refuses writes here, as a replay does, does not refuse reads.
        except HoldproofError as error:
            self._failed(access, error)

    def _written(self, access: Access, future: "Future[None]") -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._failed(access, error)

    def _failed(self, access: Access, error: BaseException) -> None:
        self._recorder.forget(access)
        _log.info("the log has no entry of %s by %s: %s", access.what, access.who, error)


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
