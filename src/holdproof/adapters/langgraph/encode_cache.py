"""What was encoded last: so that a list that has grown costs the encoding of what is new.

An element counts as known only if it is the same object and equal to a copy that was taken when it was encoded. So one
that was changed in place is encoded again, and what was stored is what was there. Elements of which no such copy can be
taken are encoded each time.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, is_
from typing import Any, Final

from pydantic import BaseModel

from holdproof.adapters.langgraph.decode_cache import DecodeCache, Taken, UnsureError, state_of

_LINES: Final = 512
_FIELDS: Final = attrgetter("__dict__")
_EXTRA: Final = attrgetter("__pydantic_extra__")


class Known:
    """A list as it was encoded: its elements, a copy of each, and their hashes; up to the first that cannot be copied.

    Elements are models all of them, or none is: then what is looked at is the same for all, and C does the looking.
    """

    def __init__(
        self,
        elements: Sequence[Any],
        digests: Sequence[bytes],
        before: "Known | None" = None,
        same: int = 0,
        taken: Sequence[Taken | None] = (),
    ) -> None:
        self.models = bool(elements) and isinstance(elements[0], BaseModel)
        start = same if before is not None and before.models is self.models else 0
        self.copies: list[Any] = before.copies[:start] if before is not None else []
        self.extras: list[Any] = before.extras[:start] if before is not None else []
        for place in range(start, len(elements)):
            if isinstance(elements[place], BaseModel) is not self.models:
                break
            known = taken[place] if taken else None
            try:
                state, extra = (known.state, known.extra) if known is not None else state_of(elements[place])
            except UnsureError:
                break
            self.copies.append(state)
            self.extras.append(extra)
        self.elements = list(elements[: len(self.copies)])
        self.digests = tuple(digests[: len(self.copies)])
        self._bare: bool = not any(self.extras[start:]) and (before is None or not start or before._bare)
        self._places: dict[int, int] | None = None

    def unchanged(self, elements: Sequence[Any]) -> int:
        """How many elements from the first on are the same objects and as they were."""
        count = min(len(self.elements), len(elements))
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
        """The hash of an element, wherever it stands, if it is as it was."""
        if self._places is None:
            self._places = {id(each): place for place, each in enumerate(self.elements)}
        place = self._places.get(id(element))
        if place is None or self.elements[place] is not element:
            return None
        state = (element.__dict__, element.__pydantic_extra__) if self.models else (element, None)
        return self.digests[place] if state == (self.copies[place], self.extras[place]) else None


class Line:
    """What is remembered of one line of checkpoints."""

    def __init__(self) -> None:
        self.newest: tuple[str, Mapping[str, Any]] | None = None
        """The checkpoint that was put or read last, and the versions of its channels."""
        self._lists: dict[str, tuple[Known, ...]] = {}

    def digests(self, channel: str, elements: Sequence[Any], encode: Callable[[Any], bytes]) -> tuple[bytes, ...]:
        """The hash of each element, remembered; `encode` gives that of one that is new or was changed."""
        for known in self._lists.get(channel, ()):
            if count := known.unchanged(elements):
                rest = elements[count:]
                if count == len(known.elements):  # it has grown at its end, and all there is new
                    found = known.digests + tuple(map(encode, rest))
                else:
                    found = known.digests[:count] + tuple(known.digest(each) or encode(each) for each in rest)
                self.keep(channel, Known(elements, found, known, count))
                return found
        found = tuple(map(encode, elements))
        self.keep(channel, Known(elements, found))
        return found

    def keep(self, channel: str, known: Known) -> None:
        """Remember a list; the one before too, since a run may go on with that while another looks at this one."""
        before = self._lists.get(channel, ())
        last = before[:1] if before and not _extends(known, before[0]) else before[1:]
        self._lists[channel] = (known, *last)


def _extends(known: Known, before: Known) -> bool:
    """Whether a list begins with the same object as the one before: the same run, gone on."""
    return bool(known.elements and before.elements and known.elements[0] is before.elements[0])


class EncodeCache:
    """Lines, the ones that were used last, and what was decoded lately."""

    def __init__(self) -> None:
        self.templates = DecodeCache()
        self._lock = threading.Lock()
        self._lines: OrderedDict[tuple[str, str], Line] = OrderedDict()

    def line(self, thread_id: str, checkpoint_ns: str) -> Line:
        """What is remembered of a line."""
        with self._lock:
            found = self._lines.setdefault((thread_id, checkpoint_ns), Line())
            self._lines.move_to_end((thread_id, checkpoint_ns))
            while len(self._lines) > _LINES:
                self._lines.popitem(last=False)
            return found

    def forget(self, thread_id: str) -> None:
        """Remember nothing of a thread."""
        with self._lock:
            for key in [key for key in self._lines if key[0] == thread_id]:
                del self._lines[key]
