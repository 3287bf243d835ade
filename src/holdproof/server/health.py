"""Whether the server lives, whether its store answers, and numbers for Prometheus."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdproof.errors import UnavailableError
from holdproof.evidence import tenant_limits
from holdproof.executors import require_whole_store
from holdproof.model.flows import OPEN
from holdproof.runtime import gauges, overview
from holdproof.server import metrics
from holdproof.server.metrics import MetricValue
from holdproof.server.permissions import permit
from holdproof.server.state import ServerState, caller_of, state_of

router = APIRouter(tags=["health"])
_PUBLIC: Final[dict[str, Any]] = {"security": []}
_TEXT: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get("/healthz", summary="Whether the server lives.", openapi_extra=_PUBLIC)
async def healthz() -> JSONResponse:
    """Answers as long as the process does."""
    return JSONResponse({"status": "ok"})


@router.get(
    "/readyz",
    summary="Whether the store answers.",
    responses={503: {"description": "It does not."}},
    openapi_extra=_PUBLIC,
)
async def readyz(request: Request) -> JSONResponse:
    """503 if the database cannot be read. A store that is locked or degraded is ready: it is read, and says so."""
    health = await state_of(request).readiness.check()
    if health is None:
        return JSONResponse({"status": "unavailable", "database": False}, 503)
    status = "locked" if health.locked else "degraded" if health.degraded else "ready"
    return JSONResponse({"status": status, "database": True, "locked": health.locked, "degraded": health.degraded})


@router.get("/metrics", summary="Numbers for Prometheus.", response_class=Response, responses=_TEXT)
async def numbers(request: Request) -> Response:
    """Requests and latencies by route, sizes, queues, what waits, and whether anything is locked or degraded."""
    state = state_of(request)
    caller = caller_of(request)
    await permit(state.store, caller, "storage", "status", {})
    require_whole_store(state.store_for(caller, "storage"))
    # Side by side: databases that hang must not add up to more than a scrape may take.
    stored, of_tenants = await asyncio.gather(_known(state), _of_tenants(state))
    up = MetricValue("holdproof_database_up", "1 while the database answers.", int(bool(stored)))
    return Response(state.metrics.text([up, *_own(state), *stored, *of_tenants]), media_type=metrics.CONTENT_TYPE)


async def _known(state: ServerState) -> list[MetricValue]:
    """Return the numbers of the database; none while it does not answer, for a scrape that fails is blind."""
    try:
        return await state.numbers.ask(lambda: _stored(state))
    except UnavailableError:
        return []


async def _of_tenants(state: ServerState) -> list[MetricValue]:
    return [] if state.tenant_numbers is None else await state.tenant_numbers()


async def _stored(state: ServerState) -> list[MetricValue]:
    """Return the numbers that only the database knows."""
    status = await state.store.status()
    locked = await state.store.lockdown.status()
    # One transaction, so that the numbers of one scrape fit together.
    counts, totals, tenants = await state.store.read(
        lambda tx: (gauges.read(tx), overview.workers(tx), tenant_limits.used(tx))
    )
    facts = {**counts, "locked": int(locked is not None), "degraded": len(status.degraded)}
    return [*_standing(facts), *_worked(totals), *_limited(tenants), *_sizes(status.database)]


_ABOUT: Final = {
    "escalations.pending": ("holdproof_escalations_pending", "Escalations that wait for a person."),
    "escalations.expired": ("holdproof_escalations_expired", "Escalations that nobody answered by their deadline."),
    "locks": ("holdproof_locks", "Locks in the hands of flows."),
    "agents": ("holdproof_agents", "Registered agents."),
    "flows.orphaned": ("holdproof_flows_orphaned", "Flows without a worker."),
    "flows.dirty": ("holdproof_flows_dirty", "Flows that failed half way."),
    "keys.unknown": ("holdproof_idempotency_unknown", "Keys whose outcome is unknown."),
    "log.size": ("holdproof_log_leaves", "Leaves under the newest signed head."),
    "log.pending": ("holdproof_log_pending", "Leaves that wait for a signed head."),
    "locked": ("holdproof_locked", "1 while the store refuses writes."),
    "degraded": ("holdproof_degraded", "How many things are degraded."),
}


def _standing(facts: dict[str, int]) -> Iterator[MetricValue]:
    for status in OPEN:
        yield MetricValue("holdproof_flows", "Open flows by status.", facts[f"flows.{status}"], {"status": status})
    for name, (metric, help) in _ABOUT.items():
        yield MetricValue(metric, help, facts[name])


def _own(state: ServerState) -> Iterator[MetricValue]:
    """Yield what this process counts itself."""
    backend = state.store.database.backend
    for name, pump in (("write", backend.writer), ("read", backend.reader)):
        yield MetricValue("holdproof_queue", "Operations that wait for the database.", pump.queued, {"kind": name})
    yield MetricValue("holdproof_http_requests_under_way", "Requests being answered.", state.metrics.under_way)
    yield MetricValue("holdproof_http_streams", "Streams of events that are open.", state.metrics.streams)


def _worked(totals: overview.Totals) -> Iterator[MetricValue]:
    for state, count in {"RUNNING": 0, **totals.workers}.items():
        yield MetricValue("holdproof_workers", "Workers by state.", count, {"state": state})
    for queue, count in totals.due.items():
        yield MetricValue("holdproof_queue_due", "Flows that wait for a worker, by queue.", count, {"queue": queue})
    for queue, count in totals.running.items():
        yield MetricValue("holdproof_queue_running", "Flows that workers run, by queue.", count, {"queue": queue})


def _limited(tenants: Mapping[str, tuple[Mapping[str, int], Mapping[str, int]]]) -> Iterator[MetricValue]:
    for ns, (limits, usage) in tenants.items():
        for name, most in limits.items():
            labels = {"ns": ns, "limit": name}
            yield MetricValue("holdproof_tenant_limit", "What a namespace may use.", most, labels)
            yield MetricValue("holdproof_tenant_usage", "What a namespace uses of its limits.", usage[name], labels)


def _sizes(database: dict[str, Any]) -> Iterator[MetricValue]:
    for part, size in database.get("bytes", {}).items():
        yield MetricValue("holdproof_store_bytes", "Size of the kernel database.", size, {"part": part})
