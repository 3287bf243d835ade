"""What suites of stores share."""

from collections.abc import Iterator

import pytest

from holdfast import sync
from holdfast.testing import FrozenClock
from tests.conformance.memories import flaws


@pytest.fixture
def other() -> Iterator[sync.Holdfast]:
    """Another store, empty."""
    with sync.open(url=":memory:", clock=FrozenClock()) as store:
        yield store
        assert flaws(store) == []
