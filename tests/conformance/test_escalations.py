"""Escalations: budgets that hold, answers that are given once, deadlines that say so; on every backend."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.client import Holdproof
from holdproof.db import sql
from holdproof.model.coordination import Escalation
from holdproof.model.times import later
from holdproof.runtime import escalations, gauges
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.receiver import Receiver

_ANSWER = sql("SELECT answer_json FROM escalation_requests")
_SPENT = sql("SELECT count(*) FROM escalation_budget WHERE agent_id = 'trader'")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Escalations(OnStore):
    def test_a_request_makes_its_flow_wait_and_shows_what_was_asked(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        asked = store.escalations.request(
            flow_id,
            reason="over limit",
            context={"pnl": 1.5},
            proposal={"buy": 3},
            impact="HIGH_IMPACT",
            deadline_s=600,
        )
        assert store.flows.get(flow_id).status == "WAITING_ESCALATION"
        assert store.escalations.get(asked.id) == asked
        assert store.escalations.list(status="PENDING").items == [asked]
        assert (asked.context, asked.proposal, asked.impact) == ({"pnl": 1.5}, {"buy": 3}, "HIGH_IMPACT")
        assert (asked.status, asked.deadline) == ("PENDING", later(asked.created_at, 600))

    def test_whoever_watches_is_told_that_there_is_a_question(self, live: sync.Holdproof) -> None:
        told, topics = threading.Event(), live.database.topics
        flow_id = running(live)
        assert topics.subscribe("escalations:main", topics.epoch, told.set)
        live.escalations.request(flow_id, reason="?")
        assert told.wait(30)

    @pytest.mark.parametrize(
        ("word", "status", "outcome", "status_after"),
        [
            ("approve", "APPROVED", "approved as proposed", "RUNNING"),
            ("Reject", "REJECTED", "rejected", "FAILED"),
            ("CANCEL", "CANCELLED", "cancelled", "CANCELLED"),
        ],
    )
    def test_the_answer_moves_the_flow_on(
        self, store: sync.Holdproof, word: str, status: str, outcome: str, status_after: str
    ) -> None:
        flow_id = running(store)
        asked = store.escalations.request(flow_id, reason="?")
        answer = store.escalations.resolve(asked.id, word, by="ann", comment="because")
        assert (answer.status, answer.outcome) == (status, outcome)
        assert (answer.resolved_by, answer.comment) == ("ann", "because")
        assert answer == store.escalations.get(asked.id)
        assert store.flows.get(flow_id).status == status_after
        assert store.flows.transitions(flow_id)[-1].causation_id == f"escalation:{asked.id}"

    def test_a_modified_proposal_stands_beside_the_one_shown(self, store: sync.Holdproof) -> None:
        asked = store.escalations.request(running(store), reason="?", proposal={"buy": 3})
        answer = store.escalations.resolve(asked.id, "approve", by="ann", proposal={"buy": 1})
        assert (answer.human_decision, answer.proposal, answer.answer) == ("MODIFY", {"buy": 3}, {"buy": 1})
        assert answer.outcome == "approved with changes"

    def test_an_answer_without_a_proposal_of_its_own_keeps_none(self, store: sync.Holdproof) -> None:
        asked = store.escalations.request(running(store), reason="?", proposal={"buy": 3})
        assert store.escalations.resolve(asked.id, "approve", by="ann").answer is None
        assert store.read(lambda tx: tx.one(_ANSWER)) == (None,)

    def test_the_second_resolver_gets_a_conflict(self, store: sync.Holdproof) -> None:
        asked = store.escalations.request(running(store), reason="?")
        store.escalations.resolve(asked.id, "approve", by="ann")
        with pytest.raises(errors.AlreadyResolvedError) as refused:
            store.escalations.resolve(asked.id, "reject", by="bob")
        assert refused.value.fields["by"] == "ann"
        assert store.escalations.get(asked.id).status == "APPROVED"

    # --- the budget -----------------------------------------------------------------------------------------------

    def test_without_a_budget_an_agent_requests_as_often_as_it_likes(self, store: sync.Holdproof) -> None:
        for _ in range(5):
            store.escalations.request(running(store), reason="?")
        budget = store.escalations.budget("trader")
        assert (budget.spent, budget.budget, budget.left, budget.on_exhausted) == (5, None, None, None)

    def test_a_spent_budget_refuses_the_request_with_the_time_of_the_next(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.agents.set_budget("trader", per_hour=2)
        first = store.escalations.request(running(store), reason="?")
        clock.advance(60)
        store.escalations.request(running(store), reason="?")
        flow_id = running(store)
        clock.advance(60)
        with pytest.raises(errors.BudgetExhaustedError) as refused:
            store.escalations.request(flow_id, reason="one more")
        assert refused.value.fields["possible_at"] == later(first.created_at, 3600)
        assert later(first.created_at, 3600) in refused.value.message
        # Nothing else happens: the agent goes on, and so does its flow.
        assert (store.agents.get("trader").status, store.flows.get(flow_id).status) == ("ACTIVE", "RUNNING")
        assert len(store.escalations.list().items) == 2
        [event] = store.audit.list(flow_id=flow_id).items
        assert (event.event_type, event.severity) == ("ESCALATION_BUDGET_EXHAUSTED", "WARNING")
        clock.advance(3480)
        assert store.escalations.request(flow_id, reason="?").status == "PENDING"

    def test_a_budget_of_nothing_waits_for_an_operator(self, store: sync.Holdproof) -> None:
        store.agents.set_budget("trader", per_hour=0)
        with pytest.raises(errors.BudgetExhaustedError, match="set-budget"):
            store.escalations.request(running(store), reason="?")

    def test_a_contract_names_a_budget_and_an_operators_counts_more(self, store: sync.Holdproof) -> None:
        store.agents.register("trader", version="1", contract={"escalation_budget": {"per_hour": 1}})
        assert store.escalations.budget("trader").budget == 1
        store.agents.set_budget("trader", per_hour=7, on_exhausted="suspend")
        store.agents.register("trader", version="1", contract={"escalation_budget": {"per_hour": 2}})
        budget = store.escalations.budget("trader")
        assert (budget.budget, budget.on_exhausted) == (7, "suspend")
        store.agents.set_budget("trader", per_hour=None)
        assert store.escalations.budget("trader").budget == 2

    @pytest.mark.parametrize(
        "wrong", [3, {"per_hour": -1}, {"per_hour": 1, "on_exhausted": "x"}, {}, {"per_hour": True}]
    )
    def test_a_contract_with_another_form_of_budget_is_refused(self, store: sync.Holdproof, wrong: object) -> None:
        with pytest.raises(errors.InvalidInputError, match="per_hour"):
            store.agents.register("other", version="1", contract={"escalation_budget": wrong})

    def test_a_spent_budget_that_suspends_is_recorded_and_refused(self, store: sync.Holdproof) -> None:
        store.agents.set_budget("trader", per_hour=3, on_exhausted="suspend")
        for _ in range(3):
            store.escalations.request(running(store), reason="?")
        flow_id = running(store)
        with pytest.raises(errors.BudgetExhaustedError):
            store.escalations.request(flow_id, reason="one more", proposal={"x": 1})
        agent = store.agents.get("trader")
        assert (agent.status, agent.suspension_reason) == ("SUSPENDED", "ESCALATION_BUDGET_EXHAUSTED")
        assert store.flows.get(flow_id).status == "CANCELLED"
        assert [event.event_type for event in store.audit.list(flow_id=flow_id).items] == [
            "ESCALATION_BUDGET_EXHAUSTED"
        ]
        refused = store.escalations.get(4)
        assert (refused.status, refused.proposal, refused.reason) == ("CANCELLED", {"x": 1}, "one more")
        assert len(store.escalations.list(status="PENDING").items) == 3

    def test_the_budget_is_full_again_when_the_window_has_passed(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.agents.set_budget("trader", per_hour=3, on_exhausted="suspend")
        for _ in range(3):
            store.escalations.request(running(store), reason="?")
            clock.advance(10)
        flow_id = running(store)
        clock.advance(3569.999)
        late = running(store)
        with pytest.raises(errors.BudgetExhaustedError):
            store.escalations.request(late, reason="?")
        store.agents.set_status("trader", "ACTIVE")
        clock.advance(0.001)
        assert store.escalations.request(flow_id, reason="?").status == "PENDING"
        assert store.read(lambda tx: tx.one(_SPENT)) == (4,)

    def test_one_agent_does_not_spend_the_budget_of_another(self, store: sync.Holdproof) -> None:
        store.agents.register("other", version="1.0.0")
        store.agents.set_budget("trader", per_hour=3)
        store.agents.set_budget("other", per_hour=1)
        for _ in range(3):
            store.escalations.request(running(store), reason="?")
        theirs = store.flows.start("other").flow_id
        store.flows.transition(theirs, "RUNNING")
        assert store.escalations.request(theirs, reason="?").status == "PENDING"
        assert store.read(lambda tx: tx.one(_SPENT)) == (3,)

    def test_a_budget_of_three_grants_three_of_eight_at_once(self, live: sync.Holdproof) -> None:
        live.agents.set_budget("trader", per_hour=3, on_exhausted="suspend")
        flows = [running(live) for _ in range(8)]

        def ask(flow_id: str) -> bool:
            try:
                live.escalations.request(flow_id, reason="?")
            except errors.BudgetExhaustedError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            granted = list(pool.map(ask, flows))
        assert sum(granted) == 3
        assert len(live.escalations.list(status="PENDING").items) == 3
        states = [live.flows.get(flow_id).status for flow_id in flows]
        assert states == ["WAITING_ESCALATION" if one else "CANCELLED" for one in granted]
        assert live.agents.get("trader").status == "SUSPENDED"

    def test_the_kernels_own_questions_cost_nothing(self, store: sync.Holdproof) -> None:
        for _ in range(5):
            flow_id = running(store)
            asked = store.write(lambda tx: escalations.alert(tx, flow_id, reason="unknown step"))  # noqa: B023
            assert (asked.opened_by, store.flows.get(flow_id).status) == ("kernel", "WAITING_ESCALATION")
        assert store.read(lambda tx: tx.one(_SPENT)) == (0,)

    @pytest.mark.parametrize(("status", "may"), [("ESCALATION_ONLY", True), ("DEGRADED", True), ("SUSPENDED", False)])
    def test_who_may_ask(self, store: sync.Holdproof, status: str, may: bool) -> None:
        flow_id = running(store)
        store.agents.set_status("trader", status)
        if may:
            assert store.escalations.request(flow_id, reason="?").status == "PENDING"
            return
        with pytest.raises(errors.AgentInactiveError):
            store.escalations.request(flow_id, reason="?")
        assert store.read(lambda tx: tx.one(_SPENT)) == (0,)

    # --- deadlines ------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("default", "status", "status_after"),
        [("reject", "REJECTED", "FAILED"), ("approve", "APPROVED", "RUNNING"), ("cancel", "CANCELLED", "CANCELLED")],
    )
    def test_a_deadline_that_passes_takes_its_default_and_says_so(
        self, store: sync.Holdproof, clock: FrozenClock, default: str, status: str, status_after: str
    ) -> None:
        flow_id = running(store)
        asked = store.escalations.request(flow_id, reason="?", deadline_s=10, on_deadline=default)
        clock.advance(9)
        assert store.escalations.expire(asked.id).status == "PENDING"
        clock.advance(1)
        assert store.write(lambda tx: escalations.sweep(tx)) == 1
        answer = store.escalations.get(asked.id)
        assert (answer.status, answer.resolved_by) == (status, "deadline")
        assert default in (answer.comment or "")
        assert store.flows.get(flow_id).status == status_after
        assert store.write(lambda tx: escalations.sweep(tx)) == 0

    def test_a_sweep_answers_as_many_as_it_is_asked_to(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        for _ in range(3):
            store.escalations.request(running(store), reason="?", deadline_s=10)
        clock.advance(9.999)
        assert store.write(lambda tx: escalations.sweep(tx, limit=2)) == 0
        clock.advance(0.001)
        assert [store.write(lambda tx: escalations.sweep(tx, limit=2)) for _ in range(3)] == [2, 1, 0]

    def test_one_that_expires_unanswered_is_counted_and_alerted(
        self, store: sync.Holdproof, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = [store.escalations.request(running(store), reason="refund", deadline_s=10) for _ in range(2)]
        assert store.status().escalations == {"pending": 2, "expired": 0, "expired_last_day": 0}
        clock.advance(11)
        with closing(Receiver(200)) as receiver:
            monkeypatch.setenv("HOLDPROOF_NOTIFY_WEBHOOK_URL", receiver.url)
            assert store.sweep.run().escalations == 2
            until(lambda: receiver.requests != [])
            _, _, body = receiver.requests[0]
        alert = json.loads(body)
        assert (alert["type"], alert["count"]) == ("holdproof.escalation_expired", 2)
        assert (alert["escalation"] in [each.id for each in asked], alert["on_deadline"]) == (True, "reject")
        assert store.status().escalations == {"pending": 0, "expired": 2, "expired_last_day": 2}
        assert store.read(gauges.read)["escalations.expired"] == 2
        clock.advance(90_000)
        assert store.status().escalations == {"pending": 0, "expired": 2, "expired_last_day": 0}

    def test_a_question_without_a_deadline_waits_for_ever(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        asked = store.escalations.request(running(store), reason="?")
        clock.advance(1e8)
        assert store.escalations.expire(asked.id).status == "PENDING"
        assert store.write(lambda tx: escalations.sweep(tx)) == 0

    def test_an_answer_after_the_deadline_is_refused_and_the_default_stands(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        asked = store.escalations.request(running(store), reason="?", deadline="2026-01-01T00:01:00+00:00")
        clock.advance(60)
        with pytest.raises(errors.DeadlinePassedError):
            store.escalations.resolve(asked.id, "approve", by="ann")
        assert store.escalations.get(asked.id).status == "REJECTED"

    def test_waiting_ends_with_the_answer(self, live: sync.Holdproof) -> None:
        asked = live.escalations.request(running(live), reason="?")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(live.escalations.wait, asked.id)
            live.escalations.resolve(asked.id, "approve", by="ann")
            assert waiting.result(60).status == "APPROVED"

    def test_waiting_ends_with_the_deadline_or_the_timeout(self, live: sync.Holdproof) -> None:
        asked = live.escalations.request(running(live), reason="?", deadline_s=0.2)
        assert live.escalations.wait(asked.id).resolved_by == "deadline"
        other = live.escalations.request(running(live), reason="?")
        assert live.escalations.wait(other.id, timeout_s=0.1).status == "PENDING"

    def test_one_of_many_resolvers_wins(self, live: sync.Holdproof) -> None:
        asked = live.escalations.request(running(live), reason="?")

        async def run() -> list[Escalation | BaseException]:
            store = Holdproof(live.core)
            calls = (store.escalations.resolve(asked.id, "approve", by=f"p{n}") for n in range(12))
            return await asyncio.gather(*calls, return_exceptions=True)

        answers = asyncio.run(run())
        assert sum(isinstance(answer, Escalation) for answer in answers) == 1
        assert sum(isinstance(answer, errors.AlreadyResolvedError) for answer in answers) == 11

    # --- what is wrong --------------------------------------------------------------------------------------------

    def test_a_flow_that_goes_on_without_its_answer_withdraws_the_question(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        asked = store.escalations.request(flow_id, reason="?")
        store.flows.transition(flow_id, "CANCELLED")
        withdrawn = store.escalations.get(asked.id)
        assert (withdrawn.status, withdrawn.resolved_by) == ("CANCELLED", "kernel")
        with pytest.raises(errors.AlreadyResolvedError):
            store.escalations.resolve(asked.id, "approve", by="ann")

    def test_only_a_running_flow_asks(self, store: sync.Holdproof) -> None:
        waiting = running(store)
        store.escalations.request(waiting, reason="?")
        for flow_id in (store.flows.start("trader").flow_id, waiting):
            with pytest.raises(errors.IllegalTransitionError):
                store.escalations.request(flow_id, reason="?")
        assert store.read(lambda tx: tx.one(_SPENT)) == (1,)

    def test_what_is_wrong_is_a_typed_error(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        calls: list[Callable[[], object]] = [
            lambda: store.escalations.request(flow_id, reason="?", impact="HUGE"),
            lambda: store.escalations.request(flow_id, reason="?", on_deadline="hope"),
            lambda: store.escalations.request(flow_id, reason="?", deadline="soon"),
            lambda: store.escalations.request(flow_id, reason="?", deadline="2026-01-01T00:00:00Z", deadline_s=1),
        ]
        for call in calls:
            with pytest.raises(errors.InvalidInputError):
                call()
        asked = store.escalations.request(flow_id, reason="?")
        for decision, proposal in (("PENDING", None), ("OVERRIDE", None), ("reject", {"x": 1}), ("cancel", {"x": 1})):
            with pytest.raises(errors.InvalidInputError):
                store.escalations.resolve(asked.id, decision, by="ann", proposal=proposal)
        with pytest.raises(errors.NotFoundError):
            store.escalations.resolve(99, "approve", by="ann")
        with pytest.raises(errors.NotFoundError):
            store.escalations.resolve(asked.id, "approve", by="ann", ns="other")


class TestSqlite(OnSqlite, Escalations):
    pass


class TestMemory(InMemory, Escalations):
    pass


class TestPostgres(OnPostgres, Escalations):
    pass
