"""LRU cache of decoded elements, keyed by the hash of their bytes. A hit is copied, ten times cheaper than decoding.

Rules:
- A cached element is never handed out: each reader gets a copy of its own, whatever another does to theirs.
- Only elements that can be copied exactly are cached: models without private attributes, and plain values.
- Bytes are read and hashed each time nevertheless; this saves decoding and nothing else.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

_MOST_BYTES: Final = 2**25
_SCALARS: Final = frozenset({str, bytes, type(None)})
_NUMBERS: Final = frozenset({int, float, bool})
_set = object.__setattr__


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
    inner: tuple[str, ...]
    """The fields that hold something that can be changed in place."""

    def copy(self) -> Any:
        """Return a new element equal to it."""
        if self.kind is None:
            return _thawed(self.state)
        state = self.state.copy()
        for name in self.inner:
            state[name] = _thawed(state[name])
        # As pydantic's own copy does it: no validation, which the element has passed when it was decoded.
        model = self.kind.__new__(self.kind)
        _set(model, "__dict__", state)
        _set(model, "__pydantic_extra__", _thawed(self.extra))
        _set(model, "__pydantic_fields_set__", set(self.named))
        _set(model, "__pydantic_private__", None)
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
    if not isinstance(element, BaseModel):
        return ElementState(None, state, None, frozenset(), ())
    # Private attributes may hold anything, a lock or a socket: no copy of them is right.
    if element.__pydantic_private__:
        raise NotCopyableError
    inner = tuple(name for name, item in state.items() if type(item) not in _SCALARS)
    return ElementState(type(element), state, extra, frozenset(element.__pydantic_fields_set__), inner)


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
    """Elements that were decoded lately, so many bytes of them."""

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._most = most
        self._size = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, tuple[ElementState, int]] = OrderedDict()

    def element(self, digest: bytes, data: bytes, decode: Callable[[bytes], Any]) -> tuple[Any, ElementState | None]:
        """Return an element that belongs to the caller, with its state where it can be copied."""
        with self._lock:
            entry = self._entries.get(digest)
            if entry is not None:
                self._entries.move_to_end(digest)
        if entry is not None:
            state, _ = entry
            return state.copy(), state
        # Decoded outside the lock: two threads may do it twice, and neither waits for the other.
        element = decode(data)
        try:
            state = capture(element)
        except NotCopyableError:
            return element, None
        self._store(digest, state, len(data))
        return element, state

    def _store(self, digest: bytes, state: ElementState, size: int) -> None:
        with self._lock:
            if digest in self._entries or size > self._most:
                return
            self._entries[digest] = state, size
            self._size += size
            while self._size > self._most:
                _, (_, evicted_size) = self._entries.popitem(last=False)
                self._size -= evicted_size
