"""The sequencer of a store on PostgreSQL: brings committed leaves under a signed head within a tenth of a second.

One row of state would be a bottleneck for concurrent writers; so a leaf is committed to `log_pending` with its record,
and one elected sequencer moves it into the tree.

Rules:
- It takes every committed pending row, whatever its number: a transaction may commit after one that began later.
- Moving leaves, sealing tiles, signing the head and deleting the pending rows are one transaction: killed at any
  moment, nothing is lost and nothing stands twice; another process goes on.
- One at a time: the lock of the log's state row elects; a process without it leaves the work to its holder.
- A head is published only after that transaction is durable.
- A process without a log key of the store does not sequence; it notifies those that have one.
- A failure is logged and retried; it never harms the store.
- A clean close leaves nothing of this process pending.
- Each turn looks at the newest head, whoever signed it: this process signs nothing that does not continue it.
"""

import logging
import threading
import time
from functools import partial
from typing import Final

from holdproof.db import Database, Notes, Tx
from holdproof.db.sql import sql_postgres
from holdproof.errors import ClosedError, ForkedError, HistoryLostError, HoldproofError
from holdproof.evidence import leaves
from holdproof.evidence.log import HEAD, Log
from holdproof.evidence.tree import TreeWriter, lock

_log = logging.getLogger("holdproof.evidence")

NUDGE: Final = "log:pending"
_MOST = 4096
_BUSY_S = 0.05
_IDLE_S = 0.5
_NUDGE_S = 0.02
_LIVELY_S = 5.0
_CLOSE_S = 10.0

# A row lock, not an advisory one: anybody who is connected to the database could hold that, and the log would stop.
_ELECT = sql_postgres("SELECT 1 FROM log_state WHERE id = 1 FOR UPDATE SKIP LOCKED")
# A leaf that is in the tree already can never be moved; it is left for the audit to name, and blocks nobody.
_MOVE = sql_postgres(
    "WITH taken AS (DELETE FROM log_pending WHERE seq IN (SELECT p.seq FROM log_pending p WHERE NOT EXISTS"
    " (SELECT 1 FROM log_leaves l WHERE l.id = p.id AND l.ver = p.ver) ORDER BY p.seq LIMIT :most)"
    " RETURNING seq, id, ver, leaf),"
    " moved AS (INSERT INTO log_leaves (idx, id, ver, leaf)"
    " SELECT CAST(:size AS BIGINT) + row_number() OVER (ORDER BY seq) - 1, id, ver, leaf FROM taken"
    " RETURNING idx, leaf)"
    " SELECT leaf FROM moved ORDER BY idx"
)


def sequence(tx: Tx, log: Log, tree_writer: TreeWriter, *, most: int = _MOST) -> int | None:
    """Move pending leaves into the tree under one signed head; return how many, None if another process does it."""
    if tx.one(_ELECT) != (1,):
        return None
    before = lock(tx)
    log.refuse_lost(tx, before)
    texts = [leaf.encode() for (leaf,) in tx.all(_MOVE, most=most, size=before.size)]
    if texts:
        log.look(tx)  # after the move: a key whose revocation is among these leaves does not sign them
        tx.note(HEAD, tree_writer.grow(tx, before, texts, log.sign))
    return len(texts)


_WAITING = sql_postgres("SELECT 1 FROM log_pending LIMIT 1")


class Sequencer:
    """The sequencing thread of one open store."""

    def __init__(self, database: Database, log: Log) -> None:
        self._database = database
        self._log = log
        self._tree_writer = TreeWriter()
        self._bell = threading.Event()
        self._closing = False
        self._seen = database.topics.epoch
        self._lively_until = time.monotonic() + _LIVELY_S
        self._thread = threading.Thread(target=self._run, name="holdproof-sequencer", daemon=True)

    def start(self) -> None:
        """Start the thread; leaves that a killed process left pending are sequenced first."""
        self._database.hooks.after_commit.append(self.committed)
        self._bell.set()
        self._thread.start()

    def committed(self, notes: Notes) -> None:
        """After commit: wake the thread if leaves were appended."""
        if leaves.TOPIC in notes:
            self._lively_until = time.monotonic() + _LIVELY_S
            self._bell.set()

    def close(self) -> None:
        """Stop, and sequence what this process left pending; called before the database closes, never raises."""
        if self._closing or not self._thread.is_alive():  # closed before, or in the child of a fork
            return
        self._closing = True
        self._bell.set()
        self._thread.join(_CLOSE_S)
        deadline = time.monotonic() + _CLOSE_S
        try:
            while self._database.busy and time.monotonic() < deadline:
                time.sleep(0.002)  # what is queued may still append
            while self._log.signs and self._turn() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            # The last head may have been signed by another process; ours must still keep it.
            if (head := self._database.read(self._log.observe).result()) is not None:
                self._log.publish({HEAD: [head]})  # by whomever it was sequenced, it was seen here
        except HoldproofError as error:
            _log.debug("the last leaves were left to the next sequencer: %s", error)

    def _run(self) -> None:
        trouble = 0
        while not self._closing:
            self._wait(min(_IDLE_S, 0.05 * 2**trouble) if trouble else None)
            if self._closing:
                return
            try:
                self._look()
                trouble = 0
            except (ClosedError, ForkedError, HistoryLostError):
                return
            except Exception as error:  # leaves are safe in log_pending whatever happened, and a retry may succeed
                trouble = min(trouble + 1, 6)
                _log.warning("sequencing failed and is tried again: %s", error, exc_info=trouble == 1)

    def _wait(self, pause_s: float | None) -> None:
        """Wait for a commit here, a notification from elsewhere, or the time-out; after a failure just `pause_s`."""
        if pause_s is not None:
            time.sleep(pause_s)
            return
        topics = self._database.topics
        # False means that a notification came since we last looked.
        if not topics.subscribe(NUDGE, self._seen, self._bell.set):
            self._bell.set()
        self._bell.wait(_BUSY_S if time.monotonic() < self._lively_until else _IDLE_S)
        topics.unsubscribe(NUDGE, self._bell.set)

    def _look(self) -> None:
        rung = self._bell.is_set()
        self._seen = self._database.topics.epoch
        self._bell.clear()
        if rung and self._log.signs:
            return self._turn_or_observe()
        waiting = self._database.read(self._observe).result()
        if not self._log.signs:
            return self._nudge() if rung else None
        return self._turn_or_observe() if waiting else None

    def _turn_or_observe(self) -> None:
        """Sequence what is pending; where another process does that, look at the head it signed."""
        if self._turn() is None:
            self._lively_until = time.monotonic() + _LIVELY_S  # its holder may be killed: look again soon
            self._database.read(self._observe).result()

    def _observe(self, tx: Tx) -> bool:
        """Look at the newest head, which another process may have signed; return whether leaves are pending."""
        self._log.observe(tx)
        return tx.one(_WAITING) is not None

    def _nudge(self) -> None:
        """Notify processes that can sign, at most every few hundredths of a second."""
        time.sleep(_NUDGE_S)
        self._bell.clear()
        self._database.write(lambda tx: tx.notify(NUDGE), ungated=True).result()

    def _turn(self) -> int | None:
        """Sequence until nothing is pending; return how many leaves, None if another process holds the lock."""
        moved = _MOST
        done = 0
        while moved == _MOST:
            step = self._database.write(
                partial(sequence, log=self._log, tree_writer=self._tree_writer), ungated=True
            ).result()
            if step is None:
                return None
            moved = step
            done += moved
        if done:
            self._lively_until = time.monotonic() + _LIVELY_S
        return done
