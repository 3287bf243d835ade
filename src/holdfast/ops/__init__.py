"""Which operations a store shows: its nouns, declared once for both faces."""

from holdfast.ops.block import Block, OpenFlow
from holdfast.ops.decision import Decision
from holdfast.ops.nouns import Nouns

__all__ = ["Block", "Decision", "Nouns", "OpenFlow"]
