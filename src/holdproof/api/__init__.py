"""The operations that a store offers: its resources, declared once for the sync and the async client."""

from holdproof.api.flow_block import FlowBlock, OpenFlow
from holdproof.api.flow_functions import FlowFunction
from holdproof.api.resources import Resources

__all__ = ["FlowBlock", "FlowFunction", "Resources", "OpenFlow"]
