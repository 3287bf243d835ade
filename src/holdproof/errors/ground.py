"""Errors of the database, and of other servers."""

from holdproof.errors.root import HoldproofError, InvalidInputError

# --- the database ------------------------------------------------------------------------------------------------


class DatabaseError(HoldproofError):
    """The database refused or failed; its own message says why. Nothing of this call was stored."""

    code = "database.error"
    generic = True
    status = 500
    exit_code = 6


class QueryError(DatabaseError):
    """The SQL text or its parameters are wrong; correct the statement."""

    code = "database.query"
    generic = True
    status = 400


class ForbiddenSqlError(QueryError):
    """SQL of services may create and use application tables only: remove settings, other databases and BEGIN."""

    code = "database.forbidden"
    status = 403


class UnavailableError(DatabaseError):
    """The database cannot be reached or opened: check path, permissions, disk, address and server, then try again."""

    code = "database.unavailable"
    generic = True
    status = 503


class MissingPrivilegeError(DatabaseError):
    """Run `holdproof db roles --apply` as an administrator, or grant the role that the message names."""

    code = "database.privilege"


class ConnectionLostError(UnavailableError):
    """The connection to the server broke before the commit; nothing was stored, try again."""

    code = "database.connection_lost"


class BusyError(UnavailableError):
    """Another process locked the database for too long; try again, or stop that process."""

    code = "database.busy"


class DiskFullError(UnavailableError):
    """Free disk space, then try again; everything acknowledged before is intact."""

    code = "database.disk_full"
    status = 507


class ForeignTransactionError(InvalidInputError):
    """Pass a connection to the store's own PostgreSQL database, in a READ COMMITTED transaction; else `store.write`."""

    code = "use.foreign_transaction"


class ReadOnlyError(UnavailableError):
    """Correct the permissions or choose another home; in code, use a transaction that writes."""

    code = "database.read_only"


class CorruptError(DatabaseError):
    """The database file is damaged, or another program wrote it: run `holdproof verify`, then reseal or restore it."""

    code = "database.corrupt"
    exit_code = 8


class StoreGoneError(CorruptError):
    """Restore a backup of the store that was here; for a new one on purpose, `holdproof start-over --reason TEXT`."""

    code = "database.gone"


class SerializationError(DatabaseError):
    """Concurrent transactions conflicted on every retry; try again later."""

    code = "database.serialization"
    status = 503


class OutcomeUnknownError(DatabaseError):
    """The connection broke during the commit, which may have succeeded: read the state before you try again."""

    code = "database.outcome_unknown"
    status = 503


class HistoryLostError(DatabaseError):
    """Acknowledged commits are gone, as after a failover to a standby behind: find the newer server, then reopen."""

    code = "database.history_lost"
    status = 503
    exit_code = 21


class WriterDeadError(DatabaseError):
    """The writer stopped for the reason named as cause: open the store again, and read before you repeat this call."""

    code = "database.writer_dead"
    status = 503


class IdleTransactionError(DatabaseError):
    """The transaction was idle for too long and was rolled back: run it again, and do not wait inside it."""

    code = "database.idle_transaction"
    status = 503


class TransactionLimitError(DatabaseError):
    """The transaction lasted longer than allowed and was rolled back: make it shorter, or give a higher `total_s`."""

    code = "database.transaction_limit"
    status = 503


class ReadLimitError(DatabaseError):
    """The read took longer than allowed and was stopped: narrow it, or read in pages with `store.scan`."""

    code = "database.read_limit"
    status = 503


class ForeignFileError(DatabaseError):
    """That database was not created by Holdproof and was not changed; choose another path or database."""

    code = "database.foreign"
    exit_code = 8


class NewerStoreError(DatabaseError):
    """The store was written by a newer Holdproof and was not changed; upgrade this installation."""

    code = "database.newer"
    exit_code = 8


class MovedError(DatabaseError):
    """The store was moved to the named place: open it with that URL or home; this copy accepts no more writes."""

    code = "database.moved"
    status = 410
    exit_code = 8


class UnfinishedMoveError(DatabaseError):
    """A move to this place was interrupted: run `holdproof move` again, and use the source until then."""

    code = "database.unfinished_move"
    status = 503
    exit_code = 8


class MigrationError(DatabaseError):
    """The named migration failed and was rolled back; schema and data are as before. Report it with the cause."""

    code = "migration.failed"
    exit_code = 8


class MigrationEditedError(MigrationError):
    """A migration file was changed after it was applied; restore the original and add a new migration instead."""

    code = "migration.edited"


# --- other servers -----------------------------------------------------------------------------------------------


class UnreachableError(HoldproofError):
    """Another server does not respond, or not as it should: check its address, then try again."""

    code = "network.unreachable"
    status = 502
    exit_code = 6


class BucketMissingError(UnreachableError):
    """Create the bucket, or correct its name or the endpoint (AWS_ENDPOINT_URL); nothing was stored."""

    code = "network.bucket_missing"


class BucketDeniedError(UnreachableError):
    """Correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or let this key list, read, write and delete there."""

    code = "network.bucket_denied"
