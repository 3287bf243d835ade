"""The two faces of a database: `AsyncFace` for coroutines, `SyncFace` for threads.

Each runs functions of a transaction (`write`, `read`), pages (`scan`) and work that spans transactions (`run`).
"""

from holdfast.faces.async_face import AsyncFace
from holdfast.faces.sync_face import SyncFace, refuse_running_loop

__all__ = ["AsyncFace", "SyncFace", "refuse_running_loop"]
