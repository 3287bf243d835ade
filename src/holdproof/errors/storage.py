"""Errors of the stores for services: blobs, vectors, sessions, instances."""

from holdproof.errors.evidence import FormatError
from holdproof.errors.ground import CorruptError
from holdproof.errors.root import ConfigError, ConflictError, HoldproofError, InvalidInputError

# --- storage -----------------------------------------------------------------------------------------------------


class StorageBusyError(HoldproofError):
    """The storage is migrating or recovering; try again when that is done."""

    code = "storage.busy"
    status = 503
    exit_code = 6


class BlobKeyError(InvalidInputError):
    """Choose another key, such as `a/b.c`: no path, no control characters, at most 1,024 bytes. Nothing was written."""

    code = "blobs.key"


class BlobCorruptError(CorruptError):
    """The content of the blob is missing or altered: copy what is there, then put it again or restore a backup."""

    code = "blobs.corrupt"


class DimensionError(InvalidInputError):
    """Pass a vector with as many numbers as the store's dimensions; nothing was written."""

    code = "vectors.dimensions"


class EmbeddingMismatchError(ConflictError):
    """The stored vectors are of another model or length: open the store with that one, or embed again."""

    code = "vectors.embedding"


class EmbedderMissingError(ConfigError):
    """Open the vectors with an embedder to compare texts, or pass vectors."""

    code = "vectors.embedder"
    status = 409


class SessionEndedError(ConflictError):
    """The session or its agent has ended; start another one."""

    code = "sessions.ended"


class GrowthStepError(ConflictError):
    """The proposal cannot change to that status; read its status first. Nothing was changed."""

    code = "selfgrow.illegal_step"


class RollbackExpiredError(GrowthStepError):
    """A promotion can be rolled back for 7 days only; propose the change you want instead."""

    code = "selfgrow.expired"


class InstanceStoppedError(ConflictError):
    """The instance was stopped; start another with `bootstrap`."""

    code = "instances.stopped"


class LegacySourceError(FormatError):
    """Put the file or folder itself (no link) at that path, then import again; nothing was changed."""

    code = "legacy.refused"
