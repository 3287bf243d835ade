"""Retention: which snapshots, and which versions of objects, have had their time.

Rules:
- What goes is past every limit that is given: older than `before`, beyond the newest `keep` (of versions: of each
  object), and, with `keep_daily`, not the last snapshot of one of the days that keep theirs.
- The newest snapshot stays, and so does the newest version of every object, whatever the limits.
- A snapshot goes with its row; its leaf stays. A version's row stays and says that it was pruned, and so does an entry
  of the history: history has no gaps and no lies. A snapshot that has such a version still shows it.
- Blocks stay until `retention gc` finds that nothing leads to them any more.
- Nothing here is logged: who removes records names their handles (evidence/prunings.py) in the same transaction.
"""

from typing import Any, Final, NamedTuple

from holdproof.db import Tx, sql
from holdproof.errors import InvalidInputError
from holdproof.memory.objects import commits, object_history, objects, records, refs, tree_transaction
from holdproof.memory.objects.object_history import VersionKey
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.model.retention import Batch, Cut
from holdproof.model.times import later

KINDS: Final = frozenset({"snapshots", "versions"})
_DAY_S: Final = 86_400.0
_NEVER: Final = "9999-12-31T23:59:59.999999Z"
_LAST: Final = "~"
_ROWS: Final = 1_000

_NEWEST = sql("SELECT rev FROM snapshots WHERE ns = :ns ORDER BY rev DESC, id DESC LIMIT 1 OFFSET :keep")


def cuts(
    tx: Tx,
    what: str,
    *,
    older_than_days: float | None,
    keep: int | None,
    keep_daily: int | None = None,
    ns: str = MAIN,
) -> tuple[Cut, ...]:
    """Return where the line is now; none where nothing is beyond it."""
    if keep_daily is not None and what != "snapshots":
        raise InvalidInputError("only snapshots are kept by the day", what=what)
    if older_than_days is None and keep is None and keep_daily is None:
        raise InvalidInputError("say how old, or how many to keep")
    if older_than_days is not None and not 0 <= older_than_days <= 36_500:
        raise InvalidInputError("older_than_days is 0 to 36,500", older_than_days=older_than_days)
    for name, number in (("keep", keep), ("keep_daily", keep_daily)):
        if number is not None and (isinstance(number, bool) or not 0 <= number < 36_500):
            raise InvalidInputError(f"{name} is a whole number, 0 to 36,499", field=name, value=number)
    before = _NEVER if older_than_days is None else later(tx.now, -older_than_days * _DAY_S)
    daily = None if keep_daily is None else later(tx.now, -keep_daily * _DAY_S)
    if what == "versions":
        return (Cut(None, before, max(keep or 0, 1)),)
    # The newest `keep` snapshots are beyond reach: the cut is the rev of the first one after them, if there is one.
    revs = [_LAST] if keep is None else [rev for (rev,) in tx.all(_NEWEST, ns=ns, keep=keep)]
    return tuple(Cut(None, before, rev, daily) for rev in revs)


_DUE = (
    "FROM snapshots s WHERE s.ns = :ns AND s.created_at < :before AND s.rev <= :newest AND s.cid <> :head"
    " AND (s.created_at < :daily OR EXISTS (SELECT 1 FROM snapshots n WHERE n.ns = s.ns AND n.rev > s.rev"
    " AND {theirs} = {ours}))"
)
_SQLITE: Final = _DUE.format(theirs="substr(n.created_at, 1, 10)", ours="substr(s.created_at, 1, 10)")
_POSTGRES: Final = _DUE.format(
    theirs="CAST(n.created_at AT TIME ZONE 'UTC' AS DATE)", ours="CAST(s.created_at AT TIME ZONE 'UTC' AS DATE)"
)
_COUNT = sql(f"SELECT count(*) {_SQLITE}", postgres=f"SELECT count(*) {_POSTGRES}")
_DELETE: Final = "DELETE FROM snapshots WHERE id IN (SELECT s.id {due} ORDER BY s.rev LIMIT :limit) RETURNING leaf_id"
_TAKE = sql(_DELETE.format(due=_SQLITE), postgres=_DELETE.format(due=_POSTGRES))


def batch(tx: Tx, what: str, cut: Cut, *, remove: bool = True, ns: str = MAIN) -> Batch:
    """Return the next few that are beyond the line, let go unless they are only to be counted."""
    if what == "versions":
        return _versions(tx, cut, remove=remove, ns=ns)
    head = commits.head(tx, ns)
    daily = _NEVER if cut.daily is None else cut.daily
    bounds = {"before": cut.before, "newest": cut.newest, "daily": daily, "head": str(head), "ns": ns}
    if not remove:
        count = _counted(tx.all(_COUNT, **bounds))
        return Batch(count, {"snapshots": ("",) * count}, None)
    handles = tuple(handle for (handle,) in tx.all(_TAKE, limit=_ROWS, **bounds))
    return Batch(len(handles), {"snapshots": handles}, "" if len(handles) == _ROWS else None)


_OLD = (
    "FROM object_versions v WHERE v.ns = :ns AND v.pruned_at IS NULL AND v.cid IS NOT NULL AND v.at < :before"
    " AND v.n <= (SELECT max(m.n) FROM object_versions m WHERE m.ns = v.ns AND m.key = v.key) - :keep"
)
_OLD_COUNT = sql(f"SELECT count(*) {_OLD}")
_PRUNE = sql(
    f"UPDATE object_versions SET pruned_at = :now WHERE (ns, key, n) IN (SELECT v.ns, v.key, v.n {_OLD} LIMIT :limit)"  # noqa: S608
    " RETURNING key, n"
)


def _versions(tx: Tx, cut: Cut, *, remove: bool, ns: str) -> Batch:
    """Their rows follow from the history, which gets an entry that names them; the pruning counts them."""
    bounds = {"before": cut.before, "keep": cut.newest, "ns": ns}
    if not remove:
        count = _counted(tx.all(_OLD_COUNT, **bounds))
        return Batch(count, {}, None, {"object_versions": count})
    # Held before the rows are touched, so that nobody appends to the history in between.
    name = tree_transaction.ref_name(ns)
    ref = refs.hold(tx, name)
    pruned = [VersionKey(*row) for row in tx.all(_PRUNE, now=tx.now, limit=_ROWS, **bounds)]
    count = len(pruned)
    if ref is not None and pruned:
        position = object_history.append(tx, ns, ref.position, tx.now, pruned=pruned)
        refs.move(tx, name, ref, ref.cid, ns=ns, history=position)
    return Batch(count, {}, "" if count == _ROWS else None, {"object_versions": count})


class ErasedVersions(NamedTuple):
    """How many versions of an object were erased, and since when there was the first; None where there was none."""

    versions: int
    since: str | None


_SINCE: Final = (
    "WHERE ns = :ns AND key = :key AND pruned_at IS NULL AND cid IS NOT NULL AND n >= (SELECT min(f.n)"
    " FROM object_versions f WHERE f.ns = :ns AND f.key = :key"
    " AND (CAST(:cid AS TEXT) IS NULL OR f.cid = :cid))"
)
_FIRST_AT = sql(f"SELECT min(at) FROM object_versions {_SINCE}")  # noqa: S608 (a constant of this file)
_ERASE_VERSIONS = sql(f"UPDATE object_versions SET pruned_at = :now {_SINCE} RETURNING key, n")  # noqa: S608


def erase(tx: Tx, id: str, cid: str | None, *, ns: str) -> ErasedVersions:
    """Delete an object, and prune its versions since it had that record (None: all of them)."""
    which = {"ns": ns, "key": records.key_of(id), "cid": cid}
    [(at,)] = tx.all(_FIRST_AT, **which)
    if at is None:
        return ErasedVersions(0, None)
    objects.delete(tx, id, ns=ns)
    name = tree_transaction.ref_name(ns)
    ref = refs.hold(tx, name)
    assert ref is not None, "an object with versions has a tree"
    pruned = [VersionKey(*row) for row in tx.all(_ERASE_VERSIONS, now=tx.now, **which)]
    position = object_history.append(tx, ns, ref.position, tx.now, pruned=pruned)
    refs.move(tx, name, ref, ref.cid, ns=ns, history=position)
    return ErasedVersions(len(pruned), at)


_SNAPSHOTS_SINCE = sql("SELECT cid FROM snapshots WHERE ns = :ns AND created_at >= :since ORDER BY rev")
_DROP_SNAPSHOTS = sql(
    "DELETE FROM snapshots WHERE ns = :ns AND created_at >= :since AND cid <> :head RETURNING leaf_id"
)


def drop_snapshots(tx: Tx, since: str, *, ns: str) -> list[str]:
    """Remove the snapshots made since, but for the newest; return the handles of their entries."""
    return [handle for (handle,) in tx.all(_DROP_SNAPSHOTS, ns=ns, since=since, head=str(commits.head(tx, ns)))]


def snapshots_since(tx: Tx, since: str, *, ns: str) -> list[str]:
    """Return the snapshots made since."""
    return [cid for (cid,) in tx.all(_SNAPSHOTS_SINCE, ns=ns, since=since)]


def _counted(rows: list[Any]) -> int:
    [(count,)] = rows
    return int(count)
