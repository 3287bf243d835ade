"""Open a database: a file, a PostgreSQL URL or memory, migrated and ready."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdproof.db import migrate as migrations_of
from holdproof.db import sqlite
from holdproof.db.clock import Clock, Random, system_clock, system_random
from holdproof.db.database import Backend, Database
from holdproof.db.group_commit import Hooks
from holdproof.db.migrate import Migration
from holdproof.db.topics import Topics
from holdproof.errors import ConfigError, InvalidInputError, MissingExtraError, ReadOnlyError

MEMORY = ":memory:"

# The space where applications run SQL of their own, on PostgreSQL under a login with few rights.
_SERVED = "membrane"
_SQLITE = frozenset({"busy_s", "read_limit_s", "readers"})
_POSTGRES = frozenset({"connect_s", "direct_url", "lock_s", "read_limit_s", "readers", "silence_s", "workers"})


def open_database(
    target: str | Path,
    *,
    space: str = "kernel",
    migrations: Sequence[Migration] | None = None,
    hooks: Hooks | None = None,
    clock: Clock | None = None,
    random: Random = system_random,
    migrate: bool = True,
    readonly: bool = False,
    **options: Any,
) -> Database:
    """Open `target`: a path, `:memory:` or `postgresql://…`; `migrations` default to those shipped for the space.

    A `readonly` database must exist and is not changed: every write is refused, and no migration is applied. On
    PostgreSQL the clock defaults to the server's. Further options go to the backend: `readers`, `busy_s`,
    `read_limit_s` on SQLite; `workers`, `readers`, `connect_s`, `lock_s`, `read_limit_s`, `silence_s` and `direct_url`
    (the server itself, where the target is a pooler before it) on PostgreSQL.
    """
    _refuse_unknown(options, _POSTGRES if is_url(target) else _SQLITE)
    steps = migrations_of.shipped(space) if migrations is None else migrations
    common: dict[str, Any] = {"space": space, "hooks": hooks or Hooks(), "clock": clock, "random": random}
    if readonly:
        database = _open(target, steps, migrate=False, **common, **options, readonly=True)
        database.backend.writer.refuse(lambda: ReadOnlyError("this store was opened to read only"))
        return database
    if not is_url(target) or space != _SERVED:
        return _open(target, steps, migrate=migrate, **common, **options)
    # The owner creates it, then it is used under a login without further rights: applications run their own SQL there.
    owner = _open(target, steps, migrate=migrate, **common, **options | {"workers": 1, "readers": 1})
    owner.close()
    database = _open(target, steps, migrate=False, **common, **options, owner=False)
    database.first_run = owner.first_run
    return database


def _open(
    target: str | Path,
    steps: Sequence[Migration],
    *,
    space: str,
    hooks: Hooks,
    clock: Clock | None,
    random: Random,
    migrate: bool,
    **options: Any,
) -> Database:
    topics = Topics()
    backend: Backend
    if is_url(target):
        backend, new, used_clock = _postgres(
            str(target), space=space, hooks=hooks, topics=topics, clock=clock, random=random, **options
        )
    else:
        used_clock = clock or system_clock
        path = None if str(target) == MEMORY else Path(target).expanduser()
        backend, new = sqlite.open_sqlite(path, space=space, hooks=hooks, clock=used_clock, random=random, **options)
    database = Database(backend, hooks=hooks, topics=topics, clock=used_clock)
    database.first_run = new
    try:
        if new and database.dialect == "sqlite":
            # Before any migration: a crash in between must leave a file that is recognised as ours.
            database.write(lambda tx: sqlite.claim(tx, space), ungated=True).result()
        if migrate:
            migrations_of.migrate(database, steps)
        else:
            migrations_of.pending(database, steps)
    except BaseException:  # no thread may outlive a store that could not be opened
        database.close()
        raise
    return database


def _refuse_unknown(options: dict[str, Any], allowed: frozenset[str]) -> None:
    if unknown := sorted(options.keys() - allowed):
        raise InvalidInputError(
            f"no option {unknown[0]!r} here; use one of {', '.join(sorted(allowed))}", option=unknown[0]
        )


def is_url(target: str | Path) -> bool:
    """Return whether a target names a server; ConfigError for a scheme that is not PostgreSQL's."""
    scheme, colon, _ = str(target).partition("://")
    if not colon and str(target).startswith(("postgresql:", "postgres:")):
        # Taken for a path, it would become a folder whose name holds the password.
        raise ConfigError("the address of a PostgreSQL database begins with postgresql://")
    if not colon:
        return False
    if scheme not in {"postgresql", "postgres"}:
        raise ConfigError(f"unknown kind of database {scheme}://; use postgresql://…", scheme=scheme)
    return True


def is_there(target: str | Path, space: str = "kernel") -> bool:
    """Return whether a target exists already: the file, or the schema of that space; creates nothing."""
    if is_url(target):
        return bool(_driver().is_there(str(target), space))
    return str(target) == MEMORY or Path(target).expanduser().exists()


def _postgres(url: str, **options: Any) -> tuple[Backend, bool, Clock]:
    opened: tuple[Backend, bool, Clock] = _driver().open_postgres(url, **options)
    return opened


def _driver() -> Any:
    try:
        from holdproof.db import postgres  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("PostgreSQL needs its driver: pip install 'holdproof[postgres]'") from error
    return postgres
