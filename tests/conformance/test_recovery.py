"""Decisions: registered functions, begun by one worker and ended by any other; on every backend."""

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, assert_type

import pytest

from holdproof import errors, sync
from holdproof.api import FlowFunction, OpenFlow
from holdproof.client import Holdproof
from holdproof.executors import AsyncExecutor, SyncExecutor
from holdproof.model.flows import Recovery as Recovered
from holdproof.runtime import calls, flow_run, runs
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore

Flow = OpenFlow[SyncExecutor]


class Broker:
    """The world outside: what was ordered, and what it does to whoever orders."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.trouble: dict[str, BaseException] = {}

    def act(self, what: str) -> str:
        self.done.append(what)
        if what in self.trouble:
            raise self.trouble.pop(what)
        return what

    def undo(self, what: str) -> None:
        self.act(f"undo {what}")


def ordering(store: sync.Holdproof, broker: Broker, **options: Any) -> FlowFunction[..., str]:
    """A decision of two orders, as each worker registers it."""

    @store.flow(name="rebalance", agent="trader", lease_s=10, **options)
    def rebalance(flow: Flow, first: str, second: str) -> str:
        """Two orders."""
        flow.step("first", broker.act, first, compensate=broker.undo)
        return str(flow.step("second", broker.act, second, compensate=broker.undo))

    return rebalance


def other(store: sync.Holdproof) -> sync.Holdproof:
    """Another worker: the same store, with nothing registered."""
    return sync.Holdproof(store.core)


class Recovery(OnStore):
    def crashed(self, store: sync.Holdproof, clock: FrozenClock, broker: Broker, **options: Any) -> str:
        """A flow whose worker died inside its second order."""
        broker.trouble["b"] = CrashError()
        with pytest.raises(CrashError):
            ordering(other(store), broker, **options)("a", "b")
        clock.advance(10)
        return store.flows.list().items[0].flow_id

    # --- calling --------------------------------------------------------------------------------------------------

    def test_a_call_opens_a_flow_and_gives_what_the_function_gives(self, store: sync.Holdproof) -> None:
        rebalance = ordering(store, Broker(), version="2.1", priority=3)
        assert assert_type(rebalance("a", second="b"), str) == "b"
        [flow] = store.flows.list().items
        assert (flow.flow_type, flow.flow_version, flow.agent_id) == ("rebalance", "2.1", "trader")
        assert (flow.status, flow.priority) == ("COMPLETED", 3)
        call = store.flows.inputs(flow.flow_id)
        assert (call.name, call.version) == ("rebalance", "2.1")
        assert call.arguments == {"args": ["a"], "kwargs": {"second": "b"}}
        assert store.flows.result(flow.flow_id) == "b"
        assert [step.arguments["args"] for step in store.flows.steps(flow.flow_id)] == [["a"], ["b"]]

    def test_a_decision_looks_like_its_function_without_the_flow(self, store: sync.Holdproof) -> None:
        rebalance: Any = ordering(store, Broker())
        assert str(inspect.signature(rebalance)) == "(first: str, second: str) -> str"
        assert (rebalance.__name__, rebalance.__doc__) == ("rebalance", "Two orders.")

    def test_a_flow_can_be_opened_otherwise_for_one_call(self, store: sync.Holdproof) -> None:
        rebalance = ordering(store, Broker())
        store.agents.register("scout", version="1.0.0")
        rebalance.opening("scout", flow_id="mine")("a", "b")
        rebalance.opening(parent="mine")("a", "b")
        root, child = store.flows.tree("mine").flow, store.flows.tree("mine").children[0].flow
        assert (root.agent_id, child.agent_id, child.root_flow_id) == ("scout", "trader", "mine")

    def test_the_function_gets_its_arguments_as_a_later_worker_will(self, store: sync.Holdproof) -> None:
        @store.flow(name="echo", agent="trader")
        def echo(flow: Flow, *values: Any, **named: Any) -> Any:
            return [values, named]

        assert echo((1, 2), 1.0, None, key={"b": (), "a": "é"}) == [((1, 2), 1, None), {"key": {"a": "é", "b": ()}}]

    def test_what_is_wrong_with_a_call_is_said_before_anything_is_written(self, store: sync.Holdproof) -> None:
        broker = Broker()
        rebalance: Any = ordering(store, broker)
        wrong: list[tuple[type[Exception], Callable[[], Any]]] = [
            (errors.UnrecordableError, lambda: rebalance("a", object())),
            (errors.UnrecordableError, lambda: rebalance("a", {"deep": [lambda: None]})),
            (errors.InvalidInputError, lambda: rebalance("a", "\ud800")),
            (TypeError, lambda: rebalance("a")),
            (TypeError, lambda: rebalance("a", "b", third="c")),
            (errors.InvalidInputError, lambda: rebalance.opening(agent_id=None)("a", "b")),
        ]
        for error, call in wrong:
            with pytest.raises(error):
                call()
        assert (store.flows.list().items, broker.done) == ([], [])

    def test_a_function_for_the_other_client_is_refused_with_what_to_do(self, store: sync.Holdproof) -> None:
        async def soft(flow: Any) -> None: ...

        def hard(flow: Any) -> None: ...

        faces: list[Any] = [(store, soft, hard), (Holdproof(store.core), hard, soft)]
        for face, wrong, right in faces:
            with pytest.raises(errors.WrongClientError) as caught:
                face.flow(name="x", agent="trader")(wrong)
            assert "`async def` to the async client" in caught.value.remedy
            face.flow(name="x", agent="trader")(right)

    def test_a_flow_type_has_one_function(self, store: sync.Holdproof) -> None:
        ordering(store, Broker())
        with pytest.raises(errors.AlreadyExistsError):
            ordering(store, Broker())
        with pytest.raises(errors.InvalidInputError):
            store.flow(name="")(lambda flow: None)

    def test_an_exception_fails_the_flow_and_undoes_it(self, store: sync.Holdproof) -> None:
        broker = Broker()
        broker.trouble["b"] = ZeroDivisionError()
        with pytest.raises(ZeroDivisionError):
            ordering(store, broker)("a", "b")
        assert broker.done == ["a", "b", "undo a"]
        assert store.flows.list().items[0].status == "COMPENSATED"

    # --- recovering -----------------------------------------------------------------------------------------------

    def test_another_worker_runs_an_orphan_again_with_done_steps_replayed(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        broker = Broker()

        def register(face: sync.Holdproof, crash: bool) -> FlowFunction[[str], None]:
            @face.flow(name="order", agent="trader", lease_s=10)
            def order(flow: Flow, what: str) -> None:
                flow.step("first", broker.act, f"{what} 1")
                if crash:
                    raise CrashError
                flow.step("second", broker.act, f"{what} 2")

            return order

        with pytest.raises(CrashError):
            register(other(store), True)("x")
        register(store, False)
        assert store.flows.recover() == Recovered((), ())
        clock.advance(10)
        [again] = store.flows.recover().reruns
        assert (again.flow.status, again.error) == ("COMPLETED", None)
        assert broker.done == ["x 1", "x 2"]
        assert store.flows.recover() == Recovered((), ())

    def test_an_unfinished_step_asks_before_it_is_done_again(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        broker = Broker()
        flow_id = self.crashed(store, clock, broker)
        worker = other(store)
        ordering(worker, broker)
        [waiting] = worker.flows.recover().reruns
        asked = first_question(store)
        assert waiting.waits_for == f"escalation {asked.id}"
        assert (asked.flow_id, asked.context["step"], asked.opened_by) == (flow_id, "second", "kernel")
        assert [step.state for step in store.flows.steps(flow_id)] == ["DONE", "UNKNOWN"]
        assert store.flows.get(flow_id).status == "WAITING_ESCALATION"
        assert worker.flows.recover().reruns == ()
        store.escalations.resolve(asked.id, "happened", by="ann", result="b")
        assert [again.flow.status for again in worker.flows.recover().reruns] == ["COMPLETED"]
        assert broker.done == ["a", "b"]

    def test_a_flow_that_waits_for_a_person_is_run_again_once_they_answered(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        broker = Broker()
        flow_id = self.crashed(store, clock, broker)
        ordering(store, broker)
        dying = Holdproof(store.core)

        @dying.flow(name="rebalance", lease_s=10)
        async def rebalance(flow: OpenFlow[AsyncExecutor], first: str, second: str) -> None:
            await flow.step("first", broker.act, first, compensate=broker.undo)
            await flow.step("second", broker.act, second, compensate=broker.undo)

        async def suspended() -> str | None:
            [rerun] = (await dying.flows.recover()).reruns
            return rerun.waits_for

        assert asyncio.run(suspended()) == f"escalation {first_question(store).id}"
        clock.advance(10)
        assert store.flows.recover() == Recovered((), ())
        store.escalations.resolve(first_question(store).id, "undo", by="ann")
        assert store.flows.get(flow_id).status == "COMPENSATING"
        [again] = store.flows.recover().reruns
        assert (again.flow.status, broker.done) == ("COMPENSATED", ["a", "b", "undo a"])
        assert "ReplayedError" in (again.error or "")

    def test_undoing_goes_on_where_a_crash_ended_it(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        broker = Broker()
        broker.trouble = {"undo a": CrashError(), "b": ZeroDivisionError()}
        with pytest.raises(CrashError):
            ordering(other(store), broker)("a", "b")
        clock.advance(10)
        worker = other(store)
        ordering(worker, broker)
        worker.flows.recover()
        asked = first_question(store)
        assert asked.context["step"] == "undo first"
        assert worker.flows.recover().reruns == ()
        store.escalations.resolve(asked.id, "happened", by="ann", result="undone")
        assert [again.flow.status for again in worker.flows.recover().reruns] == ["COMPENSATED"]
        assert broker.done == ["a", "b", "undo a"]

    def test_what_an_agent_asked_for_is_run_again_only_by_a_function_of_that_agent(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        near, broker = sync.Holdproof(store.core), Broker()
        store.agents.register("scout", version="1.0.0")
        call = calls.call_of("rebalance", "1.0", ["a", "b"], {})
        begun: dict[str, str] = {}
        for agent in ("scout", "trader"):
            run = near.run(runs.enter_call(agent, replace(call, agent_id=agent), lease_s=10))
            assert isinstance(run, flow_run.FlowRun)
            begun[agent] = run.lease.flow_id
        clock.advance(11)
        ordering(store, broker)
        found = store.flows.recover("worker")
        assert [each.flow.flow_id for each in found.reruns] == [begun["trader"]]
        assert [flow.flow_id for flow in found.orphans] == [begun["scout"]]
        assert broker.done == ["a", "b"]
        asked = {orphan.flow_id: orphan.called_by for orphan in store.flows.orphans()}
        assert asked == {begun["scout"]: "scout"}

    def test_what_nobody_here_can_run_is_left_and_named(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        broker = Broker()
        newer = self.crashed(store, clock, broker, version="2.0")
        with pytest.raises(CrashError), store.flows.run("trader", flow_type="rebalance", lease_s=10):
            raise CrashError
        clock.advance(10)
        plain = store.flows.list().items[0].flow_id
        ordering(store, broker)
        assert [flow.flow_id for flow in store.flows.recover().orphans] == [newer, plain]
        assert store.flows.recover(ns="other") == Recovered((), ())
        assert broker.done == ["a", "b"]
        with store.flows.run(resume=plain) as flow:
            assert flow.flow_id == plain

    def test_a_function_that_fails_does_not_keep_the_others_waiting(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        orphans(store, ["bad", "good", "late"], lease_s=10)
        clock.advance(10)

        @store.flow(name="order", lease_s=10)
        def order(flow: Flow, what: str) -> None:
            if what == "bad":
                raise ValueError(what)

        first = store.flows.recover(limit=2)
        assert [(again.flow.status, again.error) for again in first.reruns] == [
            ("FAILED", "ValueError: bad"),
            ("COMPLETED", None),
        ]
        assert [again.flow.status for again in store.flows.recover().reruns] == ["COMPLETED"]

    def test_a_function_that_lost_its_parameters_undoes_nothing_and_is_dirty(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        broker = Broker()
        flow_id = self.crashed(store, clock, broker)

        @store.flow(name="rebalance", lease_s=10)
        def rebalance(flow: Flow) -> None:
            flow.step("first", broker.act, "never")

        [again] = store.flows.recover().reruns
        assert (again.flow.status, broker.done) == ("FAILED", ["a", "b"])
        assert store.sagas.get(flow_id).partial_state["to_undo"] == ["first 1", "second 1"]

    def test_eight_threads_run_each_orphan_again_exactly_once(self, live: sync.Holdproof) -> None:
        ran: Counter[str] = Counter()
        orphans(live, map(str, range(12)), lease_s=0.001)

        def worker() -> int:
            store = other(live)

            @store.flow(name="order", lease_s=60)
            def order(flow: Flow, what: str) -> None:
                flow.step("act", lambda: ran.update([what]))

            return len(store.flows.recover().reruns)

        workers = [Beside(worker) for _ in range(8)]
        assert sum(one.result() for one in workers) == 12
        assert ran == Counter(map(str, range(12)))

    def test_the_same_on_the_async_face(self, live: sync.Holdproof) -> None:
        done: list[str] = []

        async def act(what: str) -> str:
            await asyncio.sleep(0)
            done.append(what)
            return what

        def register(store: Holdproof, crash: bool) -> Any:
            @store.flow(name="order", agent="trader", lease_s=0.05)
            async def order(flow: OpenFlow[AsyncExecutor], what: str) -> str:
                await flow.step("first", act, f"{what} 1")
                if crash:
                    raise CrashError
                return str(await flow.step("second", act, f"{what} 2"))

            return order

        async def play() -> list[Recovered]:
            with pytest.raises(CrashError):
                await register(Holdproof(live.core), True)("x")
            await asyncio.sleep(0.1)
            worker = Holdproof(live.core)
            order = register(worker, False)
            recovered = [await worker.flows.recover()]
            assert await order("y") == "y 2"
            return recovered

        [recovered] = asyncio.run(play())
        assert [again.flow.status for again in recovered.reruns] == ["COMPLETED"]
        assert done == ["x 1", "x 2", "y 1", "y 2"]


def orphans(store: sync.Holdproof, whats: Iterable[str], *, lease_s: float) -> None:
    """Flows of a worker that dies before it does anything."""

    @other(store).flow(name="order", agent="trader", lease_s=lease_s)
    def order(flow: Flow, what: str) -> None:
        raise CrashError

    for what in whats:
        with pytest.raises(CrashError):
            order(what)


def first_question(store: sync.Holdproof) -> Any:
    """The question that somebody is about to ask."""
    pause = threading.Event()
    for _ in range(3_000):
        if pending := store.escalations.list(status="PENDING").items:
            return pending[0]
        pause.wait(0.01)
    raise AssertionError("nobody asks")


class Beside:
    """Something that runs in a thread of its own."""

    def __init__(self, fn: Any) -> None:
        self._answers: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(fn()))
        self._thread.start()

    def result(self) -> Any:
        self._thread.join(60)
        return self._answers[0]


class TestSqlite(OnSqlite, Recovery):
    pass


class TestMemory(InMemory, Recovery):
    pass


class TestPostgres(OnPostgres, Recovery):
    pass
