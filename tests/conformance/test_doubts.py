"""Steps in doubt: asked about in words that say what happened, and answered once; on every backend."""

import threading
from functools import partial
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.db import Tx, sql
from holdproof.model.coordination import Escalation
from holdproof.runtime import escalations, inbox
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore

_EDIT = sql("UPDATE escalation_requests SET human_decision = 'DID_NOT_HAPPEN'")


class Bank:
    """A world in which paying twice shows."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

    def pay(self, order: str, cents: int, error: BaseException | None = None) -> dict[str, Any]:
        self.paid.append((order, cents))
        if error is not None:
            raise error
        return {"order": order, "cents": cents}


def registered(store: sync.Holdproof, bank: Bank, error: BaseException | None = None, **options: Any) -> Any:
    """A flow with a step that can be undone, and then the payment."""

    @store.flow(agent="trader", lease_s=10)
    def refund(flow: Any, order: str, cents: int) -> Any:
        flow.step("book", bank.pay, "book", 1, compensate=lambda _: bank.pay("unbook", 1))
        return flow.step("pay", partial(bank.pay, error=error), order, cents, **options)

    return refund


class Doubts(OnStore):
    def asked(self, store: sync.Holdproof, clock: FrozenClock, bank: Bank) -> tuple[Any, sync.Holdproof]:
        """The question about a payment whose worker died, and the worker that waits for the answer."""
        with pytest.raises(CrashError):
            registered(sync.Holdproof(store.core), bank, CrashError())("o-17", 500)
        clock.advance(10)
        worker = sync.Holdproof(store.core)
        registered(worker, bank)
        [rerun] = worker.flows.recover().reruns
        assert rerun.waits_for is not None
        [question] = store.escalations.list(status="PENDING").items
        return question, worker

    def test_the_question_shows_arguments_start_worker_and_idempotency_key(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        question, _ = self.asked(store, clock, Bank())
        step = store.flows.steps(question.flow_id)[1]
        assert (question.kind, question.answers) == ("in_doubt", ("happened", "did_not_happen", "undo"))
        assert store.escalations.get(question.id).context == {
            "step": "pay",
            "n": 1,
            "arguments": {"args": ["o-17", 500], "kwargs": {}},
            "started_at": step.started_at,
            "worker": step.worker,
            "attempts": 1,
            "idempotency_key": f"{question.flow_id}:pay:1",
            "compensates": None,
        }

    @pytest.mark.parametrize("word", ["approve", "reject", "cancel", "APPROVE"])
    def test_an_approval_is_no_answer_to_a_step_in_doubt(
        self, store: sync.Holdproof, clock: FrozenClock, word: str
    ) -> None:
        bank = Bank()
        question, worker = self.asked(store, clock, bank)
        with pytest.raises(errors.WrongAnswerError) as refused:
            store.escalations.resolve(question.id, word, by="ann")
        assert refused.value.fields["answers"] == ["happened", "did_not_happen", "undo"]
        assert all(word in refused.value.message for word in question.answers)
        assert worker.flows.recover().reruns == ()
        assert bank.paid == [("book", 1), ("o-17", 500)]

    def test_an_approval_has_no_answer_of_a_step_in_doubt(self, store: sync.Holdproof) -> None:
        flow = store.flows.start("trader")
        store.flows.transition(flow.flow_id, "RUNNING")
        asked = store.escalations.request(flow.flow_id, reason="may I?")
        for word in ("happened", "did_not_happen", "undo"):
            with pytest.raises(errors.WrongAnswerError, match="approve, reject or cancel"):
                store.escalations.resolve(asked.id, word, by="ann")

    def test_it_happened_records_the_result_and_does_not_run_it(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        bank = Bank()
        question, worker = self.asked(store, clock, bank)
        answer = store.escalations.resolve(question.id, "happened", by="ann", result={"cents": 500})
        assert (answer.outcome, answer.answer) == ("it happened", {"cents": 500})
        [rerun] = worker.flows.recover().reruns
        assert (rerun.flow.status, rerun.error) == ("COMPLETED", None)
        assert store.flows.result(question.flow_id) == {"cents": 500}
        assert store.flows.steps(question.flow_id)[1].result == {"cents": 500}
        assert bank.paid == [("book", 1), ("o-17", 500)]

    def test_it_did_not_happen_runs_it(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        bank = Bank()
        question, worker = self.asked(store, clock, bank)
        assert store.escalations.resolve(question.id, "did_not_happen", by="ann").outcome == "it did not happen"
        [rerun] = worker.flows.recover().reruns
        assert (rerun.flow.status, bank.paid) == ("COMPLETED", [("book", 1), ("o-17", 500), ("o-17", 500)])
        assert store.flows.steps(question.flow_id)[1].attempts == 2

    def test_undo_undoes_what_was_confirmed_and_not_the_step_in_doubt(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        bank = Bank()
        question, worker = self.asked(store, clock, bank)
        assert store.escalations.resolve(question.id, "undo", by="ann").outcome == "undo the flow"
        [rerun] = worker.flows.recover().reruns
        assert (rerun.flow.status, bank.paid) == ("COMPENSATED", [("book", 1), ("o-17", 500), ("unbook", 1)])

    def test_values_that_do_not_go_with_an_answer_are_refused(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        question, _ = self.asked(store, clock, Bank())
        with pytest.raises(errors.InvalidInputError, match="a result goes with happened only"):
            store.escalations.resolve(question.id, "undo", by="ann", result=1)
        with pytest.raises(errors.InvalidInputError, match="a proposal goes with approve only"):
            store.escalations.resolve(question.id, "happened", by="ann", proposal=1)
        with pytest.raises(errors.UnrecordableError, match="no tag of a recorded value"):
            store.escalations.resolve(question.id, "happened", by="ann", result={"$nothing": 1})
        assert store.escalations.resolve(question.id, "happened", by="ann").answer is None

    def test_an_edited_answer_is_not_acted_on(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        bank = Bank()
        question, worker = self.asked(store, clock, bank)
        store.escalations.resolve(question.id, "happened", by="ann", result="a")
        store.write(lambda tx: tx.execute(_EDIT))
        [rerun] = worker.flows.recover().reruns
        assert "TamperedError" in (rerun.error or "")
        assert bank.paid == [("book", 1), ("o-17", 500)]
        # So that the rows are proven again when the test is over.
        store.write(lambda tx: tx.execute(sql("UPDATE escalation_requests SET human_decision = 'HAPPENED'")))

    def test_what_one_commit_wrote_and_reads_again_matches_its_entries(self, store: sync.Holdproof) -> None:
        flow = store.flows.start("trader")

        def write(tx: Tx) -> Escalation:
            return inbox.confirmed(tx, escalations.alert(tx, flow.flow_id, reason="?").id, ns="main")

        assert store.write(write).reason == "?"

    def test_a_programs_own_questions_are_approvals(self, store: sync.Holdproof) -> None:
        flow = store.flows.start("trader")
        store.flows.transition(flow.flow_id, "RUNNING")
        asked = store.write(lambda tx: escalations.alert(tx, flow.flow_id, reason="?"))
        assert (asked.kind, store.escalations.resolve(asked.id, "approve", by="ann").outcome) == (
            "approval",
            "approved as proposed",
        )

    # --- on_unknown="fail" ----------------------------------------------------------------------------------------

    def test_a_step_in_doubt_that_is_to_fail_leaves_the_flow_dirty_after_a_crash(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        bank = Bank()
        with pytest.raises(CrashError):
            registered(sync.Holdproof(store.core), bank, CrashError(), on_unknown="fail")("o-17", 500)
        clock.advance(10)
        worker = sync.Holdproof(store.core)
        registered(worker, bank, on_unknown="fail")
        [rerun] = worker.flows.recover().reruns
        assert "UnknownOutcomeError" in (rerun.error or "")
        # What was confirmed is undone; what is in doubt keeps the flow dirty, and so FAILED.
        assert (rerun.flow.status, bank.paid) == ("FAILED", [("book", 1), ("o-17", 500), ("unbook", 1)])
        assert store.sagas.get(rerun.flow.flow_id).partial_state == {"in_doubt": "pay 1"}
        assert store.escalations.list(status="PENDING").items == []

    def test_so_does_one_that_ran_over_its_time_limit(self, live: sync.Holdproof) -> None:
        gate = threading.Event()
        with pytest.raises(errors.UnknownOutcomeError), live.flows.run("trader") as flow:
            flow.step("pay", partial(gate.wait, 30), timeout_s=0.05, on_unknown="fail")
        gate.set()
        assert live.flows.get(flow.flow_id).status == "FAILED"
        assert live.sagas.get(flow.flow_id).partial_state == {"in_doubt": "pay 1"}


class TestSqlite(OnSqlite, Doubts):
    pass


class TestMemory(InMemory, Doubts):
    pass


class TestPostgres(OnPostgres, Doubts):
    pass
