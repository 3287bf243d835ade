"""Blocks that end in a way nobody planned: nothing that was done is forgotten, and no stranger's work is touched."""

# ruff: noqa: PT012 (the block is what is tested)

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.client import Holdproof
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore
from tests.conformance.test_steps import World


class Blocks(OnStore):
    # --- what nobody knows ---------------------------------------------------------------------------------------

    def test_a_step_that_a_time_limit_cut_off_leaves_the_flow_dirty_with_its_locks(self, live: sync.Holdproof) -> None:
        done: list[str] = []

        async def charge(what: str) -> str:
            done.append(what)
            await asyncio.sleep(30)
            return what

        async def work() -> None:
            async with Holdproof(live.core).flows.run("trader") as flow:
                await flow.lock({"r": 1})
                await flow.step("reserve", lambda: done.append("reserve"), compensate=lambda _: done.append("undid"))
                async with asyncio.timeout(0.2):
                    await flow.step("charge", charge, "card", compensate=lambda _: done.append("undid"))

        with pytest.raises(errors.CompensationFailedError, match="charge"):
            asyncio.run(work())
        [dirty] = live.sagas.list().items
        assert (done, dirty.partial_state["to_undo"]) == (["reserve", "card"], ["reserve 1", "charge 1"])
        assert (live.flows.get(dirty.flow_id).status, len(live.locks.list().items)) == ("FAILED", 1)

    def test_a_step_that_cannot_be_undone_may_be_cut_off(self, store: sync.Holdproof) -> None:
        world = World()
        with pytest.raises(TimeoutError), store.flows.run("trader") as flow:
            flow.step("a", world.do, 1, compensate=world.undo)
            self.cut_off(flow, "look", world)
            raise TimeoutError
        assert (world.done, store.flows.get(flow.flow_id).status) == ([1, "look", ("undid", 1)], "COMPENSATED")

    def test_a_block_that_goes_on_after_a_step_was_cut_off_completes_and_says_so(self, store: sync.Holdproof) -> None:
        world = World()
        with store.flows.run("trader") as flow:
            self.cut_off(flow, "look", world)
        assert store.flows.get(flow.flow_id).status == "COMPLETED"
        [event] = [
            each for each in store.audit.list(flow_id=flow.flow_id).items if each.event_type == "STEPS_UNFINISHED"
        ]
        assert (event.severity, event.detail) == ("WARNING", {"steps": ["look 1"]})

    def cut_off(self, flow: Any, name: str, world: World, **options: Any) -> None:
        with pytest.raises(CrashError):
            flow.step(name, partial(world.do, error=CrashError()), name, **options)

    @pytest.mark.parametrize("result", ["\ud800", object()])
    def test_what_has_happened_is_not_forgotten_because_its_result_cannot_be_recorded(
        self, store: sync.Holdproof, result: Any
    ) -> None:
        with pytest.raises(errors.CompensationFailedError, match="order") as raised, store.flows.run("trader") as flow:
            flow.step("order", lambda: result, compensate=lambda _: None)
        assert isinstance(raised.value.__context__, errors.UnrecordableError)
        assert store.sagas.get(flow.flow_id).partial_state["to_undo"] == ["order 1"]
        with pytest.raises(errors.UnrecordableError, match="step look"), store.flows.run("trader") as flow:
            flow.step("look", lambda: result)
        [look] = store.flows.steps(flow.flow_id)
        assert (look.state, store.flows.get(flow.flow_id).status) == ("STARTED", "FAILED"), "in doubt: it happened"

    def test_an_undoing_may_give_anything(self, store: sync.Holdproof) -> None:
        with pytest.raises(ZeroDivisionError), store.flows.run("trader") as flow:
            flow.step("a", lambda: 1, compensate=lambda _: object())
            raise ZeroDivisionError
        assert store.flows.get(flow.flow_id).status == "COMPENSATED"

    # --- names ---------------------------------------------------------------------------------------------------

    def test_no_step_takes_the_name_of_an_undoing(self, store: sync.Holdproof) -> None:
        world = World()
        with pytest.raises(errors.InvalidInputError), store.flows.run("trader") as flow:
            flow.step("a", world.do, 1, compensate=world.undo)
            flow.step("undo a", world.do, 2)
        assert world.done == [1, ("undid", 1)]

    def test_a_name_that_its_undoing_could_not_bear_is_refused_before_anything_is_done(
        self, store: sync.Holdproof
    ) -> None:
        world = World()
        with pytest.raises(errors.InvalidInputError), store.flows.run("trader") as flow:
            flow.step("a" * 500, world.do, 1)
            flow.step("a" * 480, world.do, 2, compensate=world.undo)
            flow.step("a" * 500, world.do, 3, compensate=world.undo)
        assert world.done == [1, 2, ("undid", 2)]

    @pytest.mark.parametrize("name", ["", 7, None, "a\nb"])
    def test_what_is_no_name_is_refused(self, store: sync.Holdproof, name: Any) -> None:
        for undo in (None, lambda _: None):
            with pytest.raises(errors.InvalidInputError), store.flows.run("trader") as flow:
                flow.step(name, lambda: 1, compensate=undo)
            assert store.flows.steps(flow.flow_id) == ()

    # --- words ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("text", ["a\x00b", "\udcff.txt", "x" * 100_000])
    def test_no_words_of_an_exception_keep_a_flow_from_being_undone(self, store: sync.Holdproof, text: str) -> None:
        for in_step in (False, True):
            world = World()
            with pytest.raises(ValueError), store.flows.run("trader") as flow:  # noqa: PT011
                flow.step("a", world.do, 1, compensate=world.undo)
                if in_step:
                    flow.step("b", partial(world.do, error=ValueError(text)), 2)
                raise ValueError(text)
            assert store.flows.get(flow.flow_id).status == "COMPENSATED"
            assert [step.state for step in store.flows.steps(flow.flow_id)] == ["DONE", *["FAILED"] * in_step, "DONE"]

    @pytest.mark.parametrize("text", ["a\x00b", "\udcff.txt", "x" * 100_000])
    def test_no_words_of_an_exception_keep_anything_else_from_being_written_down(
        self, store: sync.Holdproof, text: str
    ) -> None:
        def fail(*_: Any) -> None:
            raise ValueError(text)

        with pytest.raises(errors.CompensationFailedError), store.flows.run("trader") as flow:
            flow.step("a", lambda: 1, compensate=fail)
            raise ZeroDivisionError
        with pytest.raises(errors.CompensationFailedError):
            store.sagas.compensate(flow.flow_id, "REVERT", fail)
        assert store.sagas.get(flow.flow_id).failed_step == "a 1"
        with pytest.raises(ValueError):  # noqa: PT011
            store.idempotency.once("key", 1, fail, on_error="replay")
        with pytest.raises(errors.ReplayedError):
            store.idempotency.once("key", 1, fail, on_error="replay")

    def test_an_exception_that_cannot_say_anything_fails_a_flow_all_the_same(self, store: sync.Holdproof) -> None:
        class DumbError(Exception):
            def __str__(self) -> str:
                raise ZeroDivisionError

        with pytest.raises(DumbError), store.flows.run("trader") as flow:
            raise DumbError
        assert store.flows.get(flow.flow_id).status == "FAILED"

    # --- whose flow it is ----------------------------------------------------------------------------------------

    def test_a_late_worker_takes_up_nothing_that_another_left_dirty(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        world = World()
        with pytest.raises(errors.LeaseLostError), store.flows.run("trader", lease_s=10) as flow:
            flow.step("a", world.do, 1, compensate=world.undo)
            clock.advance(10)
            with pytest.raises(errors.CompensationFailedError), store.flows.run(resume=flow.flow_id):
                raise ZeroDivisionError
            raise ValueError("long after")
        assert (world.done, store.flows.get(flow.flow_id).status) == ([1], "FAILED")
        assert store.sagas.get(flow.flow_id).failed_step == "a 1"

    @pytest.mark.parametrize("about", [{"key": "k"}, {"flow_id": "another"}])
    def test_that_something_else_was_lost_fails_a_flow_like_any_other_exception(
        self, store: sync.Holdproof, about: Any
    ) -> None:
        world, lost = World(), errors.LeaseLostError("lost", **about)
        with pytest.raises(errors.LeaseLostError), store.flows.run("trader") as flow:
            flow.step("a", world.do, 1, compensate=world.undo)
            flow.step("b", partial(world.do, error=lost), 2)
        assert (world.done, store.flows.get(flow.flow_id).status) == ([1, 2, ("undid", 1)], "COMPENSATED")
        with pytest.raises(errors.CompensationFailedError), store.flows.run("trader") as flow:
            flow.step("a", world.do, 1, compensate=lambda _: world.do(3, lost))
            raise ZeroDivisionError
        assert store.sagas.get(flow.flow_id).failed_step == "a 1"

    def test_a_worker_that_lost_the_flow_locks_nothing_for_it(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        with pytest.raises(errors.LeaseLostError), store.flows.run("trader", lease_s=10) as flow:
            clock.advance(10)
            with store.flows.run(resume=flow.flow_id) as again:
                [held] = again.lock({"r": 1})
                with pytest.raises(errors.LeaseLostError):
                    flow.lock({"r": 1})
                assert store.locks.list().items == [held], "its fencing token is still the greatest"
            flow.lock({"r": 1})

    def test_a_worker_that_waits_for_a_lock_keeps_the_flow(self, live: sync.Holdproof) -> None:
        other = running(live)
        live.locks.acquire(other, {"r": 1}, ttl_s=None)
        with live.flows.run("trader", lease_s=0.9) as flow:
            orphans: list[Any] = []

            def let_go() -> None:
                orphans.extend(live.flows.orphans())
                live.locks.release_all(other)

            letting_go = threading.Timer(1.8, let_go)
            letting_go.start()
            [held] = flow.lock({"r": 1}, timeout_s=30)
            letting_go.join()
        assert (held.flow_id, orphans) == (flow.flow_id, [])

    # --- blocks in blocks ----------------------------------------------------------------------------------------

    def test_a_step_inside_a_step_is_refused_since_its_replay_would_miscount(self, store: sync.Holdproof) -> None:
        for verb, given in (("step", ("x", lambda: "inner")), ("approve", ("x",))):
            with pytest.raises(errors.InvalidInputError, match="inside a step"), store.flows.run("trader") as flow:
                flow.step("outer", partial(getattr(flow, verb), *given))
            assert [step.name for step in store.flows.steps(flow.flow_id)] == ["outer"]

    def test_a_step_may_work_on_another_flow(self, live: sync.Holdproof) -> None:
        def inner() -> str:
            with live.flows.run("trader") as other:
                other.step("x", lambda: 1)
            return other.flow_id

        with live.flows.run("trader") as flow:
            assert live.flows.get(flow.step("outer", inner)).status == "COMPLETED"
            assert flow.step("x", lambda: 2) == 2

        async def work() -> list[Any]:
            async with Holdproof(live.core).flows.run("trader") as flow:

                async def nested() -> None:
                    await flow.step("x", lambda: 3)

                side_by_side = await asyncio.gather(*(flow.step("x", lambda n=n: n) for n in range(3)))
                with pytest.raises(errors.InvalidInputError, match="inside a step"):
                    await flow.step("outer", nested)
                return [*side_by_side, await flow.step("x", lambda: 4)]

        assert asyncio.run(work()) == [0, 1, 2, 4]

    def test_a_block_is_entered_once(self, store: sync.Holdproof) -> None:
        block = store.flows.run("trader")
        with block:
            pass
        with pytest.raises(errors.InvalidInputError), block:
            pass
        assert len(store.flows.list().items) == 1


class TestSqlite(OnSqlite, Blocks):
    pass


class TestMemory(InMemory, Blocks):
    pass


class TestPostgres(OnPostgres, Blocks):
    pass
