"""The index of threads: by what was written last, by status, by facts; every way goes through an index."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdproof import paging, validation
from holdproof.db import Tx, sql
from holdproof.errors import NotFoundError
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.memory.threads import thread_rows, thread_states
from holdproof.model.page import Page
from holdproof.model.threads import Thread
from holdproof.model.times import END

_COLUMNS = (
    "t.n, t.thread_id, t.status, t.facts, (SELECT count(*) FROM thread_checkpoints c WHERE c.thread = t.n),"
    " (SELECT max(c.checkpoint_id) FROM thread_checkpoints c WHERE c.thread = t.n AND c.checkpoint_ns = ''),"
    " t.created_at, t.updated_at, t.ns"
)
_PAGE = (
    " AND t.deleted_at IS NULL AND t.updated_at < :before AND (t.updated_at < :at OR (t.updated_at = :at AND t.n < :n))"
    " ORDER BY t.updated_at DESC, t.n DESC LIMIT :limit"
)
_LIST = sql(f"SELECT {_COLUMNS} FROM threads t WHERE t.ns = :ns{_PAGE}")  # noqa: S608
_OF_STATUS = sql(f"SELECT {_COLUMNS} FROM threads t WHERE t.ns = :ns AND t.status = :status{_PAGE}")  # noqa: S608
_OF_FACTS = sql(
    f"SELECT {_COLUMNS} FROM threads t WHERE t.ns = :ns AND t.n IN (SELECT f.thread FROM json_each(:facts) j"  # noqa: S608
    " JOIN thread_facts f ON f.ns = :ns AND f.key = j.key AND f.value = j.value GROUP BY f.thread"
    f" HAVING count(*) = :wanted) AND (CAST(:status AS TEXT) IS NULL OR t.status = :status){_PAGE}",
    postgres=f"SELECT {_COLUMNS} FROM threads t WHERE t.ns = :ns AND t.n IN (SELECT f.thread"  # noqa: S608
    " FROM json_each_text(CAST(:facts AS JSON)) j JOIN thread_facts f ON f.ns = :ns AND f.key = j.key"
    " AND f.value = j.value GROUP BY f.thread HAVING count(*) = :wanted)"
    f" AND (CAST(:status AS TEXT) IS NULL OR t.status = :status){_PAGE}",
)


class _Row(NamedTuple):
    """A row of the index, in the order of `_COLUMNS`."""

    n: int
    thread_id: str
    status: str
    facts: str
    checkpoints: int
    checkpoint_id: str | None
    created_at: str
    updated_at: str
    ns: str


def list(
    tx: Tx,
    *,
    status: str | None = None,
    facts: Mapping[str, Any] | None = None,
    updated_before: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Page[Thread]:
    """List threads, the last written first: all, of one status, with all these facts, or idle since a moment."""
    if status is not None:
        thread_rows.one_of_statuses(status)
    n, at = paging.decode(cursor, validation.LAST, END)
    params: dict[str, Any] = {"ns": ns, "n": n, "at": paging.moment(at), "limit": paging.fetch(limit)}
    params["before"] = validation.moment("updated_before", END if updated_before is None else updated_before)
    if facts:
        # Facts are compared as JSON texts, so 1 and "1" are different facts.
        texts = {key: thread_states.json_text(item) for key, item in facts.items()}
        facts_json = thread_states.json_text(texts)
        rows = tx.all(_OF_FACTS, **params, facts=facts_json, wanted=len(facts), status=status)
    elif status is not None:
        rows = tx.all(_OF_STATUS, **params, status=status)
    else:
        rows = tx.all(_LIST, **params)
    page = paging.page((_Row(*row) for row in rows), limit, lambda row: (row.n, row.updated_at))
    return Page([*map(_thread, page.items)], page.next_cursor)


_ONE = sql(f"SELECT {_COLUMNS} FROM threads t WHERE t.ns = :ns AND t.thread_id = :thread_id AND t.deleted_at IS NULL")  # noqa: S608


def get(tx: Tx, thread_id: str, *, ns: str = MAIN) -> Thread:
    """Return a thread as the index shows it; NotFoundError where there is none, or it was deleted."""
    thread = find(tx, thread_id, ns=ns)
    if thread is None:
        raise NotFoundError(f"there is no thread {thread_id}", listed_by="threads list", thread_id=thread_id)
    return thread


def find(tx: Tx, thread_id: str, *, ns: str = MAIN) -> Thread | None:
    """Return what `get` does, or None where there is none."""
    row = tx.one(_ONE, ns=ns, thread_id=thread_id)
    return None if row is None else _thread(_Row(*row))


_TOMB = sql("SELECT 1 FROM threads WHERE ns = :ns AND thread_id = :thread_id AND deleted_at IS NOT NULL")


def is_deleted(tx: Tx, thread_id: str, ns: str) -> bool:
    """Return whether a thread was deleted and not begun again since."""
    return tx.one(_TOMB, ns=ns, thread_id=thread_id) is not None


def _thread(row: _Row) -> Thread:
    return Thread(
        row.thread_id,
        row.status,
        json.loads(row.facts),
        row.checkpoints,
        row.checkpoint_id,
        row.created_at,
        row.updated_at,
        row.ns,
    )
