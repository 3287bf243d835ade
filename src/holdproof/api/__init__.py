"""The operations that a store offers: its resources, declared once for the sync and the async client."""

from typing import TYPE_CHECKING

from holdproof.lazy import lazy_exports

if TYPE_CHECKING:
    from holdproof.api.flow_block import FlowBlock, OpenFlow
    from holdproof.api.flow_functions import FlowFunction
    from holdproof.api.resources import Resources

__all__ = ["FlowBlock", "FlowFunction", "OpenFlow", "Resources"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "FlowBlock": "holdproof.api.flow_block",
        "FlowFunction": "holdproof.api.flow_functions",
        "OpenFlow": "holdproof.api.flow_block",
        "Resources": "holdproof.api.resources",
    },
)
