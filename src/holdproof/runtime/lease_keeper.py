"""Lease extension: the leases of the flows that this process runs do not expire while their steps are long.

Rules:
- One thread for each open store, while flows run; one transaction extends all leases that are due for it.
- A lease is extended when a third of it has passed. A flow that ends sooner is never looked at.
- A flow that is not run any more, however its function was left, is not extended any more: nobody keeps the flow of a
  dead worker from being taken up.
- A lease that is another worker's by now stays so: the flow's next step finds that out.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary, ref

from holdproof.db import Database, Tx
from holdproof.errors import HoldproofError
from holdproof.runtime import leases
from holdproof.runtime.flow_run import FlowRun

_log = logging.getLogger("holdproof.runtime")

_LINGER_S: Final = 1.0
"""How long the thread waits for further flows before it ends: one thread serves many short flows."""
_RETRY_S: Final = 0.5
_KEEPERS: Final["WeakKeyDictionary[Database, LeaseKeeper]"] = WeakKeyDictionary()
_KEEPERS_LOCK: Final = threading.Lock()


@dataclass(slots=True)
class _Kept:
    run: "ref[FlowRun]"
    """Weak: a block that nobody has any more is not worked on, however it was left."""
    next_at: float


class LeaseKeeper:
    """Extends the leases of the flows that this process runs on one database."""

    def __init__(self, database: Database) -> None:
        # Weak: the table of keepers goes by the database, and must not keep it alive.
        self._database = ref(database)
        self._kept: dict[int, _Kept] = {}
        self._changed = threading.Condition()
        self._is_alive = False

    @contextmanager
    def keeping(self, run: FlowRun) -> Iterator[None]:
        """Extend the lease of a flow until the block is left."""
        self.keep(run)
        try:
            yield
        finally:
            self.drop(run)

    def keep(self, run: FlowRun) -> None:
        """Extend the lease of a flow from now on."""
        with self._changed:
            self._kept[id(run)] = _Kept(ref(run), time.monotonic() + run.lease.lease_s / 3)
            if not self._is_alive:
                self._is_alive = True
                threading.Thread(target=self._loop, name="holdproof-leases", daemon=True).start()
            # A shorter lease than all others may have come; the thread sleeps until the first of them.
            elif len(self._kept) == 1 or run.lease.lease_s / 3 < _LINGER_S:
                self._changed.notify()

    def drop(self, run: FlowRun) -> None:
        """Leave the lease of a flow alone from now on."""
        with self._changed:
            self._kept.pop(id(run), None)

    def _loop(self) -> None:
        while True:
            due = self._wait_for_due()
            if due is None:
                return
            database = self._database()
            if database is None or database.closed:
                self._forget()
                continue
            try:
                database.write(partial(_extend, runs=due)).result()
            except HoldproofError:
                # Tried again soon: a lease has two thirds left.
                _log.debug("leases could not be extended", exc_info=True)
                time.sleep(_RETRY_S)
                continue
            self._set_next(due)

    def _forget(self) -> None:
        """Keep nothing any more: the store is closed."""
        with self._changed:
            self._kept.clear()

    def _wait_for_due(self) -> list[FlowRun] | None:
        """Return flows whose lease is to be extended now; None when there was nothing to keep for a while."""
        with self._changed:
            while True:
                if not self._kept and not self._changed.wait(_LINGER_S) and not self._kept:
                    self._is_alive = False
                    return None
                now = time.monotonic()
                self._kept = {key: each for key, each in self._kept.items() if each.run() is not None}
                ready = (each.run() for each in self._kept.values() if each.next_at <= now)
                due = [run for run in ready if run is not None]
                if due:
                    return due
                if self._kept:
                    self._changed.wait(max(0.0, min(each.next_at for each in self._kept.values()) - now))

    def _set_next(self, runs: list[FlowRun]) -> None:
        with self._changed:
            for run in runs:
                entry = self._kept.get(id(run))
                if entry is not None:
                    entry.next_at = time.monotonic() + run.lease.lease_s / 3


def _extend(tx: Tx, runs: list[FlowRun]) -> None:
    # In the order of ids: two processes that extend leases never wait for each other in a circle.
    for lease in sorted((run.lease for run in runs), key=lambda lease: (lease.flow_id, lease.ns)):
        leases.extend_unless_lost(tx, lease.flow_id, lease.token, lease_s=lease.lease_s, ns=lease.ns)


def keeper_of(database: Database) -> LeaseKeeper:
    """Return the one keeper of a database in this process."""
    with _KEEPERS_LOCK:
        keeper = _KEEPERS.get(database)
        if keeper is None:
            keeper = _KEEPERS[database] = LeaseKeeper(database)
        return keeper
