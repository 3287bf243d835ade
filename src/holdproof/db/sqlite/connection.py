"""The writer's connection."""

import random
import time

import apsw
import apsw.sqlite_extra

from holdproof.db.sqlite.tx import SqliteTx, typed

_CHECKPOINT_PAGES = 1_000
_WAL_LIMIT_PAGES = 16_000


class SqliteConnection:
    """The writer's connection, as the group writer uses it."""

    def __init__(self, connection: apsw.Connection, tx: SqliteTx, *, busy_s: float) -> None:
        self.tx: SqliteTx = tx
        self._connection = connection
        self._run = connection.cursor().execute
        self._busy_s, self._patience = busy_s, 0.0
        self._wal_pages = 0
        connection.set_busy_handler(self._wait)
        connection.set_wal_hook(self._grown)

    def _wait(self, tries: int) -> bool:
        if time.monotonic() >= self._patience:
            return False
        time.sleep(random.uniform(0.0002, min(0.02, 0.001 * (tries + 1))))  # noqa: S311 (jitter)
        return True

    def _grown(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _do(self, statement: str) -> None:
        try:
            self._run(statement)
        except apsw.Error as error:
            raise typed(error, statement, self._connection) from error

    def begin(self, *, serializable: bool = False, together: bool = False) -> None:
        """See WriteConnection; SQLite's one writer is always serializable."""
        del serializable, together
        self._patience = time.monotonic() + self._busy_s
        self.tx.schema_touched = False
        self._do("BEGIN IMMEDIATE")

    def settle(self) -> None:
        """See WriteConnection; nothing is pipelined here."""

    def commit(self) -> None:
        """See WriteConnection."""
        self._do("COMMIT")

    def rollback(self) -> None:
        """See WriteConnection."""
        if self._connection.in_transaction:
            self._do("ROLLBACK")

    def savepoint(self) -> None:
        """See WriteConnection."""
        self._do("SAVEPOINT op")

    def release(self) -> None:
        """See WriteConnection."""
        self._do("RELEASE op")

    def restore(self) -> bool:
        """See WriteConnection: a full disk or failing I/O may have rolled back everything by itself."""
        if not self._connection.in_transaction:
            return False
        self._do("ROLLBACK TO op")
        self._do("RELEASE op")
        return True

    def mark(self) -> int:
        """See WriteConnection."""
        return self._connection.total_changes()

    def wrote(self, mark: int) -> bool:
        """See WriteConnection."""
        connection = self._connection
        return connection.total_changes() != mark or self.tx.schema_touched or not connection.in_transaction

    def retryable(self, error: BaseException, *, together: bool) -> bool:
        """See WriteConnection."""
        del error, together
        return False

    def tidy(self) -> None:
        """See WriteConnection: move the write-ahead log into the file, and insist once it has grown large."""
        if self._wal_pages < _CHECKPOINT_PAGES:
            return
        insist = self._wal_pages >= _WAL_LIMIT_PAGES
        self._patience = time.monotonic() + (0.1 if insist else 0)
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if insist else apsw.SQLITE_CHECKPOINT_PASSIVE
        try:
            self._connection.wal_checkpoint(mode=mode)
        except apsw.Error:  # busy readers, a full disk: the log stays, the next commit tries again
            return

    def close(self) -> None:
        """See WriteConnection."""
        self._connection.close()
