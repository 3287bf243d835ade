"""Growth: how large the log and the database were, one measurement an hour, for charts that outlive a restart.

Rules:
- The sweep measures, at most once in each hour. Of two sweeps at the same moment one row stays.
- A log that has not grown since is not measured again: an idle store is not written to.
- After `KEPT_H_S` the last measurement of each day stays: what is kept grows by 365 rows a year.
- The size is that of the database's tables and indexes, without write-ahead logs.
"""

from typing import Final

from holdproof import paging, validation
from holdproof.db import Query, Read, Tx, Work, Write, ask, sql
from holdproof.evidence import log, tree
from holdproof.model.log import StoreSize
from holdproof.model.page import Page
from holdproof.model.times import BEGINNING, END, later

KEPT_H_S: Final = 90 * 86_400.0

_LAST = sql("SELECT hour, entries FROM store_growth ORDER BY hour DESC LIMIT 1")
_BYTES = sql(
    "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    postgres="SELECT CAST(coalesce(sum(pg_total_relation_size(c.oid)), 0) AS BIGINT) FROM pg_class c"
    # The tables beside this one, in whichever schema the store is.
    " WHERE c.relkind IN ('r', 'm', 'p') AND c.relnamespace ="
    " (SELECT relnamespace FROM pg_class WHERE oid = CAST('store_growth' AS regclass))",
)
_KEEP = sql(
    "INSERT INTO store_growth (hour, at, entries, bytes) VALUES (:hour, :now, :entries, :bytes)"
    " ON CONFLICT (hour) DO NOTHING"
)
# `U` comes after the `T` between day and hour. A range of the key: comparing days would read all that came since, for
# each day that stays, while the writer waits.
_THIN = sql(
    "DELETE FROM store_growth WHERE hour < :before AND EXISTS (SELECT 1 FROM store_growth n"
    " WHERE n.hour > store_growth.hour AND n.hour < substr(store_growth.hour, 1, 10) || 'U')"
)


def keep() -> Work[None]:
    """Keep the present size of the store, if this hour has none yet and the log has grown."""
    if (yield from ask(Read(_is_due))):
        yield from ask(Write(_measure))


def now(tx: Tx) -> StoreSize:
    """Return the size of the store at this moment."""
    row = tx.one(_BYTES)
    assert row is not None, "an aggregate has one row"
    (size,) = row
    return StoreSize(tx.now, _entries(tx), int(size))


def _entries(tx: Tx) -> int:
    return tree.state(tx).size + log.pending(tx) if tree.exists(tx) else 0


def _is_due(tx: Tx) -> bool:
    last = tx.one(_LAST)
    if last is None:
        return True
    hour, entries = last
    return str(hour) < tx.now[:13] and _entries(tx) != entries


def _measure(tx: Tx) -> None:
    size = now(tx)
    tx.execute(_KEEP, hour=size.at[:13], now=size.at, entries=size.entries, bytes=size.bytes)
    tx.execute(_THIN, before=later(size.at, -KEPT_H_S)[:13])


def _listing(is_by_day: bool) -> Query:
    days = " AND hour IN (SELECT max(hour) FROM store_growth GROUP BY substr(hour, 1, 10))" if is_by_day else ""
    return sql(
        "SELECT at, entries, bytes FROM store_growth WHERE hour >= :from_hour AND hour <= :to_hour"  # noqa: S608 (ours)
        f" AND hour < :before{days} ORDER BY hour DESC LIMIT :limit"
    )


_LIST: Final = {"hour": _listing(is_by_day=False), "day": _listing(is_by_day=True)}


def growth(
    tx: Tx, *, by: str = "hour", since: str = BEGINNING, until: str = END, cursor: str | None = None, limit: int = 100
) -> Page[StoreSize]:
    """List how large the log and the database were, newest first: one measurement an hour, or the last of each day."""
    validation.one_of("by", by, _LIST)
    (before,) = paging.decode(cursor, END)
    rows = tx.all(
        _LIST[by],
        from_hour=validation.moment("since", since)[:13],
        to_hour=validation.moment("until", until)[:13],
        before=paging.moment(before)[:13],
        limit=paging.fetch(limit),
    )
    return paging.page((StoreSize(*row) for row in rows), limit, lambda item: (item.at,))
