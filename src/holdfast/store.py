"""`Store`: one open Holdfast, whatever the face: its paths, its settings, its kernel database.

Rules:
- The kernel never falls back and never guesses: what is configured is opened, or a typed error says why not.
- The first run says where data lives.
"""

import logging
from importlib import metadata
from pathlib import Path
from typing import Any

from holdfast import config
from holdfast.crypto import keys
from holdfast.db import MEMORY, Hooks, Tx, migrate, open_database, sql
from holdfast.db.sqlite import check_file
from holdfast.errors import HoldfastError
from holdfast.evidence import opening as evidence
from holdfast.evidence.context import Context
from holdfast.evidence.heads import HighWater
from holdfast.evidence.keyfiles import KeyFolder
from holdfast.model.status import Check, Migrated, Status

_log = logging.getLogger("holdfast")

VERSION = metadata.version("holdfast")


class Store:
    """What every face of one store shares."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.paths, self.settings, self.database = context.paths, context.settings, context.database

    def status(self) -> Status:
        """Where everything lives, versions and sizes, and what is degraded."""
        facts, applied = self.database.read(lambda tx: (_facts(tx), migrate.applied(tx))).result()
        where = self.database.backend.facts()
        return Status(
            version=VERSION,
            store_id=facts["store_id"],
            created_at=facts["created_at"],
            first_run=self.database.first_run and where.get("path") != MEMORY,
            paths={name: str(getattr(self.paths, name)) for name in ("data", "config", "state", "cache")},
            database=where,
            migrations=sorted(applied),
            degraded=self._degraded(where),
        )

    def _degraded(self, where: dict[str, Any]) -> list[str]:
        found = list(self.settings.warnings)
        if where.get("path") == MEMORY:
            found.append("the store is in memory: nothing survives the end of this process")
        return found

    def check(self) -> Check:
        """The database's own integrity check, and its migrations against ours."""
        findings = list(self.database.backend.check())
        try:
            missing = migrate.pending(self.database, migrate.shipped("kernel"))
            findings += [f"migration {step.name} is not applied" for step in missing]
        except HoldfastError as error:
            findings.append(str(error))
        return Check(findings)

    def close(self) -> None:
        """Finish queued work and close; may be called twice."""
        self.database.close()
        if self.context.marks is not None:
            self.context.marks.flush()


def open_store(home: str | Path | None = None, url: str | None = None, **options: Any) -> Store:
    """Open the store at `home` or `url`, or where the environment and the configuration say; migrated."""
    paths, settings, target = _locate(home, url)
    if target != MEMORY:
        paths.create()
    database = open_database(target, hooks=Hooks(), **options)
    try:
        store_id = database.write(_introduce).result()
        disk = target != MEMORY
        marks, folder = (HighWater(paths.heads), KeyFolder(paths.keys)) if disk else (None, None)
        signer = keys.generate("ed25519") if folder is None else folder.ensure("log")
        log = evidence.start(database, signer, store_id, _forget if marks is None else marks.publish)
    except BaseException:
        database.close()
        raise
    if database.first_run and disk:
        _log.info("a new store was created; its data lives in %s", config.redact(str(target)))
    return Store(Context(paths, settings, database, folder, log, marks))


def _forget(_: str) -> None:
    """A store in memory keeps no head elsewhere."""


def check_store(home: str | Path | None = None, url: str | None = None) -> Check:
    """Check a store that may be too damaged to open: first its file, then, if that is sound, the whole."""
    _, _, target = _locate(home, url)
    if isinstance(target, Path) and target.exists():
        findings = check_file(target)
        if findings:
            return Check(findings)
    store = open_store(home, url)
    try:
        return store.check()
    finally:
        store.close()


def migrate_store(home: str | Path | None = None, url: str | None = None, *, dry_run: bool = False) -> Migrated:
    """Apply what is pending, or only say what is."""
    _, _, target = _locate(home, url)
    steps = migrate.shipped("kernel")
    if dry_run and isinstance(target, Path) and not target.exists():
        return Migrated(applied=[], pending=[step.name for step in steps])
    database = open_database(target, migrate=False)
    try:
        applied = [] if dry_run else migrate.migrate(database, steps)
        return Migrated(applied=applied, pending=[step.name for step in migrate.pending(database, steps)])
    finally:
        database.close()


def _locate(home: str | Path | None, url: str | None) -> tuple[config.Paths, config.Settings, str | Path]:
    paths = config.Paths.find(home)
    try:
        here: Path | None = Path.cwd()
    except FileNotFoundError:  # a deleted working folder holds no project
        here = None
    settings = config.load(paths=paths, url=url, project=here)
    return paths, settings, settings.database_url or paths.kernel_db


_ONCE = sql("INSERT INTO store_facts (key, value, updated_at) VALUES (:key, :value, :now) ON CONFLICT (key) DO NOTHING")


def _introduce(tx: Tx) -> str:
    """Give a new store its name, once."""
    tx.execute(_ONCE, key="store_id", value=tx.new_id(), now=tx.now)
    tx.execute(_ONCE, key="created_at", value=tx.now, now=tx.now)
    return _facts(tx)["store_id"]


_FACTS = sql("SELECT key, value FROM store_facts")


def _facts(tx: Tx) -> dict[str, str]:
    return dict(tx.all(_FACTS))
