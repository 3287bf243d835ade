"""Retention: remove old records in small transactions, and return their space to the system.

Rules:
- Each batch is one transaction: rows removed, and a pruning in the log that names them; a crash leaves whole batches.
- Log leaves stay, so every proof stays valid, and `verify` says VALID.
- Of memory, snapshots and versions are removed first, then their blocks as garbage, where nothing else refers to them.
- A floor or a legal hold refuses what it keeps (evidence/retention_rules.py), in every batch anew.
- A dry run counts by the same queries and changes nothing.
- Space is returned in small transactions too, so that writers are not blocked. PostgreSQL keeps the room for new rows
  and returns what is free at the end of a table; `VACUUM FULL`, which locks the table, is left to the server's admin.
"""

from collections import Counter
from functools import partial

from holdproof import paging, validation
from holdproof.crypto import canonical
from holdproof.db import Call, Read, Tx, Work, Write, ask
from holdproof.errors import InvalidInputError, RetentionHeldError
from holdproof.evidence import prunings, retention_rules
from holdproof.memory.objects import garbage
from holdproof.memory.objects import object_retention as memory
from holdproof.model.memory import Collected
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.progress import Progress
from holdproof.model.retention import Batch, Compacted, Cut, Pruned, Pruning
from holdproof.runtime import retention
from holdproof.store.context import Context


def prune(
    context: Context,
    what: str,
    *,
    older_than_days: float | None = None,
    keep: int | None = None,
    keep_daily: int | None = None,
    flow_type: str | None = None,
    who: str = "operator",
    dry_run: bool = False,
    ns: str = MAIN,
) -> Work[Pruned]:
    """Remove "flows" that have ended, "audit", "feedback", "snapshots", or "versions" of objects.

    What goes is older than so many days and beyond the newest `keep`; of snapshots the last of each of `keep_daily`
    days stays as well.
    """
    validation.name("who", who)
    validation.one_of("what", what, retention.KINDS | memory.KINDS)
    if what in memory.KINDS:
        if flow_type is not None:
            raise InvalidInputError("memory has no types of flows", flow_type=flow_type)
        draw = partial(memory.cuts, keep_daily=keep_daily)
    elif keep_daily is not None:
        raise InvalidInputError("only snapshots are kept by the day", what=what)
    else:
        draw = partial(retention.cuts, flow_type=flow_type)
    yield from ask(Read(partial(_check_rules, what=what, older_than_days=older_than_days, ns=ns)))
    cuts = yield from ask(Read(lambda tx: draw(tx, what, older_than_days=older_than_days, keep=keep, ns=ns)))
    count = 0
    records = Counter[str]()
    for cut in cuts:
        after: str | None = ""
        while after is not None:
            act = partial(_batch, what=what, cut=cut, after=after, who=who, dry_run=dry_run, ns=ns)
            done = yield from ask(Read(act) if dry_run else Write(act))
            count = count + done.count
            after = done.after
            records.update({table: len(handles) for table, handles in done.handles.items()})
            records.update(done.counted)
    space = Compacted(None, None) if dry_run or not count else (yield from compact(context))
    by_table = {table: records[table] for table in sorted(records)}
    return Pruned(what, dry_run, count, by_table, space.bytes_before, space.bytes_after, ns)


def _check_rules(tx: Tx, *, what: str, older_than_days: float | None, ns: str) -> None:
    """Raise RetentionHeldError where a floor or a hold does not let this be pruned."""
    rules = retention_rules.check_everything(tx, ns=ns)
    days = rules.floor_days(what)
    if days and (older_than_days is None or older_than_days < days):
        raise RetentionHeldError(
            f"a retention floor keeps {what} for {days} days: prune with --older-than-days {days} or more", what=what
        )
    # Which of them hold something of a person cannot be told from what is pruned.
    if what in memory.KINDS:
        for rule in rules.holds("subject"):
            raise retention_rules.refuse(rule)


def _batch(tx: Tx, *, what: str, cut: Cut, after: str, who: str, dry_run: bool, ns: str) -> Batch:
    # A hold may come between two batches; which flows it keeps is in their queries.
    retention_rules.check_everything(tx, ns=ns)
    if what in memory.KINDS:
        done = memory.batch(tx, what, cut, remove=not dry_run, ns=ns)
        rule = {"before": cut.before, "daily": cut.daily, "newest": cut.newest}
    else:
        done = retention.batch(tx, what, cut, after=after, remove=not dry_run, ns=ns)
        rule = {"before": cut.before, "flow_type": cut.flow_type, "newest": cut.newest}
    if done.count and not dry_run:
        text = canonical.dumps(rule).decode()
        prunings.record(tx, what, done.handles, rule=text, who=who, count=done.count, ns=ns)
    return done


def gc(context: Context, *, dry_run: bool = False, progress: Progress | None = None) -> Work[Collected]:
    """Remove blocks of memory that nothing refers to, and return their space; `dry_run` only counts them."""
    done = yield from garbage.collect(context, dry_run=dry_run, progress=progress)
    if done.blocks and not dry_run:
        yield from compact(context)
    return done


def compact(context: Context) -> Work[Compacted]:
    """Return the free space of the database to the system; sizes before and after."""
    measure: Call[int | None] = Call(partial(_size, context))
    before = yield from ask(measure)
    yield from ask(Call(context.database.backend.compact))
    return Compacted(before, (yield from ask(measure)))


def _size(context: Context) -> int | None:
    sizes = context.database.backend.facts().get("bytes")
    return None if sizes is None else sum(sizes.values())


def list(tx: Tx, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Page[Pruning]:
    """List what was pruned, by which rule and by whom, the newest first."""
    (before,) = paging.decode(cursor, prunings.LAST)
    return paging.page(prunings.before(tx, before, limit=paging.fetch(limit), ns=ns), limit, _sort_key)


def _sort_key(pruning: Pruning) -> tuple[str]:
    return (pruning.id,)
