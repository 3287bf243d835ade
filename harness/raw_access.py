"""Read and write a store's databases without Holdproof, as an attacker does who has the files or the server."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg

from holdproof.db.sqlite import page_checksums


def copy(template: Path, target: Path) -> Path:
    """A store of its own for one test."""
    return Path(shutil.copytree(template, target, symlinks=True))


@contextmanager
def behind(home: Path, file: str = "kernel.db") -> Iterator[apsw.Connection]:
    """A database of a closed store as an attacker has it: any statement, page checksums written anew."""
    assert page_checksums.checksums()
    connection = apsw.Connection(str(home / file), vfs=page_checksums.checksums())
    connection.pragma("foreign_keys", False)
    connection.pragma("writable_schema", True)
    connection.pragma("ignore_check_constraints", True)
    try:
        yield connection
        connection.pragma("wal_checkpoint(truncate)")
    finally:
        connection.close()


def attack(home: Path, *statements: str) -> None:
    """Run statements past Holdproof."""
    with behind(home) as connection:
        for statement in statements:
            connection.execute(statement)


def attack_server(url: str, *statements: str) -> None:
    """The same on a server."""
    with psycopg.connect(url, autocommit=True, options="-c search_path=kernel") as connection:
        for statement in statements:
            connection.execute(statement.encode())


class Past:
    """A store's kernel as an attacker has it, on either database; parameters are `?`."""

    def __init__(self, home: Path, url: str | None = None) -> None:
        self.home, self.url = home, url
        self._server: psycopg.Connection[tuple[Any, ...]] | None = None

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Make one transaction of a server of what is asked in the block: an open store sees all of it, or nothing."""
        if self.url is None:
            yield
            return
        with psycopg.connect(self.url, options="-c search_path=kernel") as server:
            self._server = server
            try:
                yield
            finally:
                self._server = None

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query answers; nothing for what is no query."""
        if self.url is None:
            with behind(self.home) as connection:
                return connection.execute(statement, values).fetchall()
        if self._server is not None:
            return _answer(self._server, statement, values)
        with psycopg.connect(self.url, autocommit=True, options="-c search_path=kernel") as server:
            return _answer(server, statement, values)

    def run(self, *statements: str) -> None:
        """Statements, one after the other."""
        if self.url is None:
            attack(self.home, *statements)
        else:
            attack_server(self.url, *statements)


def _answer(
    server: psycopg.Connection[tuple[Any, ...]], statement: str, values: Sequence[Any]
) -> list[tuple[Any, ...]]:
    server.execute("SET session_replication_role = replica")  # no foreign key stands in the way
    done = server.execute(statement.replace("%", "%%").replace("?", "%s").encode(), values)
    return done.fetchall() if done.description else []


Ask = Callable[[str], list[tuple[Any, ...]]]


def asking(home: Path) -> Ask:
    """Read past Holdproof."""

    def ask(statement: str) -> list[tuple[Any, ...]]:
        with behind(home) as connection:
            return connection.execute(statement).fetchall()

    return ask
