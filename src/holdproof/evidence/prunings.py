"""Prunings in the log: which records retention removed. Their leaves stay, and every proof stays valid.

Rules:
- A pruning is a row with a leaf of its own, which commits to the handles of every record it removed.
- A record whose handle is named there may be missing from its table; no other may, unless it was erased.
- Unlike an erasure it adds no leaf for each record: removing thousands of records must not make the log grow.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from holdproof.db import Tx, sql
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.leaves import Projection
from holdproof.model.retention import Pruning

PRUNINGS: Final = Projection("prunings", 1, ("id", "what", "rule", "who", "count", "handles", "pruned_at", "ns"))
LOGGED: Final = (logged_tables.describe(PRUNINGS, kinds=("erasure",), key="id"),)
_PAGE: Final = 20

_ADD = sql(
    "INSERT INTO prunings (id, what, rule, who, count, handles, pruned_at, ns, leaf_id, leaf_ver, leaf_salt) VALUES"
    " (:id, :what, :rule, :who, :count, :handles, :pruned_at, :ns, :leaf_id, :leaf_ver, :leaf_salt)"
)


def record(tx: Tx, what: str, handles: Mapping[str, Sequence[str]], *, rule: str, who: str, count: int, ns: str) -> str:
    """Log the removed records, in the transaction that removes them; return the pruning's id."""
    row = {"id": tx.new_id(), "what": what, "rule": rule, "who": who, "count": count, "pruned_at": tx.now, "ns": ns}
    # Sorted and without spaces: the text is hashed, and equal prunings should be equal bytes.
    row["handles"] = json.dumps({table: sorted(handles[table]) for table in sorted(handles)}, separators=(",", ":"))
    mark = leaves.stamp(tx, "erasure", PRUNINGS, row, ns=ns)
    tx.execute(_ADD, **row, **mark._asdict(), expect=1)
    return str(row["id"])


# One without an index waits for the sequencer.
_HANDLES = sql(
    "SELECT p.id, p.handles FROM prunings p LEFT JOIN log_leaves l ON l.id = p.leaf_id AND l.ver = p.leaf_ver"
    " WHERE p.id > :after AND (l.idx IS NULL OR l.idx >= :since) ORDER BY p.id LIMIT :limit"
)


def pruned(tx: Tx, after: str = "", *, since: int = 0) -> tuple[Mapping[str, list[str]], str | None]:
    """Return the handles of a few prunings by table, and the id to continue after: None at the end.

    Only of prunings whose entry stands at `since` in the log or behind it.
    """
    by_table: dict[str, list[str]] = defaultdict(list)
    page = tx.all(_HANDLES, after=after, since=since, limit=_PAGE)
    for _, text in page:
        for table, handles in json.loads(text).items():
            by_table[table] += handles
    return by_table, page[-1][0] if len(page) == _PAGE else None


def among(tx: Tx, table: str, handles: set[str], *, since: int = 0) -> set[str]:
    """Return those of these records of a table that were pruned, by prunings logged at `since` or later."""
    return {handle for by_table in _all(tx, since) for handle in by_table.get(table, ()) if handle in handles}


def _all(tx: Tx, since: int) -> Iterator[Mapping[str, list[str]]]:
    after: str | None = ""
    while after is not None:
        by_table, after = pruned(tx, after, since=since)
        yield by_table


_SINCE = sql("SELECT 1 FROM prunings WHERE ns = :ns AND what = :what AND pruned_at >= :moment LIMIT 1")


def since(tx: Tx, what: str, moment: str, *, ns: str) -> bool:
    """Whether any of these were pruned from a moment on."""
    return tx.one(_SINCE, ns=ns, what=what, moment=moment) is not None


LAST: Final = "\U0010ffff"
"""Sorts after every id."""
_BEFORE = sql(
    "SELECT id, what, rule, who, count, pruned_at, ns FROM prunings WHERE ns = :ns AND id < :before"
    " ORDER BY id DESC LIMIT :limit"
)


def before(tx: Tx, id: str, *, limit: int, ns: str) -> list[Pruning]:
    """Return prunings with ids before that one, the newest first."""
    return [Pruning(*row) for row in tx.all(_BEFORE, ns=ns, before=id, limit=limit)]
