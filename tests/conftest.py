"""Real servers for the tests, started once a run."""

import uuid
from collections.abc import Iterator

import pytest

from tests.servers import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """An empty database of its own for one test."""
    name = f"t{uuid.uuid4().hex[:12]}"
    postgres.sql(f"CREATE DATABASE {name}")
    yield postgres.url(name)
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")
