"""Which operations a store shows: its nouns, declared once for both faces."""

from holdproof.ops.block import Block, OpenFlow
from holdproof.ops.decision import Decision
from holdproof.ops.nouns import Nouns

__all__ = ["Block", "Decision", "Nouns", "OpenFlow"]
