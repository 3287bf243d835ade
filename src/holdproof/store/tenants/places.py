"""Where tenants are: a home below the parent's, and a database of the same kind as the parent's, or one elsewhere.

Rules:
- The home of a tenant is `tenants/NAME` in the parent's: its keys, its heads and its files, and on SQLite its database.
- On a server each tenant has a database of its own: `PARENT_NAME`, or the one that was named.
- A URL without password is written down, never one with: who opens it brings the password (PGPASSFILE, a certificate).
- Where a tenant lies is read from the parent's row, which is compared with its entry first.
"""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from holdproof.config import Paths, Settings
from holdproof.db import MEMORY, Database, Tx, migrate, open_database
from holdproof.db.backends import is_there, is_url
from holdproof.errors import InvalidInputError, MigrationError, NoStoreError, TenantFindingError, TenantNotFoundError
from holdproof.evidence import tenants
from holdproof.evidence.tenants import TenantRow
from holdproof.urls import database_of, has_password, redact, with_database

T = TypeVar("T")

FOLDER: Final = "tenants"
_MAINTENANCE: Final = "postgres"
"""The database of a server from which others are made and removed."""
_LONGEST: Final = 63
"""How long the name of a database may be."""


class TenantPlace(NamedTuple):
    """Where a tenant is: what `open` takes, and the server's own address where a pooler stands before it."""

    name: str
    home: Path
    url: str | None
    direct_url: str | None = None

    @property
    def paths(self) -> Paths:
        """The folders of its home."""
        return Paths.find(self.home)

    @property
    def target(self) -> str | Path:
        """Its database."""
        return self.url or self.paths.kernel_db

    @property
    def session_target(self) -> str | Path:
        """Its database without a pooler before it: for looks that must leave no session open, and for whole copies."""
        return self.direct_url or self.target

    @property
    def administration(self) -> tuple[str, str]:
        """Where its database is made and removed from, and that database's name; for one on a server."""
        assert self.url is not None, "a file has no server"
        return with_database(self.direct_url or self.url, _MAINTENANCE), database_of(self.direct_url or self.url)


class Parent(NamedTuple):
    """The store that knows the tenants: where it is, and what it is configured with."""

    paths: Paths
    settings: Settings

    @property
    def url(self) -> str | None:
        """The parent's database on a server; None for a file."""
        return self.settings.database_url

    def refuse_memory(self) -> None:
        """Raise InvalidInputError for a store in memory: it has no home that a tenant could be in."""
        if self.url == MEMORY:
            raise InvalidInputError("a store in memory has no tenants: open one with a home")

    def default_place(self, name: str) -> str:
        """Return the place of a new tenant where none is named; see `evidence.tenants`."""
        self.refuse_memory()
        if self.url is None:
            return ""
        database = f"{database_of(self.url)}_{name}"
        if len(database.encode()) > _LONGEST:
            raise InvalidInputError(
                f"the database {database} would have a name of more than {_LONGEST} bytes: name an empty one (--place)",
                field="place",
            )
        return database

    def check_place(self, place: str) -> str:
        """Validate a place that somebody names: a database on the parent's server, or the URL of one."""
        self.refuse_memory()
        if is_url(place):
            if has_password(place):
                raise InvalidInputError(
                    "a place is written into the log, so its URL has no password: keep that in a password file"
                    " (PGPASSFILE), or use a certificate",
                    field="place",
                )
            return place
        if self.url is None and "/" in place:
            raise InvalidInputError(
                f"{place} is no database: a tenant of files goes to another disk with its home, which is moved while"
                f" nobody has it open, and linked from {self.paths.data / FOLDER}",
                field="place",
            )
        if self.url is None or not place.isprintable() or not 0 < len(place.encode()) <= _LONGEST or "/" in place:
            raise InvalidInputError(
                f"{place!r} is no place: name a database on the parent's server, where it has one, or a URL",
                field="place",
            )
        return place

    def place_of(self, row: TenantRow) -> TenantPlace:
        """Return where a tenant is."""
        return self.at(row.name, row.place)

    def at(self, name: str, place: str) -> TenantPlace:
        """Return where a tenant of that name and place is."""
        home = self.paths.data / FOLDER / tenants.name(name)
        if not place:
            return TenantPlace(name, home, None)
        if is_url(place):
            return TenantPlace(name, home, place)
        if self.url is None:
            raise InvalidInputError(f"the tenant {name} is in a database of a server: name the parent's URL too")
        direct = self.settings.direct_url
        return TenantPlace(
            name, home, with_database(self.url, place), None if direct is None else with_database(direct, place)
        )


def resolve(parent: Parent, name: str, *, usable: bool = True) -> TenantPlace:
    """Return where a tenant is, by the parent's database, which is only read; TenantNotFoundError if there is none.

    With `usable` a tenant that is not created yet, is being deleted, or has a finding is refused.
    """
    parent.refuse_memory()
    tenants.name(name)
    row = _read(parent, partial(tenants.require, tenant=name))
    if usable:
        refuse_unusable(row)
    return parent.place_of(row)


def refuse_unusable(row: TenantRow) -> None:
    """Raise for a tenant that is not created yet, is being deleted, or whose log is not believed."""
    if row.status != "active":
        again = "create" if row.status == "creating" else "delete"
        raise TenantNotFoundError(
            f"the tenant {row.name} is {row.status}: `holdproof tenants {again} {row.name}` finishes that",
            tenant=row.name,
        )
    if row.finding is not None:
        raise TenantFindingError(f"the tenant {row.name} is not opened: {row.finding}", tenant=row.name)


def _read(parent: Parent, fn: Callable[[Tx], T]) -> T:
    target = parent.url or parent.paths.kernel_db
    if not is_there(target):
        place = redact(parent.url) if parent.url else str(parent.paths.data)
        raise NoStoreError(f"there is no store at {place} that could have tenants", place=place)
    with closing(open_to_read(target, **parent.settings.options_of(target))) as database:
        if pending := migrate.pending(database, migrate.shipped("kernel")):
            names = ", ".join(step.name for step in pending)
            raise MigrationError(
                f"this store is of an older version: {names} must be applied first",
                remedy="`holdproof db migrate` of the parent applies them.",
            )
        return database.read(fn).result()


def open_to_read(target: str | Path, **options: Any) -> Database:
    """Open a kernel to read a few rows of it, with as few threads and connections as that takes."""
    if is_url(target):
        options = {"workers": 1, **options}
    return open_database(target, readonly=True, migrate=False, readers=1, **options)
