"""Transcripts: conversations of agent frameworks, item by item."""

from dataclasses import dataclass
from typing import Any

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Transcript(Value):
    """A transcript without its items; `rev` grows with every change of it."""

    name: str
    rev: int
    state: Any
    created_at: str
    updated_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class Item(Value):
    """One item of a transcript: its number, and what it is found by if it is."""

    seq: int
    value: Any
    key: str | None = None
    tag: str | None = None
