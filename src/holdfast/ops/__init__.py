"""Which operations a store shows: its nouns, declared once for both faces."""

from holdfast.ops.nouns import Nouns

__all__ = ["Nouns"]
