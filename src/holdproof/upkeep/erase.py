"""Erase a subject or a record for good; every proof stays valid.

Rules:
- Erasing a subject destroys its key, so that content sealed with it is unreadable in every copy without a key of its
  own, and removes every row labelled with it: content, salt and DBOM file.
- Objects and values that were sealed stay as envelopes that nobody can open: their CIDs are in trees, signatures and
  proofs. So do flows of the person, with what they recorded; they are not run again. `Erasure.sealed` says how many.
- Leaves stay: one of type `erasure` under each record's handle, one for the erasure itself.
- Bytes are gone from every file of the store when the call returns: `secure_delete`, files overwritten, the
  write-ahead log emptied. `Erasure.remains` names what could not be reached: older states kept aside by a restore, a
  write-ahead log that a reader is using.
- Where one DBOM of an evaluation is erased, another takes its file name at once: every file is right on return.
- What used the subject's content and is not labelled with it is found by links (derivation.py) and, as the caller says,
  listed or erased (derived_removal.py). One certificate says all of it, under the log (erasure_certificate.py).
- A dry run is the erasure itself, rolled back: it cannot say anything else.
- What a legal hold keeps is not erased (evidence/retention_rules.py); erasures from before it are applied again.
- A crash after the commit leaves only files to remove; the next opening of the store removes them.
- Erasures are recorded outside the database too (`state/erasures.jsonl`, handles only), so that a restore of an older
  backup applies them again even where the database is lost.
- Events of hooks that wait on this machine go too (spooled_events.py); damaged ones that are nobody's are told as what
  remains.
- Not reached: copies exported in clear, raw copies of `kernel.db`, and backups made with `--keys`. On PostgreSQL the
  server's own dead rows and logs are removed by its vacuum and its retention, not by this call.
"""

import builtins
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdproof import paging, validation
from holdproof.config import Paths
from holdproof.content import disk, encryption
from holdproof.crypto.canonical import sha256_hex
from holdproof.db import Call, Read, Tx, Work, Write, ask, call, sql
from holdproof.db.sqlite import snapshot
from holdproof.errors import FormatError, HoldproofError, InvalidInputError, NotFoundError
from holdproof.evidence import erasable, erasures, lockdown, retention_rules
from holdproof.evidence.erasable import Removed
from holdproof.evidence.erasures import PendingRemoval
from holdproof.evidence.lockdown import gate_of
from holdproof.lazy import lazy_module
from holdproof.model.erasure import Erasure
from holdproof.model.page import Page
from holdproof.store.context import Context
from holdproof.validation import who as _who

if TYPE_CHECKING:
    from holdproof.evidence import dbom_files, evaluations
    from holdproof.executors import sync_executor
    from holdproof.memory.images import image
    from holdproof.memory.objects import garbage
    from holdproof.upkeep import derived_removal, erasure_certificate, spooled_events, subject_stores
    from holdproof.upkeep.derived_removal import ImageAt
    from holdproof.upkeep.subject_stores import SubjectStore
else:
    dbom_files = lazy_module("holdproof.evidence.dbom_files")
    evaluations = lazy_module("holdproof.evidence.evaluations")
    derived_removal = lazy_module("holdproof.upkeep.derived_removal")
    erasure_certificate = lazy_module("holdproof.upkeep.erasure_certificate")
    sync_executor = lazy_module("holdproof.executors.sync_executor")
    garbage = lazy_module("holdproof.memory.objects.garbage")
    image = lazy_module("holdproof.memory.images.image")
    spooled_events = lazy_module("holdproof.upkeep.spooled_events")
subject_stores = lazy_module("holdproof.upkeep.subject_stores")

_log = logging.getLogger("holdproof")

_FILE = "erasures.jsonl"
_NS = "main"
_SPOOLED = "events of hooks"


def subject(
    context: Context,
    name: str,
    *,
    derived: Literal["list", "erase"] = "list",
    dry_run: bool = False,
    who: str = "operator",
    ns: str | None = None,
) -> Work[Erasure]:
    """Erase a subject: its key, every row and file labelled with it, and labelled blobs and sessions of services.

    What used the subject's content and carries no label is listed, or with `derived="erase"` erased where that can be.
    Services have no namespaces: they are searched only if no `ns` is given. NotFoundError for an unknown subject.
    """
    validation.one_of("derived", derived, derived_removal.MODES)
    spooled = yield from spooled_events.find(context, name, ns=_NS if ns is None else ns)
    # Counted before the commit, so that the record says how much is erased.
    served = (yield from call(subject_stores.find, context, name)) if ns is None else []
    images = (yield from _images(context, _NS if ns is None else ns)) if derived == "erase" else []
    following = _Following(derived, tuple(images))
    act = partial(
        _by_name,
        name=name,
        served=served,
        spooled=len(spooled.own),
        who=who,
        following=following,
        ns=_NS if ns is None else ns,
    )
    went = {kind: sum(each.holds[kind] for each in served) for kind in (served[0].holds if served else ())}
    went |= {_SPOOLED: len(spooled.own)} if spooled.own else {}
    if dry_run:
        planned = yield from _rolled_back(act)
        return replace(planned, id="", erased_at="", files=(), services=went, dry_run=True)
    erasure = yield from spooled_events.erase(spooled.own, Write(act))
    remains = yield from finish(context)
    return replace(erasure, files=(), remains=(*remains, *map(str, spooled.unclear)), services=went)


class _Following(NamedTuple):
    """What becomes of what is derived, and which images there are that may show it."""

    mode: str = "list"
    images: "tuple[ImageAt, ...]" = ()


_LIST = _Following()


class _PlannedError(Exception):
    """Rolls a dry run back; has what the erasure would be."""

    def __init__(self, erasure: Erasure) -> None:
        super().__init__("a dry run")
        self.erasure = erasure


def _rolled_back(act: Callable[[Tx], Erasure]) -> Work[Erasure]:
    def plan(tx: Tx) -> Erasure:
        raise _PlannedError(act(tx))

    try:
        return (yield from ask(Write(plan)))
    except _PlannedError as planned:
        return planned.erasure


def _images(context: Context, ns: str) -> "Work[builtins.list[ImageAt]]":
    """Return the images on disk: what is derived may stand in them, too."""
    every: builtins.list[ImageAt] = []
    cursor: str | None = None
    while True:
        page = yield from image.list(context, cursor=cursor, ns=ns)
        every += [derived_removal.ImageAt(each.name, each.made_at, ns) for each in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return every


def record(context: Context, table: str, id: str, *, who: str = "operator") -> Work[Erasure]:
    """Erase one record of a table; NotFoundError if there is none."""
    erasure = yield from ask(Write(partial(_one, table=table, key=id, who=who)))
    remains = yield from finish(context)
    return replace(erasure, files=(), remains=remains)


def list(tx: Tx, *, cursor: str | None = None, limit: int = 100) -> Page[Erasure]:
    """List erasures, the newest first."""
    (before,) = paging.decode(cursor, erasures.LAST)
    erased = erasures.before(tx, before, limit=paging.fetch(limit))
    return paging.page([_with_sealed(tx, each) for each in erased], limit, _sort_key)


def _sort_key(erasure: Erasure) -> tuple[str]:
    return (erasure.id,)


def _with_sealed(tx: Tx, erasure: Erasure) -> Erasure:
    """Return the erasure with the count of content that became unreadable with the key."""
    if erasure.kind != "subject":
        return erasure
    return replace(erasure, sealed=_sealed(tx, erasure.target))


def _sealed(tx: Tx, handle: str) -> dict[str, int]:
    [(flows,)] = tx.all(_FLOWS, subject=handle)
    return {**encryption.marked(tx, handle), **({"flows": flows} if flows else {})}


_FLOWS = sql("SELECT count(*) FROM decision_flows WHERE subject = :subject")


def _by_name(
    tx: Tx,
    name: str,
    served: "Sequence[SubjectStore]" = (),
    *,
    spooled: int = 0,
    who: str,
    following: _Following = _LIST,
    ns: str,
) -> Erasure:
    handle = encryption.find(tx, name, ns=ns)
    retention_rules.check_subject(tx, handle or "", ns=ns)
    if handle is None and spooled:
        # Nothing of them came into the store yet; the record of the erasure is about a subject.
        handle = encryption.label(tx, name, ns=ns)
    services = Counter[str]({_SPOOLED: spooled} if spooled else {})
    for store in served:
        services.update(store.holds)
    certify = partial(erasure_certificate.facts, tx, ns=ns, services=services)
    erased: builtins.list[Erasure] = []
    if handle is not None:
        own = _subject(tx, handle, who=who, following=following, certify=certify)
        erased += [] if own is None else [own]
    for store in served:
        # One certificate says all of it: that of the first record.
        of_first = None if erased else certify
        count = sum(store.holds.values())
        erased.append(_served(tx, subject_stores.target(store.handle), count, who=who, certify=of_first))
    if not erased:
        raise subject_stores.unknown()
    return _with_sealed(tx, erased[0])


def _served(tx: Tx, target: str, count: int, *, who: str, certify: Callable[[Erasure], str] | None = None) -> Erasure:
    """Record the erasure of a label of services; what carries the label is removed after the commit."""
    return erasures.record(
        tx, "subject", target, who=_who(who), removed=[], outside=count, due=[target], certify=certify
    )


def _subject(
    tx: Tx, handle: str, *, who: str, following: _Following = _LIST, certify: Callable[..., str] | None = None
) -> Erasure | None:
    """Destroy the key, remove every labelled row, follow what is derived; None where there was nothing to erase."""
    who = _who(who)
    # Locked before anything is looked for: whoever labels or encrypts from here on waits, and is refused.
    is_alive = encryption.lock(tx, handle)
    outcome = derived_removal.NOTHING
    if is_alive:
        outcome = derived_removal.follow(tx, handle, mode=following.mode, who=who, images=following.images)
    destroyed = encryption.destroy(tx, handle)
    if destroyed:
        erasures.log_subject(tx, handle)
    removed: builtins.list[Removed] = []
    # Rows with leaves first; each leaves a tombstone leaf under its own handle.
    for domain in erasable.domains():
        results = [domain.remove(tx, key) for key in domain.find(tx, handle)]
        removed += [each for each in results if each is not None]
    outside = erasable.remove_rows(tx, handle)
    if not destroyed and not removed and not outside:
        return None
    certify = partial(
        certify or partial(erasure_certificate.facts, tx, ns=encryption.get(tx, handle).ns),
        mode=following.mode,
        outcome=outcome,
        sealed=_sealed(tx, handle),
    )
    due = [erasures.GARBAGE] if outcome.left_garbage else []
    erasure = erasures.record(
        tx, "subject", handle, who=who, removed=removed, outside=outside, due=due, certify=certify
    )
    return replace(erasure, derived=outcome.items)


def _one(tx: Tx, table: str, key: str, *, who: str) -> Erasure:
    domain = erasable.of(table)
    for rule in retention_rules.check_everything(tx, ns=_NS).holds("subject"):
        if key in map(str, domain.find(tx, rule.target)):
            raise retention_rules.refuse(rule)
    try:
        removed = domain.remove(tx, key)
    except ValueError as error:
        raise InvalidInputError(f"{key!r} is no id of {table}", table=table, id=key) from error
    if removed is None:
        raise NotFoundError(f"{table} has no record {key}", table=table, id=key)
    return erasures.record(tx, "record", table, who=_who(who), removed=[removed])


# --- after the commit --------------------------------------------------------------------------------------------


def finish(context: Context) -> Work[tuple[str, ...]]:
    """Remove the files of committed erasures, record them outside, empty the write-ahead log.

    Returns the names of what could not be reached.
    """
    unreached: builtins.list[str] = []
    # First, since what follows may take minutes: a crash must not leave an erasure that a restore does not hear of.
    if context.head_file is not None:
        recorded = yield from ask(Read(erasures.history))
        yield from ask(Call(partial(record_outside, context.paths, recorded)))
    for due in (yield from ask(Read(erasures.due))):
        if erasures.GARBAGE in due.files:
            yield from garbage.collect(context)
        unreached += yield from ask(Call(partial(_remove, context, due.files)))
        yield from ask(Write(partial(erasures.mark_done, erasure_id=due.id)))
    if context.head_file is None:
        return tuple(unreached)
    remains = unreached + sorted(str(path) for path in context.paths.data.glob("before-restore-*"))
    if context.database.dialect == "sqlite":
        file = Path(context.database.backend.facts()["path"])
        if not (yield from ask(Call(partial(snapshot.fold, file)))):
            remains.append(f"{file}-wal")  # a reader still uses an old state; the next checkpoint empties it
    return tuple(remains)


def at_opening(context: Context) -> None:
    """Finish erasures that a crash left between commit and removal; a locked store is left as it is.

    What is labelled in application stores is erased by a thread: they may be slow, down, or held up by an application,
    and the store must open all the same.
    """
    database = context.database
    # A lockdown preserves evidence: nothing is removed while it lasts.
    if gate_of(database).flag() is not None or database.read(lockdown.current).result() is not None:
        return
    if context.head_file is not None:
        spooled_events.at_opening(context.paths)
    labelled: builtins.list[PendingRemoval] = []
    unfinished = database.read(erasures.due).result()
    if unfinished and context.head_file is not None:
        record_outside(context.paths, database.read(erasures.history).result())
    for due in unfinished:
        if erasures.GARBAGE in due.files or any(map(subject_stores.is_target, due.files)):
            labelled.append(due)
            continue
        _remove(context, due.files)
        database.write(partial(erasures.mark_done, erasure_id=due.id), ungated=True).result()
    if labelled:
        thread = Thread(target=_finish_labelled, args=(context, labelled), name="holdproof-erasure", daemon=True)
        context.threads.append(thread)
        thread.start()


def _finish_labelled(context: Context, labelled: builtins.list[PendingRemoval]) -> None:
    for due in labelled:
        try:
            if erasures.GARBAGE in due.files:
                sync_executor.SyncExecutor(context.database).run(garbage.collect(context))
            _remove(context, due.files)
            context.database.write(partial(erasures.mark_done, erasure_id=due.id), ungated=True).result()
        except HoldproofError as error:
            _log.warning("an erasure is still to be finished: %s", error)


def _remove(context: Context, names: tuple[str, ...]) -> builtins.list[str]:
    """Remove files and labels for good, and rewrite DBOM files whose name another DBOM takes; what was not reached."""
    unreached = [
        each for name in names if subject_stores.is_target(name) for each in subject_stores.erase(context, name)
    ]
    paths = [context.paths.data / name for name in names if erasures.is_file(name)]
    with disk.translated(context.paths.data):
        for path in paths:
            disk.shred(path)
    for ns, evaluation_id in dict.fromkeys(
        each for path in paths for each in dbom_files.owners(context.paths.dboms, path)
    ):
        evaluations.write_files(context, ns, evaluation_id)
    return unreached


# --- erasures on their way into a restored store ------------------------------------------------------------------


def record_outside(paths: Paths, recorded: Iterable[Erasure]) -> None:
    """Record erasures outside the database, one a line; processes that do so at once are serialised."""
    file = paths.state / _FILE
    with disk.translated(file), disk.locked(file.with_name(f".{_FILE}.lock")):
        # Read under the lock: another process may have added lines.
        have = {each.id: each for each in read_list(file)}
        if fresh := [each for each in recorded if each.id not in have]:
            lines = [_line(each) for each in (*have.values(), *fresh)]
            disk.write(file, "".join(f"{line}\n" for line in lines).encode())


def recorded_outside(paths: Paths) -> builtins.list[Erasure]:
    """Return the erasures recorded outside the database."""
    return read_list(paths.state / _FILE)


def read_list(file: Path) -> builtins.list[Erasure]:
    """Return the erasures that a file lists; none where there is no file; FormatError for another file."""
    if not file.exists():
        return []
    try:
        with disk.translated(file):
            lines = disk.read(file, 1 << 28).decode().splitlines()
        return [_parse(json.loads(line)) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{file} is no list of erasures: {error}", path=str(file)) from error


def _line(erasure: Erasure) -> str:
    """Return an erasure as a line with its own digest: a flipped bit must not erase another subject, or none."""
    fields = erasure.to_dict()
    return json.dumps({**fields, "sha256": _digest(fields)}, sort_keys=True)


def _digest(fields: dict[str, object]) -> str:
    return sha256_hex(json.dumps(fields, sort_keys=True).encode())


def _parse(line: dict[str, object]) -> Erasure:
    digest = line.pop("sha256", None)
    if digest is not None and digest != _digest(line):
        raise ValueError("a line is damaged")
    # The file may be edited or from another version: every field is checked.
    handles = line["leaf_ids"]
    if not isinstance(handles, builtins.list):
        raise TypeError("leaf_ids is no list")
    key, kind, target, who, moment = (str(line[name]) for name in ("id", "kind", "target", "who", "erased_at"))
    count = line.get("count", len(handles))
    if not isinstance(count, int):
        raise TypeError("count is no number")
    mode = line.get("mode", "list")
    if mode not in derived_removal.MODES:
        raise TypeError("mode is list or erase")
    return Erasure(key, kind, target, who, count, tuple(map(str, handles)), moment, mode=str(mode))


def reapply(tx: Tx, recorded: Iterable[Erasure]) -> builtins.list[Erasure]:
    """Apply erasures again that were made after the state in this database; return those that did something."""
    repeated = []
    for each in recorded:
        again = _subject_again(tx, each) if each.kind == "subject" else _again(tx, each)
        if again is not None:
            repeated.append(again)
    return repeated


def _subject_again(tx: Tx, erasure: Erasure) -> Erasure | None:
    """Erase a subject of the kernel again, or record a label of services, which is erased at the next opening."""
    if not subject_stores.is_target(erasure.target):
        return _subject(tx, erasure.target, who=erasure.who, following=_Following(erasure.mode))
    return (
        None
        if erasures.is_recorded(tx, erasure.target)
        else _served(tx, erasure.target, erasure.count, who=erasure.who)
    )


def _again(tx: Tx, erasure: Erasure) -> Erasure | None:
    domain = erasable.of(erasure.target)
    keys = [key for handle in erasure.leaf_ids if (key := domain.at(tx, handle)) is not None]
    removed = [record for key in keys if (record := domain.remove(tx, key)) is not None]
    return erasures.record(tx, "record", erasure.target, who=erasure.who, removed=removed) if removed else None
