"""Where one can go from every page: what there is in this server, and the caller may look at."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from starlette.requests import Request


class NavigationLink(NamedTuple):
    """A page of the navigation, and the method that a caller has to be allowed for it."""

    href: str
    name: str
    resource: str
    method: str
    also: tuple[str, ...] = ()
    """Pages that belong to it and are reached from it, at addresses of their own."""


@dataclass(frozen=True, slots=True)
class Group:
    """Places under one heading."""

    name: str
    places: tuple[NavigationLink, ...]


GROUPS: Final = (
    Group(
        "",
        (
            NavigationLink("/today", "Today", "flows", "list"),
            NavigationLink("/inbox", "Inbox", "escalations", "list", ("/escalations",)),
        ),
    ),
    Group(
        "Run",
        (
            NavigationLink("/flows", "Flows", "flows", "list"),
            NavigationLink("/agents", "Agents", "agents", "list"),
            NavigationLink("/threads", "Threads", "threads", "list"),
            NavigationLink("/queues", "Queues", "queues", "list"),
            NavigationLink("/schedules", "Schedules", "schedules", "list"),
            NavigationLink("/workers", "Workers", "workers", "list"),
            NavigationLink("/locks", "Locks", "locks", "list"),
        ),
    ),
    Group(
        "Know",
        (
            NavigationLink("/memory", "Memory", "objects", "list"),
            NavigationLink("/skills", "Skills", "skills", "list"),
            NavigationLink("/blobs", "Blobs", "blobs", "list_stats"),
            NavigationLink("/vectors", "Vectors", "vectors", "list"),
            NavigationLink("/telemetry", "Telemetry", "telemetry", "query"),
            NavigationLink("/cost", "Cost", "telemetry", "query"),
        ),
    ),
    Group(
        "Prove",
        (
            NavigationLink("/evidence", "Evidence", "evaluations", "list"),
            NavigationLink("/evaluations", "Evaluations", "evaluations", "list"),
            NavigationLink("/ledger", "Ledger", "ledger", "list"),
            NavigationLink("/policies", "Policies", "policies", "list"),
        ),
    ),
    Group(
        "Operate",
        (
            NavigationLink("/health", "Health", "storage", "status", ("/calls", "/jobs")),
            NavigationLink("/retention", "Retention", "retention", "list", ("/holds",)),
            NavigationLink("/backups", "Backups", "backup", "list"),
            NavigationLink("/tenants", "Tenants", "tenants", "list"),
            NavigationLink("/access", "Access", "access_log", "list"),
        ),
    ),
)
"""In the order of a day: what happened, what waits, what runs, what is known, what is proven, what is operated."""


def groups(request: Request, may: Callable[[str, str], bool]) -> list[Group]:
    """Return the groups with the places that this server has and this caller may see."""
    paths: frozenset[str] = request.app.state.console_paths
    visible_groups = [
        Group(
            group.name, tuple(each for each in group.places if each.href in paths and may(each.resource, each.method))
        )
        for group in GROUPS
    ]
    return [group for group in visible_groups if group.places]


def current(path: str, place: NavigationLink) -> bool:
    """Whether a path belongs to a place."""
    return any(path == href or path.startswith(f"{href}/") for href in (place.href, *place.also))
