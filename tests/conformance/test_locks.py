"""Locks: never more than there is, never another's, all or nothing; on every backend."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.runtime import locks
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore


class Locks(OnStore):
    def test_an_exclusive_lock_excludes_everybody_else(self, store: sync.Holdproof) -> None:
        one, two = running(store), running(store)
        [lock] = store.locks.try_acquire(one, {"r": 1})
        assert lock.exclusive
        for capacity in (None, 100.0):
            with pytest.raises(errors.ContentionTimeoutError) as refused:
                store.locks.try_acquire(two, {"r": 1}, capacity=capacity)
            assert refused.value.fields["holder"] == one
        assert store.locks.list().items == [lock]
        assert store.locks.release(one, "r")
        assert not store.locks.release(one, "r")
        assert store.locks.try_acquire(two, {"r": 1})

    def test_a_shared_resource_is_never_given_out_beyond_its_capacity(self, store: sync.Holdproof) -> None:
        flows = [running(store) for _ in range(3)]
        store.locks.try_acquire(flows[0], {"usd": 600}, capacity=1000)
        store.locks.try_acquire(flows[1], {"usd": 400}, capacity=1000)
        with pytest.raises(errors.ContentionTimeoutError):
            store.locks.try_acquire(flows[2], {"usd": 600}, capacity=1000)
        with pytest.raises(errors.ContentionTimeoutError):
            store.locks.try_acquire(flows[2], {"usd": 1}, capacity=5000)
        with pytest.raises(errors.ContentionTimeoutError):
            store.locks.try_acquire(flows[2], {"usd": 1})
        assert sum(lock.amount for lock in store.locks.list(resource="usd").items) == 1000

    def test_tenths_add_up_to_the_whole(self, store: sync.Holdproof) -> None:
        for _ in range(3):
            store.locks.try_acquire(running(store), {"r": 0.1}, capacity=0.3)
        with pytest.raises(errors.ContentionTimeoutError):
            store.locks.try_acquire(running(store), {"r": 0.001}, capacity=0.3)

    def test_more_than_there_is_at_all_is_refused_at_once(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        with pytest.raises(errors.InsufficientCapacityError):
            store.locks.acquire(flow_id, {"a": 1, "b": 11}, capacity=10, timeout_s=60)
        with pytest.raises(errors.InsufficientCapacityError):
            store.locks.acquire(flow_id, {"a": 3}, capacity={"a": 2})
        assert store.locks.list().items == []

    def test_all_or_nothing(self, store: sync.Holdproof) -> None:
        one, two = running(store), running(store)
        store.locks.try_acquire(one, {"b": 1})
        with pytest.raises(errors.ContentionTimeoutError):
            store.locks.try_acquire(two, {"a": 1, "b": 1, "c": 1})
        assert [lock.resource_id for lock in store.locks.list(flow_id=two).items] == []
        store.locks.release(one, "b")
        assert [lock.resource_id for lock in store.locks.try_acquire(two, {"c": 1, "a": 1, "b": 1})] == ["a", "b", "c"]

    def test_acquiring_again_replaces_ones_own_amount(self, store: sync.Holdproof) -> None:
        one, two = running(store), running(store)
        store.locks.try_acquire(one, {"r": 6}, capacity=10)
        store.locks.try_acquire(two, {"r": 3}, capacity=10)
        with pytest.raises(errors.ContentionTimeoutError):
            store.locks.try_acquire(one, {"r": 8}, capacity=10)
        store.locks.try_acquire(one, {"r": 7}, capacity=10)
        assert {lock.flow_id: lock.amount for lock in store.locks.list().items} == {one: 7.0, two: 3.0}
        assert {(lock.capacity, lock.exclusive) for lock in store.locks.list().items} == {(10.0, False)}

    def test_an_amount_is_reserved_only_while_others_hold_no_more_than_was_seen(self, store: sync.Holdproof) -> None:
        one, two = running(store), running(store)
        store.write(lambda tx: locks.reserve(tx, one, {"r": 3}, expected={}))
        with pytest.raises(errors.ContentionTimeoutError, match=one):
            store.write(lambda tx: locks.reserve(tx, two, {"r": 1}, expected={"r": 2}))
        assert {lock.flow_id: lock.amount for lock in store.locks.list().items} == {one: 3.0}
        store.write(lambda tx: locks.reserve(tx, two, {"r": 1}, expected={"r": 3}))
        store.write(lambda tx: locks.reserve(tx, one, {"r": 0}, expected={}))
        assert {lock.flow_id: lock.amount for lock in store.locks.list().items} == {two: 1.0}

    def test_what_has_expired_is_free(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        one, two = running(store), running(store)
        store.locks.try_acquire(one, {"r": 1}, ttl_s=10)
        clock.advance(9.999)
        with pytest.raises(errors.ContentionTimeoutError):
            store.locks.try_acquire(two, {"r": 1})
        clock.advance(0.001)
        assert store.locks.list().items == []
        with pytest.raises(errors.LockLostError):
            store.locks.extend(one, "r", ttl_s=10)
        store.locks.try_acquire(two, {"r": 1}, ttl_s=None)
        clock.advance(1e9)
        assert len(store.locks.list().items) == 1

    def test_what_another_took_after_it_expired_is_lost_even_to_a_clock_that_goes_back(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        one, two = running(store), running(store)
        store.locks.try_acquire(one, {"r": 1, "s": 1}, ttl_s=10)
        clock.advance(10)
        store.locks.try_acquire(two, {"r": 1})
        clock.advance(-5)
        with pytest.raises(errors.LockLostError):
            store.locks.extend(one, "r", ttl_s=10)
        assert [(lock.resource_id, lock.flow_id) for lock in store.locks.list().items] == [("r", two), ("s", one)]
        store.locks.try_acquire(two, {"r": 1})
        assert store.locks.extend(one, "s", ttl_s=10).flow_id == one, "nobody took that one"

    def test_the_sweep_removes_what_has_expired_by_now_and_nothing_else(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        one, two = running(store), running(store)
        store.locks.try_acquire(one, {"a": 1}, ttl_s=10)
        store.locks.try_acquire(two, {"b": 1}, ttl_s=20)
        store.locks.try_acquire(two, {"c": 1}, ttl_s=None)
        clock.advance(9.999)
        assert store.write(locks.sweep) == 0
        clock.advance(0.001)
        assert store.write(locks.sweep) == 1
        clock.advance(-1)
        assert [lock.resource_id for lock in store.locks.list().items] == ["b", "c"], "no clock brings one back"

    def test_a_flow_that_lets_everything_go_takes_nothing_from_others(self, store: sync.Holdproof) -> None:
        one, two = running(store), running(store)
        store.locks.try_acquire(one, {"a": 1, "b": 1})
        store.locks.try_acquire(two, {"c": 1})
        assert store.locks.release_all(one) == ("a", "b")
        assert [(lock.resource_id, lock.flow_id) for lock in store.locks.list().items] == [("c", two)]

    def test_a_lock_is_extended_only_by_its_holder(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        one, two = running(store), running(store)
        store.locks.try_acquire(one, {"r": 1}, ttl_s=10)
        clock.advance(5)
        assert store.locks.extend(one, "r", ttl_s=10).expires_at == "2026-01-01T00:00:15.000000Z"
        with pytest.raises(errors.LockLostError):
            store.locks.extend(two, "r", ttl_s=10)

    def test_fencing_tokens_grow_and_survive_every_release(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        fences = []
        for _ in range(3):
            flow_id = running(store)
            fences += [lock.fence for lock in store.locks.try_acquire(flow_id, {"r": 1}, ttl_s=1)]
            fences += [lock.fence for lock in store.locks.try_acquire(flow_id, {"r": 1}, ttl_s=1)]
            store.locks.release_all(flow_id)
            fences += [lock.fence for lock in store.locks.try_acquire(running(store), {"r": 1}, ttl_s=1)]
            clock.advance(2)
        assert fences == sorted(set(fences))
        assert store.locks.try_acquire(running(store), {"other": 1})[0].fence == 1

    @pytest.mark.parametrize("end", ["COMPLETED", "FAILED", "CANCELLED"])
    def test_the_end_of_a_flow_releases_its_locks(self, store: sync.Holdproof, end: str) -> None:
        flow_id = running(store)
        store.locks.try_acquire(flow_id, {"a": 1, "b": 1})
        store.flows.transition(flow_id, end)
        assert store.locks.list().items == []
        with pytest.raises(errors.FlowEndedError):
            store.locks.try_acquire(flow_id, {"a": 1})

    def test_while_something_is_to_be_undone_locks_stay(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        store.locks.try_acquire(flow_id, {"a": 1})
        store.sagas.mark_dirty(flow_id, "pay", {"paid": 1})
        store.flows.transition(flow_id, "FAILED")
        assert len(store.locks.list().items) == 1
        store.sagas.compensate(flow_id, "REVERT", lambda _: True)
        assert store.locks.list().items == []

    def test_locks_of_two_namespaces_have_nothing_in_common(self, store: sync.Holdproof) -> None:
        store.agents.register("b", version="1.0.0", ns="other")
        flow_id, theirs = running(store), store.flows.start("b", ns="other").flow_id
        store.locks.try_acquire(flow_id, {"r": 1})
        assert store.locks.try_acquire(theirs, {"r": 1}, ns="other")[0].fence == 1
        with pytest.raises(errors.NotFoundError):
            store.locks.try_acquire(theirs, {"r": 1})

    @pytest.mark.parametrize(
        "wrong", [{}, {"r": 0}, {"r": -1}, {"r": float("nan")}, {"": 1}, {"r": "1"}, {"r": True}, "r", ["r"]]
    )
    def test_wrong_amounts_are_refused(self, store: sync.Holdproof, wrong: dict[str, Any]) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.locks.acquire(running(store), wrong)
        with pytest.raises(errors.InvalidInputError):
            store.locks.acquire(running(store), {"r": 1}, ttl_s=0)

    @pytest.mark.parametrize("capacity", [0, -1, float("nan"), "10"])
    def test_a_capacity_that_is_none_is_refused(self, store: sync.Holdproof, capacity: Any) -> None:
        for given in (capacity, {"r": capacity}):
            with pytest.raises(errors.InvalidInputError):
                store.locks.try_acquire(running(store), {"r": 1}, capacity=given)
        assert store.locks.list().items == []

    # --- waiting --------------------------------------------------------------------------------------------------

    def test_a_clock_that_goes_back_makes_nobody_wait_longer(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        one, two = running(store), running(store)
        store.locks.try_acquire(one, {"r": 1}, ttl_s=None)
        waiting = locks.acquire(two, {"r": 1}, timeout_s=5)
        untils = []
        with pytest.raises(errors.ContentionTimeoutError):  # noqa: PT012 (each turn is a look)
            for passed in (2, -3600, 2, 1):
                untils.append(self.looked(store, waiting))
                clock.advance(passed)
            self.looked(store, waiting)
        assert untils == [
            "2026-01-01T00:00:05.000000Z",
            "2026-01-01T00:00:05.000000Z",
            "2025-12-31T23:00:05.000000Z",
            "2025-12-31T23:00:05.000000Z",
        ]

    def looked(self, store: sync.Holdproof, waiting: Any) -> str | None:
        """Until when somebody who looked once more waits."""
        look = next(waiting)
        try:
            store.write(look.fn)
        except errors.ContentionTimeoutError as error:
            until: str | None = waiting.throw(error).until
        return until

    def test_a_waiter_gets_the_lock_when_it_is_released(self, live: sync.Holdproof) -> None:
        one, two = running(live), running(live)
        live.locks.acquire(one, {"r": 1})
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(live.locks.acquire, two, {"r": 1}, timeout_s=60)
            _until(lambda: bool(live.database.topics._waiters))
            live.flows.transition(one, "COMPLETED")
            [lock] = waiting.result(60)
        assert lock.flow_id == two

    def test_a_waiter_gets_the_lock_when_it_expires(self, live: sync.Holdproof) -> None:
        one, two = running(live), running(live)
        live.locks.acquire(one, {"r": 1}, ttl_s=0.3)
        [lock] = live.locks.acquire(two, {"r": 1}, timeout_s=60)
        assert lock.flow_id == two

    def test_the_deadline_ends_the_waiting_and_holds_nothing(self, live: sync.Holdproof) -> None:
        one, two = running(live), running(live)
        live.locks.acquire(one, {"b": 1})
        with pytest.raises(errors.ContentionTimeoutError):
            live.locks.acquire(two, {"a": 1, "b": 1}, timeout_s=0.2)
        with pytest.raises(errors.ContentionTimeoutError):
            live.locks.acquire(two, {"b": 1}, timeout_s=0)
        assert [lock.flow_id for lock in live.locks.list().items] == [one]

    def test_six_racers_for_one_place_one_wins(self, live: sync.Holdproof) -> None:
        for number in range(10):
            flows = [running(live) for _ in range(6)]
            won = _race([_attempt(live, flow_id, {f"r{number}": 1}, 1.0) for flow_id in flows])
            assert won.count(True) == 1

    def test_racers_for_several_resources_never_deadlock_or_exceed(self, live: sync.Holdproof) -> None:
        flows = [running(live) for _ in range(8)]

        def work(flow_id: str, turn: int) -> None:
            names = ["a", "b", "c"] if turn % 2 else ["c", "b", "a"]
            for _ in range(3):
                live.locks.acquire(flow_id, dict.fromkeys(names, 5), capacity=10, timeout_s=60)
                with guard:
                    held.append(flow_id)
                    assert len(held) <= 2
                    held.remove(flow_id)
                live.locks.release_all(flow_id)

        held: list[str] = []
        guard = threading.Lock()
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(work, flow_id, turn) for turn, flow_id in enumerate(flows)]:
                done.result(120)
        assert live.locks.list().items == []


def _until(seen: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(2_000):
        if seen():
            return
        pause.wait(0.005)
    raise AssertionError("it never came")


def _attempt(store: sync.Holdproof, flow_id: str, resources: dict[str, float], capacity: float) -> Callable[[], bool]:
    def attempt() -> bool:
        try:
            store.locks.try_acquire(flow_id, resources, capacity=capacity)
        except errors.ContentionTimeoutError:
            return False
        return True

    return attempt


def _race(calls: list[Callable[[], bool]]) -> list[bool]:
    gun = threading.Barrier(len(calls))

    def run(call: Callable[[], bool]) -> bool:
        gun.wait(30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


class TestSqlite(OnSqlite, Locks):
    pass


class TestMemory(InMemory, Locks):
    pass


class TestPostgres(OnPostgres, Locks):
    pass
