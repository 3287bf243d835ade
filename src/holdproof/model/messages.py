"""What flows and the world outside tell each other: messages, promises, published values, streams.

`recorded` is a value as tagged JSON (typed_json.py), the same in Python, HTTP and the command line; the property
`value` is the Python value, of whatever class, for programs that have loaded that class.
"""

from dataclasses import dataclass
from typing import Any

from holdproof.model import typed_json
from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Message(Value):
    """A message to a flow, and whether the flow has received it."""

    message_id: str
    flow_id: str
    n: int
    """Its place among all messages to the flow."""
    topic: str
    recorded: Any
    sent_by: str | None
    """The flow that sent it (`flow:<id>`), or the caller that signalled it, where that is known."""
    idempotency_key: str | None
    sent_at: str
    received_at: str | None
    ns: str

    @property
    def value(self) -> Any:
        """What was sent."""
        return typed_json.decode(self.recorded)


@dataclass(frozen=True, slots=True)
class PromiseRecord(Value):
    """A promise of a flow: PENDING, RESOLVED or REJECTED. Its token is not in it."""

    promise_id: str
    flow_id: str
    name: str
    n: int
    state: str
    recorded: Any
    """What it was resolved with, or why it was rejected; None while it is PENDING."""
    created_at: str
    settled_at: str | None
    ns: str

    @property
    def value(self) -> Any:
        """What it was resolved with, or why it was rejected."""
        return typed_json.decode(self.recorded)


@dataclass(frozen=True, slots=True)
class PromiseTicket(Value):
    """A promise as its flow gets it: who has the token may resolve the promise, once."""

    promise_id: str
    name: str
    token: str
    """Empty where it cannot be shown again: the store was restored from a backup without keys."""


@dataclass(frozen=True, slots=True)
class PublishedValue(Value):
    """The newest value that a flow has published under a key."""

    flow_id: str
    key: str
    recorded: Any
    version: int
    """How often the key was published."""
    published_at: str
    ns: str

    @property
    def value(self) -> Any:
        """What was published."""
        return typed_json.decode(self.recorded)


@dataclass(frozen=True, slots=True)
class StreamItem(Value):
    """One item of a flow's stream; a reader that was interrupted goes on at `offset + 1`."""

    offset: int
    recorded: Any
    written_at: str

    @property
    def value(self) -> Any:
        """What was written."""
        return typed_json.decode(self.recorded)
