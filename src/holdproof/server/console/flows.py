"""Flows: finding them by time, state, agent, error, inputs and attributes; counting them; changing many at once."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.errors import InvalidInputError
from holdproof.model.flows import GROUPS, STATUSES, FlowFacets
from holdproof.model.times import to_micros, to_text
from holdproof.runtime import flow_search
from holdproof.server.console import histogram, listing
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.console.downloads import download
from holdproof.server.console.listing import TimeRange
from holdproof.server.pages import form

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=500)]
Cursor = Annotated[str | None, Query(max_length=500)]
_COLUMNS: Final = (
    *("flow_id", "status", "flow_type", "flow_version", "agent_id", "parent_flow_id", "priority"),
    *("created_at", "started_at", "completed_at", "updated_at", "ns"),
)
_STACK: Final = (
    *("COMPLETED", "CREATED", "RUNNING", "WAITING_ESCALATION", "COMPENSATING", "COMPENSATED", "CANCELLED", "FAILED"),
)
"""The order of states in a column, from the floor up: what needs a look stands on top."""
_FILTERS: Final = ("q", "status", "agent", "type", "error", "inputs", "trouble", "attribute")
TROUBLES: Final = {"ORPHANED": "without a worker", "DIRTY": "failed half way"}
"""What a flow may need somebody for, and how pages say it."""
_SHOWN: Final = 20
BULK: Final = {
    "cancel": ("flows", "cancel_many", "Cancel", "They do no further step, let go of their locks, and withdraw their"
               " escalations; what can be undone is undone. Flows that have ended stay as they are."),
    "retry": ("flows", "retry_many", "Retry", "Each that failed runs again as a fork at the step that failed, with real"
              " effects. The failed flow stays as it is."),
    "delete": ("flows", "delete_many", "Delete", "Those that have ended are removed with all below them. Their entries"
               " stay in the log, and every proof stays valid."),
}  # fmt: skip
"""What can be made of all flows that match: the method, the word on the button, and what follows."""


@router.get("/flows")
async def show(
    request: Request,
    *,
    range: Text = "",
    since: Text = "",
    until: Text = "",
    cursor: Cursor = None,
) -> Response:
    """Flows by what is asked for, the newest first."""
    desk = Desk(request)
    fields = {name: request.query_params.get(name, "")[:500] for name in _FILTERS}
    span = listing.time_range(desk.now, range=range, since=since, until=until)
    criteria = _criteria(fields, span)
    page = await desk.store.flows.list(**criteria, cursor=cursor, limit=50)
    facets = await desk.store.flows.facets(**criteria)
    query = {**fields, **span.query}
    values = {
        "page": page,
        "facets": facets,
        "looked_back_to": flow_search.looked_back_to(page.next_cursor),
        "most_looked_at": flow_search.MOST_LOOKED_AT,
        "chart": _chart(facets, fields) if facets.total else None,
        "query": query,
        "fields": fields,
        "span": span,
        "ranges": listing.RANGES,
        "statuses": (*sorted(STATUSES), *GROUPS),
        "troubles": TROUBLES,
        "orphans": await or_default(desk.store.flows.orphans(limit=100), ()),
        "cursor": cursor,
        "bulk": BULK,
        "filtered": any(fields.values()),
        "ever": bool(page.items or (await desk.store.flows.list(limit=1)).items),
    }
    return await desk.render("flows.html", values)


@router.get("/flows.{format}")
async def rows(
    request: Request, format: str, *, range: Text = "", since: Text = "", until: Text = "", cursor: Cursor = None
) -> Response:
    """The rows of the same query for programs, up to a thousand; the cursor of the next stands in a header."""
    desk = Desk(request)
    fields = {name: request.query_params.get(name, "")[:500] for name in _FILTERS}
    span = listing.time_range(desk.now, range=range, since=since, until=until)
    page = await desk.store.flows.list(**_criteria(fields, span), cursor=cursor, limit=listing.MOST_ROWS)
    answer = listing.export("flows", format, page.items, _COLUMNS)
    if page.next_cursor:
        answer.headers["X-Next-Cursor"] = page.next_cursor
    return answer


def _criteria(fields: Mapping[str, str], span: TimeRange) -> dict[str, Any]:
    """What the store is asked for."""
    attribute = fields.get("attribute", "").strip()
    key, equals, text = attribute.partition("=")
    if attribute and not (equals and key.strip()):
        raise InvalidInputError("an attribute is written as name=value", field="attribute")
    return {
        "text": fields.get("q", "").strip(),
        "status": fields.get("status") or None,
        "agent_id": fields.get("agent") or None,
        "flow_type": fields.get("type") or None,
        "error": fields.get("error", "").strip(),
        "inputs": fields.get("inputs", "").strip(),
        "trouble": fields.get("trouble") or None,
        "attributes": {key.strip(): text.strip()} if attribute else None,
        "since": span.since,
        "until": span.until,
    }


def _chart(facets: FlowFacets, fields: Mapping[str, str]) -> histogram.Histogram:
    """Columns of the counted flows; each leads to its own stretch of time."""
    filters = {name: text for name, text in fields.items() if text}

    def link(place: int) -> str:
        since = facets.buckets[place].since
        until = to_text(to_micros(since) + facets.bucket_s * 1_000_000)
        return histogram.address("/flows", {**filters, "since": since, "until": until})

    points = [(each.since, each.statuses) for each in facets.buckets]
    return histogram.lay_out(points, _STACK, bucket_s=facets.bucket_s, unit="flows", link=link)


@router.get("/flows/bundle")
async def prove(request: Request, id: Text) -> Response:
    """Download a flow with all that a third party needs to verify it."""
    data = await Desk(request).store.bundle.export(id, kind="flow")
    return download(data, f"flow-{id}.zip", "application/zip")


# --- many at once ------------------------------------------------------------------------------------------------


@router.post("/flows/bulk")
async def change_many(request: Request) -> Response:
    """Change all flows that match; the first time the consequence is shown."""
    desk = Desk(request)
    fields = await form(request)
    action = fields.get("action", "")
    if action not in BULK:
        raise InvalidInputError(f"choose one of {', '.join(BULK)}", field="action")
    resource, method, _, _ = BULK[action]
    desk.require(resource, method)
    names = {name: fields.get(name, "") for name in (*_FILTERS, "range", "since", "until")}
    # The moments are fixed once: what is confirmed is what was shown, and no flow that came since.
    bounds = {name: fields.get(f"from_{name}", "") for name in ("since", "until")}
    span = listing.time_range(desk.now, range=names["range"], since=names["since"], until=names["until"])
    since = bounds["since"] or span.since
    until = bounds["until"] or min(span.until, desk.now)
    criteria = {**_criteria(names, span), "since": since, "until": until}
    change = getattr(desk.store.flows, method)
    reason = fields.get("reason", "").strip()
    if fields.get("confirmed") != "yes" or not reason:
        preview = await change(**criteria, dry_run=True)
        values = {
            "action": action,
            "words": BULK[action],
            "preview": preview,
            "shown": [await desk.store.flows.get(id) for id in preview.flow_ids[:_SHOWN]],
            "fields": {**names, "range": "", "since": "", "until": "", "from_since": since, "from_until": until},
            "back": histogram.address("/flows", {name: text for name, text in names.items() if text}),
            "named": {name: names[name] for name in _FILTERS if names[name]},
            "since": since,
            "until": until,
        }
        return await desk.render("confirm_bulk.html", values)
    more = {
        "cancel": {"reason": f"{reason} ({desk.caller.who})"},
        "delete": {"who": desk.caller.who},
    }.get(action, {})
    job = desk.start("bulk change", lambda _: change(**criteria, **more))
    return desk.after(f"/jobs/{job.number}")


@router.post("/flows/recover")
async def recover(request: Request) -> Response:
    """Run orphaned flows again whose functions this server knows; the first time the consequence is shown."""
    desk = Desk(request)
    fields = await form(request)
    orphans = await desk.store.flows.orphans(limit=100)
    if fields.get("confirmed") != "yes":
        return await desk.render("confirm_recover.html", {"orphans": orphans})
    run_recovery = desk.store.flows.recover
    worker = f"console {desk.caller.who}"
    job = desk.start("recovery", lambda _: run_recovery(worker))
    return desk.after(f"/jobs/{job.number}")
