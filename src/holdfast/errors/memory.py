"""What memory raises."""

from holdfast.errors.ground import CorruptError
from holdfast.errors.root import ConflictError, NotFoundError

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
