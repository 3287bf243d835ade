"""The whole error tree, on one page.

Every error carries a stable `code` (for programs), an HTTP `status`, a command-line `exit_code` and the facts of the
case as `fields`. Its docstring is what a person can do about it, and is shown beside the message at every face.
Foreign errors are translated at the border, always `from` their cause.
"""

from typing import Any, ClassVar


class HoldfastError(Exception):
    """Something in Holdfast failed; the message says what."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, /, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    @property
    def remedy(self) -> str:
        """What the user can do: the docstring of the class, on one line."""
        return " ".join((type(self).__doc__ or "").split())

    def to_dict(self) -> dict[str, Any]:
        """The error as every face prints it."""
        return {**self.fields, "code": self.code, "message": self.message, "remedy": self.remedy}


# --- what the caller asked for -----------------------------------------------------------------------------------


class InvalidInputError(HoldfastError):
    """Correct the named value and call again; nothing was written."""

    code, status, exit_code = "input.invalid", 422, 2


class NotFoundError(HoldfastError):
    """Check the name; nothing with it exists here."""

    code, status, exit_code = "not_found", 404, 3


class ConflictError(HoldfastError):
    """Somebody else was first; read the current state and decide again."""

    code, status, exit_code = "conflict", 409, 4


class ExpectationError(ConflictError):
    """A statement changed another number of rows than the operation expects; everything was rolled back."""

    code = "conflict.rows"


class ConstraintError(ConflictError):
    """The database refused the row (unique, foreign key or check); everything was rolled back."""

    code = "conflict.constraint"


class AlreadyExistsError(ConflictError):
    """It is there already and was left as it is; use it, or choose another place."""

    code = "conflict.exists"


class ErasedError(NotFoundError):
    """It was erased on purpose and cannot be brought back; its proof in the log stands."""

    code, status = "erased", 410


# --- configuration and use ---------------------------------------------------------------------------------------


class ConfigError(HoldfastError):
    """Correct the configuration at the named place; Holdfast never guesses where your data lives."""

    code, status, exit_code = "config.invalid", 500, 7


class NamespaceError(HoldfastError):
    """The store was opened for one namespace and sees no other: open it for that one, or for all to do whole duties."""

    code, status, exit_code = "use.namespace", 403, 5


class MissingExtraError(HoldfastError):
    """Install the optional part named in the message."""

    code, status, exit_code = "config.extra_missing", 500, 7


class RunningLoopError(HoldfastError):
    """Inside a running event loop use the async face: `async with holdfast.open() as store`."""

    code, exit_code = "use.running_loop", 2


class NestedCallError(HoldfastError):
    """Inside a function of a transaction pass its `tx` on; the store would wait for itself."""

    code, exit_code = "use.nested", 2


class WrongColourError(InvalidInputError):
    """Decorate an `async def` on the async face (`holdfast.open`), a plain `def` on the sync face (`holdfast.sync`)."""

    code = "use.wrong_colour"


class ForkedError(HoldfastError):
    """A store does not survive fork(): start workers with spawn, or open the store only after the fork."""

    code, exit_code = "use.forked", 2


class ClosedError(HoldfastError):
    """The store is closed; open it again. This call was not carried out."""

    code, status, exit_code = "use.closed", 503, 6


# --- the database ------------------------------------------------------------------------------------------------


class DatabaseError(HoldfastError):
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
    """The database file is damaged: stop writing, keep a copy, run `holdfast db check`, restore a backup."""

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
    """That database was not made by Holdfast and was left untouched; choose another path or database."""

    code, exit_code = "database.foreign", 8


class NewerStoreError(DatabaseError):
    """The store was written by a newer Holdfast and was left untouched; upgrade this installation."""

    code, exit_code = "database.newer", 8


class MigrationError(DatabaseError):
    """The named migration failed and was rolled back; schema and data are as before. Report it with the cause."""

    code, exit_code = "migration.failed", 8


class MigrationEditedError(MigrationError):
    """An applied migration file was changed afterwards; put the original back and add a new migration instead."""

    code = "migration.edited"


# --- other servers -----------------------------------------------------------------------------------------------


class UnreachableError(HoldfastError):
    """A server that is not ours does not answer, or not as it should: check its address, then try again."""

    code, status, exit_code = "network.unreachable", 502, 6


# --- formats and proofs ------------------------------------------------------------------------------------------


class FormatError(HoldfastError):
    """The bytes are not what they claim to be; they were refused and nothing was changed."""

    code, status, exit_code = "format.invalid", 422, 2


class BadKeyError(FormatError):
    """The key is malformed, weak, of the wrong kind or locked; supply another, or its passphrase."""

    code = "format.key"


class ProofError(FormatError):
    """The signature or proof does not hold: treat the record as unproven."""

    code, exit_code = "proof.invalid", 20


class RevokedKeyError(ConflictError):
    """The key was revoked: rotate its role (`holdfast keys rotate`), then sign again."""

    code, exit_code = "key.revoked", 12


class UnknownKeyError(ConflictError):
    """This key is not in the keyring: bring the key files over, or let root admit the key (`holdfast keys rotate`)."""

    code, exit_code = "key.unknown", 12


# --- the lockdown ------------------------------------------------------------------------------------------------


class LockedError(HoldfastError):
    """Tampering was found and the store is locked: run `holdfast verify`, then unlock with a statement of root."""

    code, status, exit_code = "locked", 423, 5


# --- decisions ---------------------------------------------------------------------------------------------------


class VersionMismatchError(HoldfastError):
    """VERSION_MISMATCH: run the agent in a version inside the supported range; nothing was stored."""

    code, status, exit_code = "agent.version_mismatch", 409, 4


class AuthenticationError(HoldfastError):
    """Agent and token do not belong together; register again for a new token."""

    code, status, exit_code = "agent.unauthenticated", 401, 5


class AgentInactiveError(HoldfastError):
    """Only the kernel changes an agent's status: have an operator set it to ACTIVE, if that is right."""

    code, status, exit_code = "agent.inactive", 403, 5


class IllegalTransitionError(ConflictError):
    """A flow does not go that way; read its status and choose a legal next one. Nothing was recorded."""

    code = "flow.illegal_transition"


class FlowEndedError(ConflictError):
    """The flow has ended and takes no more work; start another."""

    code = "flow.ended"


class LeaseLostError(ConflictError):
    """Another worker has the flow in hand by now: stop, and change nothing more."""

    code = "flow.lease_lost"


class StaleVersionError(ConflictError):
    """It was changed since you read it; read it again and decide anew."""

    code = "conflict.stale_version"


class ContextTakenError(ConflictError):
    """The context was to be read once and has been; put a new one."""

    code = "context.taken"


class InsufficientCapacityError(ConflictError):
    """More is asked for than the resource has at all; ask for less."""

    code = "locks.capacity"


class ContentionTimeoutError(ConflictError):
    """Others held the resource for the whole time; try again later, or with more patience."""

    code, status = "locks.timeout", 503


class LockLostError(ConflictError):
    """The flow does not hold that lock, or no longer: stop using the resource, then acquire it again."""

    code = "locks.lost"


class IdempotencyConflictError(ConflictError):
    """The key was used with another request; use a new key for a new request."""

    code = "idempotency.conflict"


class ReplayedError(ConflictError):
    """The first call with this key failed, and was to be remembered as failed; use a new key to try again."""

    code = "idempotency.failed"


class UnknownOutcomeError(ConflictError):
    """It was begun and never finished: find out what happened, then settle it, or let it run again."""

    code = "outcome.unknown"


class BudgetExhaustedError(HoldfastError):
    """The agent asked for help too often: it is suspended and the flow cancelled, until an operator decides."""

    code, status, exit_code = "escalations.budget_exhausted", 429, 5


class AlreadyResolvedError(ConflictError):
    """Somebody resolved it before; their answer stands."""

    code = "escalations.resolved"


class DeadlinePassedError(AlreadyResolvedError):
    """The deadline passed first, and its default stands."""

    code = "escalations.deadline"


class CompensationFailedError(HoldfastError):
    """The flow is still dirty and keeps its locks: mend the cause, then compensate again."""

    code, status, exit_code = "sagas.compensation_failed", 500, 6


# --- memory ------------------------------------------------------------------------------------------------------


class MergeConflictError(ConflictError):
    """The named objects were changed on both sides: merge with a resolver, or read them again and decide anew."""

    code = "memory.conflict"


class ImageCorruptError(CorruptError):
    """The image is damaged or cut and was put aside; an older good one is used, or dump a new one from the store."""

    code = "image.corrupt"


class OlderStateError(ConflictError):
    """That state is older than, or beside, the one that is here: load it by force only if that is really meant."""

    code = "memory.older"


# --- storage -----------------------------------------------------------------------------------------------------


class StorageBusyError(HoldfastError):
    """The storage is migrating or recovering and takes no other work; try again when that is done."""

    code, status, exit_code = "storage.busy", 503, 6


class BlobKeyError(InvalidInputError):
    """Name the blob otherwise: `a/b.c`, no path, no control characters, at most 1,024 bytes; nothing was written."""

    code = "blobs.key"


class BlobCorruptError(CorruptError):
    """The bytes of the blob are gone or altered: keep a copy, then put it again or restore a backup."""

    code = "blobs.corrupt"


class DimensionError(InvalidInputError):
    """Give a vector with as many numbers as the store keeps; nothing was written."""

    code = "vectors.dimensions"


class EmbeddingMismatchError(ConflictError):
    """The vectors kept are of another model or length: open the store with that one, or have it re-embedded."""

    code = "vectors.embedding"


class SessionEndedError(ConflictError):
    """The session, or the agent of it, has ended and takes no more; start another."""

    code = "sessions.ended"


class GrowthStepError(ConflictError):
    """The proposal does not go that way from where it stands; read its status. Nothing was changed."""

    code = "selfgrow.illegal_step"


class RollbackExpiredError(GrowthStepError):
    """What was there before the promotion is kept for 7 days only; propose what you want instead."""

    code = "selfgrow.expired"


class InstanceStoppedError(ConflictError):
    """The instance was stopped and is not heard any more; start another with `bootstrap`."""

    code = "instances.stopped"


class LegacySourceError(FormatError):
    """Put the file or folder itself in that place, then run the migration again; nothing was touched."""

    code = "legacy.refused"
