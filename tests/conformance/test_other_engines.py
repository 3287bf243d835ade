"""Engines that speak PostgreSQL's protocol and are not PostgreSQL: refused at opening, with the reason.

None of them installs here. So a proxy before a real server answers as they do: in what they say of themselves, in how
they keep JSON, in advisory locks that do nothing. It changes bytes only for others of the same number.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from harness.servers import Postgres
from harness.tcp_proxy import DOWN, UP, Fault, Proxy, to_unix
from holdproof import errors, sync

_NAMES = {
    # What a server reports when a connection is opened: name and value, each with its end.
    "CockroachDB": {b"in_hot_standby\0off\0": b"crdb_version\0v25.2\0"},
    "YugabyteDB": {b"server_encoding\0UTF8\0": b"server_version\0-YB-2\0"},
}
_SORTED = {b'{"b": 1,  "a": 1}': b'{"a": 1,  "b": 1}'}
_NO_LOCKS = {b"pg_try_advisory_xact_lock(": b"public.advisory_xact_stub("}


class LyingServer(Proxy):
    """A server whose answers, or the questions to which, are exchanged for others."""

    def __init__(self, server: Postgres, *, answers: Mapping[bytes, bytes], questions: Mapping[bytes, bytes]) -> None:
        super().__init__(to_unix(server.socket))
        self._exchanged = {DOWN: answers, UP: questions}
        self.times = 0

    def passes(self, direction: str, data: bytes) -> tuple[bytes, Fault | None]:
        """Exchange what is to be exchanged; nothing is cut."""
        for before, after in self._exchanged[direction].items():
            assert len(before) == len(after)
            self.times += data.count(before)
            data = data.replace(before, after)
        return data, None


@pytest.fixture
def lying(postgres: Postgres) -> Iterator[Callable[..., LyingServer]]:
    proxies: list[LyingServer] = []

    def start(*, answers: Mapping[bytes, bytes] = {}, questions: Mapping[bytes, bytes] = {}) -> LyingServer:
        proxies.append(LyingServer(postgres, answers=answers, questions=questions))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


def _opened(proxy: LyingServer, url: str, home: Path) -> None:
    database = urlsplit(url).path
    sync.open(home, f"postgresql://postgres@127.0.0.1:{proxy.port}{database}?sslmode=disable").close()


def _schemas(url: str) -> int:
    with psycopg.connect(url) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'kernel'").fetchall()
    return int(count)


@pytest.mark.parametrize("engine", _NAMES)
def test_an_engine_that_says_its_name_is_refused_by_it_and_nothing_is_made(
    engine: str, lying: Callable[..., LyingServer], empty_postgres_url: str, tmp_path: Path
) -> None:
    proxy = lying(answers=_NAMES[engine])
    with pytest.raises(errors.ConfigError, match=engine) as refused:
        _opened(proxy, empty_postgres_url, tmp_path)
    assert proxy.times
    assert "PostgreSQL 14" in refused.value.remedy
    assert not _schemas(empty_postgres_url)


def test_an_engine_that_sorts_the_keys_of_json_is_refused_whatever_its_name(
    lying: Callable[..., LyingServer], empty_postgres_url: str, tmp_path: Path
) -> None:
    proxy = lying(answers=_SORTED)
    with pytest.raises(errors.ConfigError, match="does not keep the text of JSON"):
        _opened(proxy, empty_postgres_url, tmp_path)
    assert proxy.times == 1
    assert not _schemas(empty_postgres_url)


def test_an_engine_whose_advisory_locks_do_nothing_is_refused_whatever_its_name(
    lying: Callable[..., LyingServer], empty_postgres_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(empty_postgres_url) as connection:
        connection.execute(
            "CREATE FUNCTION public.advisory_xact_stub(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'"
        )
    proxy = lying(questions=_NO_LOCKS)
    with pytest.raises(errors.ConfigError, match="advisory locks hold nobody back"):
        _opened(proxy, empty_postgres_url, tmp_path)
    assert proxy.times == 1
    assert not _schemas(empty_postgres_url)


def test_an_engine_without_advisory_locks_is_refused_with_its_own_words(
    lying: Callable[..., LyingServer], empty_postgres_url: str, tmp_path: Path
) -> None:
    proxy = lying(questions=_NO_LOCKS)
    with pytest.raises(errors.ConfigError, match=r"not PostgreSQL.*advisory_xact_stub"):
        _opened(proxy, empty_postgres_url, tmp_path)
    assert not _schemas(empty_postgres_url)


def test_a_right_that_is_missing_is_not_taken_for_another_engine(
    postgres: Postgres, empty_postgres_url: str, tmp_path: Path
) -> None:
    """What is tried at opening is read with the login's rights, of which PostgreSQL tells by itself."""
    database = urlsplit(empty_postgres_url).path.removeprefix("/")
    login = f"{database}_unable"
    with psycopg.connect(empty_postgres_url) as connection:
        connection.execute("REVOKE SELECT ON pg_catalog.pg_locks FROM PUBLIC")
    postgres.sql(f'CREATE ROLE "{login}" LOGIN')
    try:
        with pytest.raises(errors.MissingPrivilegeError, match="pg_locks"):
            sync.open(tmp_path, postgres.url(database).replace("postgres@", f"{login}@")).close()
    finally:
        postgres.sql(f'DROP ROLE "{login}"')


def test_postgresql_behind_the_same_proxy_is_taken(
    lying: Callable[..., LyingServer], empty_postgres_url: str, tmp_path: Path
) -> None:
    _opened(lying(), empty_postgres_url, tmp_path)
    assert _schemas(empty_postgres_url) == 1
