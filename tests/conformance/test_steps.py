"""Steps and blocks: done once, replayed, undone in reverse order, asked about when nobody knows; on every backend."""

# ruff: noqa: PT012 (the block is what is tested)

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.client import Holdproof
from holdproof.db import Call, Work, Write, sql
from holdproof.db.effects import Effect
from holdproof.runtime import flow_steps, inbox, runs
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore

_STEP_STREAMS = sql("SELECT agent_id, n FROM log_streams WHERE kind = 'step'")


class World:
    """What steps do to it, and what is undone."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def do(self, what: Any, error: BaseException | None = None) -> Any:
        self.done.append(what)
        if error is not None:
            raise error
        return {"did": what}

    def undo(self, result: Any) -> None:
        self.done.append(("undid", result["did"]))


def crash() -> None:
    """End the worker as a kill would: nothing more is recorded."""
    raise CrashError


class Steps(OnStore):
    def test_leaving_the_block_completes_the_flow(self, store: sync.Holdproof) -> None:
        world = World()
        with store.flows.run("trader", flow_type="rebalance", priority=2) as flow:
            assert flow.step("place", world.do, "a") == {"did": "a"}
            assert flow.step("place", world.do, "b") == {"did": "b"}
            flow.lock({"portfolio": 1})
        assert (store.flows.get(flow.flow_id).status, store.flows.get(flow.flow_id).flow_type) == (
            "COMPLETED",
            "rebalance",
        )
        assert [(step.name, step.n, step.state) for step in store.flows.steps(flow.flow_id)] == [
            ("place", 1, "DONE"),
            ("place", 2, "DONE"),
        ]
        assert store.locks.list().items == []

    def test_a_step_that_is_done_never_runs_again(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        world = World()
        with pytest.raises(CrashError), store.flows.run("trader", lease_s=10) as flow:
            flow.step("a", world.do, 1)
            flow.step("b", lambda _: None, "never")
            raise CrashError
        assert store.flows.get(flow.flow_id).status == "RUNNING"
        with pytest.raises(errors.ConflictError), store.flows.run(resume=flow.flow_id):
            pass
        clock.advance(10)
        assert [left.flow_id for left in store.flows.recover().orphans] == [flow.flow_id]
        with store.flows.run(resume=flow.flow_id) as again:
            assert again.step("a", world.do, 1) == {"did": 1}
            assert again.step("b", world.do, "never") is None
            assert again.step("c", world.do, 3) == {"did": 3}
        assert world.done == [1, 3]
        assert store.flows.get(flow.flow_id).status == "COMPLETED"

    def test_an_exception_undoes_the_steps_in_reverse_order(self, store: sync.Holdproof) -> None:
        world = World()
        with pytest.raises(ZeroDivisionError), store.flows.run("trader") as flow:
            flow.lock({"r": 1})
            flow.step("a", world.do, 1, compensate=world.undo)
            flow.step("look", world.do, 2)
            flow.step("b", world.do, 3, compensate=world.undo)
            flow.step("c", partial(world.do, error=ZeroDivisionError()), 4, compensate=world.undo)
        assert world.done == [1, 2, 3, 4, ("undid", 3), ("undid", 1)]
        statuses = [one.to_status for one in store.flows.transitions(flow.flow_id)]
        assert statuses == ["RUNNING", "COMPENSATING", "COMPENSATED"]
        assert store.locks.list().items == []

    def test_an_exception_with_nothing_to_undo_fails_the_flow(self, store: sync.Holdproof) -> None:
        with pytest.raises(ZeroDivisionError), store.flows.run("trader") as flow:
            raise ZeroDivisionError
        assert store.flows.get(flow.flow_id).status == "FAILED"
        assert "ZeroDivisionError" in (store.flows.transitions(flow.flow_id)[-1].reason or "")

    def test_an_undoing_that_fails_leaves_the_flow_dirty_with_its_locks(self, store: sync.Holdproof) -> None:
        world = World()
        with pytest.raises(errors.CompensationFailedError), store.flows.run("trader") as flow:
            flow.lock({"r": 1})
            flow.step("a", world.do, 1, compensate=world.undo)
            flow.step("b", world.do, 2, compensate=lambda _: 1 // 0)
            raise ValueError("no")
        assert store.flows.get(flow.flow_id).status == "FAILED"
        assert store.sagas.get(flow.flow_id).partial_state["to_undo"] == ["a 1", "b 1"]
        assert len(store.locks.list().items) == 1
        store.sagas.compensate(flow.flow_id, "REVERT", lambda _: True)
        assert (store.flows.get(flow.flow_id).status, store.locks.list().items) == ("COMPENSATED", [])

    def test_a_compensation_that_a_crash_ended_goes_on_where_it_was(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        world, crashes = World(), [True]

        def fragile(result: Any) -> None:
            if crashes.pop():
                raise CrashError
            world.undo(result)

        def work(**how: Any) -> str:
            with store.flows.run(lease_s=10, **how) as flow:
                flow.step("a", world.do, 1, compensate=world.undo)
                flow.step("b", world.do, 2, compensate=fragile)
                flow.step("c", world.do, 3, compensate=world.undo)
                flow.step("d", partial(world.do, error=ZeroDivisionError()), 4)
            return flow.flow_id

        with pytest.raises(CrashError):
            work(agent_id="trader")
        [flow] = store.flows.list().items
        assert flow.status == "COMPENSATING"
        clock.advance(10)
        crashes.append(False)
        asked = _answer_when_asked(store, "did_not_happen")
        with pytest.raises(errors.ReplayedError):
            work(resume=flow.flow_id)
        assert asked() == "undo b"
        assert world.done == [1, 2, 3, 4, ("undid", 3), ("undid", 2), ("undid", 1)]
        assert store.flows.get(flow.flow_id).status == "COMPENSATED"

    @pytest.mark.parametrize(
        ("answer", "result", "done"),
        [("did_not_happen", None, ["x", "x"]), ("happened", {"did": "by hand"}, ["x"]), ("undo", None, ["x"])],
    )
    def test_a_step_that_was_started_and_never_finished_asks(
        self, store: sync.Holdproof, clock: FrozenClock, answer: str, result: Any, done: list[str]
    ) -> None:
        world, flow_id = World(), self.crashed(store, clock)
        world.done.append("x")
        asked = _answer_when_asked(store, answer, result=result)
        if answer != "undo":
            with store.flows.run(resume=flow_id) as flow:
                assert flow.step("pay", world.do, "x") == (result or {"did": "x"})
        else:
            with pytest.raises(errors.ReplayedError), store.flows.run(resume=flow_id) as flow:
                flow.step("pay", world.do, "x")
        assert asked() == "pay"
        assert world.done == done
        assert store.flows.get(flow_id).status == ("FAILED" if answer == "undo" else "COMPLETED")

    def crashed(self, store: sync.Holdproof, clock: FrozenClock) -> str:
        """A flow whose worker died inside the step `pay`."""
        with pytest.raises(CrashError), store.flows.run("trader", lease_s=10) as flow:
            flow.step("pay", partial(World().do, error=CrashError()), "x")
        clock.advance(10)
        return flow.flow_id

    def test_an_unfinished_step_runs_again_only_if_that_was_said(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        flow_id, world = self.crashed(store, clock), World()
        with store.flows.run(resume=flow_id) as flow:
            assert flow.step("pay", world.do, "x", on_unknown="retry") == {"did": "x"}
        flow_id = self.crashed(store, clock)
        with pytest.raises(errors.UnknownOutcomeError), store.flows.run(resume=flow_id) as flow:
            flow.step("pay", world.do, "x", on_unknown="fail")
        assert (world.done, store.flows.get(flow_id).status) == (["x"], "FAILED")
        # Nobody knows what there is to undo.
        assert [dirty.flow_id for dirty in store.sagas.list().items] == [flow_id]

    @pytest.mark.parametrize("trouble", [None, ValueError("stuck")])
    def test_a_worker_that_lost_the_flow_does_not_say_how_its_undoing_ended(
        self, store: sync.Holdproof, clock: FrozenClock, trouble: Exception | None
    ) -> None:
        run = store.run(runs.enter("trader", lease_s=10))
        store.run(flow_steps.step(run, "order", int, compensate=lambda _: World().do("undo", trouble)))
        work, effects = runs.abort(run, ValueError("no")), 0
        effect = next(work)
        while effects < 3:  # in hand for undoing, the undoing begun, called
            effects, effect = effects + 1, self.answered(store, work, effect)
        effect = self.answered(store, work, effect)  # and ended, well or not; what is left is to say so
        clock.advance(11)
        store.flows.lease(run.lease.flow_id, "other")
        assert isinstance(effect, Write)
        with pytest.raises(errors.LeaseLostError):
            store.write(effect.fn)
        assert store.flows.get(run.lease.flow_id).status == "COMPENSATING"
        assert store.sagas.list().items == []

    def answered(self, store: sync.Holdproof, work: Work[Any], effect: Effect) -> Effect:
        """Perform an effect by hand; the next one."""
        assert isinstance(effect, Write | Call)
        try:
            answer = store.write(effect.fn) if isinstance(effect, Write) else effect.fn()
        except ValueError as error:
            return work.throw(error)
        return work.send(answer)

    def test_a_worker_that_lost_the_flow_changes_nothing_more(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        world = World()
        with pytest.raises(errors.LeaseLostError), store.flows.run("trader", lease_s=10) as flow:
            flow.step("a", world.do, 1, compensate=world.undo)
            clock.advance(10)
            store.flows.lease(flow.flow_id, "another")
            flow.step("b", world.do, 2)
        assert world.done == [1]
        assert store.flows.get(flow.flow_id).status == "RUNNING"

    def test_a_step_whose_flow_went_to_another_worker_meanwhile_is_not_ended(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        def taken() -> None:
            clock.advance(10)
            store.flows.lease(flow.flow_id, "another")

        with pytest.raises(errors.LeaseLostError), store.flows.run("trader", lease_s=10) as flow:
            flow.step("a", taken)
        [step] = store.flows.steps(flow.flow_id)
        assert (step.state, step.result) == ("STARTED", None)
        assert store.flows.get(flow.flow_id).status == "RUNNING"

    def test_a_step_that_outlasts_its_lease_is_ended_and_extends_it(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        with store.flows.run("trader", lease_s=10) as flow:
            flow.step("a", lambda: clock.advance(11))
            [step] = store.flows.steps(flow.flow_id)
            assert step.state == "DONE"
            with pytest.raises(errors.ConflictError):
                store.flows.lease(flow.flow_id, "another")

    def test_the_entries_of_a_step_are_numbered_as_those_of_the_flows_agent(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        with pytest.raises(CrashError), store.flows.run("trader", lease_s=10) as flow:
            flow.step("a", int)
            flow.step("b", crash, on_unknown="retry")
        clock.advance(10)
        with store.flows.run(resume=flow.flow_id) as again:
            again.step("a", int)
            again.step("b", int, on_unknown="retry")
        settled(store)
        # Begun and ended; begun, begun again by what was loaded, and ended.
        assert store.read(lambda tx: tx.all(_STEP_STREAMS)) == [("trader", 5)]

    def test_a_failed_step_fails_again_in_the_same_way(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        world = World()
        with pytest.raises(CrashError), store.flows.run("trader", lease_s=10) as flow:
            with pytest.raises(ZeroDivisionError):
                flow.step("a", partial(world.do, error=ZeroDivisionError("x")), 1)
            raise CrashError
        clock.advance(10)
        with store.flows.run(resume=flow.flow_id) as again, pytest.raises(errors.ReplayedError, match="ZeroDivision"):
            again.step("a", world.do, 1)
        assert world.done == [1]

    def test_a_rejected_question_ends_the_block_and_undoes_it(self, live: sync.Holdproof) -> None:
        world = World()
        asked = _answer_when_asked(live, "reject")
        with pytest.raises(errors.FlowEndedError), live.flows.run("trader") as flow:
            flow.step("a", world.do, 1, compensate=world.undo)
            flow.approve("over limit", proposal={"buy": 1}, deadline_s=600)
        assert asked() == ""
        assert world.done == [1, ("undid", 1)]
        assert live.flows.get(flow.flow_id).status == "COMPENSATED"

    def test_a_question_is_asked_once_whatever_happens_to_the_worker(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        asked = _answer_when_asked(store, "approve", {"buy": 2})
        with pytest.raises(CrashError), store.flows.run("trader", lease_s=10) as flow:
            first = flow.approve("over limit", proposal={"buy": 3})
            raise CrashError
        assert asked() == ""
        clock.advance(10)
        again_asked = _answer_when_asked(store, "approve")
        with store.flows.run(resume=flow.flow_id) as again:
            assert again.approve("over limit", proposal={"buy": 3}) == first
            assert again.approve("over limit").id > first.id
        assert again_asked() == ""

    def test_a_rejection_that_no_worker_heard_is_undone_by_the_next(self, live: sync.Holdproof) -> None:
        world = World()

        async def work(**how: Any) -> None:
            async with Holdproof(live.core).flows.run(lease_s=0.3, **how) as flow:
                await flow.lock({"r": 1})
                await flow.step("a", world.do, 1, compensate=world.undo)
                await flow.approve("may I?")

        async def stopped() -> int:
            task = asyncio.ensure_future(work(agent_id="trader"))
            while not (pending := live.core.database.read(lambda tx: inbox.list(tx, status="PENDING")).result().items):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return pending[0].id

        asked = live.escalations.resolve(asyncio.run(stopped()), "reject", by="ann")
        assert (live.flows.get(asked.flow_id).status, len(live.locks.list().items)) == ("COMPENSATING", 1)
        with pytest.raises(errors.FlowEndedError):
            asyncio.run(work(resume=asked.flow_id))
        assert world.done == [1, ("undid", 1)]
        assert (live.flows.get(asked.flow_id).status, live.locks.list().items) == ("COMPENSATED", [])

    def test_a_worker_that_waits_for_a_person_keeps_the_flow(self, live: sync.Holdproof) -> None:
        def steal(flow_id: str) -> None:
            threading.Event().wait(0.9)
            with pytest.raises(errors.ConflictError), live.flows.run(resume=flow_id):
                pass
            [asked] = live.escalations.list(status="PENDING").items
            live.escalations.resolve(asked.id, "approve", by="ann")

        with live.flows.run("trader", lease_s=0.3) as flow:
            thief = threading.Thread(target=steal, args=(flow.flow_id,))
            thief.start()
            assert flow.approve("may I?").approved
        thief.join()
        assert live.flows.get(flow.flow_id).status == "COMPLETED"

    def test_a_flow_that_is_being_undone_is_undone_though_its_block_fails_no_more(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        world = World()
        with pytest.raises(CrashError), store.flows.run("trader", lease_s=10) as flow:
            flow.step("a", world.do, 1, compensate=world.undo)
            flow.step("b", world.do, 2, compensate=lambda _: world.do("?", CrashError()))
            raise ZeroDivisionError
        clock.advance(10)
        asked = _answer_when_asked(store, "did_not_happen")
        with pytest.raises(errors.FlowEndedError), store.flows.run(resume=flow.flow_id) as again:
            again.step("a", world.do, 1, compensate=world.undo)
            again.step("b", world.do, 2, compensate=world.undo)
        assert asked() == "undo b"
        assert world.done == [1, 2, "?", ("undid", 2), ("undid", 1)]
        assert store.flows.get(flow.flow_id).status == "COMPENSATED"

    def test_nothing_is_undone_out_of_order(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        world = World()
        with pytest.raises(CrashError), store.flows.run("trader", lease_s=10) as flow:
            flow.lock({"r": 1})
            flow.step("a", world.do, 1, compensate=world.undo)
            flow.step("b", world.do, 2, compensate=world.undo)
            raise CrashError
        clock.advance(10)
        with pytest.raises(errors.CompensationFailedError), store.flows.run(resume=flow.flow_id) as again:
            again.step("a", world.do, 1, compensate=world.undo)
            raise ZeroDivisionError
        assert world.done == [1, 2]
        assert store.sagas.get(flow.flow_id).partial_state["to_undo"] == ["a 1", "b 1"]
        assert (store.flows.get(flow.flow_id).status, len(store.locks.list().items)) == ("FAILED", 1)

    def test_the_same_block_on_the_async_face(self, live: sync.Holdproof) -> None:
        done: list[str] = []

        async def place(what: str) -> str:
            await asyncio.sleep(0)
            done.append(what)
            return what

        async def cancel(what: str) -> None:
            done.append(f"undid {what}")

        async def work(fail: bool) -> str:
            async with Holdproof(live.core).flows.run("trader") as flow:
                await flow.step("place", place, "order", compensate=cancel)
                await flow.lock({"r": 1})
                await flow.heartbeat()
                if fail:
                    raise ZeroDivisionError
            return flow.flow_id

        assert live.flows.get(asyncio.run(work(False))).status == "COMPLETED"
        with pytest.raises(ZeroDivisionError):
            asyncio.run(work(True))
        assert done == ["order", "order", "undid order"]


def _answer_when_asked(store: sync.Holdproof, answer: str, proposal: Any = None, result: Any = None) -> Any:
    """Somebody who answers the first question there is; gives the name of the step that it was about."""
    about: list[str] = []

    def attend() -> None:
        pause = threading.Event()
        for _ in range(3_000):
            if pending := store.escalations.list(status="PENDING").items:
                about.append(pending[0].context.get("step", ""))
                store.escalations.resolve(pending[0].id, answer, by="ann", proposal=proposal, result=result)
                return
            pause.wait(0.01)

    thread = threading.Thread(target=attend)
    thread.start()

    def joined() -> str:
        thread.join(60)
        return about[0]

    return joined


class TestSqlite(OnSqlite, Steps):
    pass


class TestMemory(InMemory, Steps):
    pass


class TestPostgres(OnPostgres, Steps):
    pass
