"""Today: what agents did within a range, what people answered, and what needs somebody now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model.activity import ActivityCount
from holdproof.model.log import KnownHead
from holdproof.model.times import later, to_micros
from holdproof.model.usage import Usage
from holdproof.runtime import gauges
from holdproof.server.console import head_line, today_charts
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.console.template_filters import ago

router = APIRouter(include_in_schema=False)

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_STRIPS: Final = 12
_VERIFY_DAYS: Final = 7


@dataclass(frozen=True, slots=True)
class Range:
    """A range that can be chosen: how far it goes back, and in which buckets it is shown."""

    name: str
    label: str
    buckets: int
    by: str

    def since(self, now: str) -> str:
        """Its beginning: a whole hour or day, so that no bucket is cut."""
        length = _HOUR_S if self.by == "hour" else _DAY_S
        start = later(now, -length * (self.buckets - 1))
        return f"{start[:13]}:00:00.000000Z" if self.by == "hour" else f"{start[:10]}T00:00:00.000000Z"

    def names(self, now: str) -> list[str]:
        """The names of its buckets, the oldest first."""
        length, letters = (_HOUR_S, 13) if self.by == "hour" else (_DAY_S, 10)
        return [later(now, -length * back)[:letters] for back in reversed(range(self.buckets))]


def ranges(now: str) -> dict[str, Range]:
    """Return the ranges to choose from; today begins at midnight, UTC."""
    hours_today = int(now[11:13]) + 1
    return {
        "today": Range("today", "Today", hours_today, "hour"),
        "24h": Range("24h", "24 hours", 24, "hour"),
        "7d": Range("7d", "7 days", 168, "hour"),
        "30d": Range("30d", "30 days", 30, "day"),
    }


@router.get("/today")
async def show(request: Request, range: Annotated[str, Query(max_length=10)] = "24h") -> Response:
    """The numbers of a range, each a link, and what needs somebody."""
    desk = Desk(request)
    desk.require("flows", "list")
    choices = ranges(desk.now)
    chosen = choices.get(range, choices["24h"])
    since = chosen.since(desk.now)
    by_agent = await desk.store.activity.stats(by=chosen.by, by_agent=True, since=since)
    names = chosen.names(desk.now)
    verified = await _verified(desk)
    totals = _summed(by_agent, "")
    values: dict[str, Any] = {
        "choices": choices.values(),
        "chosen": chosen,
        "since": since,
        "totals": totals,
        "open": await desk.state.store.read(lambda tx: gauges.flows(tx, ns=desk.ns)),
        "answers": await or_default(desk.store.activity.answer_times(since=since)),
        "agents": len({each.agent_id for each in by_agent if each.started}),
        "chart": today_charts.stacked("How flows ended", names, _by_bucket(by_agent)),
        "strips": today_charts.strips(names, by_agent, _STRIPS),
        "usage": await _usage(desk, since),
        "needs": [*await _needs(desk), *await _unverified(desk, verified)],
        "verified": verified,
        "verified_says": f"verified {ago(verified.at, desk.now)}" if verified else "never verified",
        "is_unsound": verified is not None and verified.verdict not in head_line.SOUND,
    }
    return await desk.render("today.html", values)


def _summed(counts: Sequence[ActivityCount], bucket: str) -> ActivityCount:
    names = ("started", "completed", "failed", "cancelled", "escalations", "answers", "expired")
    return ActivityCount(bucket, "", *(sum(getattr(each, name) for each in counts) for name in names))


def _by_bucket(counts: Sequence[ActivityCount]) -> Mapping[str, ActivityCount]:
    buckets: dict[str, list[ActivityCount]] = {}
    for each in counts:
        buckets.setdefault(each.bucket, []).append(each)
    return {bucket: _summed(group, bucket) for bucket, group in buckets.items()}


async def _verified(desk: Desk) -> KnownHead | None:
    """Return the newest verification as the log has it, of any process."""
    heads = await or_default(desk.store.log.heads(limit=1))
    return next((each for each in heads or () if each.kind == "verified"), None)


async def _usage(desk: Desk, since: str) -> Usage | None:
    """Return what models used; None for who may not see it, or where telemetry tells nothing of it."""
    if not desk.may("telemetry", "usage"):
        return None
    usage: Usage | None = await or_default(desk.store.telemetry.usage(since=since))
    return usage if usage is not None and (usage.total.tokens or usage.total.cost) else None


@dataclass(frozen=True, slots=True)
class Need:
    """Something that needs somebody: how many there are of it, and where to go."""

    tone: str
    count: int
    says: str
    href: str


async def _needs(desk: Desk) -> list[Need]:
    """What needs somebody, as far as the caller may see it, the gravest first."""
    store = desk.state.store
    waiting = await desk.store.escalations.count() if desk.may("escalations", "count") else None
    needs = (
        [
            Need(
                "bad",
                waiting.high_impact,
                _say(waiting.high_impact, "escalation of high impact waits", "escalations of high impact wait"),
                "/inbox?impact=HIGH_IMPACT",
            ),
            Need(
                "wait",
                waiting.total - waiting.high_impact,
                _say(waiting.total - waiting.high_impact, "other escalation waits", "other escalations wait"),
                "/inbox",
            ),
        ]
        if waiting
        else []
    )
    suspended = await or_default(desk.store.agents.list(status="SUSPENDED", limit=100))
    if suspended is not None:
        needs.append(
            Need(
                "wait",
                len(suspended.items),
                _say(len(suspended.items), "agent is suspended", "agents are suspended"),
                "/agents?status=SUSPENDED",
            )
        )
    counts = await store.read(lambda tx: gauges.troubles(tx, ns=desk.ns))
    if desk.may("flows", "list"):
        needs += [
            Need(
                "bad",
                counts["flows.dirty"],
                _say(counts["flows.dirty"], "flow failed half way", "flows failed half way"),
                "/flows?trouble=DIRTY&range=all",
            ),
            Need(
                "bad",
                counts["flows.orphaned"],
                _say(counts["flows.orphaned"], "flow has no worker", "flows have no worker"),
                "/flows?trouble=ORPHANED&range=all",
            ),
        ]
    if desk.may("idempotency", "list"):
        unknown = counts["keys.unknown"]
        needs.append(
            Need("wait", unknown, _say(unknown, "call is in doubt", "calls are in doubt"), "/calls?state=UNKNOWN")
        )
    # Of the whole store: not for callers bound to a namespace.
    if desk.caller.ns is None and desk.may("storage", "status"):
        degraded = (await store.status()).degraded
        needs.append(
            Need("wait", len(degraded), _say(len(degraded), "part is degraded", "parts are degraded"), "/health")
        )
    return [each for each in needs if each.count]


async def _unverified(desk: Desk, verified: KnownHead | None) -> list[Need]:
    """Say so where nobody has verified the store for a week."""
    if not desk.may("verify", "run"):
        return []
    since = verified.at if verified is not None else (await desk.state.store.status()).created_at
    days = int((to_micros(desk.now) - to_micros(since)) / 1e6 // _DAY_S)
    return [Need("wait", days, "days since the last verification", "/evidence")] if days >= _VERIFY_DAYS else []


def _say(count: int, one: str, many: str) -> str:
    return one if count == 1 else many
