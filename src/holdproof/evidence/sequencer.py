"""The sequencer of a store on PostgreSQL: brings committed leaves under a signed head within a tenth of a second.

One row of state would be a bottleneck for concurrent writers; so a leaf is committed to `log_pending` with its record,
and one elected sequencer moves it into the tree.

Rules:
- It takes every committed pending row, whatever its number: a transaction may commit after one that began later.
- Moving leaves, sealing tiles, signing the head and deleting the pending rows are one transaction: killed at any
  moment, nothing is lost and nothing stands twice; another process goes on.
- One at a time: the lock of the log's state row elects; a process without it leaves the work to its holder.
- Its holder keeps it for seconds at most: a process that froze or a machine that vanished loses its transaction.
- A head is published only after that transaction is durable.
- A process without a log key of the store does not sequence; it notifies those that have one.
- A failure is logged and retried; it never harms the store.
- A clean close leaves nothing of this process pending.
- Each turn looks at the newest head, whoever signed it: this process signs nothing that does not continue it.
"""

import json
import logging
import threading
import time
from functools import partial
from typing import Final

from holdproof.db import Database, Notes, Tx
from holdproof.db.sql import sql_postgres
from holdproof.errors import ClosedError, ForkedError, HistoryLostError, HoldproofError
from holdproof.evidence import leaves, numbering
from holdproof.evidence.leaves import Leaf, StampedLeaf
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

# Longer than a signature takes, also one of a key service: a holder that says nothing for so long loses the log.
_MOST_IDLE = "5s"
# No statement of a batch takes seconds; one that does holds the log of everybody, and is tried again instead.
_LONGEST = "30s"
_BOUND = sql_postgres(
    "SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', :most_idle, true),"
    " pg_catalog.set_config('statement_timeout', :longest, true)"
)
# A row lock, not an advisory one: anybody who is connected to the database could hold that, and the log would stop.
_ELECT = sql_postgres("SELECT 1 FROM log_state WHERE id = 1 FOR UPDATE SKIP LOCKED")
# A leaf that is in the tree already can never be moved; it is left for the audit to name, and blocks nobody.
# The bound is one number, worked out once: an `IN (SELECT … LIMIT)`, planned while the table was empty, is worked out
# anew for every row of a burst, and 12,000 of them stood still for a minute.
_TAKE = sql_postgres(
    "WITH taken AS (DELETE FROM log_pending p WHERE p.seq <= coalesce((SELECT w.seq FROM log_pending w WHERE NOT EXISTS"
    " (SELECT 1 FROM log_leaves l WHERE l.id = w.id AND l.ver = w.ver) ORDER BY w.seq"
    " OFFSET CAST(:most AS BIGINT) - 1 LIMIT 1), 9223372036854775807)"
    " AND NOT EXISTS (SELECT 1 FROM log_leaves l WHERE l.id = p.id AND l.ver = p.ver)"
    " RETURNING seq, id, ver, leaf, agent_id, dfid, sourced)"
    " SELECT id, ver, leaf, agent_id, dfid, sourced FROM taken ORDER BY seq"
)
# One parameter however many entries there are.
_PUT = sql_postgres(
    "INSERT INTO log_leaves (idx, id, ver, leaf) SELECT idx, id, ver, leaf FROM json_to_recordset(CAST(:rows AS JSON))"
    " AS r (idx BIGINT, id TEXT, ver BIGINT, leaf TEXT)"
)


def sequence(tx: Tx, log: Log, tree_writer: TreeWriter, *, most: int = _MOST) -> int | None:
    """Move pending leaves into the tree under one signed head; return how many, None if another process does it."""
    tx.execute(_BOUND, most_idle=_MOST_IDLE, longest=_LONGEST)
    if tx.one(_ELECT) != (1,):
        return None
    before = lock(tx)
    log.refuse_lost(tx, before)
    rows = tx.all(_TAKE, most=most)
    if not rows:
        return 0
    numbered = numbering.number(
        tx,
        [
            pending_leaf((handle, ver, text), agent_id, flow_id, is_sourced=is_sourced)
            for handle, ver, text, agent_id, flow_id, is_sourced in rows
        ],
    )
    texts = [text for _, _, text in numbered]
    leaf_rows = [
        {"idx": index, "id": handle, "ver": ver, "leaf": text}
        for index, (handle, ver, text) in enumerate(numbered, before.size)
    ]
    tx.execute(_PUT, rows=json.dumps(leaf_rows), expect=len(leaf_rows))
    log.look(tx)  # after the move: a key whose revocation is among these leaves does not sign them
    tx.note(HEAD, tree_writer.grow(tx, before, map(str.encode, texts), log.sign))
    return len(rows)


def pending_leaf(leaf: Leaf, agent_id: str | None, flow_id: str | None, *, is_sourced: bool) -> StampedLeaf:
    """Return a pending leaf, with whose entry it is as far as the process that wrote it said so."""
    if not is_sourced:
        return (*leaf, None)
    _, _, text = leaf
    fields = json.loads(text)
    return (*leaf, leaves.source_of(fields["t"], fields["ns"], {"agent_id": agent_id, "dfid": flow_id}))


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
        # What a caller commits itself is heard of by its notification only.
        self._database.hooks.on_borrowed.append(lambda tx: tx.notify(NUDGE))
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
