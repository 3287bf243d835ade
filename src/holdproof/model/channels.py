"""Channels: how people are told, and what became of it."""

from dataclasses import dataclass

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class ChannelStatus(Value):
    """A configured channel without its secrets: what it is for, and what is wrong with it; empty for nothing."""

    name: str
    kind: str
    events: tuple[str, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class Notification(Value):
    """What people had to be told, through which channels, and whether anybody was reached.

    `outcome` is `delivered`, or `undelivered` where every channel was given up; None while it is being tried.
    """

    id: int
    event: str
    about: str
    channels: tuple[str, ...]
    created_at: str
    ended_at: str | None
    outcome: str | None
    problems: dict[str, str] | None
    ns: str


@dataclass(frozen=True, slots=True)
class DeliveryResult(Value):
    """How much a round of deliveries queued and sent, what failed and is tried again, and what was given up."""

    queued: int
    delivered: int
    retried: int
    abandoned: int


@dataclass(frozen=True, slots=True)
class ChannelTest(Value):
    """What became of a test message; `problem` is empty where it was delivered."""

    name: str
    delivered: bool
    problem: str
