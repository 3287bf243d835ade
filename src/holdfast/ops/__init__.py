"""Operations bound to the faces: nouns declare, once for both, which operations a store shows."""

from holdfast.ops.nouns import Nouns
from holdfast.ops.verbs import Face, Noun, Reads, Runs, RunsWith, Writes

__all__ = ["Face", "Noun", "Nouns", "Reads", "Runs", "RunsWith", "Writes"]
