"""Facets: how many flows match, over time, by status, type and agent; what a person filters by.

Rules:
- By namespace, time and status alone the newest fifty thousand flows are counted, from an index that holds all three.
- With any other filter, and by type and agent, the newest few thousand are counted: a store of a million flows
  answers as fast as a small one, and what was not counted is said (`exact`, `counted`).
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from holdproof.db import Tx, sql
from holdproof.model.flows import FlowBucket, FlowFacets
from holdproof.model.namespaces import MAIN
from holdproof.model.times import BEGINNING, END, to_micros, to_text
from holdproof.runtime import flow_search
from holdproof.runtime.flow_search import Filters

_COUNTED: Final = 5_000
_MOST: Final = 50_000
_BUCKETS: Final = 60
_WIDTHS_S: Final = (1, 5, 15, 60, 300, 900, 3_600, 10_800, 21_600, 86_400, 604_800, 2_592_000, 31_536_000)
"""Buckets are as wide as one of these, so that they begin where a clock does."""

_WITHIN: Final = "FROM decision_flows WHERE ns = :ns AND created_at >= :since AND created_at < :until"
# Each end by itself: SQLite finds one of them at the end of the index, and both by walking all of it.
_SPAN = sql(f"SELECT (SELECT min(created_at) {_WITHIN}), (SELECT max(created_at) {_WITHIN})")
_FAR_BACK = sql(f"SELECT created_at {_WITHIN} ORDER BY created_at DESC LIMIT 1 OFFSET :most")
_OF_BUCKET = flow_search.for_both(
    "SELECT status, count(*) FROM decision_flows WHERE ns = :ns AND created_at >= :since AND created_at < :until"
    " AND (CAST(:statuses AS TEXT) = '' OR instr(:statuses, ',' || status || ',') > 0) GROUP BY status"
)

_NEWEST: Final = flow_search.by_source(
    "SELECT f.created_at, f.status, f.flow_type, f.agent_id", " ORDER BY f.created_at DESC LIMIT :limit"
)


def facets(
    tx: Tx,
    *,
    text: str = "",
    status: str | None = None,
    agent_id: str | None = None,
    flow_type: str | None = None,
    attributes: Mapping[str, str] | None = None,
    error: str = "",
    inputs: str = "",
    trouble: str | None = None,
    since: str = BEGINNING,
    until: str = END,
    ns: str = MAIN,
) -> FlowFacets:
    """Count flows over time and by status, type and agent; by filters other than time and status only the newest."""
    filters = Filters(
        text=text,
        status=status,
        agent_id=agent_id,
        flow_type=flow_type,
        attributes=attributes,
        error=error,
        inputs=inputs,
        trouble=trouble,
        since=since,
        until=until,
        ns=ns,
    )
    params = {"attributes": "{}", **filters.params()}
    bounds = {"ns": ns, "since": params["since"], "until": params["until"]}
    floor = flow_search.look_back_to(tx, filters, params)
    rows = tx.all(
        _NEWEST[filters.source(tx)], **{**params, "since": floor or params["since"]}, now=tx.now, limit=_COUNTED + 1
    )
    newest = rows[:_COUNTED]
    only_time = not (text or agent_id or flow_type or attributes or error or inputs or trouble)
    is_more = len(rows) > _COUNTED
    oldest = _oldest_counted(tx, bounds, newest, only_time=only_time) if is_more else floor
    exact = oldest is None
    width, starts = _starts(tx, bounds, oldest)
    if only_time and is_more:
        bounds["since"] = oldest or bounds["since"]
        buckets = tuple(_count(tx, start, width, params, bounds) for start in starts)
    else:
        buckets = _sort_into(starts, width, newest)
    statuses: Counter[str] = Counter()
    for bucket in buckets:
        statuses.update(bucket.statuses)
    return FlowFacets(
        statuses.total(),
        exact,
        dict(statuses.most_common()),
        dict(Counter(kind for _, _, kind, _ in newest).most_common()),
        dict(Counter(agent for *_, agent in newest).most_common()),
        len(newest),
        width,
        buckets,
    )


def _oldest_counted(tx: Tx, bounds: Mapping[str, str], newest: list[Any], *, only_time: bool) -> str | None:
    """Return the moment from which on flows are counted; None where all that match are."""
    if not only_time:
        return str(newest[-1][0])
    far_back = tx.one(_FAR_BACK, **bounds, most=_MOST)
    return None if far_back is None else str(next(iter(far_back)))


def _starts(tx: Tx, bounds: Mapping[str, str], oldest: str | None) -> tuple[int, list[int]]:
    """Return the width of a bucket in seconds, and the moments at which buckets begin, in microseconds."""
    first, last = tx.one(_SPAN, **bounds) or (None, None)
    if first is None:
        return 1, []
    # A range that the caller names is drawn whole, also where nothing was opened at its ends.
    start = to_micros(oldest or (bounds["since"] if bounds["since"] > BEGINNING else first))
    end = to_micros(min(bounds["until"], max(last, tx.now)) if bounds["until"] < END else max(last, first))
    span_s = max(end - start, 0) / 1_000_000
    width = next((each for each in _WIDTHS_S if span_s / each < _BUCKETS), _WIDTHS_S[-1])
    step = width * 1_000_000
    return width, list(range(start // step * step, end + 1, step))


def _count(tx: Tx, start: int, width: int, params: Mapping[str, Any], bounds: Mapping[str, str]) -> FlowBucket:
    since = to_text(start)
    until = to_text(start + width * 1_000_000)
    rows = tx.all(
        _OF_BUCKET,
        ns=bounds["ns"],
        # The first and the last bucket may reach over the ends of what was asked for.
        since=max(since, bounds["since"]),
        until=min(until, bounds["until"]),
        statuses=params["statuses"],
    )
    return FlowBucket(since, dict(rows))


def _sort_into(starts: list[int], width: int, newest: list[Any]) -> tuple[FlowBucket, ...]:
    counts: dict[int, Counter[str]] = {start: Counter() for start in starts}
    step = width * 1_000_000
    for at, status, *_ in newest:
        start = to_micros(at) // step * step
        counts.setdefault(start, Counter())[status] += 1
    return tuple(FlowBucket(to_text(start), dict(counts[start])) for start in sorted(counts))
