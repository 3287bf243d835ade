"""The console: pages for the people who answer for what agents do. Each page is a module."""

from typing import Final

from fastapi import FastAPI

from holdproof.server.console import (
    access,
    agents,
    cost,
    document_check,
    evidence,
    flow,
    flows,
    health,
    home,
    inbox,
    list_declarations,
    list_pages,
    memory,
    page_filters,
    policies,
    proof,
    search,
    snapshots,
    telemetry,
    template_filters,
    threads,
    today,
    together,
    watching,
    workers,
)
from holdproof.server.pages import templates

__all__ = ["part"]

# `together` before `inbox`: its addresses would else be taken for ids of escalations.
_INBOX: Final = (home, today, together, inbox)
_WORK: Final = (flows, flow, workers, agents)
_PROOF: Final = (evidence, document_check, proof, policies)
_KNOWLEDGE: Final = (memory, snapshots, threads)
_OPERATION: Final = (telemetry, cost, health, watching, access, search)
PAGES: Final = (*_INBOX, *_WORK, *_PROOF, *_KNOWLEDGE, *_OPERATION)


def part(app: FastAPI) -> None:
    """Add the pages of the console to a server."""
    templates.env.filters.update(template_filters.FILTERS | page_filters.FILTERS)
    # Lists first: `/inbox/decided` would else be taken for the id of an escalation.
    routers = [*map(list_pages.router, list_declarations.LISTS), *(page.router for page in PAGES)]
    for router in routers:
        app.include_router(router)
    # The navigation offers what this server has.
    app.state.console_paths = frozenset(getattr(route, "path", "") for router in routers for route in router.routes)
