"""Retention of threads: one small transaction for each thread, then the space is returned to the system."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from holdproof.db import Read, Tx, Work, Write, ask
from holdproof.errors import InvalidInputError
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.memory.threads import removal, thread_index
from holdproof.model.progress import Progress
from holdproof.model.retention import Compacted
from holdproof.model.threads import ThreadsPruned, ThreadsRemoved
from holdproof.model.times import later
from holdproof.store.context import Context
from holdproof.upkeep import retention

_PAGE: Final = 200
_DAY_S: Final = 86_400.0


def prune(
    context: Context,
    *,
    thread_ids: Sequence[str] | None = None,
    keep: int | None = None,
    older_than_days: float | None = None,
    idle_days: float | None = None,
    who: str = "operator",
    dry_run: bool = False,
    ns: str = MAIN,
    progress: Progress | None = None,
) -> Work[ThreadsPruned]:
    """Remove checkpoints beyond the newest `keep` of each line and older than so many days; of all threads or some.

    With `idle_days` threads that were not written to for so long are removed as a whole.
    """
    if keep is None and older_than_days is None and idle_days is None:
        raise InvalidInputError("say how many to keep, how old, or how long idle")
    now = yield from ask(Read(lambda tx: tx.now))
    idle = _ago(now, "idle_days", idle_days)
    before = _ago(now, "older_than_days", older_than_days)
    total = ThreadsRemoved()
    if idle is not None:
        for name in (yield from _names(thread_ids, idle, ns)):
            act = partial(_delete, name=name, idle=idle, who=who, dry_run=dry_run, ns=ns)
            total += yield from ask(Read(act) if dry_run else Write(act))
    if keep is not None or before is not None:
        names = yield from _names(thread_ids, None, ns)
        for done, name in enumerate(names):
            step = partial(removal.prune, thread_id=name, keep=keep, before=before, who=who, dry_run=dry_run, ns=ns)
            total += yield from ask(Read(step) if dry_run else Write(step))
            if progress is not None:
                progress("threads", done + 1, len(names))
    removed_any = total.threads or total.checkpoints
    space = (yield from retention.compact(context)) if removed_any and not dry_run else Compacted(None, None)
    return ThreadsPruned(
        dry_run,
        total.threads,
        total.checkpoints,
        total.blocks,
        total.bytes,
        space.bytes_before,
        space.bytes_after,
        ns,
    )


def _ago(now: str, what: str, days: float | None) -> str | None:
    if days is None:
        return None
    if isinstance(days, bool) or not 0 <= days <= 36_500:
        raise InvalidInputError(f"{what} is a number of days, zero or more", days=days)
    return later(now, -days * _DAY_S)


def _names(thread_ids: Sequence[str] | None, before: str | None, ns: str) -> Work[list[str]]:
    """Return the threads to prune: those given, or all that were last written before a moment."""
    if thread_ids is not None:
        return list(dict.fromkeys(thread_ids))
    names: list[str] = []
    cursor: str | None = None
    while True:
        look = partial(thread_index.list, updated_before=before, cursor=cursor, limit=_PAGE, ns=ns)
        page = yield from ask(Read(look))
        names += [each.thread_id for each in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return names


def _delete(tx: Tx, *, name: str, idle: str, who: str, dry_run: bool, ns: str) -> ThreadsRemoved:
    """Remove a thread that is still idle: it may have been written to since it was listed."""
    thread = thread_index.find(tx, name, ns=ns)
    if thread is None or thread.updated_at >= idle:
        return ThreadsRemoved()
    return removal.delete(tx, name, who=who, dry_run=dry_run, ns=ns)
