"""Idempotency: one key, one execution; on every backend."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.client import Holdproof
from holdproof.db import Wait
from holdproof.runtime import gauges, idempotency
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore


class Counted:
    """A function that counts its calls."""

    def __init__(self, result: Any = None, error: BaseException | None = None) -> None:
        self.calls, self.result, self.error = 0, result, error

    def __call__(self) -> Any:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.result


class _CrashError(BaseException):
    """What a killed process would look like to a generator: no chance to write anything down."""


class Idempotency(OnStore):
    @pytest.mark.parametrize("result", [None, 0, False, "", [], {"order": 7}, [1, 2.5]], ids=repr)
    def test_the_second_call_gets_the_result_of_the_first(self, store: sync.Holdproof, result: Any) -> None:
        first, second = Counted(result), Counted("never")
        assert store.idempotency.once("k", {"a": 1}, first) == result
        assert store.idempotency.once("k", {"a": 1}, second) == result
        assert (first.calls, second.calls) == (1, 0)
        assert store.idempotency.get("k").result == result

    def test_both_callers_get_the_same_value_even_a_tuple(self, store: sync.Holdproof) -> None:
        assert store.idempotency.once("k", 1, lambda: (1, 2)) == [1, 2] == store.idempotency.once("k", 1, Counted())

    def test_another_request_with_the_same_key_is_a_conflict(self, store: sync.Holdproof) -> None:
        store.idempotency.once("k", {"a": 1, "b": 2}, Counted(1))
        assert store.idempotency.once("k", {"b": 2, "a": 1}, Counted(2)) == 1
        other = Counted(3)
        with pytest.raises(errors.IdempotencyConflictError):
            store.idempotency.once("k", {"a": 2}, other)
        assert other.calls == 0

    def test_what_has_expired_is_never_returned(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        store.idempotency.once("k", 1, Counted("old"), ttl_s=10)
        clock.advance(10)
        with pytest.raises(errors.NotFoundError):
            store.idempotency.get("k")
        assert store.idempotency.once("k", "another request", Counted("new")) == "new"

    def test_a_failure_frees_the_key(self, store: sync.Holdproof) -> None:
        with pytest.raises(ZeroDivisionError):
            store.idempotency.once("k", 1, Counted(error=ZeroDivisionError("x")))
        assert store.idempotency.once("k", 1, Counted("ok")) == "ok"

    def test_a_failure_is_replayed_if_it_was_to_be(self, store: sync.Holdproof) -> None:
        with pytest.raises(ZeroDivisionError):
            store.idempotency.once("k", 1, Counted(error=ZeroDivisionError("x")), on_error="replay")
        again = Counted("ok")
        with pytest.raises(errors.ReplayedError, match="ZeroDivisionError: x"):
            store.idempotency.once("k", 1, again)
        assert again.calls == 0

    def test_a_result_without_json_is_an_error_and_is_not_executed_again(self, store: sync.Holdproof) -> None:
        fn = Counted(object())
        with pytest.raises(errors.InvalidInputError):
            store.idempotency.once("k", 1, fn)
        with pytest.raises(errors.ReplayedError):
            store.idempotency.once("k", 1, fn)
        assert fn.calls == 1

    def test_a_holder_that_died_leaves_an_unknown_outcome_that_is_never_run_again_silently(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        _crash(store, "k")
        clock.advance(60)
        fn = Counted("late")
        for _ in range(2):
            with pytest.raises(errors.UnknownOutcomeError):
                store.idempotency.once("k", 1, fn)
        assert (fn.calls, store.idempotency.get("k").state) == (0, "UNKNOWN")
        with pytest.raises(errors.IdempotencyConflictError):
            store.idempotency.once("k", 2, fn, on_unknown="retry")
        assert store.idempotency.once("k", 1, fn, on_unknown="retry") == "late"

    def test_an_unknown_outcome_is_settled_by_hand(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        _crash(store, "k")
        with pytest.raises(errors.ConflictError):
            store.idempotency.settle("k", "too early")
        assert not store.idempotency.delete("k")
        clock.advance(60)
        assert store.idempotency.settle("k", {"found": 1}).state == "DONE"
        assert store.idempotency.once("k", 1, Counted()) == {"found": 1}
        with pytest.raises(errors.ConflictError):
            store.idempotency.settle("k", "again")
        assert store.idempotency.delete("k")
        assert store.idempotency.once("k", 1, Counted("fresh")) == "fresh"

    def test_a_holder_that_was_replaced_does_not_overwrite(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        def slow() -> str:
            clock.advance(61)
            assert store.idempotency.once("k", 1, Counted("second"), on_unknown="retry") == "second"
            return "first"

        with pytest.raises(errors.LeaseLostError):
            store.idempotency.once("k", 1, slow)
        assert store.idempotency.get("k").result == "second"

    def test_a_late_holder_that_nobody_replaced_still_finishes(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        def slow() -> str:
            clock.advance(61)
            with pytest.raises(errors.UnknownOutcomeError):
                store.idempotency.once("k", 1, Counted())
            return "late"

        assert store.idempotency.once("k", 1, slow) == "late" == store.idempotency.once("k", 1, Counted())

    def test_keys_are_listed_and_a_call_that_never_finished_is_unknown(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        for key in ("lost", "looked at"):
            _crash(store, key)
        clock.advance(60)
        with pytest.raises(errors.UnknownOutcomeError):
            store.idempotency.once("looked at", 1, Counted())
        store.idempotency.once("done", 1, Counted("result"))
        _crash(store, "under way")
        store.idempotency.once("elsewhere", 1, Counted(), ns="other")
        states = {entry.key: entry.state for entry in store.idempotency.list().items}
        assert states == {"done": "DONE", "looked at": "UNKNOWN", "lost": "UNKNOWN", "under way": "RUNNING"}
        unknown = [entry.key for entry in store.idempotency.list(state="UNKNOWN").items]
        assert unknown == ["looked at", "lost"]
        # What is listed as unknown is what overviews count, of the store and of its namespace.
        assert store.read(gauges.read)["keys.unknown"] == len(unknown)
        assert store.read(partial(gauges.troubles, ns="main"))["keys.unknown"] == len(unknown)
        assert store.read(partial(gauges.troubles, ns="other"))["keys.unknown"] == 0
        first = store.idempotency.list(limit=3)
        rest = store.idempotency.list(limit=3, cursor=first.next_cursor)
        assert [entry.key for entry in (*first.items, *rest.items)] == sorted(states)
        clock.advance(86_400)
        assert [entry.key for entry in store.idempotency.list(state="DONE").items] == []
        with pytest.raises(errors.InvalidInputError, match="UNKNOWN"):
            store.idempotency.list(state="LOST")

    def test_keys_of_two_namespaces_have_nothing_in_common(self, store: sync.Holdproof) -> None:
        assert store.idempotency.once("k", 1, Counted("a")) == "a"
        assert store.idempotency.once("k", 2, Counted("b"), ns="other") == "b"

    def test_the_sweep_removes_what_has_expired_by_now_and_leaves_what_is_unknown(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.idempotency.once("short", 1, Counted("a"), ttl_s=100)
        store.idempotency.once("long", 1, Counted("b"), ttl_s=200)
        _crash(store, "unknown")
        clock.advance(99.999)
        assert store.write(idempotency.sweep) == 0
        clock.advance(0.001)
        assert store.write(idempotency.sweep) == 1
        assert store.idempotency.get("long").result == "b"
        clock.advance(1e6)
        assert store.write(idempotency.sweep) == 1
        with pytest.raises(errors.UnknownOutcomeError):
            store.idempotency.once("unknown", 1, Counted())

    def test_what_is_settled_or_forgotten_here_stays_as_it_is_elsewhere(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.idempotency.once("k", 1, Counted("theirs"), ns="other")
        store.idempotency.once("another", 1, Counted("mine"))
        _crash(store, "k")
        clock.advance(60)
        store.idempotency.settle("k", "settled")
        assert store.idempotency.delete("k")
        assert store.idempotency.get("k", ns="other").result == "theirs"
        assert store.idempotency.get("another").result == "mine"

    def test_a_result_is_kept_by_the_owner_of_the_claim_or_without_any(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        first = store.run(idempotency.claim("k", lease_s=10))
        clock.advance(10)
        second = store.run(idempotency.claim("k", lease_s=10))
        assert isinstance(first, str)
        assert isinstance(second, str)
        assert not store.write(lambda tx: idempotency.store(tx, "k", "1", owner=first))
        assert store.write(lambda tx: idempotency.store(tx, "k", "2", owner=second))
        assert store.idempotency.get("k").result == 2
        assert store.write(lambda tx: idempotency.store(tx, "k", "3"))
        assert store.idempotency.get("k").result == 3

    def test_a_claim_is_renewed_by_its_owner_while_it_is_executed(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        owner = store.run(idempotency.claim("k", lease_s=10))
        assert isinstance(owner, str)
        clock.advance(9)
        assert store.write(lambda tx: idempotency.renew(tx, "k", owner, lease_s=10))
        assert not store.write(lambda tx: idempotency.renew(tx, "k", "somebody", lease_s=10))
        clock.advance(9)
        assert store.write(lambda tx: idempotency.store(tx, "k", "1", owner=owner))
        assert not store.write(lambda tx: idempotency.renew(tx, "k", owner, lease_s=10))

    def test_whoever_waits_looks_again_when_the_lease_runs_out_at_the_latest(self, store: sync.Holdproof) -> None:
        store.run(idempotency.claim("k", lease_s=25))
        waiting: Any = idempotency.claim("k", lease_s=25)
        pause = waiting.send(store.write(next(waiting).fn))
        assert pause == Wait("idempotency:main:k", "2026-01-01T00:00:25.000000Z")

    def test_whoever_waits_for_a_key_gets_the_result_that_is_kept(self, live: sync.Holdproof) -> None:
        owner = live.run(idempotency.claim("k", lease_s=25))
        assert isinstance(owner, str)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(live.run, idempotency.claim("k", lease_s=25))
            time.sleep(0.2)  # for it to wait
            assert live.write(lambda tx: idempotency.store(tx, "k", '"done"', owner=owner))
            found = waiting.result(60)
        assert not isinstance(found, str)
        assert found.result == "done"

    def test_exactly_one_of_many_threads_executes_and_all_get_its_result(self, live: sync.Holdproof) -> None:
        for number in range(5):
            gate, fn = threading.Barrier(8), Counted({"n": number})

            def call(number: int = number, fn: Counted = fn, gate: threading.Barrier = gate) -> Any:
                gate.wait(30)
                return live.idempotency.once(f"k{number}", number, fn)

            with ThreadPoolExecutor(8) as pool:
                results = [future.result(60) for future in [pool.submit(call) for _ in range(8)]]
            assert (fn.calls, results) == (1, [{"n": number}] * 8)

    def test_exactly_one_of_many_coroutines_executes_and_all_get_its_result(self, live: sync.Holdproof) -> None:
        store, calls = Holdproof(live.core), []

        async def charge() -> str:
            calls.append(1)
            await asyncio.sleep(0.05)
            return "paid"

        async def run() -> list[Any]:
            return await asyncio.gather(*(store.idempotency.once("k", 1, charge) for _ in range(20)))

        assert asyncio.run(run()) == ["paid"] * 20
        assert len(calls) == 1


def _crash(store: sync.Holdproof, key: str) -> None:
    with pytest.raises(_CrashError):
        store.idempotency.once(key, 1, Counted(error=_CrashError()), lease_s=60)


class TestSqlite(OnSqlite, Idempotency):
    pass


class TestMemory(InMemory, Idempotency):
    pass


class TestPostgres(OnPostgres, Idempotency):
    pass
