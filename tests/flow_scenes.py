"""Flows as they are in trouble: failed and undone, tried again, waiting for a lock, with a tree below, taken over."""

import json
import threading
from contextlib import suppress
from typing import Any

from holdproof import sync
from holdproof.errors import HoldproofError
from holdproof.model.storage import TelemetryEvent
from holdproof.model.threads import EncodedValue
from holdproof.model.times import later


def populate_flows(store: sync.Holdproof) -> dict[str, str]:
    """Write them, and return their ids by what they show."""
    for name in ("planner", "researcher", "booker"):
        store.agents.register(name, version="2.1.0", contract={"limit": 500})
    _work(store)
    _usage(store)
    _conversation(store)
    return {"tree": _tree(store), "failed": _failed(store), **_locked(store)}


def _tree(store: sync.Holdproof) -> str:
    """A flow that started three others, one of which started two."""
    with store.flows.run("planner", flow_type="plan trip") as flow:
        root = flow.flow_id
        flow.step("read request", lambda: {"from": "HAM", "to": "LIS", "people": 2})
        for kind in ("find flights", "find hotels", "find trains"):
            with store.flows.run("researcher", flow_type=kind, parent=root) as child:
                child.step("search", lambda: [{"price": 120 + at, "stops": at % 2} for at in range(20)])
                if kind == "find hotels":
                    for name in ("compare prices", "read reviews"):
                        with store.flows.run("booker", flow_type=name, parent=child.flow_id) as below:
                            below.step("fetch", lambda: "ok")
        flow.step("choose", lambda: {"flight": 2, "hotel": 7})
    return root


def _failed(store: sync.Holdproof) -> str:
    """A flow whose third step fails for good, after another try, and whose first two are undone."""

    def declined() -> Any:
        raise ValueError("the card ending in 4242 was declined: insufficient funds")

    flow_id = ""
    with suppress(HoldproofError, ValueError), store.flows.run("booker", flow_type="book trip") as flow:
        flow_id = flow.flow_id
        flow.step("reserve seat", lambda: "seat 14C", compensate=lambda _: "released")
        flow.step("reserve room", lambda: "room 210", compensate=lambda _: "released")
        flow.step("charge card", declined)
    return flow_id


def _locked(store: sync.Holdproof) -> dict[str, str]:
    """A flow that holds a lock for the rest of the scene, and one that waits for it."""
    holder = store.flows.start("planner", flow_type="repaint").flow_id
    store.flows.transition(holder, "RUNNING")
    store.locks.try_acquire(holder, {"hangar 3": 1.0}, ttl_s=600)
    waiting = threading.Event()
    ids: dict[str, str] = {"holder": holder}

    def wait() -> None:
        with suppress(HoldproofError), store.flows.run("booker", flow_type="inspect") as flow:
            ids["locked"] = flow.flow_id
            flow.step("open file", lambda: "file 9")
            waiting.set()
            flow.lock({"hangar 3": 1.0}, timeout_s=600)

    threading.Thread(target=wait, daemon=True).start()
    waiting.wait(60)
    return ids


def _work(store: sync.Holdproof) -> None:
    """A queue with limits that is paused, and a schedule."""
    store.queues.create("payments", concurrency=10, rate_limit=100, rate_period_s=60)
    store.queues.pause("payments")


def _usage(store: sync.Holdproof) -> None:
    """Calls of two models by two agents, one of which failed."""
    now = store.flows.start("planner", flow_type="count tokens").created_at
    calls = [
        ("gpt-large", "planner", 1_200, 340, 0.021, 900),
        ("gpt-large", "researcher", 5_400, 120, 0.058, 2_100),
        ("small-7b", "researcher", 800, 90, 0.0004, 240),
    ]
    store.telemetry.append(
        TelemetryEvent(
            "llm.call",
            later(now, -60.0 * at),
            {
                "attributes": {
                    "gen_ai.request.model": model,
                    "gen_ai.agent.name": agent,
                    "gen_ai.usage.input_tokens": into,
                    "gen_ai.usage.output_tokens": out,
                },
                "cost_usd": cost,
                "duration_ms": ms,
                **({"error": "timeout"} if at == 7 else {}),
            },
            trace_id=f"{at:032x}",
        )
        for at in range(30)
        for model, agent, into, out, cost, ms in (calls[at % 3],)
    )


def _conversation(store: sync.Holdproof) -> None:
    """A thread with a conversation, forked at its second checkpoint, and a transcript."""

    def state(*texts: str) -> dict[str, EncodedValue]:
        roles = ("user", "assistant")
        messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
        return {"messages": EncodedValue("json", json.dumps(messages).encode())}

    said = ("Book me a seat to Lisbon.", "On which day?", "On Friday.", "Seat 14C is yours.")
    parent = None
    for at in range(1, 5):
        id = f"1f0000{at}"
        store.threads.put_checkpoint(
            "trip-1", state(*said[:at]), checkpoint_id=id, parent_id=parent, metadata={"step": at}
        )
        parent = id
    store.threads.put_checkpoint(
        "trip-1", state(*said[:2], "On Monday."), checkpoint_id="1f00009", parent_id="1f00002", metadata={"step": 3}
    )
    store.transcripts.append("desk/ada", [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}])
