"""The doctor: whether a store stands well, before something falls over.

Rules:
- It makes no store where there is none, and it does not verify: that is what `verify` is for.
- A look that fails is a finding itself, and hides none of the others.
- What is not well comes with what to do about it.
- It also sees a store that cannot be opened: everything around it, and why.
"""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from holdproof.config import Paths
from holdproof.db import MEMORY, Tx, sql
from holdproof.db.clock import system_clock
from holdproof.db.sql import sql_postgres
from holdproof.errors import HoldproofError, NotFoundError
from holdproof.evidence.key_files import ROLES
from holdproof.evidence.witness_client import level_of
from holdproof.model.doctor import Examined, Symptom
from holdproof.model.times import to_micros
from holdproof.runtime import sweeps
from holdproof.store.context import Context
from holdproof.upkeep import lockdown, skill_watch

_GIB: Final = 1 << 30
_LITTLE: Final = 64 << 20
_LONG_WAL: Final = 256 << 20
_SKEW_S: Final = 2.0
_REMOTE: Final = frozenset({"9p", "afs", "cifs", "fuse.sshfs", "nfs", "nfs4", "smb3", "smbfs"})
_MOUNTS: Final = Path("/proc/self/mounts")

Look = Callable[[], Iterator[Symptom]]


def examine(context: Context) -> Examined:
    """Look at an open store."""
    looks: dict[str, Look] = {"versions": _versions}
    if context.marks is not None:
        looks |= {"folders": lambda: _folders(context.paths), "disk": lambda: _disk(context.paths)}
    looks |= {
        "database": lambda: _database(context),
        "keys": lambda: _keys(context),
        "clock": lambda: _clock(context),
        "log": lambda: _log(context),
        "lockdown": lambda: _lockdown(context),
        "skills": lambda: _skills(context),
        "flows": lambda: _flows(context),
    }
    return _gathered(looks)


def unopened(paths: Paths, error: HoldproofError) -> Examined:
    """Look at what is around a store that cannot be opened."""
    looks: dict[str, Look] = {
        "versions": _versions,
        "folders": lambda: _folders(paths),
        "disk": lambda: _disk(paths),
        "store": lambda: iter([Symptom("ill", "store", f"cannot be opened: {error.message}", error.remedy)]),
    }
    return _gathered(looks)


def absent(paths: Paths) -> Examined:
    """Look at a place where there is no store yet."""
    there = Symptom("note", "store", f"there is none in {paths.data} yet", "the first command that needs it makes it")
    return _gathered({"versions": _versions, "disk": lambda: _disk(paths), "store": lambda: iter([there])})


def _gathered(looks: dict[str, Look]) -> Examined:
    found: list[Symptom] = []
    for about, look in looks.items():
        try:
            found += look()
        except (HoldproofError, OSError) as error:
            found.append(Symptom("ill", about, f"cannot be looked at: {error}", getattr(error, "remedy", "")))
    return Examined(found)


def _versions() -> Iterator[Symptom]:
    running = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Symptom("well", "versions", f"holdproof {metadata.version('holdproof')}, {running}")


# --- around the store ----------------------------------------------------------------------------------------------


def _folders(paths: Paths) -> Iterator[Symptom]:
    """The folders are there, can be written, and are nobody else's business."""
    sound = True
    for name in ("data", "config", "state", "cache"):
        folder: Path = getattr(paths, name)
        for symptom in _folder(folder):
            sound = False
            yield symptom
    if sound:
        yield Symptom("well", "folders", f"{paths.data} and its companions are there, and the owner's only")


def _folder(folder: Path) -> Iterator[Symptom]:
    if not folder.is_dir():
        yield Symptom("ill", "folders", f"{folder} is not there", "create it, or mount its disk")
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Symptom("ill", "folders", f"{folder} cannot be written", f"chown it to the user who runs this: {folder}")
    elif others := folder.stat().st_mode & 0o077:
        yield Symptom("note", "folders", f"{folder} is open to others ({others:03o})", f"chmod go= {folder}")


def _disk(paths: Paths) -> Iterator[Symptom]:
    """There is room for what comes, and the disk keeps its word on locks."""
    if (kind := _mounted(paths.data)) in _REMOTE:
        what = f"{paths.data} is on a network disk ({kind}), whose locks SQLite cannot rely on"
        yield Symptom("ill", "disk", what, "keep the data on a local disk, or use PostgreSQL")
    known = next(part for part in (paths.data, *paths.data.parents) if part.exists())
    free, held = shutil.disk_usage(known).free, _held(paths.data)
    said = f"{_mib(free)} free, {_mib(held)} held"
    if free < _LITTLE:
        yield Symptom("ill", "disk", f"nearly full: {said}", "make room: a full disk refuses every write")
    elif free < max(held, _GIB):
        yield Symptom("note", "disk", f"little room: {said}", "a backup or a compaction needs as much again as is held")
    else:
        yield Symptom("well", "disk", said)


def _mounted(place: Path) -> str:
    """The kind of file system that a place is on; unknown where nobody says."""
    try:
        lines = _MOUNTS.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    mounts = {parts[1].replace("\\040", " "): parts[2] for line in lines if len(parts := line.split()) > 2}
    return next((mounts[str(part)] for part in (place, *place.parents) if str(part) in mounts), "")


def _held(folder: Path) -> int:
    """How many bytes a folder holds; what goes while we look holds none."""
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


def _database(context: Context) -> Iterator[Symptom]:
    facts = context.database.backend.facts()
    size = facts.get("bytes", {})
    yield Symptom("well", "database", f"{facts['backend']} {facts['version']} at {facts['path']}")
    if size.get("wal", 0) > _LONG_WAL:
        what = f"the write-ahead log has grown to {_mib(size['wal'])}"
        yield Symptom("note", "database", what, "end the reader that keeps it from being taken in, or restart")
    if facts.get("checksums") is False:
        what = "pages carry no checksums: damage that SQLite does not see is found by `verify` only"
        yield Symptom("note", "database", what, "back up and restore into a new home")
    if facts.get("path") == MEMORY:
        yield Symptom("note", "database", "in memory: nothing survives this process", "open it with a home")
    if context.database.dialect == "postgres" and context.database.read(_checksums).result() == "off":
        what = "the server writes no page checksums: damage is found by `verify` only"
        yield Symptom("note", "database", what, "pg_checksums --enable, while the server is down")


def _checksums(tx: Tx) -> str:
    row = tx.one(_CHECKSUMS)
    assert row is not None, "a setting always comes"
    return str(row[0])


def _keys(context: Context) -> Iterator[Symptom]:
    """The keys are there, and open to nobody else; those that are made at their first use may be missing."""
    there: list[str] = []
    for role in ROLES:
        try:
            context.keys.load(role)
            there.append(role)
        except NotFoundError:
            continue
        except HoldproofError as error:
            yield Symptom("ill", "keys", f"the {role} key cannot be used: {error.message}", error.remedy)
    if "root" not in there:
        what = "no root key is here: unless it is kept elsewhere, nobody could end a lockdown"
        yield Symptom("note", "keys", what, "holdproof keys init-root --recovery FILE; keep the file elsewhere")
    if not context.log.signs:
        what = "no log key of this store is here: nothing can be logged"
        yield Symptom("ill", "keys", what, "put the key file back, or let a home that has it sign")
    else:
        yield Symptom("well", "keys", f"{', '.join(there)} here")


_SERVER_CLOCK = sql_postgres("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)")
_NEWEST = sql("SELECT updated_at FROM log_state WHERE id = 1")


def _clock(context: Context) -> Iterator[Symptom]:
    """This clock is not behind what was written, nor beside the server's."""
    now, remedy = system_clock(), "set the clock (NTP): leases and deadlines go by it"
    newest, served = context.database.read(_clocks).result()
    behind, beside = (newest - now) / 1e6, abs((served or now) - now) / 1e6
    if behind > _SKEW_S:
        yield Symptom("ill", "clock", f"{behind:,.0f} s behind the newest record", remedy)
    elif beside > _SKEW_S:
        yield Symptom("ill", "clock", f"{beside:,.0f} s beside the clock of the server", remedy)
    else:
        yield Symptom("well", "clock", "not behind what was written")


def _clocks(tx: Tx) -> tuple[int, int | None]:
    """When the log last grew, and what the server's clock says, in microseconds."""
    newest, served = tx.one(_NEWEST), tx.one(_SERVER_CLOCK) if tx.dialect == "postgres" else None
    return (0 if newest is None else to_micros(newest[0])), (None if served is None else int(served[0]))


def _log(context: Context) -> Iterator[Symptom]:
    """Heads are kept where whoever can change the database cannot."""
    kept = context.marks.largest() if context.marks else {}
    level = context.database.read(lambda tx: level_of(tx, kept)).result()
    if level.name == "WITNESSED":
        yield Symptom("well", "log", level.text)
    else:
        what = f"{level.text}: whoever rules this machine could put an older store in place unseen"
        yield Symptom("note", "log", what, "`holdproof log witness URL`, or a webhook that keeps heads")
    if context.marks is not None and (torn := context.marks.unreadable()):
        what = f"{torn} lines of {context.marks.path} are torn or damaged"
        yield Symptom("note", "log", what, "keep a copy of the file: those heads count no more")


def _lockdown(context: Context) -> Iterator[Symptom]:
    for told in lockdown.in_force(context):
        yield Symptom("ill", "lockdown", told, "holdproof verify --full; then restore, or `holdproof unlock`")


def _skills(context: Context) -> Iterator[Symptom]:
    for told in skill_watch.warnings(context):
        yield Symptom(
            "ill", "skills", told, "look at the file, then approve the one you trust: holdproof skills approve"
        )


def _flows(context: Context) -> Iterator[Symptom]:
    """Nobody's work is left lying."""
    orphans, dirty, unknown = context.database.read(sweeps.backlog).result()
    if orphans:
        yield Symptom("note", "flows", f"{orphans} flows have lost their worker", "recover them: store.flows.recover()")
    if dirty:
        yield Symptom("note", "flows", f"{dirty} flows failed half way and are dirty", "holdproof sagas list")
    if unknown:
        what = f"{unknown} calls were begun under a key and never finished"
        yield Symptom("note", "flows", what, "store.idempotency.settle(key, result), or forget(key)")
    if not (orphans or dirty or unknown):
        yield Symptom("well", "flows", "none is left lying")
