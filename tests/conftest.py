"""Real servers for the tests, started once a run."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdproof import sync
from tests.receiver import Receiver
from tests.servers import IpfsNode, Postgres, Seaweed


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres(syncs=False)
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """An empty database of its own for one test."""
    yield from _database(postgres)


def _database(server: Postgres) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:12]}"
    server.sql(f"CREATE DATABASE {name}")
    yield server.url(name)
    server.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def pgvector() -> Iterator[Postgres]:
    """A server of its own: its build of the extension may be for another processor, and take the server down."""
    server = Postgres(syncs=False)
    try:
        server.sql("CREATE EXTENSION vector")
        server.sql("SELECT '[1,2]'::vector <=> '[2,1]'::vector")
    except psycopg.Error as error:
        server.stop()
        pytest.skip(f"this server cannot compare vectors: {error}")
    yield server
    server.stop()


@pytest.fixture
def pgvector_url(pgvector: Postgres) -> Iterator[str]:
    """An empty database of its own for one test, on a server with the extension `vector`."""
    yield from _database(pgvector)


@pytest.fixture(scope="session")
def template(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A new store and its home, made once, to be copied: that is faster than making each anew."""
    home = tmp_path_factory.mktemp("template") / "home"
    postgres.sql("CREATE DATABASE template_store")
    sync.open(home, postgres.url("template_store")).close()
    return "template_store", home


@pytest.fixture
def postgres_store(postgres: Postgres, template: tuple[str, Path], tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The URL and the home of a store that was never used, for one test."""
    name = f"t{uuid.uuid4().hex[:12]}"
    postgres.sql(f"CREATE DATABASE {name} TEMPLATE {template[0]}")
    shutil.copytree(template[1], tmp_path / "home")
    yield postgres.url(name), tmp_path / "home"
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def anywhere(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, str | None]]:
    """A home, alone or with a database on a real server, for the tests of one module."""
    home = tmp_path_factory.mktemp(request.param) / "home"
    if request.param == "sqlite":
        yield home, None
        return
    for url in _database(request.getfixturevalue("postgres")):
        yield home, url


@pytest.fixture(scope="session")
def seaweed() -> Iterator[Seaweed]:
    server = Seaweed()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def ipfs_node() -> Iterator[IpfsNode]:
    node = IpfsNode()
    yield node
    node.stop()


@pytest.fixture
def serve() -> Iterator[Callable[..., Receiver]]:
    made: list[Receiver] = []

    def make(*answers: Any) -> Receiver:
        made.append(Receiver(*answers))
        return made[-1]

    yield make
    for server in made:
        server.close()
