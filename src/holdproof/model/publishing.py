"""A log that was published as files."""

from dataclasses import dataclass

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class PublishedLog(Value):
    """What a publication did: where the log is, how far it went before and goes now, and what was written."""

    target: str
    origin: str
    size_before: int
    """How many entries had been published; 0 for the first time."""
    size: int
    root: str
    files: int
    bytes: int
