"""What the parts of one server share."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from starlette.requests import HTTPConnection
from starlette.types import Scope

from holdproof.api.catalogue import without_namespaces
from holdproof.client import Holdproof
from holdproof.errors import UnauthenticatedError
from holdproof.model.times import to_text
from holdproof.server.access_log_buffer import AccessLogBuffer
from holdproof.server.api_reference import ApiResource
from holdproof.server.commit_notifier import CommitNotifier
from holdproof.server.jobs import Jobs
from holdproof.server.metrics import Metrics, MetricValue
from holdproof.server.permissions import Caller
from holdproof.server.presence import Presence
from holdproof.server.rate_limit import Buckets
from holdproof.server.readiness import Readiness
from holdproof.server.samples import Samples
from holdproof.server.scrapes import Scrapers, SingleLook
from holdproof.server.settings import ServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI


class ScopedStores:
    """A store as callers may see it: open for their namespace only, except for granted resources that have none."""

    def __init__(self, store: Holdproof) -> None:
        self._store = store
        self._bound: dict[str, Holdproof] = {}

    def of(self, caller: Caller, resource: str = "") -> Holdproof:
        """Return the store for a caller and a resource."""
        # Resources without namespaces exist once per store: a token that names one gets it, namespace or not.
        granted = caller.resources is not None and resource in caller.resources & without_namespaces()
        if caller.ns is None or granted:
            return self._store
        if caller.ns not in self._bound:
            self._bound[caller.ns] = Holdproof(self._store.core, caller.ns)
        return self._bound[caller.ns]


@dataclass(slots=True)
class ServerState:
    """One server: its store, its settings, and what it remembers while it runs."""

    store: Holdproof
    settings: ServerSettings
    metrics: Metrics = field(default_factory=Metrics)
    scrapers: Scrapers = field(default_factory=Scrapers)
    numbers: SingleLook[list[MetricValue]] = field(default_factory=SingleLook)
    """The look of `/metrics` into the database."""
    tenant_numbers: Callable[[], Awaitable[list[MetricValue]]] | None = None
    """What `/metrics` tells of tenants, where this server has any."""
    commits: CommitNotifier = field(default_factory=CommitNotifier)
    samples: Samples = field(default_factory=Samples)
    presence: Presence = field(default_factory=Presence)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is to end: streams that would go on for ever end with it."""
    checks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """Held while a file of somebody else is unpacked and checked, which takes memory."""
    streams: Counter[str] = field(default_factory=Counter)
    """How many event streams each caller has open."""
    described: dict[str, bytes] = field(default_factory=dict)
    """The description of the API, by its media type or its page, once it was asked for."""
    reference: tuple[ApiResource, ...] | None = None
    """What the pages of the API show, laid out when one of them was asked for first."""
    access_log: AccessLogBuffer = field(init=False)
    jobs: Jobs = field(init=False)
    buckets: Buckets = field(init=False)
    scoped: ScopedStores = field(init=False)
    readiness: Readiness = field(init=False)

    def __post_init__(self) -> None:
        self.scoped = ScopedStores(self.store)
        self.readiness = Readiness(self.store)
        self.access_log = AccessLogBuffer(self.store, self.now)
        self.jobs = Jobs(self.now)
        self.buckets = Buckets(self.settings.rate_s, self.settings.burst)

    def now(self) -> str:
        """The moment, by the store's clock."""
        return to_text(self.store.database.clock())

    def end_streams(self) -> None:
        """End what would go on for ever: event streams, and calls that wait as long as it takes."""
        self.stopping.set()
        # Streams sleep until a commit; woken, they see `stopping` and end.
        self.commits.wake_all()

    def store_for(self, caller: Caller, resource: str = "") -> Holdproof:
        """Return the store as a caller may see it, for one resource."""
        return self.scoped.of(caller, resource)


def state_of(connection: HTTPConnection) -> ServerState:
    """The server that a request came to."""
    return cast("ServerState", connection.app.state.holdproof)


def state_in(scope: Scope) -> ServerState:
    """The same for what stands before the router."""
    return cast("ServerState", cast("FastAPI", scope["app"]).state.holdproof)


def caller_in(scope: Scope) -> Caller | None:
    """Return the authenticated caller of a request, or None."""
    return cast("Caller | None", scope.get("state", {}).get("caller"))


async def recheck(scope: Scope) -> None:
    """Look again whether the caller's token or session still counts; UnauthenticatedError if not."""
    again = cast("Callable[[], Awaitable[object]] | None", scope.get("state", {}).get("again"))
    if again is not None and await again() is None:
        raise UnauthenticatedError("this session has ended")


def caller_of(connection: HTTPConnection) -> Caller:
    """Who calls; UnauthenticatedError where nobody known does."""
    caller = caller_in(connection.scope)
    if caller is None:
        raise UnauthenticatedError("this needs a token, or a session")
    return caller
