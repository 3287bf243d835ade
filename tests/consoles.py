"""A store as an operator meets it: agents at work, questions, evaluations, memory, traces."""

from dataclasses import dataclass
from typing import Any

from holdproof import sync
from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import later

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@dataclass(frozen=True)
class Scene:
    """What there is to look at, by its ids."""

    grave: int
    calm: int
    decided: int
    asking: str
    done: str
    parent: str


def populate(store: sync.Holdproof) -> Scene:
    """Agents with a past, two questions that wait, one that was answered, and something on every other page."""
    contract = {"limits": {"order_eur": 25_000, "orders_per_day": 40}, "venues": ["XETR", "XPAR"]}
    for name in ("treasury-rebalancer", "invoice-clerk", "support-triage"):
        store.agents.register(name, version="1.4.0", contract=contract, priority=5)
        # One large enough to widen a page on which each escalation of it is drawn.
        store.agents.set_budget(name, per_hour=40 if name == "invoice-clerk" else 3)
    store.agents.set_status("support-triage", "SUSPENDED", reason="three wrong refunds in a row (operator:Ada)")
    store.state.put("treasury-rebalancer", {"open_orders": 2, "day_volume_eur": 18_250, "risk": "normal"})
    store.state.put("treasury-rebalancer", {"open_orders": 3, "day_volume_eur": 31_900, "risk": "raised"})
    done, parent = _past(store), _family(store)
    asking, grave = _asked(store)
    calm, decided = _clerk(store)
    _evidence(store)
    _memory(store)
    _telemetry(store)
    return Scene(grave, calm, decided, asking, done, parent)


def _past(store: sync.Holdproof) -> str:
    """A flow that was done, and feedback on a dozen like it."""
    last = ""
    for number in range(14):
        flow = store.flows.run("treasury-rebalancer", flow_type="rebalance")
        with flow as work:
            last = work.flow_id
            work.step("quote", lambda n=number: {"bid": 101.2 + n / 10, "ask": 101.4 + n / 10})
            work.step("order", lambda n=number: {"order": f"o-{n}", "filled": True})
        score = (0.62, 0.7, 0.66, 0.74, 0.81, 0.78, 0.84, 0.55, 0.8, 0.86, 0.88, 0.83, 0.9, 0.87)[number]
        store.feedback.record(
            "treasury-rebalancer", last, status="GOOD" if score > 0.6 else "POOR", score=score, source="Monitor"
        )
    store.audit.record(last, "order.filled", detail={"venue": "XETR", "slippage_bp": 1.2})
    return last


def _family(store: sync.Holdproof) -> str:
    parent = store.flows.start("invoice-clerk", flow_type="month-end").flow_id
    store.flows.transition(parent, "RUNNING")
    for kind in ("match-invoices", "chase-payments"):
        child = store.flows.start("invoice-clerk", flow_type=kind, parent=parent).flow_id
        store.flows.transition(child, "RUNNING")
    store.locks.try_acquire(parent, {"ledger/2026-11": 1.0}, ttl_s=600)
    store.contexts.put(parent, {"month": "2026-11", "open_invoices": 214})
    return parent


def _asked(store: sync.Holdproof) -> tuple[str, int]:
    flow = store.flows.start("treasury-rebalancer", flow_type="rebalance").flow_id
    store.flows.transition(flow, "RUNNING")
    store.contexts.put(
        flow,
        {
            "portfolio": {"EUR-bonds": 0.42, "US-equity": 0.38, "cash": 0.2},
            "limit_eur": 25_000,
            "venue": "XETR",
        },
    )
    asked = store.escalations.request(flow, **question())
    return flow, asked.id


def question() -> dict[str, Any]:
    """A grave one, with a proposal in several parts."""
    return {
        "reason": "Rebalance exceeds the daily limit by 68 %",
        "context": {"trigger": "US-equity drifted 6.1 % above target", "model": "mean-variance", "confidence": 0.93},
        "proposal": {
            "portfolio": {"EUR-bonds": 0.48, "US-equity": 0.32, "cash": 0.2},
            "limit_eur": 42_000,
            "venue": "XETR",
            "note": "spread over three orders",
        },
        "impact": "HIGH_IMPACT",
        "deadline_s": 1800,
    }


def _clerk(store: sync.Holdproof) -> tuple[int, int]:
    numbers = []
    for reason, proposal in (
        ("Two invoices share one number", {"keep": "R-20881", "void": "R-20881b"}),
        ("Supplier changed its bank account", {"iban": "DE89 3704 0044 0532 0130 00", "verified_by": "call-back"}),
    ):
        flow = store.flows.start("invoice-clerk", flow_type="pay-invoice").flow_id
        store.flows.transition(flow, "RUNNING")
        numbers.append(store.escalations.request(flow, reason=reason, proposal=proposal).id)
    store.escalations.resolve(
        numbers[1],
        "approve",
        by="operator:Ada",
        proposal={"iban": "DE89 3704 0044 0532 0130 00"},
        comment="verified by phone, not by call-back",
    )
    return numbers[0], numbers[1]


def _evidence(store: sync.Holdproof) -> None:
    for number, score in enumerate((0.71, 0.78, 0.83)):
        store.evaluations.submit(
            {"task": f"hedge-{number}", "answer": "buy"},
            evaluation_id=f"eval-{number}",
            score=score,
            intent=[score, 1.0],
        )


def _memory(store: sync.Holdproof) -> None:
    store.objects.put("market", type="folder", content=None)
    store.objects.put("market/dax", type="fact", content={"trend": "up", "level": 19_120}, parent="market")
    store.objects.put("market/eurusd", type="fact", content={"trend": "flat"}, parent="market")
    store.snapshots.create("before the fed", author="operator:Ada")
    store.objects.put("market/dax", type="fact", content={"trend": "down", "level": 18_870}, parent="market")


def _telemetry(store: sync.Holdproof) -> None:
    start = store.flows.list(limit=1).items[0].created_at
    spans: tuple[tuple[str, str | None, str, float, float, dict[str, str]], ...] = (
        ("a", None, "rebalance", 0.0, 412.0, {}),
        ("b", "a", "quote", 0.004, 96.0, {}),
        ("c", "b", "GET /quotes", 0.01, 80.0, {}),
        ("d", "a", "order", 0.11, 287.0, {"status": "ERROR", "error": "timeout"}),
        ("e", "d", "POST /orders", 0.12, 250.0, {}),
    )
    store.telemetry.append(
        [
            TelemetryEvent(
                "span",
                later(start, offset),
                {"name": name, "duration_ms": ms, "parent_span_id": parent, **more},
                span_id=id,
                trace_id=TRACE,
            )
            for id, parent, name, offset, ms, more in spans
        ]
    )
