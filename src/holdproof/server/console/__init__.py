"""The console: pages for the people who answer for what agents do. Each page is a module."""

from fastapi import FastAPI

from holdproof.server.console import (
    agents,
    evidence,
    flows,
    health,
    home,
    inbox,
    memory,
    snapshots,
    telemetry,
    template_filters,
    watching,
    workers,
)
from holdproof.server.pages import templates

__all__ = ["part"]


def part(app: FastAPI) -> None:
    """Add the pages of the console to a server."""
    templates.env.filters.update(template_filters.FILTERS)
    for page in (home, inbox, flows, workers, agents, evidence, memory, snapshots, telemetry, health, watching):
        app.include_router(page.router)
