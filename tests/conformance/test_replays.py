"""Replays: the registered code on what flows recorded, without doing anything; on every backend."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.client import Holdproof
from holdproof.db import Tx, sql
from holdproof.executors import AsyncExecutor, SyncExecutor
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore

Flow = OpenFlow[SyncExecutor]
_TRACES = sql(
    "SELECT (SELECT count(*) FROM flow_steps), (SELECT count(*) FROM flow_transitions),"
    " (SELECT count(*) FROM escalation_requests), (SELECT count(*) FROM decision_audit_events),"
    " (SELECT count(*) FROM flow_leases), (SELECT max(expires_at) FROM flow_leases)"
)
_EDIT = sql("UPDATE flow_steps SET result = '\"yacht\"' WHERE name = 'pay'")


@dataclass
class Order:
    what: str
    cents: int


def pay(order: Order) -> str:
    PAID.append(order.what)
    return f"paid {order.what}"


PAID: list[str] = []


def traces(tx: Tx) -> Any:
    return tx.one(_TRACES)


def other(store: sync.Holdproof) -> sync.Holdproof:
    """Another program: the same store, with nothing registered."""
    return sync.Holdproof(store.core)


def buying(store: sync.Holdproof, body: Callable[[Flow, Order], Any] | None = None) -> Any:
    """A function that pays and sleeps, as each program registers it."""

    @store.flow(agent="trader", lease_s=10)
    def buy(flow: Flow, order: Order) -> Any:
        if body is not None:
            return body(flow, order)
        with_lock = flow.lock({"till": 1})
        paid = flow.step(pay, order)
        flow.sleep(minutes=0)
        flow.heartbeat()
        return {"paid": paid, "locks": len(with_lock), "new": flow.patched("receipt")}

    return buy


class Replays(OnStore):
    @pytest.fixture(autouse=True)
    def _forget(self) -> None:
        PAID.clear()

    def bought(self, store: sync.Holdproof, body: Callable[[Flow, Order], Any] | None = None) -> str:
        buying(other(store), body).with_id("o-1")(Order("tea", 500))
        return "o-1"

    def differences(self, store: sync.Holdproof, flow_id: str, body: Callable[[Flow, Order], Any]) -> tuple[str, ...]:
        program = other(store)
        buying(program, body)
        replay = program.flows.replay(flow_id)
        assert replay.equal == (not replay.differences)
        return replay.differences

    def test_a_replay_executes_no_step_writes_nothing_and_opens_no_socket(
        self, store: sync.Holdproof, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flow_id = self.bought(store)
        before = store.read(traces)
        program = other(store)
        buying(program)

        def refuse(*args: Any, **kwargs: Any) -> None:
            raise AssertionError("a socket was opened")

        monkeypatch.setattr(socket, "socket", refuse)
        monkeypatch.setattr(socket, "create_connection", refuse)
        replay = program.flows.replay(flow_id)
        assert (replay.name, replay.version, replay.status) == ("buy", "1.0", "COMPLETED")
        assert (replay.steps, replay.inputs_equal, replay.result_equal, replay.ends_at) == (3, True, True, None)
        assert (replay.differences, replay.equal) == ((), True)
        assert (PAID, store.read(traces)) == (["tea"], before)

    def test_a_replay_takes_the_results_of_children_from_their_records(self, store: sync.Holdproof) -> None:
        def family(program: sync.Holdproof) -> Any:
            @program.flow(agent="trader")
            def child(flow: Flow, what: str) -> str:
                if what == "bread":
                    raise ValueError("no bread")
                return flow.step(pay, Order(what, 1))

            @program.flow(agent="trader")
            def parent(flow: Flow) -> list[str]:
                try:
                    flow.run(child, "bread")
                except errors.FlowFailedError as error:
                    return [flow.run(child, "tea"), str(error.fields["error"])]
                return []

            return parent

        result = family(other(store)).with_id("o-1")()
        assert result == ["paid tea", "ValueError: no bread"]
        before = store.read(traces)
        program = other(store)
        family(program)
        replay = program.flows.replay("o-1")
        assert (replay.steps, replay.result_equal, replay.differences) == (2, True, ())
        assert (PAID, store.read(traces)) == (["tea"], before)

    @pytest.mark.parametrize(
        ("body", "difference"),
        [
            (lambda flow, order: flow.step("other", pay, order), "reached step other where the flow recorded step pay"),
            (lambda flow, order: "paid tea", "reached the end where the flow recorded step pay"),
            (lambda flow, order: flow.step(pay, Order("yacht", 1)), "step pay 1 was recorded with other arguments"),
            (lambda flow, order: flow.step(pay, order).upper(), "another result than was recorded"),
            (lambda flow, order: [flow.step(pay, order), flow.step(pay, order)], "step pay 2, which the flow did not"),
            (lambda flow, order: [flow.step(pay, order), flow.sleep(1)], "flow.sleep, which the flow did not record"),
            (lambda flow, order: [flow.step(pay, order), 1 // 0], "the code failed: ZeroDivisionError"),
            (lambda flow, order: [flow.step(pay, order), flow.approve("sure?")], "the approval 'sure?'"),
        ],
    )
    def test_any_difference_is_reported(self, store: sync.Holdproof, body: Any, difference: str) -> None:
        flow_id = self.bought(store, lambda flow, order: flow.step(pay, order))
        assert self.differences(store, flow_id, lambda flow, order: flow.step(pay, order)) == ()
        differences = self.differences(store, flow_id, body)
        assert any(difference in each for each in differences)
        assert PAID == ["tea"]

    def test_a_write_outside_of_steps_is_refused_and_reported_even_if_the_code_catches_it(
        self, store: sync.Holdproof
    ) -> None:
        def body(flow: Flow, order: Order) -> str:
            with contextlib.suppress(errors.ReplayWriteError):
                store.state.put("trader", {"last": order.what})
            return "done"

        flow_id = self.bought(store, body)
        versions = [each.commitment for each in store.state.versions("trader").items]
        assert self.differences(store, flow_id, body) == ("the code writes outside of a step",)
        assert [each.commitment for each in store.state.versions("trader").items] == versions
        # Only the replay was refused, not the thread that ran it.
        store.state.put("trader", {"last": "coffee"})

    def test_an_approval_is_given_as_it_was_answered(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        def body(flow: Flow, order: Order) -> Any:
            if not PAID:
                PAID.append("crashed")
                raise CrashError
            return [flow.approve("sure?").resolved_by, flow.step(pay, order)]

        with pytest.raises(CrashError):
            self.bought(store, body)
        clock.advance(10)
        program = other(store)
        buying(program, body)
        assert program.flows.recover().reruns[0].waits_for == "escalation 1"
        assert program.flows.replay("o-1").ends_at == "the approval 'sure?'"
        store.escalations.resolve(1, "approve", by="ann")
        program.flows.recover()
        assert store.flows.result("o-1") == ["ann", "paid tea"]
        replay = program.flows.replay("o-1")
        assert (replay.steps, replay.result_equal, replay.differences) == (1, True, ())
        assert PAID == ["crashed", "tea"]

    def test_a_flow_that_failed_is_replayed_to_the_same_failure(self, store: sync.Holdproof) -> None:
        def body(flow: Flow, order: Order) -> None:
            flow.step(pay, order, compensate=pay_back)
            flow.step("ship", ship)

        with pytest.raises(ValueError, match="no ship"):
            self.bought(store, body)
        assert (store.flows.get("o-1").status, PAID) == ("COMPENSATED", ["tea", "back"])
        assert self.differences(store, "o-1", body) == ()
        assert "returned, where the flow failed: ValueError: no ship" in str(
            self.differences(store, "o-1", lambda flow, order: flow.step(pay, order, compensate=pay_back))
        )
        assert PAID == ["tea", "back"]

    def test_an_open_flow_is_replayed_up_to_where_its_record_ends(self, store: sync.Holdproof) -> None:
        def body(flow: Flow, order: Order) -> str:
            flow.step(pay, order)
            if not PAID[1:]:
                PAID.append("crashed")
                raise CrashError
            flow.sleep(hours=1)
            return "done"

        with pytest.raises(CrashError):
            self.bought(store, body)
        program = other(store)
        buying(program, body)
        replay = program.flows.replay("o-1")
        assert (replay.status, replay.steps, replay.result_equal) == ("RUNNING", 1, None)
        assert (replay.ends_at, replay.differences) == ("flow.sleep", ())

    def test_replay_all_covers_every_flow_of_the_registered_functions(self, store: sync.Holdproof) -> None:
        buy = buying(other(store))
        for number in range(3):
            buy.with_id(f"o-{number}")(Order(f"tea {number}", 500))
        other(store).flow(name="unknown", agent="trader")(lambda flow: None)()
        program = other(store)
        buying(program, lambda flow, order: flow.step(pay, order))
        replays = program.flows.replay_all()
        assert [(replay.flow_id, replay.equal) for replay in replays] == [(f"o-{n}", False) for n in (2, 1, 0)]
        assert len(program.flows.replay_all(limit=1, status="COMPLETED")) == 1
        assert program.flows.replay_all(status="FAILED") == ()

    def test_an_edited_record_is_not_replayed(self, store: sync.Holdproof) -> None:
        flow_id = self.bought(store)
        program = other(store)
        buying(program)
        with pytest.raises(errors.TamperedError, match="flow_steps"):
            self.edited(store, lambda: program.flows.replay(flow_id))

    def edited(self, store: sync.Holdproof, then: Callable[[], Any]) -> Any:
        """Do something while a step's result is another one than was logged."""
        [step] = [step for step in store.flows.steps("o-1") if step.name == "pay"]
        store.write(lambda tx: tx.execute(_EDIT))
        try:
            return then()
        finally:
            back = sql("UPDATE flow_steps SET result = :result WHERE step_id = :step_id")
            store.write(lambda tx: tx.execute(back, result=f'"{step.result}"', step_id=step.step_id))

    def test_the_async_client_replays_too(self, store: sync.Holdproof) -> None:
        face = Holdproof(store.core)
        program = Holdproof(store.core)

        async def buy(flow: OpenFlow[AsyncExecutor], order: Order) -> Any:
            paid = await flow.map(pay, [order, order])
            await flow.sleep(0)
            return paid

        async def careless(flow: OpenFlow[AsyncExecutor], order: Order) -> Any:
            paid = await flow.map(pay, [order, order])
            await face.state.put("trader", {"paid": paid})
            return paid

        async def main() -> list[tuple[str, ...]]:
            await face.flow(agent="trader")(buy).with_id("o-1")(Order("tea", 500))
            program.flow(agent="trader")(buy)
            other_program = Holdproof(store.core)
            other_program.flow(name="buy", agent="trader")(careless)
            replays = [await each.flows.replay("o-1") for each in (program, other_program)]
            return [replay.differences for replay in replays]

        same, different = asyncio.run(main())
        assert same == ()
        assert different[0] == "the code writes outside of a step"
        assert PAID == ["tea", "tea"]


def pay_back(paid: str) -> None:
    PAID.append("back")


def ship() -> None:
    raise ValueError("no ship")


class TestSqlite(OnSqlite, Replays):
    pass


class TestMemory(InMemory, Replays):
    pass


class TestPostgres(OnPostgres, Replays):
    pass
