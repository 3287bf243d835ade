"""Opening a store: where it is, its database, its log, and what an earlier process left unfinished.

Rules:
- Nothing falls back and nothing is guessed: what is configured is opened, or a typed error says why not.
- The first run says where data lives. Where a store was before, as the heads that this home kept show, no new one is
  created in silence: its database was deleted, and a new log would verify for ever.
- An opening that fails at any step leaves nothing open behind.
"""

import logging
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypedDict

from holdproof import config
from holdproof.db import MEMORY, Database, Flows, Hooks, Migration, Notes, Tx, Use, migrate, open_database, sql
from holdproof.db.backends import is_there
from holdproof.db.clock import Clock, Random
from holdproof.errors import (
    BusyError,
    CorruptError,
    HoldproofError,
    InvalidInputError,
    MigrationError,
    NoStoreError,
    StoreGoneError,
)
from holdproof.evidence import accesses, crash_recovery, lockdown, startup, tenant_limits, tree
from holdproof.evidence.heads import HeadFile, name_of
from holdproof.evidence.key_files import KeyFolder, Keys, MemoryKeys, own_keys
from holdproof.lazy import lazy_module
from holdproof.runtime import overview
from holdproof.store.context import Context, Embedder
from holdproof.store.store import Store, facts
from holdproof.upkeep import erase, head_webhook
from holdproof.upkeep import lockdown as response
from holdproof.upkeep.backups import swap
from holdproof.upkeep.head_webhook import HeadWebhook
from holdproof.urls import redact

if TYPE_CHECKING:
    from holdproof.store.tenants import places
    from holdproof.store.tenants.places import TenantPlace
    from holdproof.upkeep import alarm, material_notes
    from holdproof.upkeep.verification import trusted_keys
else:
    places = lazy_module("holdproof.store.tenants.places")
    alarm = lazy_module("holdproof.upkeep.alarm")
    material_notes = lazy_module("holdproof.upkeep.material_notes")
    trusted_keys = lazy_module("holdproof.upkeep.verification.trusted_keys")

__all__ = [
    "Location",
    "OpenOptions",
    "Store",
    "has_kernel",
    "has_store",
    "head_file_of",
    "is_present",
    "locate",
    "open_at",
    "open_store",
    "refuse_absent",
    "refuse_gone",
    "refuse_unknown",
    "require_store",
]

_log = logging.getLogger("holdproof")
_FOLDED_URLS: Final = ("postgresql:/", "postgres:/")


class Location(NamedTuple):
    """Where a store is: the folders of its home, its settings, and its database (a file, a URL or `:memory:`)."""

    paths: config.Paths
    settings: config.Settings
    target: str | Path


class OpenOptions(TypedDict, total=False):
    """What `open` takes beside the place of the store; any other option is a TypeError."""

    keys: Keys | None
    """Signs in place of the key folder, as a KMS does."""
    embedder: Embedder | None
    """Makes the intent vectors of texts."""
    dimensions: int | None
    """How many numbers an intent vector has."""
    strict_agents: bool
    """Whether flows are opened only for agents that somebody registered; the settings may say so too."""
    clock: Clock | None
    random: Random
    migrations: Sequence[Migration] | None
    readers: int
    workers: int
    busy_s: float
    connect_s: float
    lock_s: float
    read_limit_s: float
    silence_s: float | None


def refuse_unknown(options: OpenOptions) -> None:
    """Raise TypeError for an option that does not exist, as Python does for any other function."""
    for name in options.keys() - OpenOptions.__annotations__.keys():
        allowed = ", ".join(sorted(OpenOptions.__annotations__))
        raise TypeError(f"open() got an unexpected keyword argument {name!r}; there are {allowed}")


def locate(where: str | Path | None, url: str | None = None, *, home: str | Path | None = None) -> Location:
    """Find the store that the arguments, the environment and the configuration name; nothing is opened or created.

    `where` is a folder (the home), a URL or `:memory:`; `home` is the folder of keys and files of a store at a URL.
    """
    if isinstance(where, str) and (where == MEMORY or "://" in where):
        if url is not None:
            raise InvalidInputError("the database is named twice: pass either a URL or url=", url=redact(url))
        url = where
        where = None
    if where is not None and home is not None:
        raise InvalidInputError(f"the home is named twice: {where} and {home}", home=str(home))
    home = where if home is None else home
    # pathlib folds the slashes of a URL, which would then become a folder of that name.
    if str(home) == MEMORY or str(home).startswith(_FOLDED_URLS):
        raise InvalidInputError(f"{home} is no folder: pass a URL or {MEMORY!r} as text, first or as url=")
    paths = config.Paths.find(home)
    paths.check()
    try:
        project: Path | None = Path.cwd()
    except FileNotFoundError:  # a deleted working folder holds no project
        project = None
    settings = config.load(paths=paths, url=url, project=project)
    return Location(paths, settings, settings.database_url or paths.kernel_db)


def locate_tenant(place: "TenantPlace") -> Location:
    """Return where the store of a tenant is; its settings are those of its own home.

    A project's are the parent's: by them every tenant would keep its blobs, vectors and backups in one place.
    """
    paths = place.paths
    paths.check()
    settings = config.load(paths=paths, url=place.url)
    settings = replace(settings, database_url=place.url, direct_url=place.direct_url)
    return Location(paths, settings, place.target)


def open_place(place: "TenantPlace", *, create: bool, few: bool = False) -> Store:
    """Open the store of a tenant; with `few` with as few threads and connections as it can work with."""
    location = locate_tenant(place)
    if not create:
        require_store(location)
    swap.finish(location.paths)
    location.paths.create()
    options: dict[str, Any] = {"readers": 1} if few else {}
    if few and place.url is not None:
        options["workers"] = 1
    return _open(location, keys=None, embedder=None, dimensions=None, **options)


def has_kernel(location: Location) -> bool:
    """Return whether there is a kernel, the part with the log; creates nothing."""
    swap.finish(location.paths)  # between the two renames of a restore that was killed there is no database
    return is_there(location.target)


def is_present(location: Location) -> bool:
    """Return whether there is a store; creates nothing."""
    # Each of them makes a home a store: an application may never have used the kernel.
    files = (location.paths.membrane_db, location.paths.telemetry_db)
    return has_kernel(location) or any(file.exists() for file in files)


def require_store(location: Location) -> None:
    """Raise NoStoreError where there is no store; creates nothing."""
    if not is_present(location):
        refuse_absent(location)


def refuse_absent(location: Location) -> NoReturn:
    """Raise NoStoreError for a place without a store."""
    place = str(location.paths.data) if isinstance(location.target, Path) else redact(str(location.target))
    raise NoStoreError(f"there is no store at {place}", place=place)


def open_store(
    where: str | Path | None = None,
    url: str | None = None,
    *,
    home: str | Path | None = None,
    tenant: str | None = None,
    create: bool = True,
    readonly: bool = False,
    keys: Keys | None = None,
    embedder: Embedder | None = None,
    dimensions: int | None = None,
    strict_agents: bool = False,
    **options: Any,
) -> Store:
    """Open the store at `where` (a folder or a URL), or where the environment and the configuration say; migrated.

    Without `create` a store that is not there is a NoStoreError, and nothing is created. A `readonly` store neither
    writes nor creates anything: no lock file, no key, no migration. `keys` replaces the key folder (a KMS), `embedder`
    makes intent vectors of `dimensions` numbers. With `strict_agents` a function's agent is not registered by its first
    flow. With `tenant` the store is that tenant of the one that is named. Further options are those of the database.
    """
    location = locate(where, url, home=home)
    if tenant is not None:
        location = locate_tenant(places.resolve(places.Parent(location.paths, location.settings), tenant))
        create = False  # only `tenants.create` makes one
    return _open_anywhere(
        location,
        create=create,
        readonly=readonly,
        keys=keys,
        embedder=embedder,
        dimensions=dimensions,
        strict_agents=strict_agents,
        **options,
    )


def open_tenant(parent: "places.Parent", tenant: str, *, readonly: bool = False) -> Store:
    """Open the store of a tenant that may be used, by settings of its parent that were read before."""
    return _open_anywhere(locate_tenant(places.resolve(parent, tenant)), create=False, readonly=readonly)


def _open_anywhere(
    location: Location,
    *,
    create: bool,
    readonly: bool,
    keys: Keys | None = None,
    embedder: Embedder | None = None,
    dimensions: int | None = None,
    strict_agents: bool = False,
    **options: Any,
) -> Store:
    if strict_agents:
        location = location._replace(settings=replace(location.settings, strict_agents=True))
    if readonly:
        return _open_readonly(location, keys=keys, embedder=embedder, dimensions=dimensions, **options)
    if not create:
        require_store(location)
    swap.finish(location.paths)  # a restore that was killed is finished before anybody looks at the files
    if location.target != MEMORY:
        location.paths.create()
    return _open(location, keys=keys, embedder=embedder, dimensions=dimensions, **options)


def _open_readonly(
    location: Location, *, keys: Keys | None, embedder: Embedder | None, dimensions: int | None, **options: Any
) -> Store:
    """Open a store to read it: nothing is written, also where everything could be."""
    paths, settings, target = location
    if (paths.data / swap.JOURNAL).exists():
        raise BusyError(f"a restore of {paths.data} was interrupted: open the store once without readonly")
    require_store(location)
    with ExitStack() as undo:
        # A lock is taken where there is one to take: media that cannot be written are not being restored either.
        if (store_lock := swap.look(paths)) is not None:
            undo.callback(store_lock.release)
        head_file = HeadFile(paths.heads, name_of(target))
        options = {**settings.options_of(target), **options}
        database = open_database(target, hooks=Hooks(), readonly=True, migrate=False, **options)
        undo.callback(database.close)
        if pending := migrate.pending(database, migrate.shipped("kernel")):
            names = ", ".join(step.name for step in pending)
            raise MigrationError(
                f"this store is of an older version: {names} must be applied first",
                remedy="`holdproof db migrate` applies them; so does opening the store once to write.",
            )
        with _corruption():
            log = startup.read_only(database, [*head_file.largest().values()], head_file.restored_here())
            keys = keys or KeyFolder(paths.keys)
            context = Context(paths, settings, database, keys, log, head_file, embedder, dimensions)
            lockdown.start(database, paths.lockdown)
        undo.pop_all()
    return Store(context, store_lock, readonly=True)


def open_at(paths: config.Paths, target: str | Path) -> Store:
    """Open exactly this database of a home, whatever the environment says."""
    url = target if isinstance(target, str) else None
    # An empty environment: HOLDPROOF_DATABASE_URL may still name the other end of a move.
    settings = config.load(paths=paths, url=url, override={}, env={})
    return open_located(Location(paths, settings, target))


def open_located(location: Location, *, replacing: bool = False) -> Store:
    """Open the store at a location, with the settings it names; `replacing` creates one where another was before."""
    return _open(location, keys=None, embedder=None, dimensions=None, replacing=replacing)


def head_file_of(location: Location) -> HeadFile:
    """Return the head file of a home, for the database at this location."""
    return HeadFile(location.paths.heads, name_of(location.target))


def refuse_gone(location: Location) -> None:
    """Raise StoreGoneError if heads were kept for a database that holds no store; creates nothing."""
    former_stores = head_file_of(location).stores_here()
    if former_stores and _is_empty(location):
        raise _gone(location, former_stores)


def _is_empty(location: Location) -> bool:
    if not has_kernel(location):
        return True
    # An empty file is what a deleted database becomes when another program opens it.
    return isinstance(location.target, Path) and not location.target.stat().st_size


def has_store(location: Location) -> bool:
    """Return whether there is a database with a store in it, of whatever name."""
    if _is_empty(location):
        return False
    with closing(open_database(location.target)) as database:
        return database.read(lambda tx: tx.one(_STORE_ID)).result() is not None


def _gone(location: Location, former_stores: Collection[str]) -> StoreGoneError:
    place = redact(str(location.target))
    names = ", ".join(sorted(former_stores))
    what = f"the database is gone: no store at {place}, and heads of {names} were kept in {location.paths.heads}"
    return StoreGoneError(what, place=place, stores=sorted(former_stores))


def _open(
    location: Location,
    *,
    keys: Keys | None,
    embedder: Embedder | None,
    dimensions: int | None,
    replacing: bool = False,
    **options: Any,
) -> Store:
    """Take the lock of the home, open the database, and start everything over it; undone in reverse on any error."""
    on_disk = location.target != MEMORY
    with ExitStack() as undo:
        store_lock = swap.enter(location.paths) if on_disk else None
        if store_lock is not None:
            undo.callback(store_lock.release)
        head_file = head_file_of(location) if on_disk else None
        # A server is asked by its store's name in `_start`: looking first would cost every opening a connection.
        if isinstance(location.target, Path) and not replacing:
            refuse_gone(location)
        webhook = head_webhook.configured(os.environ) if on_disk else None
        options = {**location.settings.options_of(location.target), **options}
        database = open_database(location.target, hooks=Hooks(), **options)
        undo.callback(database.close)
        context = _start(
            location,
            database,
            keys=keys or (KeyFolder(location.paths.keys) if on_disk else MemoryKeys()),
            head_file=head_file,
            webhook=webhook,
            embedder=embedder,
            dimensions=dimensions,
            replacing=replacing,
        )
        undo.pop_all()
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


def _start(
    location: Location,
    database: Database,
    *,
    keys: Keys,
    head_file: HeadFile | None,
    webhook: HeadWebhook | None,
    embedder: Embedder | None,
    dimensions: int | None,
    replacing: bool,
) -> Context:
    """Start the log, the lockdown gate and the repairs over an open database; stops the log again if one fails."""
    paths, settings, target = location
    former_stores = head_file.stores_here() if head_file and not replacing else ()
    store_id = database.write(partial(_name_store, location=location, former_stores=former_stores)).result()
    # Read before the log starts: they are what the log must continue.
    heads = [*head_file.largest().values()] if head_file else []
    with _corruption():
        # The webhook only queues a head; the file comes second because it may raise on a full disk.
        listeners = [each.publish for each in (webhook, head_file) if each is not None]
        log = startup.start(
            database,
            keys,
            store_id,
            listeners,
            heads,
            restored_here=head_file.restored_here() if head_file else (),
            is_familiar=partial(_is_familiar, keys, head_file),
        )
        try:
            context = Context(paths, settings, database, keys, log, head_file, embedder, dimensions)
            if head_file is not None:  # a restore into a server whose process was killed leaves files to exchange
                swap.settle(paths, database.read(tree.state).result().origin, str(target))
            lockdown.start(database, paths.lockdown if head_file is not None else None)
            tenant_limits.start(database)
            database.hooks.history_lost.append(partial(response.history_lost, context))
            database.hooks.after_commit.append(partial(_alert_of_expiries, store_id))
            if database.first_run and head_file is not None:
                _log.info("a new store was created; its data lives in %s", redact(str(target)))
            # In this order: a log that was tampered with locks the store before any repair could write over it.
            response.at_opening(context)
            crash_recovery.at_opening(context)
            erase.at_opening(context)
            accesses.start(database)
            database.hooks.uses = _note_uses
            overview.warn_of_dirty_flows(database)
        except BaseException:
            log.stop()
            raise
    return context


def _note_uses(tx: Tx, flows: Flows, used: frozenset[Use]) -> None:
    # Loaded by the first step that uses memory, and not by every opening.
    material_notes.note_uses(tx, flows, used)


def _alert_of_expiries(store_id: str, notes: Notes) -> None:
    if expiries := notes.get(overview.EXPIRED):
        # A thread of its own: this runs on the writer's, and a webhook may take seconds to answer.
        args = (store_id, expiries)
        threading.Thread(target=lambda: alarm.tell_of_expiries(*args), name="holdproof-alert", daemon=True).start()


@contextmanager
def _corruption() -> Iterator[None]:
    """Translate a value of an unexpected type into CorruptError: SQLite stores any type in any column."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"the store holds what Holdproof never writes: {error}") from error


_STORE_ID = sql("SELECT 1 FROM store_facts WHERE key = 'store_id'")
_ONCE = sql("INSERT INTO store_facts (key, value, updated_at) VALUES (:key, :value, :now) ON CONFLICT (key) DO NOTHING")


def _name_store(tx: Tx, location: Location, former_stores: Collection[str]) -> str:
    """Give a new store its id, once, and return it; of two processes that open it at once the first one's stays.

    Raises StoreGoneError for a database without a store, where this home keeps heads of one.
    """
    if former_stores and tx.one(_STORE_ID) is None:
        raise _gone(location, former_stores)
    tx.execute(_ONCE, key="store_id", value=tx.new_id(), now=tx.now)
    tx.execute(_ONCE, key="created_at", value=tx.now, now=tx.now)
    return facts(tx)["store_id"]
