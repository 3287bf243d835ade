"""What was decoded lately, by the hash of its bytes: the same element read again is copied, which costs a tenth.

Rules:
- What is kept is never handed out: each reader gets an element of its own, whatever another does to his.
- Only elements that are copied exactly are kept: models without private attributes, and plain values.
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


class UnsureError(Exception):
    """No copy can be taken that says whether something was changed."""


class Number:
    """The copy of a number: equal only to one of the same kind, as True is not 1 once it is stored."""

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self.value) and other == self.value


class Taken(NamedTuple):
    """An element as it was: its fields, or itself where it is plain, and what it has beside its fields."""

    kind: type[BaseModel] | None
    state: Any
    extra: Any
    named: frozenset[str]
    inner: tuple[str, ...]
    """The fields that hold something that can be changed in place."""

    def copy(self) -> Any:
        """An element like it."""
        if self.kind is None:
            return _thawed(self.state)
        state = self.state.copy()
        for name in self.inner:
            state[name] = _thawed(state[name])
        made = self.kind.__new__(self.kind)
        _set(made, "__dict__", state)
        _set(made, "__pydantic_extra__", _thawed(self.extra))
        _set(made, "__pydantic_fields_set__", set(self.named))
        _set(made, "__pydantic_private__", None)
        return made


def state_of(element: Any) -> tuple[Any, Any]:
    """The fields of a model and what it has beside them, or something plain; UnsureError where it cannot be copied."""
    if isinstance(element, BaseModel):
        return copied(element.__dict__), copied(element.__pydantic_extra__)
    return copied(element), None


def take(element: Any) -> Taken:
    """What an element is now; UnsureError where that cannot be told."""
    state, extra = state_of(element)
    if not isinstance(element, BaseModel):
        return Taken(None, state, None, frozenset(), ())
    if element.__pydantic_private__:
        raise UnsureError
    inner = tuple(name for name, item in state.items() if type(item) not in _SCALARS)
    return Taken(type(element), state, extra, frozenset(element.__pydantic_fields_set__), inner)


def copied(value: Any) -> Any:
    """A copy of something plain, all the way down, to be compared with it later."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind in _NUMBERS:
        return Number(value)
    if kind is dict:
        if not all(type(key) is str for key in value):
            raise UnsureError
        return {key: item if type(item) in _SCALARS else copied(item) for key, item in value.items()}
    if kind in (list, tuple):
        make: Callable[[Any], Any] = kind
        return make(copied(item) for item in value)
    raise UnsureError


def _thawed(copy: Any) -> Any:
    """What such a copy was taken of, as something of its own."""
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
        self._most, self._size, self._lock = most, 0, threading.Lock()
        self._known: OrderedDict[bytes, tuple[Taken, int]] = OrderedDict()

    def element(self, digest: bytes, data: bytes, decode: Callable[[bytes], Any]) -> tuple[Any, Taken | None]:
        """An element of its own for whoever asks, and what it is like, where that is known."""
        with self._lock:
            found = self._known.get(digest)
            if found is not None:
                self._known.move_to_end(digest)
        if found is not None:
            return found[0].copy(), found[0]
        element = decode(data)
        try:
            taken = take(element)
        except UnsureError:
            return element, None
        self._keep(digest, taken, len(data))
        return element, taken

    def _keep(self, digest: bytes, taken: Taken, size: int) -> None:
        with self._lock:
            if digest in self._known or size > self._most:
                return
            self._known[digest] = taken, size
            self._size += size
            while self._size > self._most:
                self._size -= self._known.popitem(last=False)[1][1]
