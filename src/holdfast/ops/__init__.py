"""Functions of a transaction, bound to the two faces.

`AsyncFace` and `SyncFace` run functions (`write`, `read`), pages (`scan`) and work that spans transactions (`run`) on
one `Database`; nouns declare which operations a store shows.
"""

from holdfast.ops.async_face import AsyncFace
from holdfast.ops.sync_face import SyncFace, refuse_running_loop
from holdfast.ops.verbs import (
    AsyncNoun,
    AsyncRead,
    AsyncRun,
    AsyncWrite,
    SyncNoun,
    SyncRead,
    SyncRun,
    SyncWrite,
)

__all__ = [
    "AsyncFace",
    "AsyncNoun",
    "AsyncRead",
    "AsyncRun",
    "AsyncWrite",
    "SyncFace",
    "SyncNoun",
    "SyncRead",
    "SyncRun",
    "SyncWrite",
    "refuse_running_loop",
]
