"""The trail: entries of the log, with what each of them says."""

from dataclasses import dataclass
from typing import Any

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class TrailEntry(Value):
    """One entry of the log, in words: what happened, in which flow, by which agent, and which person did it."""

    index: int
    """Where it stands in the log."""
    at: str
    kind: str
    what: str
    note: str | None
    flow_id: str | None
    agent_id: str | None
    person: str | None
    proposal: str | None
    """Of an escalation: what the person was shown, as JSON; None where it belongs to a subject, and is sealed."""
    table: str
    key: str | None
    """The record's key in its table; None once it was erased or removed."""
    state: str
    """current, superseded by a later version, or removed."""
    entry: str
    """The record's handle, the same in every version."""
    version: int
    ns: str


@dataclass(frozen=True, slots=True)
class LogEntry(Value):
    """An entry of the log as it stands there: its text, and what it says."""

    index: int
    text: str
    """The entry, byte for byte; its hash is the leaf of the tree."""
    leaf_hash: str
    fields: dict[str, Any]
    event: TrailEntry

    @property
    def at(self) -> str:
        """When it was written."""
        return self.event.at

    @property
    def kind(self) -> str:
        """What kind of entry it is."""
        return self.event.kind

    @property
    def entry(self) -> str:
        """The handle of its record."""
        return self.event.entry

    @property
    def version(self) -> int:
        """Which version of the record it is of."""
        return self.event.version

    @property
    def what(self) -> str:
        """What it says, in words."""
        return self.event.what
