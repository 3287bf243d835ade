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

from holdproof.adapters.langgraph.decode_cache import ElementState
from holdproof.adapters.langgraph.encode_cache import EncodeCache, EncodedElements, LineCache
from holdproof.adapters.langgraph.envelope import Envelopes
from holdproof.errors import FormatError
from holdproof.model.threads import Checkpoint, EncodedList, EncodedValue

WRITER: Final = "__holdproof_writer"
"""Where a run carries what it has seen of its thread; LangGraph keeps what begins so out of metadata."""
_SMALL: Final = frozenset({int, float, bool, type(None)})
_PLAIN: Final = _SMALL | {str, bytes}
_SHORT: Final = 64
_LOOKED_AT: Final = 32
_NONE: Final[Mapping[bytes, ElementState]] = {}


class ThreadConfig(NamedTuple):
    """The `configurable` part of a RunnableConfig, as far as a checkpointer needs it."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str | None
    writer: str | None

    @classmethod
    def of(cls, config: RunnableConfig) -> "ThreadConfig":
        """Read a config; KeyError where it names no thread, as LangGraph's own savers raise it."""
        named = config["configurable"]
        writer = named.get(WRITER)
        return cls(str(named["thread_id"]), str(named.get("checkpoint_ns") or ""), checkpoint_id_of(config), writer)

    def config(self, checkpoint_id: str, writer: str | None = None) -> RunnableConfig:
        """Return a config that names a checkpoint of this line."""
        named = {"thread_id": self.thread_id, "checkpoint_ns": self.checkpoint_ns, "checkpoint_id": checkpoint_id}
        return {"configurable": named if writer is None else {**named, WRITER: writer}}

    def purpose(self, checkpoint_id: str) -> bytes:
        """Return what sealed state and metadata are bound to."""
        return f"state {self.checkpoint_ns} {checkpoint_id}".encode()


def checkpoint_id_of(config: RunnableConfig | None) -> str | None:
    """Return the checkpoint that a config names; LangGraph means the newest by an empty one, and may name no thread."""
    id = (config or {}).get("configurable", {}).get("checkpoint_id")
    return str(id) if id else None


def is_list(value: Any) -> bool:
    """Return whether a value is kept element by element: a list of things that are not mostly small."""
    if type(value) is not list or not value:
        return False
    # A sample from both ends is enough to tell messages from numbers, and costs the same for any length.
    some = value if len(value) <= 2 * _LOOKED_AT else value[:_LOOKED_AT] + value[-_LOOKED_AT:]
    if _PLAIN.isdisjoint(map(type, some)):
        return True
    return sum(map(_is_small, some)) * 2 <= len(some)


def _is_small(element: Any) -> bool:
    return type(element) in _SMALL or (type(element) in _PLAIN and len(element) < _SHORT)


def encoded(envelopes: Envelopes, value: Any) -> EncodedValue | EncodedList:
    """Return a value, all of it encoded."""
    if is_list(value):
        return EncodedList.of(envelopes.tag, map(envelopes.wrap, value))
    return EncodedValue(envelopes.tag, envelopes.wrap(value))


def channel(envelopes: Envelopes, line: LineCache, name: str, value: Any) -> EncodedValue | EncodedList:
    """Return a channel; of a list only what is not remembered is encoded."""
    if not is_list(value):
        return EncodedValue(envelopes.tag, envelopes.wrap(value))
    fresh: dict[bytes, bytes] = {}

    def encode(element: Any) -> bytes:
        data = envelopes.wrap(element)
        digest = sha256(data).digest()
        fresh[digest] = data
        return digest

    return EncodedList(envelopes.tag, line.digests(name, value, encode), fresh)


def decoded(envelopes: Envelopes, stored: Any, cache: EncodeCache, states: Mapping[bytes, ElementState] = _NONE) -> Any:
    """Return the value of a channel or a write; `states` are those of cached elements, whose bytes were not read."""
    if not isinstance(stored, EncodedList | EncodedValue):
        raise FormatError("a value that LangGraph did not write")
    # Before the cache is asked: it knows elements by their hash alone, and nothing under another tag is read.
    envelopes.require(stored.tag)
    if isinstance(stored, EncodedList):
        return _elements(envelopes, stored, cache, states)[0]
    return cache.decoded.value(stored.data, partial(envelopes.unwrap, stored.tag))


def shown(
    envelopes: Envelopes,
    checkpoint: Checkpoint,
    cache: EncodeCache,
    line: LineCache | None = None,
    writer: str | None = None,
    *,
    states: Mapping[bytes, ElementState] = _NONE,
) -> CheckpointTuple:
    """Return a checkpoint as LangGraph knows it; the line remembers its lists, for the run that goes on from here.

    `states` are those of cached elements, whose bytes were not read.
    """
    place = ThreadConfig(checkpoint.thread_id, checkpoint.checkpoint_ns, checkpoint.checkpoint_id, writer)
    purpose = place.purpose(checkpoint.checkpoint_id)
    values = {}
    for name, stored in checkpoint.channels.items():
        # Another tag is refused by `decoded`, with an error that names it.
        if not isinstance(stored, EncodedList) or stored.tag != envelopes.tag:
            values[name] = decoded(envelopes, stored, cache)
            continue
        values[name], captured = _elements(envelopes, stored, cache, states)
        if line is not None:
            line.keep(name, EncodedElements.read(values[name], stored.digests, captured))
    # Bound to this checkpoint: sealed state cannot be moved to another one.
    state = envelopes.unwrap(envelopes.tag, checkpoint.state, purpose)
    if not isinstance(state, dict):
        raise FormatError("a checkpoint that LangGraph did not write")
    if line is not None:
        line.newest = checkpoint.checkpoint_id, dict(state.get("channel_versions") or {})
    return CheckpointTuple(
        place.config(checkpoint.checkpoint_id, writer),
        {**state, "id": checkpoint.checkpoint_id, "channel_values": values},  # type: ignore[typeddict-item]
        envelopes.unwrap_facts(checkpoint.metadata, purpose),  # type: ignore[arg-type]
        None if checkpoint.parent_id is None else place.config(checkpoint.parent_id),
        [(one.task_id, one.channel, decoded(envelopes, one.value, cache)) for one in checkpoint.writes],
    )


def _elements(
    envelopes: Envelopes, stored: EncodedList, cache: EncodeCache, states: Mapping[bytes, ElementState]
) -> tuple[list[Any], list[ElementState | None]]:
    """Return the elements of a list, and what each is like; those that were decoded lately are copied."""
    decode = partial(envelopes.unwrap, stored.tag)
    elements = []
    captured: list[ElementState | None] = []
    for digest in stored.digests:
        state = states.get(digest)
        if state is None:
            element, state = cache.decoded.element(digest, stored.data[digest], decode)
        else:
            element = state.copy()
        elements.append(element)
        captured.append(state)
    return elements, captured


def matches(metadata: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """Return whether metadata has all that is asked for; `user.name` also means `name` in what `user` is."""
    return not filter or all(_has(metadata, name, item) for name, item in filter.items())


def _has(metadata: Mapping[str, Any], name: str, item: Any) -> bool:
    if name in metadata:
        return bool(metadata[name] == item)
    value: Any = metadata
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return bool(value == item)


def facts(metadata: Mapping[str, Any], without: Sequence[str]) -> dict[str, Any]:
    """Return what a thread is found by: what a user said about the run, not what changes with every step."""
    return {
        name: item
        for name, item in metadata.items()
        if name not in without and isinstance(item, str | int | float | bool) and len(str(item)) <= 500
    }


def plain(value: Any) -> Any:
    """A value as JSON has it; times, UUIDs, enumerations and data classes too, as LangGraph's own stores take them."""
    # First: an enumeration may be a str or an int as well.
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
