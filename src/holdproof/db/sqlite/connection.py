"""The connection of the SQLite writer."""

import random
import time

import apsw
import apsw.sqlite_extra

from holdproof.db.sqlite.page_checksums import ToleratedPageError, tolerated
from holdproof.db.sqlite.tx import SqliteTx, typed

# The write-ahead log is moved into the file from the first size on, and cut off from the second.
_CHECKPOINT_PAGES = 1_000
_WAL_LIMIT_PAGES = 16_000


class SqliteConnection:
    """The connection that the group writer uses; see WriteConnection."""

    def __init__(self, connection: apsw.Connection, tx: SqliteTx, *, busy_s: float) -> None:
        self.tx: SqliteTx = tx
        self._connection = connection
        self._run = connection.cursor().execute
        self.mark = connection.total_changes  # see WriteConnection
        self._busy_s = busy_s
        self._give_up_at = 0.0
        self._wal_pages = 0
        connection.set_busy_handler(self._wait_for_lock)
        connection.set_wal_hook(self._on_wal_growth)

    def _wait_for_lock(self, tries: int) -> bool:
        if time.monotonic() >= self._give_up_at:
            return False
        time.sleep(random.uniform(0.0002, min(0.02, 0.001 * (tries + 1))))  # noqa: S311 (jitter)
        return True

    def _on_wal_growth(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _execute(self, statement: str) -> None:
        try:
            self._run(statement)
        except apsw.Error as error:
            raise tolerated(error, self._connection) or typed(error, statement, self._connection) from error

    def begin(self, *, serializable: bool = False, together: bool = False) -> None:
        """See WriteConnection; SQLite's single writer is always serializable."""
        del serializable, together
        self._give_up_at = time.monotonic() + self._busy_s
        self.tx.schema_touched = False
        self._execute("BEGIN IMMEDIATE")

    def settle(self) -> None:
        """See WriteConnection; nothing is pipelined here."""

    def commit(self) -> None:
        """See WriteConnection."""
        self._execute("COMMIT")

    def rollback(self) -> None:
        """See WriteConnection."""
        if self._connection.in_transaction:
            self._execute("ROLLBACK")

    def savepoint(self) -> None:
        """See WriteConnection."""
        self._execute("SAVEPOINT op")

    def release(self) -> None:
        """See WriteConnection."""
        self._execute("RELEASE op")

    def restore(self) -> bool:
        """See WriteConnection; after a full disk or failing I/O SQLite may have rolled back everything."""
        if not self._connection.in_transaction:
            return False
        self._execute("ROLLBACK TO op")
        self._execute("RELEASE op")
        return True

    def wrote(self, mark: int) -> bool:
        """See WriteConnection."""
        return self.mark() != mark or self.tx.schema_touched or not self._connection.in_transaction

    def retryable(self, error: BaseException, *, together: bool) -> bool:
        """See WriteConnection; a page of a foreign writer is read at the second attempt."""
        del together
        return isinstance(error, ToleratedPageError)

    def tidy(self) -> None:
        """See WriteConnection; moves the write-ahead log into the file, waiting for readers once it is large."""
        if self._wal_pages < _CHECKPOINT_PAGES:
            return
        must_truncate = self._wal_pages >= _WAL_LIMIT_PAGES
        self._give_up_at = time.monotonic() + (0.1 if must_truncate else 0)
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if must_truncate else apsw.SQLITE_CHECKPOINT_PASSIVE
        try:
            self._connection.wal_checkpoint(mode=mode)
        except apsw.Error:  # busy readers, a full disk: the log stays, the next commit tries again
            return

    def close(self) -> None:
        """See WriteConnection."""
        self._connection.close()
