"""Move a store to another database: from SQLite to PostgreSQL, back, or from server to server.

The log continues in the target with the same origin, tree and head, so the source is sealed for good and says where
the store went. (A restore makes a second store of an older state, and so a new origin.)

Rules:
- The source is open nowhere else meanwhile, and nothing in it changes but the seal, which comes last. Killed at any
  moment before it, the source is intact and usable, and the target is refused as unfinished; the next move starts over.
- The target is empty, or holds what an earlier move left unfinished; anything else is refused and left alone.
- Before the seal every row of the target is compared with the source's, and the target is verified in full.
- Killed after the seal, the next move to the same target only finishes. Another target is refused.
- The home stays: keys, heads, DBOM files, images and the bytes of large blobs are where they were.
- Tables that applications created have types that may mean something else in another database: a store that has any
  is refused, and they are named.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from holdproof import config
from holdproof.config import Paths
from holdproof.crypto import checkpoint
from holdproof.db import Tx, sql, transfer
from holdproof.db.backends import is_url
from holdproof.db.migrate import MOVE_IN_PROGRESS, MOVED
from holdproof.db.sql import sql_postgres
from holdproof.db.transfer import DatabaseTarget, LockedSource
from holdproof.errors import (
    AlreadyExistsError,
    BusyError,
    CorruptError,
    HoldproofError,
    InvalidInputError,
    LockedError,
    MovedError,
    NotFoundError,
)
from holdproof.evidence import lockdown
from holdproof.evidence.heads import HeadFile
from holdproof.evidence.key_files import KeyFolder
from holdproof.evidence.log import Log
from holdproof.evidence.tree import LogState
from holdproof.executors.sync_executor import SyncExecutor
from holdproof.model.progress import Progress
from holdproof.model.transfer import Moved
from holdproof.store.context import Context
from holdproof.upkeep.backups import stream
from holdproof.upkeep.verification import log_check, verify
from holdproof.urls import redact

KERNEL: Final = "kernel"
SQLITE: Final = "sqlite"


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Where a store is moved from and to, and whether its telemetry goes along."""

    paths: Paths
    source: str | Path
    target: str | Path
    telemetry: bool = False

    @property
    def spaces(self) -> dict[str, Path]:
        """Return the spaces to move, with the file of each on SQLite; the kernel first."""
        named = {KERNEL: self.paths.kernel_db, "membrane": self.paths.membrane_db}
        return named | ({"telemetry": self.paths.telemetry_db} if self.telemetry else {})

    def into(self, space: str) -> str | Path:
        """Return the database of a space at the target."""
        return self.target if isinstance(self.target, str) else self.spaces[space]


def plan(src: str | Path, dst: str | Path, home: str | Path | None, *, telemetry: bool) -> MovePlan:
    """Resolve both ends: each is a URL, the word `sqlite` for the file of the home in use, or a home.

    A URL has no files, so the files stay in the home of the other end, or in the one in use.
    """
    # At most one end can be a home: two would be files on both sides, which need no transfer.
    homes = [Path(each) for each in (src, dst) if str(each) != SQLITE and not is_url(each)]
    if len(homes) > 1 or (is_url(src), is_url(dst)) == (False, False):
        raise InvalidInputError("both ends are files: close the store and move its folder instead")
    if homes and home is not None and Paths.find(homes[0]) != Paths.find(home):
        raise InvalidInputError(f"two homes are named: {homes[0]} and {home}")
    paths = Paths.find(homes[0] if homes else home)
    source, target = (str(each) if is_url(each) else paths.kernel_db for each in (src, dst))
    if source == target:
        raise InvalidInputError("source and target are the same database")
    return MovePlan(paths, source, target, telemetry)


def refuse_absent(journey: MovePlan) -> None:
    """Raise NotFoundError where there is no store to move: opening it would create one."""
    if transfer.open_target(journey.source, journey.spaces).ledger(KERNEL) is None:
        raise NotFoundError(f"there is no store at {redact(str(journey.source))}")


class TransferSummary(NamedTuple):
    """What was, or would be, moved: the store, its log, and how many rows of each space."""

    # Compared with the target before the source is sealed.

    store_id: str
    state: LogState
    rows: dict[str, int]


def move(journey: MovePlan, tell: Progress, *, dry_run: bool) -> TransferSummary:
    """Fill the target, verify it, seal the source, and mark the target as complete."""
    target = transfer.open_target(journey.target, journey.spaces)
    with transfer.open_source(journey.source, journey.spaces) as source:
        sealed = _check_source(journey, source)
        plan = {space: stream.tables(source, space) for space in source.spaces}
        stream.refuse_application_tables(plan.get("membrane", {}))
        for space in source.spaces:
            _check_target(target, space, sealed=sealed)
        moved = _survey(source, plan)
        if dry_run:
            return moved
        # Sealed spaces were complete when an earlier move was killed; only the others are filled.
        fresh = [space for space in source.spaces if space not in sealed]
        try:
            for space in fresh:
                _fill(journey, (source, target), space, plan[space], tell)
            if MOVE_IN_PROGRESS.name in (target.ledger(KERNEL) or ()):
                _inspect(journey, moved, tell)
        except BaseException:
            for space in fresh:
                with suppress(HoldproofError):
                    target.discard(space)
            raise
        # The commit point: from here on only the target counts, and a kill is finished by the next move.
        tell("sealing", 0, 1)
        source.seal(redact(str(journey.target)))
        tell("sealing", 1, 1)
    # The kernel is completed last: it is what an opening looks at.
    for space in reversed(source.spaces):
        target.remove_mark(space)
    return moved


def _check_source(journey: MovePlan, source: LockedSource) -> set[str]:
    """Return the spaces that are sealed already, for this target; refuses a store that cannot be moved now."""
    to = redact(str(journey.target))
    sealed: set[str] = set()
    for space in source.spaces:
        ledger = source.ledger(space)
        if MOVED in ledger:
            if ledger[MOVED] != to:
                raise MovedError(f"this store was moved to {ledger[MOVED]}", to=ledger[MOVED])
            sealed.add(space)
    tx = source.tx(KERNEL)
    locked = lockdown.read_flag(journey.paths.lockdown) or lockdown.current(tx)
    if locked is not None:
        raise LockedError(f"the store is locked since {locked.locked_at}: {locked.reason}", **locked.to_dict())
    # Pending leaves have no index yet, so the target's log could not be compared with the source's.
    if tx.dialect == "postgres" and tx.one(_PENDING) is not None:
        raise BusyError("leaves of the log are still pending: open the store once with its log key, then move it")
    return sealed


_PENDING = sql_postgres("SELECT 1 FROM log_pending LIMIT 1")


def _check_target(target: DatabaseTarget, space: str, *, sealed: set[str]) -> None:
    """Refuse a target that holds a store; one that an earlier move left unfinished is continued or emptied."""
    ledger = target.ledger(space)
    if ledger is None:
        if space in sealed:
            raise NotFoundError(f"the source is sealed, but the target has no {space}: was it removed?", space=space)
    elif MOVE_IN_PROGRESS.name not in ledger and space not in sealed:
        raise AlreadyExistsError(f"the target is not empty: it has a {space} already", space=space)


def _survey(source: LockedSource, plan: dict[str, dict[str, list[str]]]) -> TransferSummary:
    tx = source.tx(KERNEL)
    parts = log_check.parts(tx)
    rows = {space: sum(source.count(space, table) for table in plan[space]) for space in plan}
    return TransferSummary(parts.store_id, parts.state, rows)


# --- filling -----------------------------------------------------------------------------------------------------


def _fill(
    journey: MovePlan,
    ends: tuple[LockedSource, DatabaseTarget],
    space: str,
    tables: dict[str, list[str]],
    tell: Progress,
) -> None:
    """Empty, mark, fill and compare one space of the target."""
    source, target = ends
    target.discard(space)
    transfer.create_marked(journey.into(space), space)
    stream.pour(source, target, space, tables, tell, to_server=not isinstance(journey.target, Path))


# --- looking at what arrived -------------------------------------------------------------------------------------


def _inspect(journey: MovePlan, moved: TransferSummary, tell: Progress) -> None:
    """Refuse a target whose log differs from the source's in any byte, or that does not verify in full."""
    keys = KeyFolder(journey.paths.keys)
    database = transfer.open_marked(journey.target, KERNEL)
    try:
        database.read(partial(_agree, moved=moved)).result()
        settings = config.load(paths=journey.paths, override={})
        log = Log(keys.ensure("log"), (), keys)
        context = Context(journey.paths, settings, database, keys, log, HeadFile(journey.paths.heads))
        report = SyncExecutor(database).run(verify.kernel(context, progress=tell))
    finally:
        database.close()
    # The marker of an unfinished move is a row the log does not know; it goes after the seal.
    wrong = [each for each in report.findings if each.verdict.locks and each.row != MOVE_IN_PROGRESS.name]
    if wrong:
        first = wrong[0]
        raise CorruptError(
            f"the store does not verify, so nothing was moved: {first.place}: {first.what}",
            findings=[each.to_dict() for each in wrong],
        )


_LEAVES = sql("SELECT count(*) FROM log_leaves")


def _agree(tx: Tx, moved: TransferSummary) -> None:
    parts = log_check.parts(tx)
    [(leaves,)] = tx.all(_LEAVES)
    if (parts.store_id, parts.state, leaves) != (moved.store_id, moved.state, moved.state.size):
        raise CorruptError("the log that arrived is not the one that was sent")
    log_check.check(parts, log_check.active_keys(parts.keys, parts.state.size))


def outcome(journey: MovePlan, moved: TransferSummary, verdict: str, *, dry_run: bool = True) -> Moved:
    """Return the outcome: what was moved, what stays where it is, and what is left for the operator to do."""
    to = redact(str(journey.target))
    stays = [str(each) for each in (journey.paths.keys, journey.paths.data / "blobs", journey.paths.heads)]
    steps = [f"HOLDPROOF_DATABASE_URL={to}" if isinstance(journey.target, str) else "unset HOLDPROOF_DATABASE_URL"]
    # Erasures made from now on do not reach the sealed source.
    steps.append("remove the sealed source once you need it no longer: what is erased from now on stays in it")
    if journey.telemetry:
        kind = "postgres" if isinstance(journey.target, str) else "sqlite"
        steps.append(f"providers.telemetry.type: {kind} in {journey.paths.config_file}")
    else:
        stays.append(str(journey.paths.telemetry_db))
    return Moved(
        source=redact(str(journey.source)),
        target=to,
        store_id=moved.store_id,
        origin=moved.state.origin,
        size=moved.state.size,
        root=checkpoint.parse(moved.state.head.encode()).checkpoint.root.hex(),
        rows=moved.rows,
        verdict=verdict,
        dry_run=dry_run,
        stays=stays,
        next=steps,
    )
