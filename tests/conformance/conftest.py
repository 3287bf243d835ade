"""What suites of stores share."""

from collections.abc import Iterator

import pytest

from holdproof import sync
from holdproof.testing import FrozenClock
from tests.conformance.memories import flaws


@pytest.fixture
def other() -> Iterator[sync.Holdproof]:
    """Another store, empty."""
    with sync.open(url=":memory:", clock=FrozenClock()) as store:
        yield store
        assert flaws(store) == []
