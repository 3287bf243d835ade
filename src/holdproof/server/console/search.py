"""Search everything: pages, escalations, flows, agents and objects, by their ids, beginnings of ids, or names."""

import re
from collections.abc import AsyncIterator
from typing import Annotated, Final, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.errors import HoldproofError
from holdproof.runtime import flow_queries
from holdproof.server.console import navigation
from holdproof.server.console.desk import Desk, or_default
from holdproof.validation import LAST

router = APIRouter(include_in_schema=False)

_MOST: Final = 6
_MOST_AGENTS: Final = 1000
# A beginning this short would be half of all flows.
_ID: Final = re.compile(r"[0-9a-fA-F][0-9a-fA-F-]{3,}")
_NUMBER: Final = re.compile(r"#?(\d{1,18})")


class Hit(NamedTuple):
    """Something that fits: what it is, its name, where it is, and a word about it."""

    kind: str
    name: str
    href: str
    note: str


@router.get("/search")
async def show(request: Request, q: Annotated[str, Query(max_length=200)] = "") -> Response:
    """What fits a few letters or an id, of all that the caller may see."""
    desk = Desk(request)
    text = q.strip()
    hits = [hit async for hit in _hits(desk, text)] if text else _pages(desk, "")
    return await desk.render("search.html", {"q": q, "hits": hits})


async def _hits(desk: Desk, text: str) -> AsyncIterator[Hit]:
    for finder in (_escalations, _flows, _agents, _objects):
        # Who may not see some of it finds the rest.
        try:
            matches = await finder(desk, text)
        except HoldproofError:
            continue
        for hit in matches:
            yield hit
    for hit in _pages(desk, text):
        yield hit


def _pages(desk: Desk, text: str) -> list[Hit]:
    groups = navigation.groups(desk.request, desk.may)
    places = [place for group in groups for place in group.places]
    return [Hit("page", each.name, each.href, "") for each in places if text.lower() in each.name.lower()]


async def _escalations(desk: Desk, text: str) -> list[Hit]:
    number = _NUMBER.fullmatch(text)
    if number is None or int(number[1]) > LAST:
        return []
    escalation = await or_default(desk.store.escalations.get(int(number[1])))
    if escalation is None:
        return []
    return [Hit("escalation", escalation.reason, f"/inbox/{escalation.id}", escalation.outcome)]


async def _flows(desk: Desk, text: str) -> list[Hit]:
    if not _ID.fullmatch(text):
        return []
    desk.require("flows", "list")
    prefix = text.lower()
    flows = await desk.state.store.read(lambda tx: flow_queries.beginning_with(tx, prefix, limit=_MOST, ns=desk.ns))
    return [
        Hit("flow", each.flow_id, f"/flows/flow?{urlencode({'id': each.flow_id})}", f"{each.flow_type}, {each.status}")
        for each in flows
    ]


async def _agents(desk: Desk, text: str) -> list[Hit]:
    page = await desk.store.agents.list(limit=_MOST_AGENTS)
    fitting = [each for each in page.items if text.lower() in each.agent_id.lower()]
    return [
        Hit("agent", each.agent_id, f"/agents/agent?{urlencode({'id': each.agent_id})}", each.status.lower())
        for each in fitting[:_MOST]
    ]


async def _objects(desk: Desk, text: str) -> list[Hit]:
    matches = await desk.store.objects.search(text, limit=_MOST)
    return [Hit("object", each.id, f"/memory/object?{urlencode({'id': each.id})}", each.type) for each in matches]
