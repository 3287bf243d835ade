"""The async face: `async with holdfast.open() as store`."""

import asyncio
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.evidence import audit, battles, dbom, keys, log, trust, witness
from holdfast.model.backup import Restored
from holdfast.model.status import Check, Status
from holdfast.ops import AsyncNoun, AsyncRead, AsyncRun, AsyncRunWith, AsyncWrite
from holdfast.ops.decisions_async import AsyncDecisions
from holdfast.store import Store, open_store, restore_store
from holdfast.upkeep import backup, bundle, erase, lockdown, spread, verify
from holdfast.upkeep.importers import green_agent


class Verify(AsyncNoun):
    """Everything the store holds, against its log and the heads kept elsewhere."""

    run = AsyncRunWith(verify.run)


class Bundle(AsyncNoun):
    """Records with all that a stranger needs to check them."""

    export = AsyncRunWith(bundle.export)


class Lockdown(AsyncNoun):
    """The state that refuses writes after tampering was found."""

    status = AsyncRunWith(lockdown.status)
    lock = AsyncRunWith(lockdown.lock)
    statement = AsyncRunWith(lockdown.statement)
    unlock = AsyncRunWith(lockdown.unlock)


class Backup(AsyncNoun):
    """Copies of the whole store, made while it is in use."""

    create = AsyncRunWith(backup.create)
    check = AsyncRun(backup.check)
    list = AsyncRun(backup.list)


class Erase(AsyncNoun):
    """Persons and records, for good; every proof stays whole."""

    subject = AsyncRunWith(erase.subject)
    record = AsyncRunWith(erase.record)
    list = AsyncRead(erase.list)


class Battles(AsyncNoun):
    """Evaluations, each with its signed DBOM."""

    submit = AsyncRunWith(battles.submit)
    list = AsyncRead(battles.list)
    get = AsyncRead(battles.get)
    reveal = AsyncRead(battles.reveal)


class Dbom(AsyncNoun):
    """The signed decision records, as evidence."""

    get = AsyncRead(dbom.get)
    envelope = AsyncRead(dbom.envelope)
    verify = AsyncRun(dbom.verify)
    repair = AsyncRunWith(dbom.repair)
    check_intent = AsyncRun(spread.check_intent)
    spread = AsyncRead(spread.spread)


class Keys(AsyncNoun):
    """Who signs, for what, and up to where in the log."""

    list = AsyncRead(keys.list)
    get = AsyncRead(keys.get)
    rotate = AsyncRunWith(keys.rotate)
    revoke = AsyncRunWith(keys.revoke)
    revocation = AsyncRead(keys.revocation)
    statement = AsyncRunWith(keys.statement)
    import_statement = AsyncWrite(keys.import_statement)
    init_root = AsyncRunWith(trust.init_root)
    recover_root = AsyncRunWith(trust.recover_root)
    export_root = AsyncRunWith(trust.export_root)
    trust = AsyncRunWith(trust.trust)


class Imports(AsyncNoun):
    """Data of other programs, taken over as it is."""

    green_agent = AsyncRunWith(green_agent.run)


class Log(AsyncNoun):
    """The append-only log: its head, proofs out of it, audits of it, and who else keeps it."""

    head = AsyncRead(log.head)
    find = AsyncRead(log.find)
    prove = AsyncRead(log.prove)
    prove_consistency = AsyncRead(log.prove_consistency)
    tile = AsyncRead(log.tile)
    pending = AsyncRead(log.pending)
    audit = AsyncRunWith(audit.audit)
    level = AsyncRunWith(witness.level)
    witness = AsyncRunWith(witness.witness)


class Holdfast(AsyncDecisions):
    """An open store for coroutines. Close it, or use it as a context manager."""

    def __init__(self, core: Store) -> None:
        super().__init__(core.database)
        self.core, self.context = core, core.context
        self.battles, self.dbom, self.keys, self.imports = Battles(self), Dbom(self), Keys(self), Imports(self)
        self.backup, self.erase = Backup(self), Erase(self)
        self.verify, self.bundle, self.lockdown = Verify(self), Bundle(self), Lockdown(self)
        self.log = Log(self)

    async def status(self) -> Status:
        """Where everything lives, versions and sizes, and what is degraded."""
        return await asyncio.to_thread(self.core.status)

    async def check(self) -> Check:
        """The database's own integrity check, and its migrations against ours."""
        return await asyncio.to_thread(self.core.check)

    async def close(self) -> None:
        """Finish queued work and close; may be called twice."""
        await asyncio.to_thread(self.core.close)

    async def __aenter__(self) -> "Holdfast":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Opening:
    """A store about to be opened: `async with` it, or `await` it and close it yourself."""

    def __init__(self, home: str | Path | None, url: str | None, options: dict[str, Any]) -> None:
        self._home, self._url, self._options = home, url, options
        self._store: Holdfast | None = None

    async def _open(self) -> Holdfast:
        return Holdfast(await asyncio.to_thread(open_store, self._home, self._url, **self._options))

    def __await__(self) -> Generator[Any, None, Holdfast]:
        return self._open().__await__()

    async def __aenter__(self) -> Holdfast:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()


def open(home: str | Path | None = None, url: str | None = None, **options: Any) -> Opening:
    """Open the store at `home` or `url` (`postgresql://…`, `:memory:`), or where the environment says."""
    return Opening(home, url, options)


async def restore(src: str | Path, home: str | Path | None = None, url: str | None = None, **options: Any) -> Restored:
    """Put a backup in the place of a store that is closed, verified first; options are those of `restore_store`."""
    return await asyncio.to_thread(restore_store, src, home, url, **options)
