"""Checkpoints of LangGraph as those of a thread, and back: which channels are new, what of a list is new."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from holdproof.adapters.langgraph.decode_cache import Taken
from holdproof.adapters.langgraph.encode_cache import EncodeCache, Known, Line
from holdproof.adapters.langgraph.envelope import Envelopes
from holdproof.errors import FormatError
from holdproof.model.threads import Checkpoint, Part, Run

WRITER: Final = "__holdproof_writer"
"""Where a run carries what it has seen of its thread; LangGraph keeps what begins so out of metadata."""
_SMALL: Final = frozenset({int, float, bool, type(None)})
_PLAIN: Final = _SMALL | {str, bytes}
_SHORT: Final = 64
_LOOKED_AT: Final = 32


class Place(NamedTuple):
    """What a config names."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str | None
    writer: str | None

    @classmethod
    def of(cls, config: RunnableConfig) -> "Place":
        """The place of a config; LangGraph raises KeyError where there is no thread, and so does this."""
        found = config["configurable"]
        id, writer = found.get("checkpoint_id"), found.get(WRITER)
        return cls(str(found["thread_id"]), str(found.get("checkpoint_ns") or ""), id and str(id), writer)

    def config(self, checkpoint_id: str, writer: str | None = None) -> RunnableConfig:
        """A config that names a checkpoint of this line."""
        named = {"thread_id": self.thread_id, "checkpoint_ns": self.checkpoint_ns, "checkpoint_id": checkpoint_id}
        return {"configurable": named if writer is None else {**named, WRITER: writer}}

    def purpose(self, checkpoint_id: str) -> bytes:
        """What sealed state and metadata are bound to."""
        return f"state {self.checkpoint_ns} {checkpoint_id}".encode()


def is_list(value: Any) -> bool:
    """Whether a value is kept element by element: a list of things that are not mostly small."""
    if type(value) is not list or not value:
        return False
    some = value if len(value) <= 2 * _LOOKED_AT else value[:_LOOKED_AT] + value[-_LOOKED_AT:]
    if _PLAIN.isdisjoint(map(type, some)):
        return True
    return sum(map(_is_small, some)) * 2 <= len(some)


def _is_small(element: Any) -> bool:
    return type(element) in _SMALL or (type(element) in _PLAIN and len(element) < _SHORT)


def encoded(envelopes: Envelopes, value: Any) -> Part | Run:
    """A value, all of it encoded."""
    if is_list(value):
        return Run.of(envelopes.tag, map(envelopes.wrap, value))
    return Part(envelopes.tag, envelopes.wrap(value))


def channel(envelopes: Envelopes, line: Line, name: str, value: Any) -> Part | Run:
    """A channel; of a list only what is not remembered is encoded."""
    if not is_list(value):
        return Part(envelopes.tag, envelopes.wrap(value))
    fresh: dict[bytes, bytes] = {}

    def encode(element: Any) -> bytes:
        data = envelopes.wrap(element)
        digest = sha256(data).digest()
        fresh[digest] = data
        return digest

    return Run(envelopes.tag, line.digests(name, value, encode), fresh)


def decoded(envelopes: Envelopes, stored: Any) -> Any:
    """The value of a channel or a write."""
    if isinstance(stored, Run):
        return [envelopes.unwrap(stored.tag, element) for element in stored.elements]
    if isinstance(stored, Part):
        return envelopes.unwrap(stored.tag, stored.data)
    raise FormatError("a value that LangGraph did not write")


def shown(
    envelopes: Envelopes, found: Checkpoint, memo: EncodeCache, line: Line | None = None, writer: str | None = None
) -> CheckpointTuple:
    """A checkpoint as LangGraph knows it; the line remembers its lists, for the run that goes on from here."""
    place = Place(found.thread_id, found.checkpoint_ns, found.checkpoint_id, writer)
    purpose = place.purpose(found.checkpoint_id)
    values = {}
    for name, stored in found.channels.items():
        if not isinstance(stored, Run) or stored.tag != envelopes.tag:
            values[name] = decoded(envelopes, stored)
            continue
        values[name], taken = _elements(envelopes, stored, memo)
        if line is not None:
            line.keep(name, Known(values[name], stored.digests, taken=taken))
    state = envelopes.unwrap(envelopes.tag, found.state, purpose)
    if not isinstance(state, dict):
        raise FormatError("a checkpoint that LangGraph did not write")
    if line is not None:
        line.newest = found.checkpoint_id, dict(state.get("channel_versions") or {})
    return CheckpointTuple(
        place.config(found.checkpoint_id, writer),
        {**state, "id": found.checkpoint_id, "channel_values": values},  # type: ignore[typeddict-item]
        envelopes.unwrap_facts(found.metadata, purpose),  # type: ignore[arg-type]
        None if found.parent_id is None else place.config(found.parent_id),
        [(one.task_id, one.channel, decoded(envelopes, one.value)) for one in found.writes],
    )


def _elements(envelopes: Envelopes, stored: Run, memo: EncodeCache) -> tuple[list[Any], list[Taken | None]]:
    """The elements of a list, and what each is like; those that were decoded lately are copied."""
    decode = partial(envelopes.unwrap, stored.tag)
    found = [memo.templates.element(digest, stored.data[digest], decode) for digest in stored.digests]
    return [element for element, _ in found], [taken for _, taken in found]


def matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether metadata has all that is asked for."""
    return not wanted or all(name in metadata and metadata[name] == item for name, item in wanted.items())


def facts(metadata: Mapping[str, Any], without: Sequence[str]) -> dict[str, Any]:
    """What a thread is found by: what a user said about the run, not what changes with every step."""
    return {
        name: item
        for name, item in metadata.items()
        if name not in without and isinstance(item, str | int | float | bool) and len(str(item)) <= 500
    }


def plain(value: Any) -> Any:
    """A value as JSON has it; times, UUIDs, enumerations and data classes too, as LangGraph's own stores take them."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    return str(value) if isinstance(value, UUID) else value
