"""Errors of the storage for applications."""

from holdproof.errors.evidence import FormatError
from holdproof.errors.ground import CorruptError
from holdproof.errors.root import ConfigError, ConflictError, HoldproofError, InvalidInputError

# --- storage -----------------------------------------------------------------------------------------------------


class StorageBusyError(HoldproofError):
    """The storage is migrating or recovering and accepts no other work; try again when that is done."""

    code = "storage.busy"
    status = 503
    exit_code = 6


class BlobKeyError(InvalidInputError):
    """Choose another name: `a/b.c`, no path, no control characters, at most 1,024 bytes; nothing was written."""

    code = "blobs.key"


class BlobCorruptError(CorruptError):
    """The bytes of the blob are missing or changed: keep a copy, then put it again or restore a backup."""

    code = "blobs.corrupt"


class DimensionError(InvalidInputError):
    """Pass a vector with the store's number of dimensions; nothing was written."""

    code = "vectors.dimensions"


class EmbeddingMismatchError(ConflictError):
    """The stored vectors come from another model or have another length: open the store with it, or re-embed."""

    code = "vectors.embedding"


class EmbedderMissingError(ConfigError):
    """Open the vectors with an embedder to compare texts, or pass vectors."""

    code = "vectors.embedder"
    status = 409


class SessionEndedError(ConflictError):
    """The session or its agent has ended; start another."""

    code = "sessions.ended"


class GrowthStepError(ConflictError):
    """The proposal cannot make that step from its current status; read its status. Nothing was changed."""

    code = "selfgrow.illegal_step"


class RollbackExpiredError(GrowthStepError):
    """A promotion can be rolled back for 7 days only; make a new proposal instead."""

    code = "selfgrow.expired"


class InstanceStoppedError(ConflictError):
    """The instance was stopped; start another with `bootstrap`."""

    code = "instances.stopped"


class LegacySourceError(FormatError):
    """Replace the link by the file or folder itself, then run the migration again; nothing was changed."""

    code = "legacy.refused"
