"""Restore into PostgreSQL: load into a schema beside the live one, verify it, exchange both in one transaction."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from holdproof.content import encryption
from holdproof.db import Database, Tx, migrate, open_database
from holdproof.db.postgres import snapshot
from holdproof.errors import BusyError, FormatError, HoldproofError, NewerStoreError
from holdproof.evidence import erasures as erased
from holdproof.model.backup import Manifest
from holdproof.upkeep.backups import dumps
from holdproof.upkeep.backups.restore_log import ReplacedStore
from holdproof.upkeep.verification import log_check
from holdproof.upkeep.verification.log_check import LogKey

_CHUNK = 1 << 20
_LONG_S = 3600.0
_PATIENCE_S = 3.0


def current(url: str, trusted: Callable[[Tx], list[LogKey]]) -> ReplacedStore:
    """Read what can be read of the live store, its keys as far as `trusted` proves them; BusyError if it is open."""
    refuse_open(url)
    state = ReplacedStore()
    if not snapshot.exists(url):
        return state
    try:
        with snapshot.snapshot(url) as live:
            parts = log_check.parts(live.tx)
            state.store_id = parts.store_id
            state.head = parts.state.head
            state.keys = trusted(live.tx)
            state.sealed = encryption.keys(live.tx)
            state.erasures = erased.history(live.tx)
    except HoldproofError as error:
        state.notes.append(f"the store that is replaced could not be read in full: {error.message}")
    return state


def refuse_open(url: str) -> None:
    """Raise BusyError while the store is open; connections that were just closed get a moment to disappear."""
    deadline = time.monotonic() + _PATIENCE_S
    while count := snapshot.opened(url):
        if time.monotonic() >= deadline:
            raise BusyError("the store is open elsewhere: close it first", connections=count)
        time.sleep(0.05)


@contextmanager
def loaded(url: str, source: Path, manifest: Manifest) -> Iterator[Database]:
    """Load the tables of a backup into a schema of their own and open it; dropped unless it was exchanged."""
    steps = migrate.shipped("kernel")
    if unknown := sorted(manifest.migrations.keys() - {step.name for step in steps}):
        raise NewerStoreError(f"the backup has migration {unknown[-1]}, which this Holdproof does not know")
    snapshot.prepare(url)
    try:
        # The tables are created as they were when the backup was made, filled, and only then migrated to this version.
        then = [step for step in steps if step.name in manifest.migrations]
        open_database(url, space=snapshot.STAGED, migrations=then, workers=1, readers=1).close()
        snapshot.load(url, manifest.tables, manifest.sequences, lambda table: _chunks(source, manifest, table))
        database = open_database(
            url, space=snapshot.STAGED, migrations=steps, workers=1, readers=1, read_limit_s=_LONG_S
        )
        try:
            yield database
        finally:
            database.close()
    finally:
        snapshot.discard(url)


def _chunks(source: Path, manifest: Manifest, table: str) -> Iterator[bytes]:
    """Yield the bytes of a table; FormatError at their end if hash or size is not the manifest's."""
    name = f"{dumps.FOLDER}/{table}.copy"
    digest = sha256()
    size = 0
    if name not in manifest.files:
        raise FormatError(f"{name} is missing from the backup", file=name)
    with (source / name).open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            yield chunk
    entry = manifest.files[name]
    if (digest.hexdigest(), size) != (entry.sha256, entry.size):
        raise FormatError(f"{name} is not as the backup's manifest says: it was changed or is damaged", file=name)


def exchange(url: str, aside: str) -> None:
    """Make the loaded schema the live one, in one transaction."""
    refuse_open(url)
    snapshot.exchange(url, aside)
