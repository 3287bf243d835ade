"""Real servers for the tests, started once a run; the same examples in every run; skips listed at its end."""

import gc
import os
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import harness.example_profiles  # noqa: F401
from harness.servers import IpfsNode, PgBouncer, Postgres, Seaweed
from holdproof import sync
from holdproof.db import open_database
from tests import default_run, second_try, templates
from tests.databases import DatabasePool, fresh_database
from tests.receiver import Receiver


def pytest_configure(config: pytest.Config) -> None:
    second_try.offer(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without collecting garbage: 16,000 tests and a dozen frameworks stay to the end.

    Looking through all of them again and again takes a fifth of the time, and later garbage is found without them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter find all garbage at its end: libraries report what it leaves as leaks."""
    gc.unfreeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what others of the same run hold too (tests/default_run.py), unless `HOLDPROOF_THOROUGH=1`.

    Last, so that a test counts as another's twin only where it was not deselected.
    """
    needless = [] if default_run.is_thorough() else default_run.left_out(items)
    if default_run.was_checked():
        needless += default_run.checked(items)
    if needless:
        config.hook.pytest_deselected(items=needless)
        dropped = set(needless)
        items[:] = [item for item in items if item not in dropped]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List why tests were skipped: what is missing here is not proven here."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        terminalreporter.section(f"{reasons.total()} skipped, by reason")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5}  {reason}")


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        _, _, reason = report.longrepr
        return reason.removeprefix("Skipped: ")
    return str(report.longrepr)


@pytest.fixture(scope="session", autouse=True)
def _copied() -> Iterator[None]:
    """Run the migrations of stores in memory, and those that verification compares with, once a process."""
    if default_run.is_thorough():
        yield
        return
    with templates.copied():
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres(syncs=False)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def reached(postgres: Postgres) -> Iterator[Callable[[str], str]]:
    """How tests reach a database: at the server, or through the pooler whose mode HOLDPROOF_TEST_POOLER names."""
    mode = os.environ.get("HOLDPROOF_TEST_POOLER")
    if not mode:
        yield lambda url: url
        return
    pooler = PgBouncer(postgres, mode)
    yield lambda url: pooler.url(urlsplit(url).path.removeprefix("/"))
    pooler.stop()


@pytest.fixture
def empty_postgres_url(postgres: Postgres, reached: Callable[[str], str]) -> Iterator[str]:
    """A database of its own for one test, with no schema in it: for tests of migrations and of opening."""
    with fresh_database(postgres) as url:
        yield reached(url)


@pytest.fixture(scope="session")
def migrated(postgres: Postgres) -> str:
    """The name of a database in which every migration ran and no store was opened."""
    with fresh_database(postgres, name="template_migrated", drop=False) as url:
        for space in ("kernel", "membrane", "telemetry"):
            open_database(url, space=space, workers=1).close()
    return "template_migrated"


@pytest.fixture(scope="session")
def migrated_pool(postgres: Postgres, migrated: str) -> Iterator[DatabasePool]:
    pool = DatabasePool(postgres, migrated)
    yield pool
    pool.close()


@pytest.fixture
def postgres_url(migrated_pool: DatabasePool, reached: Callable[[str], str]) -> Iterator[str]:
    """A database of its own for one test, with the tables of a store and no row in them."""
    with migrated_pool.database() as url:
        yield reached(url)


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
    """A database of its own for one test, with no schema in it, on a server with the extension `vector`."""
    with fresh_database(pgvector) as url:
        yield url


@pytest.fixture(scope="session")
def template(postgres: Postgres, migrated: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A new store and its home, made once, to be copied: that is faster than making each anew."""
    home = tmp_path_factory.mktemp("template") / "home"
    with fresh_database(postgres, name="template_store", template=migrated, drop=False) as url:
        sync.open(home, url).close()
    return "template_store", home


@pytest.fixture(scope="session")
def store_pool(postgres: Postgres, template: tuple[str, Path]) -> Iterator[DatabasePool]:
    name, _ = template
    pool = DatabasePool(postgres, name)
    yield pool
    pool.close()


@pytest.fixture
def postgres_store(
    store_pool: DatabasePool, template: tuple[str, Path], tmp_path: Path, reached: Callable[[str], str]
) -> Iterator[tuple[str, Path]]:
    """The URL and the home of a store that was never used, for one test."""
    _, home = template
    shutil.copytree(home, tmp_path / "home")
    with store_pool.database() as url:
        yield reached(url), tmp_path / "home"


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a kernel in which every migration ran and no store was opened."""
    file = tmp_path_factory.mktemp("migrated") / "kernel.db"
    open_database(file).close()
    return file


@pytest.fixture
def sqlite_home(migrated_file: Path, tmp_path: Path) -> Path:
    """A home for one test, with the tables of a store and no row in them: each migration would cost two syncs."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    shutil.copy2(migrated_file, home / "kernel.db")
    return home


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def anywhere(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, str | None]]:
    """A home, alone or with a database on a real server, for the tests of one module."""
    home = tmp_path_factory.mktemp(request.param) / "home"
    if request.param == "sqlite":
        yield home, None
        return
    with request.getfixturevalue("migrated_pool").database() as url:
        yield home, request.getfixturevalue("reached")(url)


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
