"""Interrupts of graphs as escalations: asked in the inbox, answered there, resumed once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="langgraph is not installed")

from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from holdproof import errors, sync
from holdproof.adapters.approvals import Resumed
from holdproof.adapters.langgraph import HoldproofInterrupts, HoldproofSaver
from tests.interop.langgraphs import thread


class Order(TypedDict, total=False):
    cents: int
    answers: list[Any]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Holdproof]:
    url, home = (None, tmp_path) if request.param == "sqlite" else request.getfixturevalue("postgres_store")
    with sync.open(home, url=url) as store:
        yield store
        assert store.verify.run(lock=False).verdict.sound


def shop(store: sync.Holdproof, times: int = 1) -> tuple[Any, list[Any]]:
    """A graph that asks so many times before it buys; and what it bought."""
    bought: list[Any] = []

    def buy(state: Order) -> Order:
        answers = [interrupt({"cents": state["cents"], "number": number}) for number in range(times)]
        bought.append(answers)
        return {"answers": answers}

    graph = StateGraph(Order)
    graph.add_node("buy", buy)
    graph.add_edge(START, "buy")
    return graph.compile(checkpointer=HoldproofSaver(store)), bought


def paused(store: sync.Holdproof, app: Any) -> tuple[HoldproofInterrupts, int]:
    interrupts = HoldproofInterrupts(store, agent_id="buyer")
    app.invoke({"cents": 500}, thread())
    return interrupts, asyncio.run(interrupts.pause(app.get_state(thread()), reason="an order")).id


def test_an_interrupt_is_asked_in_the_inbox_and_its_answer_resumes_the_graph(store: sync.Holdproof) -> None:
    app, bought = shop(store)
    interrupts, id = paused(store, app)
    [asked] = store.escalations.list().items
    assert asked.proposal["calls"][0]["arguments"] == {"cents": 500, "number": 0}
    store.escalations.resolve(id, "approve", by="ada")
    done = asyncio.run(interrupts.resume(app, id))
    assert (done.escalation, done.output["answers"], bought) == (None, [True], [[True]])
    assert store.flows.get(asked.flow_id).status == "COMPLETED"


def test_an_answer_with_changes_is_what_interrupt_returns(store: sync.Holdproof) -> None:
    app, bought = shop(store)
    interrupts, id = paused(store, app)
    [call] = store.escalations.get(id).proposal["calls"]
    changed = {"calls": [{**call, "arguments": {"cents": 100}}]}
    store.escalations.resolve(id, "approve", by="ada", proposal=changed)
    asyncio.run(interrupts.resume(app, id))
    assert bought == [[{"cents": 100}]]


def test_a_rejection_is_an_answer_too(store: sync.Holdproof) -> None:
    app, bought = shop(store)
    interrupts, id = paused(store, app)
    store.escalations.resolve(id, "reject", by="ada", comment="too much")
    asyncio.run(interrupts.resume(app, id, answer=lambda decision: decision.message))
    assert bought == [["too much"]]


def test_a_graph_that_interrupts_again_is_asked_again(store: sync.Holdproof) -> None:
    app, bought = shop(store, times=2)
    interrupts, id = paused(store, app)
    store.escalations.resolve(id, "approve", by="ada")
    first = asyncio.run(interrupts.resume(app, id))
    assert (first.output, bought) == (None, [])
    assert first.escalation is not None
    store.escalations.resolve(first.escalation, "approve", by="bob")
    assert asyncio.run(interrupts.resume(app, first.escalation)).output["answers"] == [True, True]


def test_of_many_that_resume_one_runs_the_graph(store: sync.Holdproof) -> None:
    app, bought = shop(store)
    interrupts, id = paused(store, app)
    store.escalations.resolve(id, "approve", by="ada")

    async def all_at_once() -> list[Resumed]:
        return [*await asyncio.gather(*(interrupts.resume(app, id) for _ in range(5)))]

    outputs = [done.output["answers"] for done in asyncio.run(all_at_once())]
    assert (outputs, bought) == ([[True]] * 5, [[True]])


def test_a_graph_that_was_resumed_by_its_own_call_is_not_resumed_again(store: sync.Holdproof) -> None:
    app, bought = shop(store)
    interrupts, id = paused(store, app)
    app.invoke(Command(resume="by hand"), thread())
    store.escalations.resolve(id, "approve", by="ada")
    with pytest.raises(errors.ConflictError, match="other means"):
        asyncio.run(interrupts.resume(app, id))
    assert bought == [["by hand"]]


def test_an_answer_by_the_frameworks_own_call_closes_the_request(store: sync.Holdproof) -> None:
    app, bought = shop(store)
    interrupts, id = paused(store, app)
    assert asyncio.run(interrupts.settle(app, id)).status == "PENDING", "the graph still waits"
    app.invoke(Command(resume="by hand"), thread())
    closed = asyncio.run(interrupts.settle(app, id))
    assert (closed.outcome, closed.resolved_by, bought) == ("cancelled", "langgraph", [["by hand"]])
    assert asyncio.run(interrupts.settle(app, id)).outcome == "cancelled"


def test_a_graph_that_waits_for_nobody_is_not_paused(store: sync.Holdproof) -> None:
    app, _ = shop(store, times=0)
    app.invoke({"cents": 1}, thread())
    with pytest.raises(errors.InvalidInputError, match="waits for nobody"):
        asyncio.run(HoldproofInterrupts(store, agent_id="buyer").pause(app.get_state(thread())))
