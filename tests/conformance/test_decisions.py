"""The nouns of the runtime on both faces, one act from several, and the defects of the existing implementation."""

import asyncio
import inspect
from typing import Any

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.client import Holdproof
from holdproof.db import Tx
from holdproof.executors import Resource
from holdproof.model.coordination import SweepResult
from holdproof.model.jsontext import load
from holdproof.runtime import audit, escalations, flows, locks, state
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore


def _nouns(store: Any) -> dict[str, Any]:
    return {name: noun for name, noun in vars(store).items() if isinstance(noun, Resource)}


class Decisions(OnStore):
    def test_both_faces_have_the_same_nouns_and_verbs(self, store: sync.Holdproof) -> None:
        there, here = _nouns(Holdproof(store.core)), _nouns(store)
        assert here.keys() == there.keys()
        assert "flows" in here
        for name, noun in here.items():
            names = [verb for verb in vars(type(noun)) if not verb.startswith("_") and verb not in vars(Resource)]
            verbs = [verb for verb in names if callable(getattr(noun, verb))]
            assert vars(type(noun)).keys() == vars(type(there[name])).keys()
            for verb in verbs:
                signature = inspect.signature(getattr(noun, verb))
                assert signature.parameters == inspect.signature(getattr(there[name], verb)).parameters
                assert "tx" not in signature.parameters
                assert getattr(noun, verb).__doc__

    def test_a_whole_decision_on_the_async_face(self, live: sync.Holdproof) -> None:
        async def decide() -> str:
            store = Holdproof(live.core)
            await store.agents.register("bot", version="1.2")
            flow = await store.flows.start("bot", flow_type="rebalance")
            await store.flows.transition(flow.flow_id, "RUNNING")
            await store.contexts.put(flow.flow_id, {"price": 3})
            [lock] = await store.locks.acquire(flow.flow_id, {"portfolio:BTC": 3}, capacity=10)
            asked = await store.escalations.request(flow.flow_id, reason="over limit", proposal={"buy": 3})
            waiting = asyncio.ensure_future(store.escalations.wait(asked.id))
            await store.escalations.resolve(asked.id, "approve", by="ann")
            assert (await waiting).approved
            order = await store.idempotency.once(flow.flow_id, {"buy": 3}, lambda: {"order": 1})
            await store.audit.record(flow.flow_id, "ORDERED", detail=order | {"fence": lock.fence})
            await store.ledger.append(flow.flow_id, {"buy": 3}, context_ref="c", evidence_hash="h")
            await store.feedback.record("bot", flow.flow_id, status="Accepted", score=1.0)
            await store.state.put("bot", {"orders": 1})
            await store.flows.transition(flow.flow_id, "COMPLETED")
            return flow.flow_id

        flow_id = asyncio.run(decide())
        assert live.flows.get(flow_id).status == "COMPLETED"
        assert live.locks.list().items == []

    def test_several_operations_make_one_act_or_none(self, store: sync.Holdproof) -> None:
        def act(tx: Tx, fail: bool) -> str:
            flow_id = flows.start(tx, "trader").flow_id
            flows.transition(tx, flow_id, "RUNNING")
            locks.try_acquire(tx, flow_id, {"r": 1})
            audit.record(tx, flow_id, "STARTED")
            state.put(tx, "trader", {"last": flow_id})
            if fail:
                raise ZeroDivisionError
            return flow_id

        with pytest.raises(ZeroDivisionError):
            store.write(lambda tx: act(tx, True))
        assert (store.flows.list().items, store.locks.list().items) == ([], [])
        flow_id = store.write(lambda tx: act(tx, False))
        assert store.state.get("trader").data == {"last": flow_id}

    def test_an_operation_that_fails_in_a_crowd_harms_nobody(self, live: sync.Holdproof) -> None:
        async def crowd() -> list[Any]:
            store = Holdproof(live.core)
            calls = []
            for number in range(60):
                agent = "nobody" if number % 3 == 0 else "trader"
                calls.append(store.write(lambda tx, agent=agent: _open(tx, agent)))  # type: ignore[misc]
            return await asyncio.gather(*calls, return_exceptions=True)

        outcomes = asyncio.run(crowd())
        assert sum(isinstance(one, errors.NotFoundError) for one in outcomes) == 20
        assert len(live.flows.list(status="RUNNING").items) == 40

    def test_agents_are_not_asked_for_what_the_kernel_decides(self, store: sync.Holdproof) -> None:
        """A refused request, in the same transaction as other work, is recorded with all of it."""
        flow_id = running(store)

        def ask(tx: Tx) -> Any:
            audit.record(tx, flow_id, "BEFORE")
            return escalations.request(tx, flow_id, reason="?")

        store.agents.set_budget("trader", per_hour=0, on_exhausted="suspend")

        with pytest.raises(errors.BudgetExhaustedError):
            store.write(ask)
        events = [event.event_type for event in store.audit.list(flow_id=flow_id).items]
        assert events == ["ESCALATION_BUDGET_EXHAUSTED", "BEFORE"]

    def test_a_sweep_puts_away_what_time_has_ended_and_counts_the_rest(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        flows = [running(store) for _ in range(4)]
        store.locks.try_acquire(flows[0], {"a": 1, "b": 1}, ttl_s=5)
        store.locks.try_acquire(flows[0], {"c": 1}, ttl_s=50)
        store.idempotency.once("k", 1, lambda: 1, ttl_s=5)
        asked = store.escalations.request(flows[1], reason="?", deadline_s=5)
        store.flows.lease(flows[2], "dead", lease_s=5)
        store.sagas.mark_dirty(flows[3], "pay")
        assert store.sweep.run() == SweepResult(0, 0, 0, 0, 1, 0)
        clock.advance(5)
        assert store.sweep.run() == SweepResult(2, 1, 1, 1, 1, 0)
        assert store.escalations.get(asked.id).resolved_by == "deadline"
        assert store.sweep.run() == SweepResult(0, 0, 0, 1, 1, 0)

    # --- what the existing implementation gets wrong; the races among them are in test_races.py too ------------------

    def test_defect_registering_again_erased_state_and_budget_and_ended_a_suspension(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.agents.set_budget("trader", per_hour=3)
        for _ in range(3):
            store.escalations.request(running(store), reason="?")
        flow_id = running(store)
        store.state.put("trader", 1)
        store.agents.set_status("trader", "SUSPENDED", reason="x")
        assert store.agents.register("trader", version="1.0.0").agent.status == "SUSPENDED"
        store.agents.set_status("trader", "ACTIVE")
        store.agents.register("trader", version="1.0.0")
        assert store.state.get("trader").data == 1
        with pytest.raises(errors.BudgetExhaustedError):
            store.escalations.request(flow_id, reason="?")

    def test_defect_locks_were_stolen(self, store: sync.Holdproof) -> None:
        first, second = running(store), running(store)
        store.locks.try_acquire(first, {"usd": 600}, capacity=1000)
        store.locks.try_acquire(second, {"usd": 400}, capacity=1000)
        with pytest.raises(errors.ContentionTimeoutError):
            store.locks.try_acquire(running(store), {"usd": 600}, capacity=1000)
        assert {lock.flow_id: lock.amount for lock in store.locks.list().items} == {first: 600.0, second: 400.0}

    def test_defect_a_none_result_ran_again_always(self, store: sync.Holdproof) -> None:
        calls: list[int] = []
        for _ in range(3):
            assert store.idempotency.once("k", 1, lambda: calls.append(1)) is None
        assert len(calls) == 1

    def test_defect_expired_entries_were_returned(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        store.idempotency.once("k", 1, lambda: "old", ttl_s=1)
        clock.advance(1)
        assert store.idempotency.once("k", 1, lambda: "new") == "new"

    def test_defect_request_hashes_were_never_checked(self, store: sync.Holdproof) -> None:
        store.idempotency.once("k", {"buy": 1}, lambda: 1)
        with pytest.raises(errors.IdempotencyConflictError):
            store.idempotency.once("k", {"buy": 1000}, lambda: 1)

    def test_defect_illegal_transitions_were_recorded_and_the_status_never_changed(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        assert store.flows.get(flow_id).status == "RUNNING"
        store.flows.transition(flow_id, "COMPLETED")
        with pytest.raises(errors.IllegalTransitionError):
            store.flows.transition(flow_id, "RUNNING")
        assert [one.to_status for one in store.flows.transitions(flow_id)] == ["RUNNING", "COMPLETED"]
        assert store.flows.get(flow_id).status == "COMPLETED"

    def test_defect_json_was_rewritten(self, store: sync.Holdproof) -> None:
        session = store.agents.register("a", version="1.0.0", contract={"b": 1, "a": [1.0, "\0"]})
        assert session.agent.contract == load('{"a":[1,"\\u0000"],"b":1}')
        assert store.agents.get("a").contract == session.agent.contract

    def test_defect_every_audit_record_was_a_commit_of_its_own(self, live: sync.Holdproof) -> None:
        """126 a second were those of a disk; here as many as are waiting share one. `bench durable` has the numbers."""
        flow_id, commits = running(live), [0]

        def count(_: Any) -> None:
            commits[0] += 1

        async def crowd() -> None:
            store = Holdproof(live.core)
            live.database.hooks.after_commit.append(count)
            await asyncio.gather(*(store.audit.record(flow_id, "TICK", detail={"n": n}) for n in range(400)))
            live.database.hooks.after_commit.remove(count)

        asyncio.run(crowd())
        assert len(live.audit.list(flow_id=flow_id, limit=1000).items) == 400
        assert commits[0] < 400 / 4


def _open(tx: Tx, agent_id: str) -> str:
    flow_id = flows.start(tx, agent_id).flow_id
    flows.transition(tx, flow_id, "RUNNING")
    return flow_id


class TestSqlite(OnSqlite, Decisions):
    pass


class TestMemory(InMemory, Decisions):
    pass


class TestPostgres(OnPostgres, Decisions):
    pass
