"""What DIR's ten storages share: the store, the namespace, and JSON as DIR writes it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from holdproof import Tx, sync, validation
from holdproof.errors import NotFoundError

T = TypeVar("T")

PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Place:
    """An open store, and the namespace in it."""

    store: sync.Holdproof
    ns: str

    def find(self, fn: Callable[[Tx], T]) -> T | None:
        """What a reading function finds; None where there is nothing."""
        try:
            return self.store.read(fn)
        except NotFoundError:
            return None

    def every(self, page: Callable[[Tx, Any], tuple[Sequence[T], Any]], first: Any) -> list[T]:
        """All pages of a listing in one snapshot, as one list."""

        def walk(tx: Tx) -> list[T]:
            found: list[T] = []
            after = first
            while after is not None:
                values, after = page(tx, after)
                found += values
            return found

        return self.store.read(walk)


class Storage:
    """One of DIR's storages."""

    def __init__(self, place: Place) -> None:
        self._place, self._store, self._ns = place, place.store, place.ns

    def init_schema(self) -> None:
        """Nothing to do: an open store has its tables."""


def dumps(value: Any) -> str:
    """A value as DIR encodes it; InvalidInputError where that is no JSON."""
    return validation.json_text("value", json.dumps(value, sort_keys=True, default=str))


def text(what: str, given: str | None) -> str:
    """A JSON text as it was given; an empty one is an empty object."""
    return validation.json_text(what, given or "{}")


def named_agent(agent_id: str | None, details: Mapping[str, Any] | None = None) -> str | None:
    """The agent that a call is about: named outright, or in its details."""
    found = agent_id or (details or {}).get("agent_id")
    return str(found) if found else None
