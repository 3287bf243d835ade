"""Finding flows: by agent, type, status, time, attribute, error, inputs and trouble; and counting them.

Rules:
- A page is in the order of age, the newest first; ids may be chosen by callers, and only break ties.
- A status may be a word for several: OPEN, ENDED, FAILED_OR_COMPENSATED.
- Attributes are looked up in their index, and so are statuses that few flows have; the other filters are read off the
  flows that are left.
- Trouble is what `gauges` counts, by the same conditions; flows in trouble are found from the few rows that say so.
- A search by text that no index leads to looks at so many flows at a time, from the newest on: a page may end where the
  look did, with few flows or none, and its cursor goes on from there (`looked_back_to`).
- Inputs are searched as the text that stands in the row: large parts stand elsewhere, and what belongs to a person is
  sealed.
"""

import builtins
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from holdproof import paging, validation
from holdproof.db import Query, Tx, sql
from holdproof.model.flows import GROUPS, STATUSES, Flow, FlowCount
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.times import BEGINNING, END
from holdproof.runtime import attributes as flow_attributes
from holdproof.runtime.flows import FLOWS

_LONGEST_TEXT: Final = 500
MOST_LOOKED_AT: Final = 10_000
"""How many flows one search by text looks at."""

MATCHES: Final = (
    "f.ns = :ns AND f.created_at >= :since AND f.created_at < :until"
    " AND (CAST(:statuses AS TEXT) = '' OR instr(:statuses, ',' || f.status || ',') > 0)"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR f.agent_id = :agent_id)"
    " AND (CAST(:flow_type AS TEXT) IS NULL OR f.flow_type = :flow_type)"
    " AND (CAST(:text AS TEXT) = '' OR instr(lower(f.dfid || ' ' || f.agent_id || ' ' || f.flow_type),"
    " lower(:text)) > 0)"
    " AND (CAST(:error AS TEXT) = '' OR EXISTS (SELECT 1 FROM flow_transitions t WHERE t.dfid = f.dfid AND t.ns = f.ns"
    " AND instr(lower(coalesce(t.reason, '')), lower(:error)) > 0))"
    " AND (CAST(:inputs AS TEXT) = '' OR EXISTS (SELECT 1 FROM flow_calls c WHERE c.dfid = f.dfid AND c.ns = f.ns"
    " AND instr(lower(CAST(c.arguments AS TEXT)), lower(:inputs)) > 0))"
)
# The first attribute leads to the flows by its index; those that lack another one are left out.
FROM_ATTRIBUTE: Final = (
    "FROM flow_attributes a JOIN decision_flows f ON f.dfid = a.dfid AND f.ns = a.ns"
    " WHERE a.ns = :ns AND a.key = :key AND a.value = :value AND NOT EXISTS (SELECT 1 FROM json_each(:attributes) w"
    " WHERE NOT EXISTS (SELECT 1 FROM flow_attributes o WHERE o.dfid = f.dfid AND o.ns = f.ns AND o.key = w.key"
    " AND o.value = w.value)) AND "
)
FROM: Final = "FROM decision_flows f WHERE "
# CROSS JOIN: SQLite then begins with the small table, and does not walk a million flows for three. No attribute
# (`{}`) leaves none out.
_TROUBLES: Final = {
    "DIRTY": "saga_dirty_state d CROSS JOIN decision_flows f WHERE f.dfid = d.dfid AND f.ns = d.ns",
    "ORPHANED": "flow_leases l CROSS JOIN decision_flows f WHERE f.dfid = l.dfid AND f.ns = l.ns"
    " AND l.expires_at <= :now AND f.status IN ('RUNNING', 'COMPENSATING')",
}
_EACH_STATUS: Final = "SELECT value FROM json_each(:words)"
# Named, for SQLite would walk all flows by time in the hope of meeting one soon; PostgreSQL knows how rare they are.
_BY_STATUS: Final = " INDEXED BY idx_decision_flows_status"
_OF_STATUSES: Final = f"decision_flows f{_BY_STATUS} WHERE f.status IN ({_EACH_STATUS})"
_WITH_EVERY_ATTRIBUTE: Final = (
    " AND NOT EXISTS (SELECT 1 FROM json_each(:attributes) w WHERE NOT EXISTS (SELECT 1 FROM flow_attributes o"
    " WHERE o.dfid = f.dfid AND o.ns = f.ns AND o.key = w.key AND o.value = w.value)) AND "
)
_PAGE: Final = " AND (f.created_at, f.dfid) < (:at, :dfid) ORDER BY f.created_at DESC, f.dfid DESC LIMIT :limit"


def for_both(text: str) -> Query:
    """Return a query with these filters for both databases."""
    postgres = text.replace("instr(", "strpos(").replace("json_each(:attributes)", _PAIRS).replace(_BY_STATUS, "")
    return sql(text, postgres=postgres.replace(_EACH_STATUS, _EACH_WORD))


_EACH_WORD: Final = "SELECT json_array_elements_text(CAST(:words AS JSON))"
_PAIRS: Final = "json_each_text(CAST(:attributes AS JSON))"


def by_source(select: str, order: str) -> dict[str, Query]:
    """Return a query for each place that flows may be looked up from, by `Filters.source`."""
    sources = {
        "": FROM,
        "attributes": FROM_ATTRIBUTE,
        "statuses": f"FROM {_OF_STATUSES} AND ",
        **{word: f"FROM {source}{_WITH_EVERY_ATTRIBUTE}" for word, source in _TROUBLES.items()},
    }
    return {name: for_both(f"{select} {source}{MATCHES}{order}") for name, source in sources.items()}


_MANY: Final = 20_000
"""As many flows of some statuses are met soon by walking from the newest on."""
_HOW_MANY: Final = for_both(f"SELECT count(*) FROM (SELECT 1 FROM {_OF_STATUSES} AND f.ns = :ns LIMIT :most) AS few")  # noqa: S608 (ours)

_LIST: Final = by_source(f"SELECT {FLOWS.listed('f')}", _PAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What flows are looked for by."""

    text: str = ""
    status: str | None = None
    agent_id: str | None = None
    flow_type: str | None = None
    attributes: Mapping[str, str] | None = None
    error: str = ""
    inputs: str = ""
    trouble: str | None = None
    since: str = BEGINNING
    until: str = END
    ns: str = MAIN

    def source(self, tx: Tx) -> str:
        """Return where these flows are looked up from, for `by_source`."""
        if self.trouble or self.attributes:
            return self.trouble or "attributes"
        words = json.dumps(self._words)
        is_rare = bool(self._words) and next(iter(tx.all(_HOW_MANY, words=words, ns=self.ns, most=_MANY))) != (_MANY,)
        return "statuses" if is_rare else ""

    @property
    def by_text(self) -> bool:
        """Whether each flow has to be read to know that it matches."""
        return bool(self.text or self.error or self.inputs)

    @property
    def _words(self) -> tuple[str, ...]:
        """The statuses that match; none where all do."""
        return GROUPS.get(self.status, (self.status,)) if self.status else ()

    def params(self) -> dict[str, Any]:
        """Return the parameters of a query, each validated."""
        if self.status is not None:
            validation.one_of("status", self.status, STATUSES | GROUPS.keys())
        if self.trouble is not None:
            validation.one_of("trouble", self.trouble, _TROUBLES)
        for name in ("text", "error", "inputs"):
            validation.words(name, getattr(self, name), least=0, most=_LONGEST_TEXT)
        params: dict[str, Any] = {
            "text": self.text,
            "statuses": ",".join(("", *self._words, "")) if self._words else "",
            "words": json.dumps(self._words),
            "agent_id": self.agent_id,
            "flow_type": self.flow_type,
            "error": self.error,
            "inputs": self.inputs,
            "since": validation.moment("since", self.since),
            "until": validation.moment("until", self.until),
            "trouble": self.trouble,
            "ns": self.ns,
        }
        if self.attributes:
            attributes = flow_attributes.checked(self.attributes)
            key = min(attributes)
            params |= {"key": key, "value": attributes[key], "attributes": json.dumps(attributes)}
        return params


_FLOOR = sql(
    "SELECT f.created_at FROM decision_flows f WHERE f.ns = :ns AND f.created_at >= :since AND f.created_at < :until"
    " AND f.created_at <= :at ORDER BY f.created_at DESC LIMIT 1 OFFSET :most"
)


def look_back_to(tx: Tx, filters: Filters, params: Mapping[str, Any], at: str = END, flow_id: str = "") -> str | None:
    """Return the moment that one search looks back to, from behind a key on; None where it looks at all there are."""
    # What is found by an attribute, a rare status or a trouble is few already.
    if not filters.by_text or filters.source(tx):
        return None
    bounds = {name: params[name] for name in ("ns", "since", "until")}
    if not flow_id:
        # The flows of that moment were looked at, however many there are: counted again, the search would stay there.
        bounds["until"] = min(bounds["until"], at)
    row = tx.one(_FLOOR, **bounds, at=at, most=MOST_LOOKED_AT)
    return None if row is None else str(next(iter(row)))


def looked_back_to(cursor: str | None) -> str | None:
    """Return the moment that a search looked back to, from the cursor it ended with; None if a full page ended it."""
    if cursor is None:
        return None
    at, flow_id = paging.decode(cursor, END, "")
    return None if flow_id else str(at)


def find(tx: Tx, filters: Filters, *, cursor: str | None = None, limit: int = 100) -> Page[Flow]:
    """Return a page of the flows that match, the newest first."""
    at, flow_id = paging.decode(cursor, END, "")
    # Checked first: a word that names no trouble names no query.
    params = {"attributes": "{}", **filters.params()}
    at = paging.moment(at)
    floor = look_back_to(tx, filters, params, at, flow_id)
    params["since"] = floor or params["since"]
    rows = tx.all(
        _LIST[filters.source(tx)],
        **params,
        now=tx.now,
        at=at,
        dfid=flow_id,
        limit=paging.fetch(limit),
    )
    page = paging.page(map(FLOWS.from_row, rows), limit, lambda flow: (flow.created_at, flow.flow_id))
    is_cut = floor is not None and page.next_cursor is None
    # No flow has an empty id: the next page begins before that moment.
    return replace(page, next_cursor=paging.encode(str(floor), "")) if is_cut else page


def list(
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
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Page[Flow]:
    """List flows, newest first; `text` is part of their id, agent or type, in any case.

    `status` may be a word for several: OPEN, ENDED or FAILED_OR_COMPENSATED.
    A search by `text`, `error` or `inputs` looks at ten thousand flows at a time: a page may have fewer flows than
    `limit`, or none, and a `next_cursor` that goes on.
    `trouble` is ORPHANED for those whose worker is gone, DIRTY for those that failed half way and wait to be undone.
    """
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
    return find(tx, filters, cursor=cursor, limit=limit)


# --- counting ----------------------------------------------------------------------------------------------------

_MOST_BUCKETS: Final = 10_000
# On PostgreSQL the column is a timestamp: it is brought to the text that SQLite stores.
_UTC: Final = "to_char(f.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24')"
_BUCKETS: Final = {
    "hour": "substr(f.created_at, 1, 13)",
    "day": "substr(f.created_at, 1, 10)",
    "status": "f.status",
    "flow_type": "f.flow_type",
    "agent_id": "f.agent_id",
}


def _counting(bucket: str, source: str) -> Query:
    text = (
        f"SELECT {bucket}, count(*), count(CASE WHEN f.status = 'COMPLETED' THEN 1 END),"
        f" count(CASE WHEN f.status IN ('FAILED', 'COMPENSATED') THEN 1 END) {source}{MATCHES}"
        " GROUP BY 1 ORDER BY 1 LIMIT :limit"
    )
    hours = text.replace(_BUCKETS["hour"], _UTC).replace(_BUCKETS["day"], f"left({_UTC}, 10)")
    return sql(text, postgres=hours.replace("instr(", "strpos(").replace("json_each(:attributes)", _PAIRS))


_COUNT: Final = {by: _counting(bucket, FROM) for by, bucket in _BUCKETS.items()}
_COUNT_BY_ATTRIBUTE: Final = {by: _counting(bucket, FROM_ATTRIBUTE) for by, bucket in _BUCKETS.items()}


def stats(
    tx: Tx,
    *,
    by: str = "hour",
    status: str | None = None,
    agent_id: str | None = None,
    flow_type: str | None = None,
    attributes: Mapping[str, str] | None = None,
    since: str = BEGINNING,
    until: str = END,
    ns: str = MAIN,
) -> builtins.list[FlowCount]:
    """Count flows by the hour or day they were opened in, by status, type or agent, in the order of these."""
    validation.one_of("by", by, _BUCKETS)
    filters = Filters(
        status=status,
        agent_id=agent_id,
        flow_type=flow_type,
        attributes=attributes,
        since=since,
        until=until,
        ns=ns,
    )
    queries = _COUNT_BY_ATTRIBUTE if attributes else _COUNT
    return [FlowCount(*row) for row in tx.all(queries[by], **filters.params(), limit=_MOST_BUCKETS)]
