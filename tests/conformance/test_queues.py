"""Queues and workers: limits that hold over all workers, what is due runs once, what was edited does not run."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.api import FlowFunction, OpenFlow
from holdproof.db import sql
from holdproof.executors import SyncExecutor
from holdproof.model.times import END
from holdproof.model.verify import Finding
from holdproof.runtime import claims, leases, queues
from holdproof.runtime.claims import ClaimResult
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

Flow = OpenFlow[SyncExecutor]
_ARGUMENTS = sql(
    "SELECT arguments FROM flow_calls WHERE dfid = :dfid",
    postgres="SELECT CAST(arguments AS TEXT) FROM flow_calls WHERE dfid = :dfid",
)


def other(store: sync.Holdproof) -> sync.Holdproof:
    """Another client of the same store, with nothing registered."""
    return sync.Holdproof(store.core)


def paying(store: sync.Holdproof, log: list[Any] | None = None, **options: Any) -> FlowFunction[..., Any]:
    """A flow of one payment, as each worker registers it."""
    payments = [] if log is None else log

    @store.flow(name="pay", agent="trader", **options)
    def pay(flow: Flow, what: Any, cents: int = 0) -> Any:
        flow.step("pay", payments.append, [what, cents])
        return what

    return pay


def claim(store: sync.Holdproof, worker: str = "w1", names: tuple[str, ...] = ("q",), limit: int = 100) -> ClaimResult:
    """What a worker gets now."""
    registry = store._registry
    return store.write(lambda tx: claims.claim(tx, worker, registry, names, limit=limit, ns="main"))


def got(result: ClaimResult) -> list[Any]:
    return [leased.call.arguments["args"][0] for leased in result.leased]


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that happens in other threads."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def edit(store: sync.Holdproof, text: str) -> None:
    """Change a row behind the kernel's back."""
    query = sql(text)
    store.write(lambda tx: tx.execute(query))


@contextmanager
def edited(store: sync.Holdproof, edit_text: str, restore_text: str) -> Iterator[None]:
    edit(store, edit_text)
    try:
        yield
    finally:
        edit(store, restore_text)


def verified(store: sync.Holdproof) -> Sequence[Finding]:
    """What verify finds; without the lock, so that the test can go on."""
    return store.verify.run(lock=False).findings


class Queues(OnStore):
    # --- limits as rows -------------------------------------------------------------------------------------------

    def test_a_queue_is_created_changed_paused_and_deleted(self, store: sync.Holdproof) -> None:
        queue = store.queues.create("q", concurrency=2, rate_limit=5, rate_period_s=60)
        assert (queue.concurrency, queue.worker_concurrency, queue.rate_limit, queue.paused) == (2, None, 5, False)
        with pytest.raises(errors.AlreadyExistsError):
            store.queues.create("q")
        assert store.queues.update("q", concurrency=0, worker_concurrency=3) == store.queues.get("q")
        assert (store.queues.get("q").concurrency, store.queues.get("q").worker_concurrency) == (None, 3)
        assert store.queues.update("q", rate_limit=0).rate_period_s is None
        assert (store.queues.pause("q").paused, store.queues.resume("q").paused) == (True, False)
        assert [each.name for each in store.queues.list().items] == ["q"]
        store.queues.delete("q")
        for absent in (store.queues.get, store.queues.delete, store.queues.resume):
            with pytest.raises(errors.NotFoundError):
                absent("q")
        assert store.queues.list().items == []
        assert store.queues.create("q", concurrency=1).concurrency == 1
        with pytest.raises(errors.InvalidInputError):
            store.queues.update("q", rate_limit=1)

    # --- claims ---------------------------------------------------------------------------------------------------

    def test_higher_priority_comes_first_then_what_was_due_first(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        pay = paying(store)
        pay.enqueue("late", queue="q", delay_s=5)
        for what, priority in (("a", 0), ("urgent", 9), ("low", -1)):
            pay.enqueue(what, queue="q", priority=priority)
        assert got(claim(store, limit=1)) == ["urgent"]
        assert got(claim(store)) == ["a", "low"]
        assert got(claim(store)) == []
        clock.advance(5)
        assert got(claim(store)) == ["late"]

    def test_the_limits_of_a_queue_count_what_is_leased_and_no_dead_worker(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        pay = paying(store, lease_s=10)
        store.queues.create("q", concurrency=3, worker_concurrency=2)
        for what in range(5):
            pay.enqueue(what, queue="q")
        assert got(claim(store, "w1")) == [0, 1]
        assert got(claim(store, "w1")) == []
        assert got(claim(store, "w2")) == [2]
        assert got(claim(store, "w3")) == []
        # w1 and w2 are dead: their places come back, and with them their flows.
        clock.advance(10)
        assert len(got(claim(store, "w3"))) == 2
        assert len(got(claim(store, "w4"))) == 1

    @pytest.mark.parametrize("limit", ["concurrency", "worker_concurrency", "partition_concurrency"])
    def test_a_late_heartbeat_does_not_take_a_place_back_that_was_given_away(
        self, store: sync.Holdproof, clock: FrozenClock, limit: str
    ) -> None:
        pay = paying(store, lease_s=10)
        limits: dict[str, Any] = {limit: 1}
        store.queues.create("q", **limits)
        for what in "ab":
            pay.enqueue(what, queue="q", partition="tenant")
            clock.advance(1)
        [slow] = claim(store).leased
        clock.advance(10)
        [other_flow] = claim(store, limit=1).leased
        assert [slow.call.arguments["args"], other_flow.call.arguments["args"]] == [["a"], ["b"]]
        late, lease = slow.run.lease, other_flow.run.lease
        with pytest.raises(errors.LeaseLostError, match="its place in the queue"):
            store.flows.heartbeat(late.flow_id, late.token)
        assert [length.running for length in store.queues.lengths()] == [1]
        store.write(lambda tx: leases.suspend(tx, lease.flow_id, lease.token, due=END, ns="main"))
        assert store.flows.heartbeat(late.flow_id, late.token, lease_s=10).token == late.token

    def test_a_late_heartbeat_keeps_a_flow_whose_place_is_still_free(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        pay = paying(store, lease_s=10)
        store.queues.create("q", concurrency=1, worker_concurrency=1)
        pay.enqueue("a", queue="q")
        paying(other(store))
        [slow] = claim(store).leased
        clock.advance(60)
        assert store.flows.heartbeat(slow.run.lease.flow_id, slow.run.lease.token).worker == "w1"
        assert claim(store).leased == []

    def test_a_partition_has_room_for_so_many(self, store: sync.Holdproof) -> None:
        pay = paying(store)
        store.queues.create("q", partition_concurrency=1)
        for what in ("a1", "a2", "b1", "c1"):
            pay.enqueue(what, queue="q", partition=what[0])
        first = claim(store)
        assert got(first) == ["a1", "b1", "c1"]
        assert got(claim(store, "w2")) == []
        store.write(lambda tx: queues.lock(tx, "q", ns="main"))
        store.flows.cancel(first.leased[0].run.lease.flow_id, reason="test")
        assert got(claim(store, "w2")) == ["a2"]

    def test_a_rate_counts_starts_within_its_period(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        pay = paying(store)
        store.queues.create("q", rate_limit=2, rate_period_s=60)
        for what in range(5):
            pay.enqueue(what, queue="q")
        first = claim(store)
        assert got(first) == [0, 1]
        clock.advance(30)
        later = claim(store, "w2")
        # What was started goes on, whatever the rate: its leases have expired.
        assert sorted(got(later)) == [0, 1]
        assert later.retry_at is not None
        clock.advance(30)
        assert 2 in got(claim(store, "w3"))

    def test_a_paused_queue_gives_nothing_and_no_other_waits(self, store: sync.Holdproof) -> None:
        pay = paying(store)
        pay.enqueue("a", queue="q")
        pay.enqueue("b", queue="r")
        store.queues.pause("q")
        assert got(claim(store, names=("q", "r"))) == ["b"]
        store.queues.resume("q")
        assert got(claim(store, names=("q", "r"))) == ["a"]

    def test_a_worker_takes_only_what_its_functions_run(self, store: sync.Holdproof) -> None:
        paying(store, version="2").enqueue("new", queue="q")
        store.flows.enqueue("trader", "unknown", queue="q")
        store.flows.enqueue("trader", "pay", args=["old"], version="1", queue="q")
        store.agents.register("rival", version="1.0.0")
        store.flows.enqueue("rival", "pay", args=["theirs"], version="2", called_by="rival", queue="q")
        assert got(claim(store)) == ["new"]
        compatible = other(store)
        paying(compatible, version="3", compatible=("1",))
        assert got(claim(compatible)) == ["old"]

    def test_an_open_flow_with_the_same_key_is_returned_instead_of_a_second(self, store: sync.Holdproof) -> None:
        pay = paying(store)
        first = pay.enqueue("a", queue="q", deduplicate="o-17")
        assert pay.enqueue("b", queue="q", deduplicate="o-17").flow_id == first.flow_id
        store.flows.cancel(first.flow_id, reason="test")
        assert pay.enqueue("b", queue="q", deduplicate="o-17").flow_id != first.flow_id

    # --- what was edited ------------------------------------------------------------------------------------------

    def test_an_edited_task_stops_its_flow_and_runs_nowhere(self, store: sync.Holdproof) -> None:
        done: list[Any] = []
        pay = paying(store, done)
        store.queues.create("q", concurrency=1)
        pay.enqueue("a yacht", 90_000_000, queue="q", partition="p", delay_s=3600)
        for change, back in (
            ("queue = 'unlimited'", "queue = 'q'"),
            ("partition_key = 'free'", "partition_key = 'p'"),
            ("priority = 99", "priority = 0"),
        ):
            edit(store, f"UPDATE flow_leases SET {change}, expires_at = '2000-01-01T00:00:00.000000Z'")
            assert any("does not follow from its call" in finding.what for finding in verified(store))
            result = claim(store, names=("", "q", "unlimited"))
            assert (got(result), len(result.stopped)) == ([], 1)
            assert claim(store, names=("", "q", "unlimited")).stopped == []
            edit(store, f"UPDATE flow_leases SET {back}, token = 0")
        edit(store, "UPDATE flow_leases SET expires_at = '2000-01-01T00:00:00.000000Z'")
        result = claim(store)
        assert (got(result), len(result.stopped)) == ([], 1)
        assert [event.event_type for event in store.audit.list().items].count("FLOW_STOPPED") == 4
        assert done == []
        store.flows.cancel(result.stopped[0].flow.flow_id, reason="test")

    def test_an_edited_call_stops_its_flow_and_the_next_one_runs(self, store: sync.Holdproof) -> None:
        pay = paying(store)
        tea = pay.enqueue("tea", queue="q")
        pay.enqueue("cake", queue="q")
        original = store.read(lambda tx: tx.one(_ARGUMENTS, dfid=tea.flow_id))
        assert original is not None
        edit(
            store,
            'UPDATE flow_calls SET arguments = \'{"args":["a yacht"],"kwargs":{}}\''
            f" WHERE dfid = '{tea.flow_id}'",
        )
        result = claim(store)
        assert (got(result), [each.flow.flow_id for each in result.stopped]) == (["cake"], [tea.flow_id])
        assert any(finding.table == "flow_calls" for finding in verified(store))
        edit(store, f"UPDATE flow_calls SET arguments = '{original[0]}' WHERE dfid = '{tea.flow_id}'")

    def test_of_a_queue_whose_limits_were_edited_nothing_runs(self, store: sync.Holdproof) -> None:
        pay = paying(store)
        store.queues.create("q", concurrency=1)
        pay.enqueue("a", queue="q")
        pay.enqueue("b", queue="r")
        with edited(store, "UPDATE queues SET concurrency = 1000", "UPDATE queues SET concurrency = 1"):
            result = claim(store, names=("q", "r"))
            assert got(result) == ["b"]
            assert "queue q" in result.problems[0]
            assert any(finding.table == "queues" for finding in verified(store))
        assert got(claim(store)) == ["a"]

    def test_what_was_enqueued_in_the_same_commit_is_no_edit(self, store: sync.Holdproof) -> None:
        pay = paying(store)

        def enqueue_and_claim(tx: Any) -> ClaimResult:
            queues.create(tx, "q", concurrency=1)
            pay.enqueue_in(tx, "a", queue="q")
            return claims.claim(tx, "w", store._registry, ("q",), limit=1, ns="main")

        result = store.write(enqueue_and_claim)
        assert (got(result), result.stopped, result.problems) == (["a"], [], [])

    # --- enqueueing -----------------------------------------------------------------------------------------------

    def test_a_flow_is_enqueued_with_the_callers_own_transaction_or_not_at_all(self, store: sync.Holdproof) -> None:
        pay = paying(store)
        flow = store.write(lambda tx: pay.enqueue_in(tx, "a", 5, queue="q", priority=3))
        assert (flow.status, flow.priority) == ("CREATED", 3)

        def fails(tx: Any) -> None:
            pay.enqueue_in(tx, "b", queue="q")
            raise ValueError("the rest failed")

        with pytest.raises(ValueError, match="the rest failed"):
            store.write(fails)
        assert [each.flow_id for each in store.flows.list().items] == [flow.flow_id]
        assert got(claim(store)) == ["a"]

    def test_lengths_tell_what_is_due_runs_and_waits(self, store: sync.Holdproof) -> None:
        pay = paying(store)
        for delay in (0, 0, 60):
            pay.enqueue("a", queue="q", delay_s=delay)
        claim(store, limit=1)
        [length] = store.queues.lengths()
        assert (length.queue, length.due, length.running, length.waiting) == ("q", 1, 1, 1)


class TestQueuesInMemory(Queues, InMemory): ...


class TestQueuesSqlite(Queues, OnSqlite): ...


class TestQueuesPostgres(Queues, OnPostgres): ...
