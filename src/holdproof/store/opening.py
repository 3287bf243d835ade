"""Opening a store: where it is, its database, its log, and what an earlier process left unfinished.

Rules:
- Nothing falls back and nothing is guessed: what is configured is opened, or a typed error says why not.
- The first run says where data lives.
- An opening that fails at any step leaves nothing open behind.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from holdproof import config
from holdproof.crypto.canonical import sha256_hex
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.db import MEMORY, Database, Hooks, Tx, open_database, sql
from holdproof.errors import CorruptError, HoldproofError, InvalidInputError
from holdproof.evidence import crash_recovery, lockdown, startup, tree
from holdproof.evidence.heads import HeadFile
from holdproof.evidence.key_files import KeyFolder, Keys, MemoryKeys, own_keys
from holdproof.runtime import sagas
from holdproof.store.context import Context, Embedder
from holdproof.store.store import VERSION, Store, facts
from holdproof.upkeep import erase, head_webhook
from holdproof.upkeep import lockdown as response
from holdproof.upkeep.backups import swap
from holdproof.upkeep.head_webhook import HeadWebhook
from holdproof.upkeep.verification import trusted_keys

__all__ = ["VERSION", "Location", "Store", "locate", "open_at", "open_store"]

_log = logging.getLogger("holdproof")


class Location(NamedTuple):
    """Where a store is: the folders of its home, its settings, and its database (a file, a URL or `:memory:`)."""

    paths: config.Paths
    settings: config.Settings
    target: str | Path


def locate(home: str | Path | None, url: str | None) -> Location:
    """Find the store that `home`, `url`, the environment and the configuration name; nothing is opened."""
    if str(home) == MEMORY:
        raise InvalidInputError(f"a store in memory is url={MEMORY!r}; home is a folder", home=MEMORY)
    paths = config.Paths.find(home)
    try:
        project: Path | None = Path.cwd()
    except FileNotFoundError:  # a deleted working folder holds no project
        project = None
    settings = config.load(paths=paths, url=url, project=project)
    swap.finish(paths)  # a restore that was killed is finished before anybody looks at the files
    return Location(paths, settings, settings.database_url or paths.kernel_db)


def open_store(
    home: str | Path | None = None,
    url: str | None = None,
    *,
    keys: Keys | None = None,
    embedder: Embedder | None = None,
    dimensions: int | None = None,
    **options: Any,
) -> Store:
    """Open the store at `home` or `url`, or where the environment and the configuration say; migrated.

    `keys` replaces the key folder (a KMS), `embedder` makes intent vectors of `dimensions` numbers. Further options
    are those of the database.
    """
    location = locate(home, url)
    if location.target != MEMORY:
        location.paths.create()
    return _open(location, keys=keys, embedder=embedder, dimensions=dimensions, **options)


def open_at(paths: config.Paths, target: str | Path) -> Store:
    """Open exactly this database of a home, whatever the environment says."""
    url = target if isinstance(target, str) else None
    # An empty environment: HOLDPROOF_DATABASE_URL may still name the other end of a move.
    settings = config.load(paths=paths, url=url, override={}, env={})
    return open_located(Location(paths, settings, target))


def open_located(location: Location) -> Store:
    """Open the store at a location, with the settings it names."""
    return _open(location, keys=None, embedder=None, dimensions=None)


def _open(
    location: Location, *, keys: Keys | None, embedder: Embedder | None, dimensions: int | None, **options: Any
) -> Store:
    """Take the lock of the home, open the database, and start everything over it; undone in reverse on any error."""
    on_disk = location.target != MEMORY
    store_lock = swap.enter(location.paths) if on_disk else None
    try:
        head_file = HeadFile(location.paths.heads, _name_of(location.target)) if on_disk else None
        webhook = head_webhook.configured(os.environ) if on_disk else None
        database = open_database(location.target, hooks=Hooks(), **options)
        try:
            keys = keys or (KeyFolder(location.paths.keys) if on_disk else MemoryKeys())
            context = _start(
                location,
                database,
                keys=keys,
                head_file=head_file,
                webhook=webhook,
                embedder=embedder,
                dimensions=dimensions,
            )
        except BaseException:
            database.close()
            raise
    except BaseException:
        if store_lock is not None:
            store_lock.release()
        raise
    return Store(context, store_lock, webhook)


def _is_familiar(keys: Keys, head_file: HeadFile | None, database: Database) -> bool:
    """Whether this home vouches for the log, or sees a store for the first time; a damaged log is told elsewhere."""
    heads = head_file.kept_here() if head_file is not None else []
    if not heads:
        return True
    try:
        return database.read(lambda tx: trusted_keys.vouches(tx, own_keys(keys), heads)).result()
    except HoldproofError:
        return False


def _name_of(target: str | Path) -> str:
    """Return a short name for the database, for the head file: of a URL only a digest, since it may hold a password."""
    # The file of a home is always the same one: a home that was moved keeps its heads.
    return "file" if isinstance(target, Path) else sha256_hex(config.redact(target).encode())[:16]


def _start(
    location: Location,
    database: Database,
    *,
    keys: Keys,
    head_file: HeadFile | None,
    webhook: HeadWebhook | None,
    embedder: Embedder | None,
    dimensions: int | None,
) -> Context:
    """Start the log, the lockdown gate and the repairs over an open database; stops the log again if one fails."""
    paths, settings, target = location
    store_id = database.write(_name_store).result()
    # Read before the log starts: they are what the log must continue.
    heads = [*head_file.largest().values()] if head_file else []
    with _corruption():
        # The webhook only queues a head; the file comes second because it may raise on a full disk.
        listeners = [each.publish for each in (webhook, head_file) if each is not None]
        log = startup.start(
            database, keys, store_id, listeners, heads, is_familiar=partial(_is_familiar, keys, head_file)
        )
        try:
            context = Context(paths, settings, database, keys, log, head_file, embedder, dimensions)
            if head_file is not None:  # a restore into a server whose process was killed leaves files to exchange
                swap.settle(paths, database.read(tree.state).result().origin, str(target))
            lockdown.start(database, paths.lockdown if head_file is not None else None)
            database.hooks.history_lost.append(partial(response.history_lost, context))
            if database.first_run and head_file is not None:
                _announce(target, heads)
            # In this order: a log that was tampered with locks the store before any repair could write over it.
            response.at_opening(context)
            crash_recovery.at_opening(context)
            erase.at_opening(context)
            sagas.at_opening(database)
        except BaseException:
            log.stop()
            raise
    return context


@contextmanager
def _corruption() -> Iterator[None]:
    """Translate a value of an unexpected type into CorruptError: SQLite stores any type in any column."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"the store holds what Holdproof never writes: {error}") from error


def _announce(target: str | Path, heads: list[SignedCheckpoint]) -> None:
    _log.info("a new store was created; its data lives in %s", config.redact(str(target)))
    if heads:
        names = ", ".join(each.checkpoint.origin for each in heads)
        _log.warning("another store was here before: heads of %s were kept", names)


_ONCE = sql("INSERT INTO store_facts (key, value, updated_at) VALUES (:key, :value, :now) ON CONFLICT (key) DO NOTHING")


def _name_store(tx: Tx) -> str:
    """Give a new store its id, once, and return it; of two processes that open it at once the first one's stays."""
    tx.execute(_ONCE, key="store_id", value=tx.new_id(), now=tx.now)
    tx.execute(_ONCE, key="created_at", value=tx.now, now=tx.now)
    return facts(tx)["store_id"]
