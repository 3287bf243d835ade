"""LRU cache of decoded elements, keyed by the hash of their bytes. A hit is copied, ten times cheaper than decoding.

Rules:
- A cached element is never handed out: each reader gets a copy of its own, whatever another does to theirs.
- Only elements that can be copied exactly are cached: models without private attributes, and plain values.
- Bytes are hashed when they are read. An element that is cached is not read again: its hash can name nothing else.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, cast

from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pydantic import BaseModel

_MOST_BYTES: Final = 2**26
_SNAPSHOT_BYTES: Final = 500
_SCALARS: Final = frozenset({str, bytes, type(None)})
_NUMBERS: Final = frozenset({int, float, bool})
_ELEMENT: Final = 1_200
"""What an element weighs beside its texts: the object, its fields, and the copy of them."""
_PART: Final = 100
# The slots of a model themselves: through `object.__setattr__` each would be looked up in all classes of a message.
_set_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_named = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_private = BaseModel.__dict__["__pydantic_private__"].__set__


class NotCopyableError(Exception):
    """No copy can be made that tells whether the original was changed."""


class Number:
    """The copy of a number: equal only to one of the same kind, as True is not 1 once it is stored."""

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self.value) and other == self.value


class ElementState(NamedTuple):
    """A copy of an element: the fields of a model, or a plain value, and what a model has beside its fields."""

    kind: type[BaseModel] | None
    state: Any
    extra: Any
    named: frozenset[str]
    inner: tuple[tuple[str, Callable[[], Any]], ...]
    """The fields that hold something that can be changed in place, and what makes a new one for each."""
    weight: int
    """About how many bytes the element and this copy take."""

    def copy(self) -> Any:
        """Return a new element equal to it."""
        if self.kind is None:
            return _thawed(self.state)
        # As pydantic's own copy does it: no validation, which the element has passed when it was decoded.
        model = self.kind.__new__(self.kind)
        fields = model.__dict__
        fields.update(self.state)
        for name, make in self.inner:
            fields[name] = make()
        _set_extra(model, None if self.extra is None else _thawed(self.extra))
        _set_named(model, set(self.named))
        _set_private(model, None)
        return model


def state_of(element: Any) -> tuple[Any, Any]:
    """Return copies of a model's fields and of what it has beside them, or of a plain value.

    Raises NotCopyableError where an exact copy cannot be made.
    """
    if isinstance(element, BaseModel):
        return copied(element.__dict__), copied(element.__pydantic_extra__)
    return copied(element), None


def capture(element: Any) -> ElementState:
    """Return the state of an element; NotCopyableError where it cannot be copied exactly."""
    state, extra = state_of(element)
    weight = weight_of(state)
    if not isinstance(element, BaseModel):
        return ElementState(None, state, None, frozenset(), (), weight)
    # Private attributes may hold anything, a lock or a socket: no copy of them is right.
    if element.__pydantic_private__:
        raise NotCopyableError
    inner = tuple((name, _maker(item)) for name, item in state.items() if type(item) not in _SCALARS)
    return ElementState(type(element), state, extra, frozenset(element.__pydantic_fields_set__), inner, weight)


class SnapshotState(NamedTuple):
    """A copy of what LangGraph keeps of a DeltaChannel now and then: a whole list as one value."""

    elements: tuple[ElementState, ...]

    @property
    def weight(self) -> int:
        """About how many bytes its elements take."""
        return sum(state.weight for state in self.elements)

    def copy(self) -> Any:
        """Return a new snapshot equal to it."""
        return _DeltaSnapshot([state.copy() for state in self.elements])


def _maker(copy: Any) -> Callable[[], Any]:
    """Return what makes a new value of a copy; most fields of a message are empty containers."""
    kind = type(copy)
    return kind if kind in (dict, list) and not copy else partial(_thawed, copy)


def weight_of(state: Any) -> int:
    """Return about how many bytes an element and a copy of it take."""
    return _ELEMENT + 2 * _text_bytes(state)


def _text_bytes(copy: Any) -> int:
    if isinstance(copy, str | bytes):
        return len(copy)
    if isinstance(copy, dict):
        return sum(map(_text_bytes, copy.values())) + _PART
    if isinstance(copy, list | tuple):
        return sum(map(_text_bytes, copy)) + _PART
    return 0


def copied(value: Any) -> Any:
    """Return a copy of something plain, all the way down, to be compared with it later."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind in _NUMBERS:
        return Number(value)
    if kind is dict:
        # 1 and True are one key of a dict, and two values once they are stored.
        if not all(type(key) is str for key in value):
            raise NotCopyableError
        return {key: item if type(item) in _SCALARS else copied(item) for key, item in value.items()}
    if kind in (list, tuple):
        make: Callable[[Any], Any] = kind
        return make(copied(item) for item in value)
    raise NotCopyableError


def _thawed(copy: Any) -> Any:
    """Return what such a copy was taken of, as something of its own."""
    kind = type(copy)
    if kind is Number:
        return copy.value
    if kind is dict:
        return {key: item if type(item) in _SCALARS else _thawed(item) for key, item in copy.items()}
    if kind in (list, tuple):
        make: Callable[[Any], Any] = kind
        return make(_thawed(item) for item in copy)
    return copy


class DecodeCache:
    """Elements, and snapshots of whole lists, that were decoded lately: so many bytes of them in memory."""

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._most = most
        self._size = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, tuple[ElementState | SnapshotState, int]] = OrderedDict()

    def states(self, digests: Iterable[bytes]) -> dict[bytes, ElementState]:
        """Return those of these elements that are cached."""
        with self._lock:
            entries = self._entries
            # Under a hash alone lie elements only.
            cached = {digest: cast("ElementState", entries[digest][0]) for digest in digests if digest in entries}
            deque(map(entries.move_to_end, cached), maxlen=0)
        return cached

    def element(self, digest: bytes, data: bytes, decode: Callable[[bytes], Any]) -> tuple[Any, ElementState | None]:
        """Return an element that belongs to the caller, with its state where it can be copied."""
        state = self.states((digest,)).get(digest)
        if state is not None:
            return state.copy(), state
        # Decoded outside the lock: two threads may do it twice, and neither waits for the other.
        element = decode(data)
        try:
            state = capture(element)
        except NotCopyableError:
            return element, None
        self._store(digest, state)
        return element, state

    def value(self, data: bytes, decode: Callable[[bytes], Any]) -> Any:
        """Return a value that belongs to the caller; of values only snapshots are cached, which are long."""
        if len(data) < _SNAPSHOT_BYTES:
            return decode(data)
        key = b"snapshot " + sha256(data).digest()
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
        if entry is not None:
            return entry[0].copy()
        value = decode(data)
        if type(value) is _DeltaSnapshot and type(value.value) is list:
            with suppress(NotCopyableError):
                self._store(key, SnapshotState(tuple(map(capture, value.value))))
        return value

    def _store(self, key: bytes, state: ElementState | SnapshotState) -> None:
        # Not by its stored bytes: a snapshot of like messages is deflated to a hundredth of what it takes here.
        size = state.weight
        with self._lock:
            if key in self._entries or size > self._most:
                return
            self._entries[key] = state, size
            self._size += size
            while self._size > self._most:
                _, (_, evicted_size) = self._entries.popitem(last=False)
                self._size -= evicted_size


class CachedStates:
    """What the cache has of the elements that one read needs; held until they are copied, whatever it lets go of."""

    def __init__(self, cache: DecodeCache) -> None:
        self._cache = cache
        self.found: dict[bytes, ElementState] = {}

    def find(self, digests: Iterable[bytes]) -> Collection[bytes]:
        """Return which of these elements need not be read."""
        self.found |= self._cache.states(digests)
        return self.found.keys()
