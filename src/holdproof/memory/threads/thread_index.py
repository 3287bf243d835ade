"""The index of threads: by what was written last, by status, by facts; every way goes through an index."""

import json
from collections.abc import Mapping
from typing import Any

from holdproof import validation
from holdproof.db import Row, Tx, sql
from holdproof.errors import NotFoundError
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.memory.threads import thread_states, threads
from holdproof.model.threads import Thread, ThreadPage

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
_NEVER = "9999-12-31T23:59:59.999999Z"


def list(
    tx: Tx,
    *,
    status: str | None = None,
    facts: Mapping[str, Any] | None = None,
    before: str | None = None,
    after: str = "",
    limit: int = 50,
    ns: str = MAIN,
) -> ThreadPage:
    """Threads, the one that was written last first: all, of one status, with all these facts, idle since `before`."""
    if status is not None:
        threads.one_of_statuses(status)
    n, at = threads.place(after, _NEVER)
    page: dict[str, Any] = {"ns": ns, "n": n, "at": validation.moment("after", at), "limit": validation.limited(limit)}
    page["before"] = validation.moment("before", _NEVER if before is None else before)
    if facts:
        wanted = thread_states.spelled({key: thread_states.spelled(item) for key, item in facts.items()})
        rows = tx.all(_OF_FACTS, **page, facts=wanted, wanted=len(facts), status=status)
    elif status is not None:
        rows = tx.all(_OF_STATUS, **page, status=status)
    else:
        rows = tx.all(_LIST, **page)
    follows = f"{rows[-1][0]}.{rows[-1][7]}" if len(rows) == limit else None
    return ThreadPage(tuple(_thread(row) for row in rows), follows)


_ONE = sql(f"SELECT {_COLUMNS} FROM threads t WHERE t.ns = :ns AND t.thread_id = :thread_id AND t.deleted_at IS NULL")  # noqa: S608


def show(tx: Tx, thread_id: str, *, ns: str = MAIN) -> Thread:
    """One thread as the index shows it."""
    found = find(tx, thread_id, ns=ns)
    if found is None:
        raise NotFoundError("no such thread", thread_id=thread_id)
    return found


def find(tx: Tx, thread_id: str, *, ns: str = MAIN) -> Thread | None:
    """The same, None where there is none."""
    row = tx.one(_ONE, ns=ns, thread_id=thread_id)
    return None if row is None else _thread(row)


_TOMB = sql("SELECT 1 FROM threads WHERE ns = :ns AND thread_id = :thread_id AND deleted_at IS NOT NULL")


def buried(tx: Tx, thread_id: str, ns: str) -> bool:
    """Whether a thread was deleted, and nobody began it anew."""
    return tx.one(_TOMB, ns=ns, thread_id=thread_id) is not None


def _thread(row: Row) -> Thread:
    return Thread(row[1], row[2], json.loads(row[3]), row[4], row[5], row[6], row[7], row[8])
