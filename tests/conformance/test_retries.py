"""Retries: every rejection counts, and the last one fails the flow; on every backend."""

# ruff: noqa: PT012 (the block is what is tested)

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.model.times import later, to_micros
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore


class Retries(OnStore):
    def test_at_max_retries_the_flow_fails_with_reasoning_exhaustion(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        assert [store.retries.reject(flow_id).rejection_count for _ in range(3)] == [1, 2, 3]
        assert store.retries.get(flow_id).exhausted
        assert store.flows.get(flow_id).status == "FAILED"
        assert store.flows.transitions(flow_id)[-1].reason == "REASONING_EXHAUSTION"
        assert [event.event_type for event in store.audit.list(flow_id=flow_id).items] == ["REASONING_EXHAUSTION"]
        assert not store.retries.allowed(flow_id)
        with pytest.raises(errors.FlowEndedError):
            store.retries.reject(flow_id)
        assert store.retries.get(flow_id).rejection_count == 3

    def test_a_flow_that_was_never_started_fails_all_the_same(self, store: sync.Holdproof) -> None:
        flow_id = store.flows.start("trader").flow_id
        store.retries.reject(flow_id, max_retries=1)
        assert [one.to_status for one in store.flows.transitions(flow_id)] == ["RUNNING", "FAILED"]

    @pytest.mark.parametrize("goes_on", [True, False])
    def test_a_flow_that_is_exhausted_with_steps_to_undo_is_undone(self, store: sync.Holdproof, goes_on: bool) -> None:
        undone: list[int] = []
        with pytest.raises((errors.FlowEndedError, errors.LeaseLostError)), store.flows.run("trader") as flow:
            flow.lock({"r": 1})
            flow.step("a", lambda: 1, compensate=undone.append)
            store.retries.reject(flow.flow_id, max_retries=1)
            if goes_on:
                flow.step("b", lambda: 2)
        if goes_on:  # its worker lost it: the next one undoes it
            assert [orphan.flow_id for orphan in store.flows.orphans()] == [flow.flow_id]
            with pytest.raises(errors.FlowEndedError), store.flows.run(resume=flow.flow_id) as again:
                again.step("a", lambda: 1, compensate=undone.append)
                store.retries.reject(flow.flow_id)
        assert (undone, store.flows.get(flow.flow_id).status, store.locks.list().items) == ([1], "COMPENSATED", [])

    def test_a_flow_that_is_being_undone_is_not_rejected(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        store.flows.transition(flow_id, "COMPENSATING")
        with pytest.raises(errors.FlowEndedError):
            store.retries.reject(flow_id, max_retries=1)
        assert not store.retries.allowed(flow_id)
        assert store.flows.get(flow_id).status == "COMPENSATING"

    def test_the_policy_says_when_the_next_try_is(self, store: sync.Holdproof) -> None:
        waits: dict[str, list[float]] = {}
        for policy in ("EXPONENTIAL_BACKOFF", "LINEAR", "NONE"):
            flow_id = running(store)
            for _ in range(4):
                retry = store.retries.reject(flow_id, policy=policy, max_retries=10, base_s=10)
                assert retry == store.retries.get(flow_id)
                assert retry.next_retry_at == retry.backoff_until is not None
                waited = to_micros(retry.next_retry_at or "") - to_micros(retry.updated_at)
                waits.setdefault(policy, []).append(waited / 1e6)
        assert waits["LINEAR"] == [10, 20, 30, 40]
        assert waits["NONE"] == [0, 0, 0, 0]
        for wait, most in zip(waits["EXPONENTIAL_BACKOFF"], (10, 20, 40, 80), strict=True):
            assert most / 2 <= wait <= most

    def test_no_wait_is_endless(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        for _ in range(40):
            retry = store.retries.reject(flow_id, max_retries=100)
        assert retry.next_retry_at is not None
        assert retry.next_retry_at <= later(retry.updated_at, 300)

    def test_a_try_is_allowed_once_the_backoff_is_over(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        flow_id = running(store)
        assert store.retries.allowed(flow_id)
        store.retries.reject(flow_id, policy="LINEAR", base_s=5)
        assert not store.retries.allowed(flow_id)
        clock.advance(5)
        assert store.retries.allowed(flow_id)

    def test_the_end_of_a_flow_closes_its_retries(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        store.retries.reject(flow_id)
        store.flows.transition(flow_id, "COMPLETED")
        retry = store.retries.get(flow_id)
        assert (retry.rejection_count, retry.next_retry_at, retry.backoff_until) == (1, None, None)

    def test_forty_rejections_at_once_count_forty(self, live: sync.Holdproof) -> None:
        flow_id = running(live)
        with ThreadPoolExecutor(20) as pool:
            made = list(pool.map(lambda _: live.retries.reject(flow_id, max_retries=100), range(40)))
        assert live.retries.get(flow_id).rejection_count == 40
        assert sorted(retry.rejection_count for retry in made) == list(range(1, 41))

    def test_of_forty_rejections_at_once_three_fail_the_flow_and_the_rest_are_refused(
        self, live: sync.Holdproof
    ) -> None:
        flow_id = running(live)

        def reject(_: int) -> bool:
            try:
                live.retries.reject(flow_id)
            except errors.FlowEndedError:
                return False
            return True

        with ThreadPoolExecutor(20) as pool:
            assert sum(pool.map(reject, range(40))) == 3
        assert live.retries.get(flow_id).rejection_count == 3
        assert len(live.flows.transitions(flow_id)) == 2

    def test_what_is_wrong_is_a_typed_error(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        calls: list[Callable[[], object]] = [
            lambda: store.retries.reject(flow_id, policy="NEVER"),
            lambda: store.retries.reject(flow_id, max_retries=0),
            lambda: store.retries.reject(flow_id, base_s=-1),
        ]
        for call in calls:
            with pytest.raises(errors.InvalidInputError):
                call()
        with pytest.raises(errors.NotFoundError):
            store.retries.reject("none")
        with pytest.raises(errors.NotFoundError):
            store.retries.get(flow_id)


class TestSqlite(OnSqlite, Retries):
    pass


class TestMemory(InMemory, Retries):
    pass


class TestPostgres(OnPostgres, Retries):
    pass
