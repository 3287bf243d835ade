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
    AsyncRunWith,
    AsyncWrite,
    SyncNoun,
    SyncRead,
    SyncRun,
    SyncRunWith,
    SyncWrite,
)

__all__ = [
    "AsyncFace",
    "AsyncNoun",
    "AsyncRead",
    "AsyncRun",
    "AsyncRunWith",
    "AsyncWrite",
    "SyncFace",
    "SyncNoun",
    "SyncRead",
    "SyncRun",
    "SyncRunWith",
    "SyncWrite",
    "refuse_running_loop",
]
