"""Code that changed under its flows: patches, compatible versions, and what says that it does another thing now."""

from collections.abc import Callable
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.executors import SyncExecutor
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore

Flow = OpenFlow[SyncExecutor]
Body = Callable[[Flow], Any]


class World:
    """What the steps did, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def act(self, what: str) -> str:
        self.done.append(what)
        return what

    def undo(self, what: str) -> None:
        self.done.append(f"undo {what}")


def other(store: sync.Holdproof) -> sync.Holdproof:
    """Another worker: the same store, with nothing registered."""
    return sync.Holdproof(store.core)


class Versions(OnStore):
    def crash_after(self, store: sync.Holdproof, clock: FrozenClock, body: Body, **options: Any) -> str:
        """Run a function up to its end, where its worker dies; return the flow's id."""

        @other(store).flow(name="order", agent="trader", lease_s=10, **options)
        def order(flow: Flow) -> None:
            body(flow)
            raise CrashError

        with pytest.raises(CrashError):
            order()
        clock.advance(10)
        return store.flows.list().items[0].flow_id

    def rerun(self, store: sync.Holdproof, body: Body, **options: Any) -> Any:
        """Let a worker with this code recover; return what came of the one flow."""
        worker = other(store)

        @worker.flow(name="order", agent="trader", lease_s=10, **options)
        def order(flow: Flow) -> Any:
            return body(flow)

        [again] = worker.flows.recover().reruns
        return again

    # --- patches --------------------------------------------------------------------------------------------------

    def test_patched_is_true_in_a_flow_that_gets_there_after_the_change_and_stays_true(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        world = World()

        def body(flow: Flow) -> Any:
            flow.step("first", world.act, "first")
            answers = [flow.patched("new-limit"), flow.patched("new-limit")]
            flow.step("second", world.act, "new" if answers[0] else "old")
            return answers

        flow_id = self.crash_after(store, clock, body)
        assert [step.name for step in store.flows.steps(flow_id)] == ["first", "flow.patched new-limit", "second"]
        assert self.rerun(store, body).error is None
        assert store.flows.result(flow_id) == [True, True]
        assert world.done == ["first", "new"]

    def test_patched_is_false_in_a_flow_that_went_on_before_the_change(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        world = World()

        def old(flow: Flow) -> None:
            flow.step("first", world.act, "first")
            flow.step("second", world.act, "old")

        def new(flow: Flow) -> Any:
            flow.step("first", world.act, "first")
            answer = flow.patched("new-limit")
            flow.step("second", world.act, "new" if answer else "old")
            return [answer, flow.patched("new-limit"), flow.patched("later")]

        flow_id = self.crash_after(store, clock, old)
        assert self.rerun(store, new).error is None
        assert store.flows.result(flow_id) == [False, False, True]
        assert world.done == ["first", "old"]

    def test_a_patch_may_be_removed_once_no_flow_takes_the_old_way(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        world = World()

        def asks(flow: Flow) -> None:
            flow.patched("a")
            flow.step("first", world.act, "new")
            flow.patched("b")

        flow_id = self.crash_after(store, clock, asks)
        assert self.rerun(store, lambda flow: flow.step("first", world.act, "new")).error is None
        assert (store.flows.result(flow_id), world.done) == ("new", ["new"])

    def test_patched_is_refused_inside_a_step(self, store: sync.Holdproof) -> None:
        with pytest.raises(errors.InvalidInputError, match="inside a step"), store.flows.run("trader") as flow:
            flow.step("first", lambda: flow.patched("a"))

    # --- code that differs ----------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ("renamed", "reached step b2 where the flow recorded step b"),
            ("removed", "reached step c where the flow recorded step b"),
            ("removed last", "reached the end where the flow recorded step c"),
            ("added", "reached step new where the flow recorded step b"),
            ("reordered", "reached step c where the flow recorded step b"),
            ("arguments", "step b 1 was recorded with other arguments"),
        ],
    )
    @pytest.mark.parametrize("kind", ["function", "block"])
    def test_code_that_does_another_thing_stops_and_leaves_the_flow_as_it_is(
        self, store: sync.Holdproof, clock: FrozenClock, change: str, named: str, kind: str
    ) -> None:
        world = World()
        steps = {
            "renamed": ["a", "b2", "c"],
            "removed": ["a", "c"],
            "removed last": ["a", "b"],
            "added": ["a", "new", "b", "c"],
            "reordered": ["a", "c", "b"],
            "arguments": ["a", "b", "c"],
        }[change]

        def body(flow: Flow, names: list[str], changed: bool) -> None:
            for name in names:
                if name == "crash":
                    raise CrashError
                argument = "other" if changed and change == "arguments" and name == "b" else name
                flow.step(name, world.act, argument, compensate=world.undo)

        if kind == "function":
            flow_id = self.crash_after(store, clock, lambda flow: body(flow, ["a", "b", "c"], False))
            again = self.rerun(store, lambda flow: body(flow, steps, True))
            assert again.error.startswith("NonDeterminismError")
            assert named in again.error
        else:
            flow_id = "block"
            with (
                pytest.raises(CrashError),
                store.flows.run("trader", flow_id=flow_id, lease_s=10) as flow,
            ):
                body(flow, ["a", "b", "c", "crash"], False)
            clock.advance(10)
            with pytest.raises(errors.NonDeterminismError, match=named), store.flows.run(resume=flow_id) as flow:
                body(flow, steps, True)
        assert store.flows.get(flow_id).status == "RUNNING"
        assert [(step.name, step.state) for step in store.flows.steps(flow_id)] == [(name, "DONE") for name in "abc"]
        assert world.done == ["a", "b", "c"]
        # The newest first; before it the flow was given to another worker.
        event = store.audit.list(flow_id=flow_id).items[0]
        assert (event.event_type, event.severity) == ("FLOW_STOPPED", "ERROR")

    def test_code_cannot_go_on_by_catching_the_difference(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        world = World()

        def careless(flow: Flow) -> str:
            try:
                flow.step("b", world.act, "b")
            except errors.HoldproofError:
                try:
                    flow.step("fallback", world.act, "fallback")
                except errors.HoldproofError:
                    return "fine"
            return "fine"

        flow_id = self.crash_after(store, clock, lambda flow: flow.step("a", world.act, "a"))
        assert "reached step b where the flow recorded step a" in self.rerun(store, careless).error
        assert (store.flows.get(flow_id).status, world.done) == ("RUNNING", ["a"])

    def test_the_right_code_goes_on_later_with_a_flow_that_was_stopped(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        world = World()
        flow_id = self.crash_after(store, clock, lambda flow: flow.step("a", world.act, "a"))
        assert self.rerun(store, lambda flow: flow.step("b", world.act, "b")).error is not None
        clock.advance(300)
        assert self.rerun(store, lambda flow: flow.step("a", world.act, "a")).error is None
        assert (store.flows.get(flow_id).status, world.done) == ("COMPLETED", ["a"])

    # --- versions -------------------------------------------------------------------------------------------------

    def test_a_flow_is_continued_by_its_version_or_one_that_is_compatible(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        world = World()

        def body(flow: Flow) -> None:
            flow.step("a", world.act, "a")

        flow_id = self.crash_after(store, clock, body, version="2")
        worker = other(store)
        worker.flow(name="order", agent="trader", version="3", compatible=("1",))(body)
        recovery = worker.flows.recover()
        assert (recovery.reruns, [flow.flow_id for flow in recovery.orphans]) == ((), [flow_id])
        again = self.rerun(store, body, version="3", compatible=("1", "2"))
        assert (again.flow.flow_id, again.error, world.done) == (flow_id, None, ["a"])


class TestMemory(InMemory, Versions):
    pass


class TestSqlite(OnSqlite, Versions):
    pass


class TestPostgres(OnPostgres, Versions):
    pass
