"""LangGraph on a store: `HoldproofAgent` runs graphs through crashes, `HoldproofSaver` keeps checkpoints,
`HoldproofStore` long-term memory, `HoldproofCache` results of nodes, and `HoldproofInterrupts` asks people what graphs
wait for.

Needs `pip install holdproof[langgraph]`.
"""

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as error:
    from holdproof.errors import MissingExtraError

    raise MissingExtraError("LangGraph is not installed: pip install 'holdproof[langgraph]'") from error

from holdproof.adapters.langgraph.agent import HoldproofAgent
from holdproof.adapters.langgraph.cache import HoldproofCache
from holdproof.adapters.langgraph.durability import durable
from holdproof.adapters.langgraph.import_checkpoints import import_sqlite
from holdproof.adapters.langgraph.interrupts import HoldproofInterrupts
from holdproof.adapters.langgraph.safety import SafeSerializer
from holdproof.adapters.langgraph.saver import HoldproofSaver
from holdproof.adapters.langgraph.store import HoldproofStore

__all__ = [
    "HoldproofAgent",
    "HoldproofCache",
    "HoldproofInterrupts",
    "HoldproofSaver",
    "HoldproofStore",
    "SafeSerializer",
    "durable",
    "import_sqlite",
]
