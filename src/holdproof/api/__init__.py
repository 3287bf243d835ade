"""Which operations a store shows: its nouns, declared once for both faces."""

from holdproof.api.flow_block import FlowBlock, OpenFlow
from holdproof.api.flow_functions import FlowFunction
from holdproof.api.resources import Resources

__all__ = ["FlowBlock", "FlowFunction", "Resources", "OpenFlow"]
