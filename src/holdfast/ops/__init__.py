"""Functions of a transaction, bound to the two faces.

`AsyncFace` and `SyncFace` run functions (`write`, `read`), pages (`scan`) and work that spans transactions (`run`) on
one `Database`; nouns declare, once for both, which operations a store shows.
"""

from holdfast.ops.async_face import AsyncFace
from holdfast.ops.nouns import Nouns
from holdfast.ops.sync_face import SyncFace, refuse_running_loop
from holdfast.ops.verbs import Face, Noun, Reads, Runs, RunsWith, Writes

__all__ = [
    "AsyncFace",
    "Face",
    "Noun",
    "Nouns",
    "Reads",
    "Runs",
    "RunsWith",
    "SyncFace",
    "Writes",
    "refuse_running_loop",
]
