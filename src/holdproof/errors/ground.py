"""What the ground raises: the database, and other servers."""

from holdproof.errors.root import HoldproofError

# --- the database ------------------------------------------------------------------------------------------------


class DatabaseError(HoldproofError):
    """The database refused or failed; the message carries its own words. Nothing of this call was kept."""

    code, status, exit_code = "database.error", 500, 6


class QueryError(DatabaseError):
    """The SQL text or its parameters are wrong; correct the statement."""

    code = "database.query"


class ForbiddenSqlError(QueryError):
    """SQL of services may use the membrane's tables and make its own: no settings, no other database, no BEGIN."""

    code, status = "database.forbidden", 403


class UnavailableError(DatabaseError):
    """The database cannot be reached or opened: check path, permissions, disk, address and server, then try again."""

    code, status = "database.unavailable", 503


class ConnectionLostError(UnavailableError):
    """The connection to the server broke before the commit; the work was not kept and can be done again."""

    code = "database.connection_lost"


class BusyError(UnavailableError):
    """Another process kept the database locked for too long; try again, or find the process that holds it."""

    code = "database.busy"


class DiskFullError(UnavailableError):
    """Free disk space, then try again; everything acknowledged before is intact."""

    code, status = "database.disk_full", 507


class ReadOnlyError(UnavailableError):
    """What was to be changed can only be read: a read must not write; else mend permissions or choose another home."""

    code = "database.read_only"


class CorruptError(DatabaseError):
    """The database file is damaged: stop writing, keep a copy, run `holdproof db check`, restore a backup."""

    code, exit_code = "database.corrupt", 8


class SerializationError(DatabaseError):
    """Concurrent transactions kept colliding and the bounded re-runs are spent; try again later."""

    code, status = "database.serialization", 503


class OutcomeUnknownError(DatabaseError):
    """The connection broke during commit and its fate cannot be learned: read back before doing it again."""

    code, status = "database.outcome_unknown", 503


class WriterDeadError(DatabaseError):
    """The writer stopped for the reason named as cause: open the store again, and read before you repeat this call."""

    code, status = "database.writer_dead", 503


class IdleTransactionError(DatabaseError):
    """The block said nothing for too long and was rolled back: run it again, and wait for nothing inside it."""

    code, status = "database.idle_transaction", 503


class ReadLimitError(DatabaseError):
    """The read ran longer than allowed and was stopped: narrow it, or walk it in pages with `store.scan`."""

    code, status = "database.read_limit", 503


class ForeignFileError(DatabaseError):
    """That database was not made by Holdproof and was left untouched; choose another path or database."""

    code, exit_code = "database.foreign", 8


class NewerStoreError(DatabaseError):
    """The store was written by a newer Holdproof and was left untouched; upgrade this installation."""

    code, exit_code = "database.newer", 8


class MovedError(DatabaseError):
    """The store was copied to the place named and goes on there: open it with that URL or home; this one is sealed."""

    code, status, exit_code = "database.moved", 410, 8


class UnfinishedCopyError(DatabaseError):
    """A copy into this place was begun and did not end: run `holdproof copy` again; until then the source counts."""

    code, status, exit_code = "database.unfinished_copy", 503, 8


class MigrationError(DatabaseError):
    """The named migration failed and was rolled back; schema and data are as before. Report it with the cause."""

    code, exit_code = "migration.failed", 8


class MigrationEditedError(MigrationError):
    """An applied migration file was changed afterwards; put the original back and add a new migration instead."""

    code = "migration.edited"


# --- other servers -----------------------------------------------------------------------------------------------


class UnreachableError(HoldproofError):
    """A server that is not ours does not answer, or not as it should: check its address, then try again."""

    code, status, exit_code = "network.unreachable", 502, 6
