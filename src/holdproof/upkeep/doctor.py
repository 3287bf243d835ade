"""Health checks of a store and its surroundings: disk, folders, keys, clock, log, flows.

Rules:
- It creates no store where there is none, and it does not verify: that is what `verify` is for.
- A check that fails to run is reported as an error, and prevents none of the others.
- Every warning and error comes with what to do about it.
- A store that cannot be opened is examined too: its surroundings, and why it does not open.
"""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Final

from holdproof.config import Paths
from holdproof.db import MEMORY, Tx, partitioned_schema, sql
from holdproof.db.clock import system_clock
from holdproof.db.sql import sql_postgres
from holdproof.errors import HoldproofError, NotFoundError
from holdproof.evidence import keys as ring
from holdproof.evidence import trust
from holdproof.evidence.key_files import ROLES
from holdproof.evidence.witness_client import level_of
from holdproof.model.doctor import HealthCheck, HealthReport
from holdproof.model.keys import Role
from holdproof.model.times import to_micros, to_text
from holdproof.runtime import sweeps
from holdproof.store.context import Context
from holdproof.upkeep import lockdown, skill_watch
from holdproof.upkeep.backups import rotation
from holdproof.upkeep.verification import log_check

_GIB: Final = 1 << 30
_LITTLE: Final = 64 << 20
_LONG_WAL: Final = 256 << 20
_SKEW_S: Final = 2.0
_REMOTE: Final = frozenset({"9p", "afs", "cifs", "fuse.sshfs", "nfs", "nfs4", "smb3", "smbfs"})
_MOUNTS: Final = Path("/proc/self/mounts")

Check = Callable[[], Iterator[HealthCheck]]


def examine(context: Context) -> HealthReport:
    """Examine an open store."""
    looks: dict[str, Check] = {"versions": _versions}
    if context.head_file is not None:
        looks |= {"folders": partial(_folders, context.paths), "disk": partial(_disk, context.paths)}
    looks |= {
        "database": partial(_database, context),
        "keys": partial(_keys, context),
        "clock": partial(_clock, context),
        "log": partial(_log, context),
        "lockdown": partial(_lockdown, context),
        "skills": partial(_skills, context),
        "flows": partial(_flows, context),
        "backups": partial(_backups, context),
        "partitions": partial(_partitions, context),
    }
    return _gather(looks)


def unopened(paths: Paths, error: HoldproofError) -> HealthReport:
    """Examine the surroundings of a store that cannot be opened."""
    looks: dict[str, Check] = {
        "versions": _versions,
        "folders": partial(_folders, paths),
        "disk": partial(_disk, paths),
        "store": lambda: iter([HealthCheck("error", "store", f"cannot be opened: {error.message}", error.remedy)]),
    }
    return _gather(looks)


def _gather(looks: dict[str, Check]) -> HealthReport:
    symptoms: list[HealthCheck] = []
    for about, look in looks.items():
        try:
            symptoms += look()
        except (HoldproofError, OSError) as error:
            symptoms.append(HealthCheck("error", about, f"cannot be looked at: {error}", getattr(error, "remedy", "")))
    return HealthReport(symptoms)


def _versions() -> Iterator[HealthCheck]:
    running = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    yield HealthCheck("ok", "versions", f"holdproof {metadata.version('holdproof')}, {running}")


def _backups(context: Context) -> Iterator[HealthCheck]:
    """Check that the backups that the settings ask for are made; nothing where they ask for none."""
    settings = context.settings.backups
    if settings.folder is None:
        return
    folder = settings.folder
    remedy = f"run `holdproof backup rotate {folder}` and see what it says; a server makes them (`holdproof up`)"
    store_id = context.database.read(log_check.store_id).result()
    try:
        last = rotation.newest(folder, store_id, to_text(system_clock()))
    except HoldproofError as error:
        yield HealthCheck("error", "backups", f"cannot look into {folder}: {error.message}", error.remedy or remedy)
        return
    if last is None:
        yield HealthCheck("error", "backups", f"none of this store in {folder}", remedy)
        return
    # Two intervals: one that is just being made is not late.
    late = system_clock() - to_micros(last.created_at) > 2_000_000 * settings.every_s
    what = f"the newest was made at {last.created_at}: {last.path}"
    yield HealthCheck("error" if late else "ok", "backups", what, remedy if late else "")


_PARTITIONED = sql_postgres(
    "SELECT (SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = p.oid"
    " AND c.relname = :name) FROM pg_class p WHERE p.oid = to_regclass('decision_audit_events') AND p.relkind = 'p'"
)


def _partitions(context: Context) -> Iterator[HealthCheck]:
    """Check that the next month has its partition; nothing where audit events are not divided."""
    if context.database.dialect != "postgres":
        return
    now = datetime.fromisoformat(to_text(system_clock()))
    name = partitioned_schema.month_name(partitioned_schema.months(now, 2)[1])
    row = context.database.read(lambda tx: tx.one(_PARTITIONED, name=name)).result()
    if row is None:
        return
    if row == (1,):
        yield HealthCheck("ok", "partitions", f"the next month has its partition, {name}")
    else:
        what = f"the next month has no partition, {name}: its audit events go into the rest"
        yield HealthCheck("warning", "partitions", what, "holdproof db partition, as the owner of the tables")


# --- around the store ----------------------------------------------------------------------------------------------


def _folders(paths: Paths) -> Iterator[HealthCheck]:
    """Check that the folders exist, can be written, and are closed to other users."""
    sound = True
    for name in ("data", "config", "state", "cache"):
        folder: Path = getattr(paths, name)
        for symptom in _folder(folder):
            sound = False
            yield symptom
    if sound:
        yield HealthCheck("ok", "folders", f"{paths.data} and its companions are there, and the owner's only")


def _folder(folder: Path) -> Iterator[HealthCheck]:
    if not folder.is_dir():
        yield HealthCheck("error", "folders", f"{folder} is not there", "create it, or mount its disk")
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield HealthCheck(
            "error", "folders", f"{folder} cannot be written", f"chown it to the user who runs this: {folder}"
        )
    elif others := folder.stat().st_mode & 0o077:
        yield HealthCheck("warning", "folders", f"{folder} is open to others ({others:03o})", f"chmod go= {folder}")


def _disk(paths: Paths) -> Iterator[HealthCheck]:
    """Check that the disk has room, and is not one whose locks SQLite cannot rely on."""
    # SQLite's locks rely on POSIX locks, which these file systems do not keep.
    if (kind := _mounted(paths.data)) in _REMOTE:
        what = f"{paths.data} is on a network disk ({kind}), whose locks SQLite cannot rely on"
        yield HealthCheck("error", "disk", what, "keep the data on a local disk, or use PostgreSQL")
    existing = next(part for part in (paths.data, *paths.data.parents) if part.exists())
    free = shutil.disk_usage(existing).free
    used = _bytes_used(paths.data)
    usage = f"{_mib(free)} free, {_mib(used)} held"
    if free < _LITTLE:
        yield HealthCheck("error", "disk", f"nearly full: {usage}", "make room: a full disk refuses every write")
    # A backup or VACUUM needs about as much space again as the store has.
    elif free < max(used, _GIB):
        yield HealthCheck(
            "warning", "disk", f"little room: {usage}", "a backup or a compaction needs as much again as is held"
        )
    else:
        yield HealthCheck("ok", "disk", usage)


def _mounted(place: Path) -> str:
    """Return the type of file system that a path is on; empty where that cannot be read."""
    try:
        lines = _MOUNTS.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    # /proc/self/mounts writes a space in a path as \040.
    mounts = {parts[1].replace("\\040", " "): parts[2] for line in lines if len(parts := line.split()) > 2}
    return next((mounts[str(part)] for part in (place, *place.parents) if str(part) in mounts), "")


def _bytes_used(folder: Path) -> int:
    """Return how many bytes the files of a folder have; files removed meanwhile are skipped."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except FileNotFoundError:
                continue
    return total


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


# --- the store -------------------------------------------------------------------------------------------------------

_CHECKSUMS = sql_postgres("SELECT current_setting('data_checksums')")


def _database(context: Context) -> Iterator[HealthCheck]:
    facts = context.database.backend.facts()
    size = facts.get("bytes", {})
    yield HealthCheck("ok", "database", f"{facts['backend']} {facts['version']} at {facts['path']}")
    # A long-running reader keeps SQLite from moving the log into the database.
    if size.get("wal", 0) > _LONG_WAL:
        what = f"the write-ahead log has grown to {_mib(size['wal'])}"
        yield HealthCheck("warning", "database", what, "end the reader that keeps it from being taken in, or restart")
    if facts.get("checksums") is False:
        what = "pages carry no checksums: damage that SQLite does not see is found by `verify` only"
        yield HealthCheck("warning", "database", what, "back up and restore into a new home")
    if facts.get("path") == MEMORY:
        yield HealthCheck("warning", "database", "in memory: nothing survives this process", "open it with a home")
    if context.database.dialect == "postgres" and context.database.read(_checksums).result() == "off":
        what = "the server writes no page checksums: damage is found by `verify` only"
        yield HealthCheck("warning", "database", what, "pg_checksums --enable, while the server is down")


def _checksums(tx: Tx) -> str:
    row = tx.one(_CHECKSUMS)
    assert row is not None, "a setting always comes"
    (setting,) = row
    return str(setting)


_SIGNING: Final[tuple[Role, ...]] = ("judge", "memory")
_REPLACE: Final = (
    "put its file back; where it was lost, `holdproof keys rotate {role}`, which root signs; on a further machine,"
    " `holdproof keys join`"
)


def _keys(context: Context) -> Iterator[HealthCheck]:
    """Check that the keys can be loaded; keys that are generated at their first use may be missing."""
    there: list[str] = []
    absent: list[Role] = []
    for role in ROLES:
        try:
            context.keys.load(role)
            there.append(role)
        except NotFoundError:
            absent.append(role)
        except HoldproofError as error:
            yield HealthCheck("error", "keys", f"the {role} key cannot be used: {error.message}", error.remedy)
    for reminder in trust.reminders(context):
        yield HealthCheck("warning", "keys", reminder.what, reminder.remedy)
    for role in _SIGNING:
        if role in absent and context.database.read(partial(ring.active_keys, role=role)).result():
            what = f"the {role} key of this store is not here: nothing can be signed with it here"
            yield HealthCheck("warning", "keys", what, _REPLACE.format(role=role))
    if not context.log.signs:
        what = "no log key of this store is here: nothing can be logged"
        yield HealthCheck("error", "keys", what, _REPLACE.format(role="log"))
    else:
        yield HealthCheck("ok", "keys", f"{', '.join(there)} here")


_SERVER_CLOCK = sql_postgres("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)")
_NEWEST = sql("SELECT updated_at FROM log_state WHERE id = 1")


def _clock(context: Context) -> Iterator[HealthCheck]:
    """Check that the clock is not behind the newest record, and agrees with the server's."""
    now = system_clock()
    remedy = "set the clock (NTP): leases and deadlines go by it"
    newest, served = context.database.read(_clocks).result()
    behind = (newest - now) / 1e6
    beside = abs((served or now) - now) / 1e6
    if behind > _SKEW_S:
        yield HealthCheck("error", "clock", f"{behind:,.0f} s behind the newest record", remedy)
    elif beside > _SKEW_S:
        yield HealthCheck("error", "clock", f"{beside:,.0f} s beside the clock of the server", remedy)
    else:
        yield HealthCheck("ok", "clock", "not behind what was written")


def _clocks(tx: Tx) -> tuple[int, int | None]:
    """Return when the log was last extended, and the time of the server's clock, in microseconds."""
    newest = tx.one(_NEWEST)
    served = tx.one(_SERVER_CLOCK) if tx.dialect == "postgres" else None
    newest_micros = 0 if newest is None else to_micros(*newest)
    server_micros = None if served is None else int(*served)
    return newest_micros, server_micros


def _log(context: Context) -> Iterator[HealthCheck]:
    """Check that heads are kept where somebody who can change the database cannot change them."""
    heads = context.head_file.largest() if context.head_file else {}
    level = context.database.read(partial(level_of, largest=heads)).result()
    if level.name == "WITNESSED":
        yield HealthCheck("ok", "log", level.text)
    else:
        what = f"{level.text}: an administrator of this machine could put an older store in place unnoticed"
        yield HealthCheck(
            "warning", "log", what, "`holdproof witness add URL --key KEY`, or a webhook that keeps heads"
        )
    if context.head_file is not None and (torn := context.head_file.unreadable()):
        what = f"{torn} lines of {context.head_file.path} are torn or damaged"
        yield HealthCheck("warning", "log", what, "keep a copy of the file: those heads count no more")


def _lockdown(context: Context) -> Iterator[HealthCheck]:
    for line in lockdown.in_force(context):
        remedy = f"holdproof verify --full; then restore, or end it by {lockdown.ended_by(context)}"
        yield HealthCheck("error", "lockdown", line, remedy)


def _skills(context: Context) -> Iterator[HealthCheck]:
    for line in skill_watch.warnings(context):
        yield HealthCheck(
            "error", "skills", line, "look at the file, then approve the one you trust: holdproof skills approve"
        )


def _flows(context: Context) -> Iterator[HealthCheck]:
    """Check for flows without a worker, failed sagas, and steps in doubt."""
    orphans, dirty, unknown = context.database.read(sweeps.backlog).result()
    if orphans:
        yield HealthCheck(
            "warning", "flows", f"{orphans} flows have lost their worker", "recover them: store.flows.recover()"
        )
    if dirty:
        yield HealthCheck("warning", "flows", f"{dirty} flows failed half way and are dirty", "holdproof sagas list")
    if unknown:
        what = f"{unknown} idempotent calls are in doubt: started and never confirmed"
        yield HealthCheck("warning", "flows", what, "store.idempotency.settle(key, result), or forget(key)")
    if not (orphans or dirty or unknown):
        yield HealthCheck("ok", "flows", "none is without a worker")
