"""Sections of the settings whose values are few and plain, one class each."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Images:
    """Images that heartbeats write: the least interval in seconds (0: none), and how many to keep."""

    every_s: int = 300
    keep: int = 3


@dataclass(frozen=True)
class Backups:
    """Backups that a server makes: where (None: none), how many seconds apart, how many to keep, whether with keys."""

    folder: str | None = None
    every_s: int = 86_400
    keep: int = 7
    keys: bool = False


@dataclass(frozen=True)
class TimeAuthority:
    """Who stamps heads with the time (RFC 3161): its address (None: nobody), its certificate in a file, how often."""

    url: str | None = field(default=None, repr=False)
    certificate: str | None = None
    every_s: int = 3600


@dataclass(frozen=True)
class AnchorLog:
    """The log that heads are anchored in: the address of a Rekor v2 (None: nobody is asked), its key, how often."""

    url: str | None = field(default=None, repr=False)
    key: str | None = None
    every_s: int = 86_400
