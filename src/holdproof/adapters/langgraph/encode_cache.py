"""Cache of the last encoded lists, so that a list that has grown costs the encoding of its new elements.

An element is a hit only if it is the same object and equal to a copy that was made when it was encoded. So an element
that was changed in place is encoded again. Elements that cannot be copied exactly are encoded each time.

Lists are held so that many bytes at most, the lines used last; the list of the line in use is held whatever it weighs.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, is_
from typing import Any, Final

from pydantic import BaseModel

from holdproof.adapters.langgraph.decode_cache import DecodeCache, ElementState, NotCopyableError, state_of, weight_of

_LINES: Final = 512
_MOST_BYTES: Final = 2**26
_FIELDS: Final = attrgetter("__dict__")
_EXTRA: Final = attrgetter("__pydantic_extra__")


class EncodedElements:
    """A list as it was encoded: its elements, a copy of each, and their hashes; up to the first that cannot be copied.

    Either all elements are models or none is: then one `map` in C compares them all.
    """

    def __init__(
        self,
        elements: Sequence[Any],
        digests: Sequence[bytes],
        before: "EncodedElements | None" = None,
        same: int = 0,
    ) -> None:
        self.models = bool(elements) and isinstance(elements[0], BaseModel)
        start = same if before is not None and before.models is self.models else 0
        self.copies: list[Any] = before.copies[:start] if before is not None else []
        self.extras: list[Any] = before.extras[:start] if before is not None else []
        self.weights: list[int] = before.weights[:start] if before is not None else []
        bare = before is None or not start or before._bare
        for element in elements[start:]:
            # A list of mixed kinds is cached up to the first element of the other kind.
            if isinstance(element, BaseModel) is not self.models:
                break
            try:
                state, extra = state_of(element)
            except NotCopyableError:
                break
            self.copies.append(state)
            self.extras.append(extra)
            self.weights.append(weight_of(state))
        self._finish(elements, digests, bare=bare and not any(self.extras[start:]))

    @classmethod
    def read(
        cls, elements: Sequence[Any], digests: Sequence[bytes], states: Sequence[ElementState | None]
    ) -> "EncodedElements":
        """Return a list as it was decoded, with the state of each element where it can be copied."""
        self = cls((), ())
        self.models = bool(states) and states[0] is not None and states[0].kind is not None
        usable: list[ElementState] = []
        for state in states:
            if state is None or (state.kind is not None) is not self.models:
                break
            usable.append(state)
        self.copies = [state.state for state in usable]
        self.extras = [state.extra for state in usable]
        self.weights = [state.weight for state in usable]
        self._finish(elements, digests, bare=not any(self.extras))
        return self

    def _finish(self, elements: Sequence[Any], digests: Sequence[bytes], *, bare: bool) -> None:
        self.weight = sum(self.weights)
        self.elements = list(elements[: len(self.copies)])
        self.digests = tuple(digests[: len(self.copies)])
        self._bare = bare
        self._places: dict[int, int] | None = None

    def unchanged(self, elements: Sequence[Any]) -> int:
        """Return how many elements from the first on are the same objects and as they were."""
        count = min(len(self.elements), len(elements))
        # Identity first, in C: it costs a fraction of comparing the fields.
        if not all(map(is_, self.elements, elements)):
            count = list(map(is_, self.elements, elements)).index(False)
        first = elements[:count]
        states = list(map(_FIELDS, first)) if self.models else first
        copies = self.copies if count == len(self.copies) else self.copies[:count]
        if states != copies:
            count = next(place for place, state in enumerate(states) if state != copies[place])
        if not self.models or (self._bare and not any(map(_EXTRA, first))):
            return count
        return next((place for place in range(count) if _EXTRA(first[place]) != self.extras[place]), count)

    def digest(self, element: Any) -> bytes | None:
        """Return the hash of an element, wherever it stands, if it is as it was."""
        # Built only when a list was edited in the middle, which is rare.
        if self._places is None:
            self._places = {id(each): place for place, each in enumerate(self.elements)}
        place = self._places.get(id(element))
        if place is None or self.elements[place] is not element:
            return None
        state = (element.__dict__, element.__pydantic_extra__) if self.models else (element, None)
        return self.digests[place] if state == (self.copies[place], self.extras[place]) else None


class LineCache:
    """The cached lists of one line of checkpoints, by channel; `grown` is told how much more they weigh."""

    def __init__(self, grown: Callable[[int], None] = lambda _: None) -> None:
        self.weight = 0
        self.grown = grown
        self.newest: tuple[str, Mapping[str, Any]] | None = None
        """The checkpoint that was put or read last, and the versions of its channels."""
        self._lists: dict[str, tuple[EncodedElements, ...]] = {}

    def digests(self, channel: str, elements: Sequence[Any], encode: Callable[[Any], bytes]) -> tuple[bytes, ...]:
        """Return the hash of each element, remembered; `encode` gives that of one that is new or was changed."""
        for cached in self._lists.get(channel, ()):
            if count := cached.unchanged(elements):
                # The list that was used last, as it was: nothing to cache anew.
                if count == len(elements) == len(cached.elements) and cached is self._lists[channel][0]:
                    return cached.digests
                rest = elements[count:]
                if count == len(cached.elements):  # it has grown at its end, and all there is new
                    digests = cached.digests + tuple(map(encode, rest))
                else:
                    digests = cached.digests[:count] + tuple(cached.digest(each) or encode(each) for each in rest)
                self.keep(channel, EncodedElements(elements, digests, cached, count))
                return digests
        digests = tuple(map(encode, elements))
        self.keep(channel, EncodedElements(elements, digests))
        return digests

    def keep(self, channel: str, elements: EncodedElements) -> None:
        """Cache a list and keep the one before: a run may continue from that while another reads this one."""
        before = self._lists.get(channel, ())
        last = before[:1] if before and not _extends(elements, before[0]) else before[1:]
        self._lists[channel] = (elements, *last)
        more = elements.weight + sum(each.weight for each in last) - sum(each.weight for each in before)
        self.weight += more
        self.grown(more)


def _extends(elements: EncodedElements, before: EncodedElements) -> bool:
    """Return whether a list begins with the same object as the one before: the same run, gone on."""
    return bool(elements.elements and before.elements and elements.elements[0] is before.elements[0])


class EncodeCache:
    """The caches of the last used lines, and of elements that were decoded lately."""

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self.decoded = DecodeCache()
        self.weight = 0
        self._most = most
        self._lock = threading.RLock()
        self._lines: OrderedDict[tuple[str, str], LineCache] = OrderedDict()

    def line(self, thread_id: str, checkpoint_ns: str) -> LineCache:
        """Return what is remembered of a line."""
        with self._lock:
            cache = self._lines.setdefault((thread_id, checkpoint_ns), LineCache(self._grown))
            self._lines.move_to_end((thread_id, checkpoint_ns))
            self._evict()
            return cache

    def _grown(self, more: int) -> None:
        with self._lock:
            self.weight += more
            self._evict()

    def _evict(self) -> None:
        # The last one is in use: without it a list beyond the limit would be encoded whole with every checkpoint.
        while len(self._lines) > _LINES or (self.weight > self._most and len(self._lines) > 1):
            self._drop(next(iter(self._lines)))

    def _drop(self, key: tuple[str, str]) -> None:
        evicted = self._lines.pop(key)
        # A run may still hold it: what it adds there is not counted any more.
        evicted.grown = lambda _: None
        self.weight -= evicted.weight

    def forget(self, thread_id: str) -> None:
        """Remember nothing of a thread."""
        with self._lock:
            for key in [key for key in self._lines if key[0] == thread_id]:
                self._drop(key)
