"""Property tests here draw the same examples in every run, and no slow machine fails them."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Vectors and mutations by the hundred: every run of `make test` has them, `make check` has not."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("slow")
