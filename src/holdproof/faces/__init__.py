"""The two faces of a database: `AsyncFace` for coroutines, `SyncFace` for threads.

Each runs functions of a transaction (`write`, `read`), pages (`scan`), work that spans transactions (`run`) and work
that answers bit by bit (`stream`). A `Noun` declares, once for both, which operations it shows.
"""

from holdproof.faces.async_face import AsyncFace
from holdproof.faces.sync_face import SyncFace, refuse_running_loop
from holdproof.faces.verbs import (
    Bound,
    Face,
    Hears,
    Noun,
    Reads,
    Runs,
    RunsWith,
    StreamsWith,
    Verb,
    Writes,
    WritesWith,
    unwatch,
    watch,
    whole,
    within,
)

__all__ = [
    "AsyncFace",
    "Bound",
    "Face",
    "Hears",
    "Noun",
    "Reads",
    "Runs",
    "RunsWith",
    "StreamsWith",
    "SyncFace",
    "Verb",
    "Writes",
    "WritesWith",
    "refuse_running_loop",
    "unwatch",
    "watch",
    "whole",
    "within",
]
