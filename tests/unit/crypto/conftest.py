"""Leave the tests of this folder out of `make check`."""

from pathlib import Path

import pytest

import harness.example_profiles  # noqa: F401  (mutants run these tests without the conftest above)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Vectors and mutations by the hundred: every run of `make test` has them, `make check` has not."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("slow")
