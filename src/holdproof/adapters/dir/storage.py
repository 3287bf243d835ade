"""What DIR's ten storages share: the store, the namespace, and JSON as DIR writes it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from holdproof import sync, validation
from holdproof.errors import NotFoundError
from holdproof.kernel import Tx

T = TypeVar("T")

PAGE = 1_000


@dataclass(frozen=True, slots=True)
class DirStore:
    """An open store, and the namespace in it."""

    store: sync.Holdproof
    ns: str

    def find(self, fn: Callable[[Tx], T]) -> T | None:
        """Return what a reading function finds; None where there is nothing."""
        try:
            return self.store.read(fn)
        # DIR's protocols say None for absent.
        except NotFoundError:
            return None

    def read_all(self, page: Callable[[Tx, Any], tuple[Sequence[T], Any]], first: Any) -> list[T]:
        """Return all pages of a listing in one snapshot, as one list."""

        def walk(tx: Tx) -> list[T]:
            items: list[T] = []
            after = first
            while after is not None:
                values, after = page(tx, after)
                items += values
            return items

        # All pages in one transaction: DIR's interface has no pages, and a list must not tear.
        return self.store.read(walk)


class Storage:
    """One of DIR's storages."""

    def __init__(self, dir_store: DirStore) -> None:
        self._dir_store = dir_store
        self._store = dir_store.store
        self._ns = dir_store.ns

    def init_schema(self) -> None:
        """Nothing to do: an open store has its tables."""


def dumps(value: Any) -> str:
    """A value as DIR encodes it; InvalidInputError where that is no JSON."""
    return validation.json_text("value", json.dumps(value, sort_keys=True, default=str))


def text(what: str, json_text: str | None) -> str:
    """A JSON text as it was given; an empty one is an empty object."""
    return validation.json_text(what, json_text or "{}")


def named_agent(agent_id: str | None, details: Mapping[str, Any] | None = None) -> str | None:
    """Return the agent that a call is about: named outright, or in its details."""
    name = agent_id or (details or {}).get("agent_id")
    return str(name) if name else None
