"""Threads of agent frameworks: checkpoints, what tasks wrote, and the index of all of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from holdproof.model.memory import Plain
from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class EncodedValue(Plain):
    """A value that somebody else has encoded: how, and its bytes."""

    tag: str
    data: bytes


@dataclass(frozen=True, slots=True)
class EncodedList(Plain):
    """A list whose elements somebody else has encoded: how, the SHA-256 of each, and the bytes of new ones."""

    tag: str
    digests: tuple[bytes, ...]
    data: Mapping[bytes, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, tag: str, elements: Iterable[bytes]) -> "EncodedList":
        """The list of these elements, all of them given."""
        data = [(sha256(element).digest(), element) for element in elements]
        return cls(tag, tuple(digest for digest, _ in data), dict(data))

    @property
    def elements(self) -> list[bytes]:
        """The bytes of each element, of a list that was read."""
        return [self.data[digest] for digest in self.digests]

    def to_dict(self) -> dict[str, Any]:
        """The list as JSON shows it."""
        return Plain.to_dict(Listing(self.tag, tuple(self.elements)))


@dataclass(frozen=True, slots=True)
class Listing(Plain):
    """A list of encoded elements, as it is printed."""

    tag: str
    elements: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PendingWrite(Plain):
    """What a task wrote on top of a checkpoint."""

    task_id: str
    idx: int
    channel: str
    value: Any
    task_path: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint(Plain):
    """The state of a thread at one moment; `state` is what the framework keeps beside its channels."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    channels: dict[str, Any]
    metadata: dict[str, Any]
    state: bytes
    created_at: str
    writes: tuple[PendingWrite, ...]
    h: str
    """The SHA-256 of the checkpoint and, through its parent's, of all that led to it."""
    ns: str


@dataclass(frozen=True, slots=True)
class SavedCheckpoint(Value):
    """The outcome of writing a checkpoint: its id, its hash, and whether it forked the line."""

    checkpoint_id: str
    forked: bool
    h: str


@dataclass(frozen=True, slots=True)
class Thread(Value):
    """A thread as the index shows it; `checkpoint_id` is its newest checkpoint outside of subgraphs."""

    thread_id: str
    status: str
    facts: dict[str, Any]
    checkpoints: int
    checkpoint_id: str | None
    created_at: str
    updated_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class ThreadsRemoved(Value):
    """What went, or would go: threads as a whole, checkpoints, and blocks that only they had."""

    threads: int = 0
    checkpoints: int = 0
    blocks: int = 0
    bytes: int = 0

    def __add__(self, other: "ThreadsRemoved") -> "ThreadsRemoved":
        return ThreadsRemoved(
            self.threads + other.threads,
            self.checkpoints + other.checkpoints,
            self.blocks + other.blocks,
            self.bytes + other.bytes,
        )


@dataclass(frozen=True, slots=True)
class ThreadsPruned(Value):
    """What retention took from threads, and the size of the database before and after."""

    dry_run: bool
    threads: int
    checkpoints: int
    blocks: int
    bytes: int
    bytes_before: int | None
    bytes_after: int | None
    ns: str


@dataclass(frozen=True, slots=True)
class ThreadsImported(Value):
    """What was imported from another checkpointer; `deleted` are threads that were deleted here and stay so."""

    source: str
    threads: int
    checkpoints: int
    writes: int
    deleted: list[str]
    dry_run: bool
