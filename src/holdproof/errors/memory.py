"""Errors of memory: objects, images, threads."""

from holdproof.errors.evidence import FormatError
from holdproof.errors.ground import CorruptError
from holdproof.errors.root import ConflictError, ErasedError, NotFoundError

# --- memory ------------------------------------------------------------------------------------------------------


class MergeConflictError(ConflictError):
    """The named objects were changed on both sides: merge with a resolver, or read them again and retry."""

    code = "memory.conflict"


class ImageCorruptError(CorruptError):
    """The image is damaged and was renamed; an older one is used if there is any, else dump a new one of the store."""

    code = "image.corrupt"


class PrunedError(NotFoundError):
    """Retention removed it: look in an older image or archive, or set a longer retention."""

    code = "memory.pruned"
    status = 410


class OlderStateError(ConflictError):
    """That state is not newer than the current one: force the load only if you want to go back."""

    code = "memory.older"


class ThreadDeletedError(ErasedError):
    """The thread was deleted after this checkpoint's parent; start it again with a checkpoint without a parent."""

    code = "thread.deleted"


class StaleWriterError(ConflictError):
    """Another run wrote to the thread since this one read it: read the newest checkpoint and continue from there."""

    code = "thread.stale_writer"


class UnsafeTypeError(FormatError):
    """The stored value names a type that is not allowed here: allow the type by name if it is yours."""

    code = "thread.type_refused"


class NotSealedError(FormatError):
    """A row is not encrypted with this key, or was changed: open the thread with the key it was written with."""

    code = "thread.not_sealed"
