"""What memory raises."""

from holdproof.errors.evidence import FormatError
from holdproof.errors.ground import CorruptError
from holdproof.errors.root import ConflictError, ErasedError, NotFoundError

# --- memory ------------------------------------------------------------------------------------------------------


class MergeConflictError(ConflictError):
    """The named objects were changed on both sides: merge with a resolver, or read them again and decide anew."""

    code = "memory.conflict"


class ImageCorruptError(CorruptError):
    """The image is damaged or cut and was put aside; an older good one is used, or dump a new one from the store."""

    code = "image.corrupt"


class PrunedError(NotFoundError):
    """Retention let it go: look into an image or an archive that was made before, or keep more next time."""

    code, status = "memory.pruned", 410


class OlderStateError(ConflictError):
    """That state is older than, or beside, the one that is here: load it by force only if that is really meant."""

    code = "memory.older"


class ThreadDeletedError(ErasedError):
    """The thread was deleted, and what is still written for its old life stays out; begin it anew without a parent."""

    code = "thread.deleted"


class StaleWriterError(ConflictError):
    """Another run has taken the thread over since this one read it: read its newest checkpoint and go on from there."""

    code = "thread.stale_writer"


class UnsafeTypeError(FormatError):
    """The stored value names a type that may not be made here: allow the type by name if it is yours."""

    code = "thread.type_refused"


class NotSealedError(FormatError):
    """A row is in clear where only sealed ones are read, or was sealed with another key, or was changed."""

    code = "thread.not_sealed"
