"""What a person asks of a flow that does not move: who works on it, what it waits for, who was lost on it."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.model.flows import TAKEN_OVER
from holdproof.runtime import suspension
from tests.conformance.store_backends import StoreInMemory, StoreOnPostgres, StoreOnSqlite

ASKS_S = 20.0


def until(check: Any) -> Any:
    """Look again until there is something to see."""
    end = time.monotonic() + ASKS_S
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come to that")


def _lock_events(store: sync.Holdproof, flow_id: str) -> list[str]:
    """Return what the record of a flow says of its waits for locks."""
    events = [each for each in store.audit.list(flow_id=flow_id) if each.event_type.startswith("lock.")]
    return [f"{each.event_type} {each.detail['lock']}" for each in events]


class Executions:
    """The suite, on any backend."""

    open: Any

    @pytest.fixture
    def store(self) -> Iterator[sync.Holdproof]:
        with self.open() as store:
            yield store

    def test_a_lost_worker_is_named_with_who_took_over_and_what_was_replayed(self, store: sync.Holdproof) -> None:
        store.agents.register("shipper", version="1.0.0")
        flow_id = store.flows.start("shipper", flow_type="ship").flow_id
        with suppress(KeyboardInterrupt), store.flows.run(resume=flow_id, worker="8842", lease_s=0.2) as flow:
            flow.step("print label", lambda: "label")
            raise KeyboardInterrupt
        until(lambda: store.flows.execution(flow_id).orphaned)
        with store.flows.run(resume=flow_id, worker="9120") as flow:
            assert flow.step("print label", lambda: "another label") == "label"
        execution = store.flows.execution(flow_id)
        [takeover] = execution.takeovers
        assert (takeover.lost_worker, takeover.worker, takeover.replayed) == ("8842", "9120", 1)
        assert takeover.last_heartbeat_at <= takeover.at
        [event] = store.audit.list(flow_id=flow_id, event_type=TAKEN_OVER).items
        assert event.detail["lost_worker"] == "8842"
        assert (execution.worker, execution.orphaned, execution.waits) == (None, False, ())
        assert store.verify.run(full=True).verdict.word == "VALID"

    def test_a_lease_that_was_given_back_is_no_lost_worker(self, store: sync.Holdproof) -> None:
        store.agents.register("shipper", version="1.0.0")
        flow_id = store.flows.start("shipper", flow_type="ship").flow_id
        store.flows.transition(flow_id, "RUNNING")
        lease = store.flows.lease(flow_id, "first")
        assert store.flows.release(flow_id, lease.token)
        store.flows.lease(flow_id, "second")
        execution = store.flows.execution(flow_id)
        assert (execution.worker, execution.takeovers) == ("second", ())
        assert store.audit.list(flow_id=flow_id).items == []

    def test_a_flow_that_waits_for_a_lock_names_the_flow_that_has_it(self, store: sync.Holdproof) -> None:
        for name in ("holder", "waiter"):
            store.agents.register(name, version="1.0.0")
        holder = store.flows.start("holder", flow_type="repaint").flow_id
        store.flows.transition(holder, "RUNNING")
        store.locks.try_acquire(holder, {"hangar 3": 1.0}, ttl_s=600)
        names: list[str] = []

        def wait() -> None:
            with store.flows.run("waiter", flow_type="inspect") as flow:
                names.append(flow.flow_id)
                flow.lock({"hangar 3": 1.0}, timeout_s=60)

        thread = threading.Thread(target=wait)
        thread.start()
        [wait_for] = until(lambda: names and store.flows.execution(names[0]).waits)
        assert (wait_for.kind, wait_for.what, wait_for.ref) == ("lock", "the lock hangar 3", holder)
        store.locks.release(holder, "hangar 3")
        thread.join(ASKS_S)
        assert store.flows.get(names[0]).status == "COMPLETED"
        assert store.flows.execution(names[0]).waits == ()
        waits = [each for each in store.audit.list(flow_id=names[0]) if each.event_type.startswith("lock.")]
        assert sorted((each.event_type, each.detail["lock"]) for each in waits) == [
            ("lock.acquired", "hangar 3"),
            ("lock.awaited", "hangar 3"),
        ]
        assert "lock.awaited hangar 3" in {each.what for each in store.flows.timeline(names[0]).events}

    def test_a_wait_for_a_lock_that_is_given_up_says_so_and_an_attempt_is_no_wait(self, store: sync.Holdproof) -> None:
        for name in ("holder", "waiter"):
            store.agents.register(name, version="1.0.0")
        holder = store.flows.start("holder", flow_type="repaint").flow_id
        store.locks.try_acquire(holder, {"hangar 3": 1.0}, ttl_s=600)
        with store.flows.run("waiter", flow_type="inspect") as flow:
            for timeout_s in (0, 0.05):
                with pytest.raises(errors.ContentionTimeoutError):
                    flow.lock({"hangar 3": 1.0}, timeout_s=timeout_s)
            flow.lock({"hangar 4": 1.0})
            assert store.flows.execution(flow.flow_id).waits == ()
        events = [each.what for each in store.flows.timeline(flow.flow_id).events if each.kind == "audit"]
        assert events == ["lock.awaited hangar 3", "lock.given_up hangar 3"]

    def test_a_call_says_the_ends_of_its_own_waits_for_locks_alone(self, store: sync.Holdproof) -> None:
        for name in ("holder", "waiter"):
            store.agents.register(name, version="1.0.0")
        holder = store.flows.start("holder", flow_type="repaint").flow_id
        store.locks.try_acquire(holder, {"api": 1.0, "hangar 3": 1.0, "hangar 4": 1.0}, ttl_s=600)

        def has(what: str) -> bool:
            return what in _lock_events(store, flow.flow_id)

        with store.flows.run("waiter", flow_type="inspect") as flow, ThreadPoolExecutor() as pool:
            # Two works of one flow at once; the second waits for one lock, and then for another.
            first = pool.submit(flow.lock, {"api": 1.0}, timeout_s=60)
            until(lambda: has("lock.awaited api"))
            second = pool.submit(flow.lock, {"hangar 3": 1.0, "hangar 4": 1.0}, timeout_s=60)
            until(lambda: has("lock.awaited hangar 3"))
            store.locks.release(holder, "hangar 3")
            until(lambda: has("lock.awaited hangar 4"))
            store.locks.release(holder, "api")
            first.result(ASKS_S)
            assert [each for each in _lock_events(store, flow.flow_id) if "acquired" in each] == ["lock.acquired api"]
            store.locks.release(holder, "hangar 4")
            second.result(ASKS_S)
        assert sorted(_lock_events(store, flow.flow_id)) == sorted(
            f"lock.{what} {lock}" for what in ("awaited", "acquired") for lock in ("api", "hangar 3", "hangar 4")
        )

    def test_a_wait_for_a_lock_that_was_cancelled_is_not_taken_for_one_that_ended(self, store: sync.Holdproof) -> None:
        for name in ("holder", "waiter"):
            store.agents.register(name, version="1.0.0")
        holder = store.flows.start("holder", flow_type="repaint").flow_id
        store.locks.try_acquire(holder, {"hangar 3": 1.0}, ttl_s=600)
        with store.flows.run("waiter", flow_type="inspect") as flow:
            # As a wait leaves it that was cancelled: the lease still says what the flow waited for.
            store.write(lambda tx: suspension.extend(tx, flow.held.lease, waits_for="the lock hangar 3"))
            flow.lock({"hangar 4": 1.0})
        assert _lock_events(store, flow.flow_id) == []

    def test_how_long_a_flow_waits_for_a_lock_is_a_number(self, store: sync.Holdproof) -> None:
        store.agents.register("waiter", version="1.0.0")
        with store.flows.run("waiter", flow_type="inspect") as flow, pytest.raises(errors.InvalidInputError) as refused:
            flow.lock({"hangar 3": 1.0}, timeout_s=None)  # type: ignore[arg-type]
        assert "timeout_s" in refused.value.message

    def test_a_flow_that_waits_for_a_person_or_a_child_says_so(self, store: sync.Holdproof) -> None:
        store.agents.register("clerk", version="1.0.0")
        flow_id = store.flows.start("clerk", flow_type="pay").flow_id
        store.flows.transition(flow_id, "RUNNING")
        child = store.flows.start("clerk", flow_type="look", parent=flow_id).flow_id
        asked = store.escalations.request(flow_id, reason="pay twice?", proposal={"amount": 3})
        waits = {each.kind: each for each in store.flows.execution(flow_id).waits}
        assert (waits["escalation"].ref, waits["flow"].ref) == (str(asked.id), child)

    def test_a_flow_that_is_not_there_is_not_found(self, store: sync.Holdproof) -> None:
        with pytest.raises(errors.NotFoundError):
            store.flows.execution("nothing")

    def test_facets_count_by_time_state_type_and_agent(self, store: sync.Holdproof) -> None:
        store.agents.register("ada", version="1.0.0")
        store.agents.register("bob", version="1.0.0")
        for agent, kind, to in (("ada", "buy", "RUNNING"), ("ada", "sell", "CANCELLED"), ("bob", "buy", "CANCELLED")):
            store.flows.transition(store.flows.start(agent, flow_type=kind).flow_id, to)
        facets = store.flows.facets()
        assert (facets.total, facets.exact) == (3, True)
        assert facets.statuses == {"CANCELLED": 2, "RUNNING": 1}
        assert (facets.types, facets.agents) == ({"buy": 2, "sell": 1}, {"ada": 2, "bob": 1})
        assert sum(each.count for each in facets.buckets) == 3
        assert store.flows.facets(agent_id="bob").statuses == {"CANCELLED": 1}
        assert store.flows.facets(text="SELL").total == 1
        assert store.flows.facets(status="FAILED").total == 0
        activity = store.agents.activity()
        assert [(each.agent_id, each.flows, each.open) for each in activity.agents] == [("ada", 2, 1), ("bob", 1, 0)]
        assert sum(activity.agents[0].buckets) == 2

    def test_an_id_leads_to_the_entry_of_its_record(self, store: sync.Holdproof) -> None:
        store.agents.register("ada", version="1.0.0")
        flow_id = store.flows.start("ada", flow_type="buy").flow_id
        entries = until(lambda: store.log.find(flow_id))
        assert {each.event.flow_id for each in entries} == {flow_id}
        [entry] = entries
        assert [each.index for each in store.log.find(flow_id[:13])] == [entry.index]
        assert entry.index in {each.index for each in store.log.find(str(entry.index))}
        assert [each.index for each in store.log.find(entry.entry)] == [entry.index]
        assert [each.event.table for each in store.log.find("ada")] == ["agent_registry"]
        assert store.log.find("no such id") == ()
        proof = store.log.prove(entry.entry, entry.event.version)
        assert proof.index == entry.index


class TestExecutionsOnSqlite(StoreOnSqlite, Executions):
    pass


class TestExecutionsInMemory(StoreInMemory, Executions):
    pass


class TestExecutionsOnPostgres(StoreOnPostgres, Executions):
    pass
