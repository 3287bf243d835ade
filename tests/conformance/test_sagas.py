"""Sagas: a dirty flow stays dirty until it is undone; on every backend."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore


class _CrashError(BaseException):
    """What a killed process would look like: no chance to write anything down."""


class Sagas(OnStore):
    @pytest.mark.parametrize("strategy", ["REVERT", "CLOSE_ALL"])
    def test_a_compensation_that_succeeds_cleans_the_flow(self, store: sync.Holdproof, strategy: str) -> None:
        flow_id, seen = _dirty(store), []

        def undo(partial: Any) -> None:
            assert store.flows.get(flow_id).status == "COMPENSATING"
            seen.append(partial)

        assert store.sagas.compensate(flow_id, strategy, undo).status == "COMPENSATED"
        assert seen == [{"paid": 7}]
        assert store.sagas.list().items == []
        events = [event.event_type for event in store.audit.list(flow_id=flow_id).items]
        assert events == ["SAGA_CLEAN", "COMPENSATION_STARTED", "SAGA_DIRTY"]

    @pytest.mark.parametrize("outcome", [False, ValueError("no")], ids=repr)
    def test_a_compensation_that_fails_leaves_the_flow_dirty(self, store: sync.Holdproof, outcome: Any) -> None:
        flow_id = _dirty(store)

        def undo(_: Any) -> Any:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        with pytest.raises(errors.CompensationFailedError):
            store.sagas.compensate(flow_id, "REVERT", undo)
        assert store.flows.get(flow_id).status == "FAILED"
        assert store.sagas.get(flow_id).partial_state == {"paid": 7}
        assert len(store.locks.list(flow_id=flow_id).items) == 1
        assert store.sagas.compensate(flow_id, "REVERT", lambda _: None).status == "COMPENSATED"

    def test_a_compensation_that_a_crash_ended_is_taken_up_again_by_one(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        flow_id = _dirty(store)

        def crash(_: Any) -> None:
            raise _CrashError

        with pytest.raises(_CrashError):
            store.sagas.compensate(flow_id, "REVERT", crash, lease_s=10)
        assert (store.flows.get(flow_id).status, len(store.sagas.list().items)) == ("COMPENSATING", 1)
        with pytest.raises(errors.ConflictError):
            store.sagas.compensate(flow_id, "REVERT", lambda _: None)
        clock.advance(10)
        assert store.sagas.compensate(flow_id, "REVERT", lambda _: None).status == "COMPENSATED"

    def test_a_compensator_that_was_replaced_writes_nothing(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        flow_id = _dirty(store)

        def slow(_: Any) -> None:
            clock.advance(31)
            store.sagas.compensate(flow_id, "REVERT", lambda _: None, worker="second")

        with pytest.raises(errors.LeaseLostError):
            store.sagas.compensate(flow_id, "REVERT", slow)
        assert store.flows.get(flow_id).status == "COMPENSATED"

    def test_a_block_that_is_entered_again_does_not_clean_a_dirty_flow(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        with pytest.raises(ZeroDivisionError), store.flows.run("trader") as flow:  # noqa: PT012 (what is tested)
            flow.step("order", int, compensate=lambda _: None)
            flow.lock({"account": 1}, ttl_s=None)
            store.sagas.mark_dirty(flow.flow_id, "pay", {"paid": 7})
            raise ZeroDivisionError
        assert store.flows.get(flow.flow_id).status == "FAILED"

        def crash(_: Any) -> None:
            raise _CrashError

        with pytest.raises(_CrashError):
            store.sagas.compensate(flow.flow_id, "REVERT", crash, lease_s=10)
        clock.advance(10)
        with pytest.raises(ZeroDivisionError), store.flows.run(resume=flow.flow_id):
            raise ZeroDivisionError
        assert store.flows.get(flow.flow_id).status == "FAILED"
        assert store.sagas.get(flow.flow_id).partial_state == {"paid": 7}
        assert len(store.locks.list(flow_id=flow.flow_id).items) == 1
        assert store.sagas.compensate(flow.flow_id, "REVERT", lambda _: None).status == "COMPENSATED"
        assert store.locks.list().items == []

    def test_a_flow_that_nothing_can_be_undone_of_is_not_marked(self, store: sync.Holdproof) -> None:
        compensated, completed = _dirty(store), running(store)
        store.sagas.compensate(compensated, "NOOP")
        store.flows.transition(completed, "COMPLETED")
        for flow_id in (compensated, completed):
            with pytest.raises(errors.FlowEndedError):
                store.sagas.mark_dirty(flow_id, "pay")
        assert store.sagas.list().items == []

    def test_a_flow_that_completes_though_it_is_dirty_waits_for_a_person_to_clear_it(
        self, store: sync.Holdproof
    ) -> None:
        flow_id = running(store)
        store.locks.acquire(flow_id, {"account": 1})
        store.sagas.mark_dirty(flow_id, "pay", {"paid": 7})
        store.flows.transition(flow_id, "COMPLETED")
        for strategy, fn in (("NOOP", None), ("REVERT", lambda _: None)):
            with pytest.raises(errors.FlowEndedError, match="sagas clear"):
                store.sagas.compensate(flow_id, strategy, fn)
        store.sagas.compensate(flow_id, "ALERT_HUMAN")
        [asked] = store.escalations.list(status="PENDING").items
        assert (asked.flow_id, asked.context) == (flow_id, {"paid": 7})
        assert len(store.locks.list(flow_id=flow_id).items) == 1
        assert store.sagas.clear(flow_id, by="ann")
        assert store.locks.list().items == []
        assert store.flows.get(flow_id).status == "COMPLETED"

    def test_noop_says_that_nothing_is_to_be_undone(self, store: sync.Holdproof) -> None:
        flow_id = _dirty(store)
        assert store.sagas.compensate(flow_id, "NOOP").status == "COMPENSATED"
        assert store.sagas.list().items == []

    def test_alert_human_asks_and_undoes_nothing(self, store: sync.Holdproof) -> None:
        flow_id = _dirty(store)
        assert store.sagas.compensate(flow_id, "ALERT_HUMAN").status == "FAILED"
        [asked] = store.escalations.list(status="PENDING").items
        assert (asked.flow_id, asked.opened_by, asked.context) == (flow_id, "kernel", {"paid": 7})
        assert len(store.sagas.list().items) == 1
        store.escalations.resolve(asked.id, "approve", by="ann")
        assert store.flows.get(flow_id).status == "FAILED"
        assert store.sagas.clear(flow_id, by="ann")
        assert not store.sagas.clear(flow_id, by="ann")
        assert store.locks.list().items == []

    def test_what_is_wrong_is_a_typed_error(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        calls: list[Callable[[], object]] = [
            lambda: store.sagas.compensate(flow_id, "HOPE"),
            lambda: store.sagas.compensate(flow_id, "REVERT"),
            lambda: store.sagas.compensate(flow_id, "NOOP", lambda _: None),
        ]
        for call in calls:
            with pytest.raises(errors.InvalidInputError):
                call()
        for missing in (lambda: store.sagas.compensate(flow_id, "NOOP"), lambda: store.sagas.mark_dirty("none", "s")):
            with pytest.raises(errors.NotFoundError):
                missing()
        assert store.flows.get(flow_id).status == "RUNNING"


def _dirty(store: sync.Holdproof) -> str:
    flow_id = running(store)
    store.locks.try_acquire(flow_id, {f"account {flow_id}": 1}, ttl_s=None)
    store.sagas.mark_dirty(flow_id, "pay", {"paid": 7})
    store.flows.transition(flow_id, "FAILED")
    return flow_id


def test_dirty_flows_are_told_when_the_store_is_opened_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("trader", version="1.0.0")
        _dirty(store)
    assert "dirty" not in caplog.text
    sync.open(tmp_path).close()
    assert "still dirty: 1;" in caplog.text


class TestSqlite(OnSqlite, Sagas):
    pass


class TestMemory(InMemory, Sagas):
    pass


class TestPostgres(OnPostgres, Sagas):
    pass
