"""What the stores of services raise."""

from holdproof.errors.evidence import FormatError
from holdproof.errors.ground import CorruptError
from holdproof.errors.root import ConfigError, ConflictError, HoldproofError, InvalidInputError

# --- storage -----------------------------------------------------------------------------------------------------


class StorageBusyError(HoldproofError):
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


class EmbedderMissingError(ConfigError):
    """Open the vectors with an embedder to have texts compared, or give vectors."""

    code, status = "vectors.embedder", 409


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
