"""Anchors: heads of the log that stand as entries in another one."""

from dataclasses import dataclass

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Anchor(Value):
    """A head that another log has an entry of: who watches that log can hold us to it."""

    id: str
    url: str | None
    """Whom the store asked; None for a proof that a person brought."""
    log: str
    """The name (origin) of the other log."""
    log_index: int
    """The place of the entry in it."""
    origin: str
    size: int
    """How many entries of our log the head covers."""
    created_at: str
    """When the anchor was recorded, by the clock of the store."""


@dataclass(frozen=True, slots=True)
class AnchoredHead(Value):
    """An anchor with everything it is checked with: the head, the other log's key, and the proof."""

    anchor: Anchor
    head: str
    """The head as a signed note: the entry is about exactly these bytes."""
    key: str
    """The verifier key of the other log that the proof was checked with when it came."""
    proof: str
    """A tlog-proof: the entry, its path and the checkpoint that the other log signed."""
