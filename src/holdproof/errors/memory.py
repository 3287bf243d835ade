"""Errors of memory."""

from holdproof.errors.evidence import FormatError
from holdproof.errors.ground import CorruptError
from holdproof.errors.root import ConflictError, ErasedError, NotFoundError

# --- memory ------------------------------------------------------------------------------------------------------


class MergeConflictError(ConflictError):
    """The named objects were changed on both sides: merge with a resolver, or read them again and decide again."""

    code = "memory.conflict"


class ImageCorruptError(CorruptError):
    """The image is damaged and was set aside; an older intact one is used, or dump a new one from the store."""

    code = "image.corrupt"


class PrunedError(NotFoundError):
    """Retention removed it: read it from an older image or archive, or extend the retention."""

    code = "memory.pruned"
    status = 410


class OlderStateError(ConflictError):
    """That state is older than the current one, or diverges from it: use `force` only if you mean to replace it."""

    code = "memory.older"


class ThreadDeletedError(ErasedError):
    """The thread was deleted, and late writes to it are refused; start a new one without a parent."""

    code = "thread.deleted"


class StaleWriterError(ConflictError):
    """Another run has written to the thread since this one read it: read the newest checkpoint and continue there."""

    code = "thread.stale_writer"


class UnsafeTypeError(FormatError):
    """The stored value has a type that is not allowed here: allow the type by name if you trust it."""

    code = "thread.type_refused"


class NotSealedError(FormatError):
    """A row is not encrypted where only encrypted rows are read, or was encrypted with another key, or was changed."""

    code = "thread.not_sealed"
