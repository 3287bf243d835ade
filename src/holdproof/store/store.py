"""`Store`: one open store, shared by every client of it."""

import os
from typing import TYPE_CHECKING, Any, Final

from holdproof.db import MEMORY, Tx, migrate, sql
from holdproof.errors import ClosedError, HoldproofError
from holdproof.evidence import crash_recovery, tenant_limits, tenants, tree, trust, witness_disputes
from holdproof.evidence.restores import generation
from holdproof.executors import SyncExecutor
from holdproof.lazy import lazy_module
from holdproof.memory.images import image_files
from holdproof.memory.skills import locked as locked_skills
from holdproof.runtime import overview
from holdproof.storage import degraded, heartbeat_jobs
from holdproof.store.context import Context
from holdproof.upkeep import head_webhook, lockdown
from holdproof.upkeep.backups.swap import StoreLock
from holdproof.upkeep.head_webhook import HeadWebhook
from holdproof.urls import redact
from holdproof.version import VERSION

if TYPE_CHECKING:
    from holdproof.evidence import witness_client
    from holdproof.model import status as status_model
    from holdproof.storage import open_stores
    from holdproof.storage.executors import StorageExecutor
    from holdproof.storage.open_stores import OpenStores
    from holdproof.upkeep import housekeeping
else:
    housekeeping = lazy_module("holdproof.upkeep.housekeeping")
    status_model = lazy_module("holdproof.model.status")
    witness_client = lazy_module("holdproof.evidence.witness_client")
    open_stores = lazy_module("holdproof.storage.open_stores")

# What a thread of the opening has not finished by then is done after the next one.
_THREADS_S: Final = 20.0


class Store:
    """An open database with its keys and files. Close it; `close` may be called twice."""

    def __init__(
        self,
        context: Context,
        store_lock: StoreLock | None = None,
        webhook: HeadWebhook | None = None,
        *,
        readonly: bool = False,
    ) -> None:
        self.context = context
        self.paths = context.paths
        self.settings = context.settings
        self.database = context.database
        self._store_lock = store_lock
        self._webhook = webhook
        self.readonly = readonly
        self._closed = False
        # A process that calls `bootstrap` sends heartbeats: each writes the memory images that are due.
        self._end_heartbeat_job = None if readonly else heartbeat_jobs.register(self.paths.data, self._write_images)

    def _write_images(self) -> None:
        SyncExecutor(self.database).run(housekeeping.write_due_images(self.context))

    def label(self, ns: str | None = None) -> str:
        """Return where its data is, without any password, and in what state it is, for `repr`."""
        url = self.settings.database_url
        where = str(self.paths.data) if url is None else redact(url)
        states = {f"namespace {ns}": ns is not None, "readonly": self.readonly, "closed": self._closed}
        return ", ".join([where, *(state for state, applies in states.items() if applies)])

    def services(self, executor: "StorageExecutor") -> "OpenStores":
        """Return the application stores over the same home for one executor class; each is opened at its first use."""
        if self._closed:
            raise ClosedError("the store is closed")
        fresh = open_stores.OpenStores(self.settings, self.paths, executor, before_opening=self._wait_for_threads)
        stores: OpenStores = self.context.services.setdefault(executor, fresh)
        return stores

    def _wait_for_threads(self) -> None:
        """Wait for erasures that the opening found unfinished: nobody may read here what was erased."""
        for thread in self.context.threads:
            thread.join(_THREADS_S)

    def status(self) -> "status_model.Status":
        """Report where everything lives, versions and sizes, and what is degraded."""
        head_file = self.context.head_file
        largest = head_file.largest() if head_file else {}

        def read(tx: Tx) -> tuple[dict[str, str], list[str], str, dict[str, int], overview.Totals]:
            level = witness_client.level_of(tx, largest).text
            return facts(tx), sorted(migrate.applied(tx)), level, overview.escalations(tx), overview.workers(tx)

        recorded, migrations, log, escalations, work = self.database.read(read).result()
        where = self.database.backend.facts()
        return status_model.Status(
            version=VERSION,
            store_id=recorded["store_id"],
            created_at=recorded["created_at"],
            first_run=self.database.first_run and where.get("path") != MEMORY,
            paths={name: str(getattr(self.paths, name)) for name in ("data", "config", "state", "cache")},
            database=where,
            migrations=migrations,
            log=log,
            degraded=self._degraded(where),
            reminders=[*map(str, trust.reminders(self.context))],
            escalations=escalations,
            workers=work.workers,
            queues=work.due,
            limits=self.database.read(tenant_limits.reached).result(),
        )

    def _degraded(self, where: dict[str, Any]) -> list[str]:
        warnings = list(self.settings.warnings)
        warnings += lockdown.warnings(self.context)
        warnings += map(str, self.database.read(witness_disputes.open_disputes).result())
        disputed = self.database.read(tenants.findings).result()
        warnings += [f"the tenant {name}: {finding}" for name, finding in disputed.items()]
        warnings += self._replaced()
        warnings += degraded.warnings(degraded.read(self.paths)).values()
        warnings += image_files.warnings(self.paths)
        warnings += head_webhook.warnings(self._webhook, os.environ)
        warnings += self.database.read(locked_skills.in_force).result()
        if where.get("foreign_writer"):
            warnings.append("another SQLite program wrote to the database file: run `holdproof db reseal`")
        if self.readonly:
            warnings.append("the store was opened to read only: every write is refused")
        if where.get("path") == MEMORY:
            warnings.append("the store is in memory: nothing survives the end of this process")
        return warnings

    def _replaced(self) -> list[str]:
        """Return a line for each other store whose heads this home keeps for this database."""
        head_file = self.context.head_file
        if head_file is None:
            return []
        name, _ = generation(self.database.read(tree.state).result().origin)
        return [f"{line}; see `holdproof verify`" for line in head_file.replaced(name)]

    def check(self) -> "status_model.Check":
        """Run the database's own integrity check, and compare its migrations with those of this version."""
        findings = list(self.database.backend.check())
        try:
            missing = migrate.pending(self.database, migrate.shipped("kernel"))
            findings += [f"migration {step.name} is not applied" for step in missing]
        except HoldproofError as error:
            findings.append(str(error))
        return status_model.Check(findings)

    def close(self) -> None:
        """Finish queued work and close; may be called twice."""
        if self._end_heartbeat_job is not None:
            self._end_heartbeat_job()
        if not self._closed:
            self._closed = True
            # Once only: a second close finds the database closed.
            if not self.readonly:
                crash_recovery.at_closing(self.context)
        self._wait_for_threads()
        for stores in self.context.services.values():
            stores.close()
        # The sequencer still writes, so it stops before the database closes. The last head is durable only once the
        # database is closed, so it is kept and sent after that. The lock goes last, when all of it is done.
        self.context.log.stop()
        self.database.close()
        if self.context.head_file is not None:
            self.context.head_file.flush()
        if self._webhook is not None:
            self._webhook.close()
        if self._store_lock is not None:
            self._store_lock.release()


_FACTS = sql("SELECT key, value FROM store_facts")


def facts(tx: Tx) -> dict[str, str]:
    """Return what the store records of itself: its id, and when it was created."""
    return dict(tx.all(_FACTS))
