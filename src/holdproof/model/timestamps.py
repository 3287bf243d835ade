"""Time tokens: what an authority signed about a head, and when."""

from dataclasses import dataclass

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Timestamp(Value):
    """A head that a time authority stamped: everything up to it existed at that time."""

    id: str
    url: str
    authority: str
    """The name in the certificate that the token is signed with."""
    origin: str
    size: int
    """How many entries of the log the head covers."""
    stamped_at: str
    """The time that the authority signed."""
    created_at: str
    """When the token was recorded, by the clock of the store."""


@dataclass(frozen=True, slots=True)
class StampedHead(Value):
    """A time token with everything it is checked with: the head, the certificate, and the authority's answer."""

    timestamp: Timestamp
    head: str
    """The head as a signed note: the token is about exactly these bytes."""
    certificate: str
    """What the token was checked with when it came, in PEM."""
    token: str
    """The authority's answer (`TimeStampResp`) in base64."""
