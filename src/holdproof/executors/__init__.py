"""The two executors of a database: `AsyncExecutor` for coroutines, `SyncExecutor` for threads.

Each runs functions of a transaction (`write`, `read`), pages (`scan`), work that spans transactions (`run`) and work
that answers item by item (`stream`). A `Resource` declares its methods once for both.
"""

from typing import TYPE_CHECKING

from holdproof.executors.accesses import CALLER
from holdproof.executors.blocks import AsyncClosing, ContextBlock, SyncClosing
from holdproof.executors.driver import AsyncRunner, SyncRunner
from holdproof.executors.exposure import (
    OWN_AGENT,
    OWN_ESCALATION,
    OWN_FLOW,
    OWN_FLOW_UNASKED,
    AgentRule,
    Exposure,
    owns,
)
from holdproof.executors.methods import (
    Awaits,
    AwaitsUngated,
    BoundMethod,
    Executor,
    Method,
    Reads,
    Resource,
    Runs,
    RunsWith,
    StreamsWith,
    Writes,
    WritesWith,
    require_whole_store,
    unwrap_methods,
    with_namespace,
    wrap_methods,
)
from holdproof.executors.sync_executor import SyncExecutor
from holdproof.lazy import lazy_exports

if TYPE_CHECKING:
    from holdproof.executors.async_executor import AsyncExecutor
else:
    # It needs asyncio, which is a fifth of what importing the sync client costs.
    __getattr__, __dir__ = lazy_exports(__name__, {"AsyncExecutor": "holdproof.executors.async_executor"})

__all__ = [
    "CALLER",
    "OWN_AGENT",
    "OWN_ESCALATION",
    "OWN_FLOW",
    "OWN_FLOW_UNASKED",
    "AgentRule",
    "Exposure",
    "owns",
    "AsyncClosing",
    "AsyncExecutor",
    "AsyncRunner",
    "ContextBlock",
    "BoundMethod",
    "Executor",
    "Awaits",
    "AwaitsUngated",
    "Resource",
    "Reads",
    "Runs",
    "RunsWith",
    "StreamsWith",
    "SyncClosing",
    "SyncExecutor",
    "SyncRunner",
    "Method",
    "Writes",
    "WritesWith",
    "require_whole_store",
    "unwrap_methods",
    "with_namespace",
    "wrap_methods",
]
