"""Stores whose memory is proven block by block when a test is over."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from holdproof import sync
from holdproof.memory.objects import object_checks
from holdproof.memory.objects.object_checks import ObjectFlaw
from tests.conformance.decisions import OnStore


def flaws(store: sync.Holdproof) -> list[ObjectFlaw]:
    """What the checks of memory find."""
    spaces, found = store.read(object_checks.names)
    found += pages(store, object_checks.content) + pages(store, object_checks.snapshots)
    for ns in spaces:
        found += pages(store, partial(object_checks.history, ns=ns))
        found += pages(store, partial(object_checks.tree, ns=ns)) + pages(store, partial(object_checks.index, ns=ns))
        found += pages(store, partial(object_checks.vectors, ns=ns)) + pages(
            store, partial(object_checks.vector_rows, ns=ns)
        )
    return found


def pages(store: sync.Holdproof, check: Callable[..., object_checks.CheckedPage]) -> list[ObjectFlaw]:
    """What a check finds, page by page."""
    found, after = [], None
    while True:
        page = store.read(lambda tx: check(tx, after=after))  # noqa: B023
        found += page.flaws
        if page.last is None:
            return found
        after = page.last


class OnMemory(OnStore):
    """A store for each test; at its end every block, snapshot and index holds."""

    @pytest.fixture
    def store(self, clock: Any) -> Iterator[sync.Holdproof]:
        with self.open(clock=clock) as store:
            yield store
            found = flaws(store)
            assert found == [], found
            assert store.check().ok
