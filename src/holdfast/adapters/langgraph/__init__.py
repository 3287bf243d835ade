"""LangGraph on a store: `HoldfastSaver` keeps checkpoints, `HoldfastStore` long-term memory.

Needs `pip install holdfast[langgraph]`.
"""

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as error:
    from holdfast.errors import MissingExtraError

    raise MissingExtraError("LangGraph is not installed: pip install 'holdfast[langgraph]'") from error

from holdfast.adapters.langgraph.importing import import_sqlite
from holdfast.adapters.langgraph.safety import SafeSerializer
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.store import HoldfastStore

__all__ = ["HoldfastSaver", "HoldfastStore", "SafeSerializer", "import_sqlite"]
