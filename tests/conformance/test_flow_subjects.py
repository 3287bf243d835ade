"""Flows of a person: what hangs on them is sealed, goes with the person, and every proof holds; on every backend."""

from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.db import Tx, sql
from holdproof.model.verdicts import Verdict
from holdproof.runtime import recorded
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore

SECRET = "diabetes"
NAME = "Ada Lovelace"
TABLES = (
    *("decision_flows", "flow_calls", "flow_steps", "flow_context", "flow_transitions", "escalation_requests"),
    *(
        "decision_audit_events",
        "decision_feedback_trajectory",
        "decision_ledger_entries",
        "saga_dirty_state",
        "objects",
        "log_leaves",
    ),
)
_DUMP = {table: sql(f"SELECT * FROM {table}", postgres=f"SELECT CAST(t AS TEXT) FROM {table} t") for table in TABLES}


def holding(store: sync.Holdproof, needle: str) -> list[str]:
    """The tables in whose rows a text stands."""

    def look(tx: Tx) -> list[str]:
        return [table for table, query in _DUMP.items() if needle in repr(tx.all(query))]

    return store.read(look)


def diagnosed(store: sync.Holdproof) -> Any:
    @store.flow(agent="trader", lease_s=10)
    def diagnose(flow: Any, finding: str) -> str:
        noted = flow.step("note", lambda text: f"noted {text}", finding)
        flow.step("long", lambda texts: [*texts], [finding] * 1000)
        return str(noted)

    return diagnose


class FlowSubjects(OnStore):
    def everything(self, store: sync.Holdproof) -> str:
        """A flow of a person with all that may hang on one; its id."""
        flow = store.flows.start("trader", subject=NAME)
        store.flows.transition(flow.flow_id, "RUNNING", reason=f"has {SECRET}")
        store.contexts.put(flow.flow_id, {"finding": SECRET})
        store.audit.record(flow.flow_id, "EXAMINED", detail={"finding": SECRET}, by="dr")
        store.ledger.append(flow.flow_id, {"treat": SECRET}, context_ref="c", evidence_hash="h")
        store.feedback.record("trader", flow.flow_id, status="WRONG", reason=f"was {SECRET}")
        asked = store.escalations.request(
            flow.flow_id, reason=f"treat {SECRET}?", context={"of": SECRET}, proposal={"against": SECRET}
        )
        store.escalations.resolve(
            asked.id, "approve", by="ann", proposal={"against": f"{SECRET} 2"}, comment=f"{SECRET} indeed"
        )
        store.sagas.mark_dirty(flow.flow_id, "treat", {"half": SECRET})
        store.sagas.clear(flow.flow_id, by="ann")
        store.flows.transition(flow.flow_id, "FAILED", reason=f"{SECRET} is not covered")
        return flow.flow_id

    def test_whoever_may_read_reads_and_no_row_does(self, store: sync.Holdproof) -> None:
        flow_id = self.everything(store)
        diagnosed(store).opening(subject=NAME)(SECRET)
        assert holding(store, SECRET) == []
        assert store.flows.transitions(flow_id)[0].reason == f"has {SECRET}"
        assert store.contexts.get(flow_id).data == {"finding": SECRET}
        assert store.audit.list(flow_id=flow_id, event_type="EXAMINED").items[0].detail == {
            "finding": SECRET,
            "recorded_by": "dr",
        }
        assert store.ledger.get(flow_id).intent == {"treat": SECRET}
        assert [each.reason for each in store.feedback.list(flow_id=flow_id).items] == [f"was {SECRET}"]
        [asked] = store.escalations.list(flow_id=flow_id).items
        assert (asked.reason, asked.context, asked.proposal) == (
            f"treat {SECRET}?",
            {"of": SECRET},
            {"against": SECRET},
        )
        assert (asked.answer, asked.comment) == ({"against": f"{SECRET} 2"}, f"{SECRET} indeed")
        assert store.escalations.get(asked.id) == asked
        assert SECRET in repr(store.flows.timeline(flow_id).events)
        assert store.flows.outcome(flow_id).error == f"{SECRET} is not covered"

    def test_a_block_that_is_entered_again_finds_the_approval_it_requested(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        with pytest.raises(CrashError), store.flows.run("trader", subject=NAME, lease_s=10) as flow:
            raise CrashError
        asked = store.escalations.request(flow.flow_id, reason=f"treat {SECRET}?")
        store.escalations.resolve(asked.id, "approve", by="ann")
        clock.advance(10)
        with store.flows.run(resume=flow.flow_id) as again:
            assert again.approve(f"treat {SECRET}?").id == asked.id
        assert len(store.escalations.list().items) == 1

    def test_an_erased_persons_flows_are_shown_as_erased_and_every_proof_holds(self, store: sync.Holdproof) -> None:
        flow_id = self.everything(store)
        called = diagnosed(store).opening(subject=NAME).with_id("d-1")
        assert called(SECRET) == f"noted {SECRET}"
        erasure = store.erase.subject(NAME, who="dpo")
        assert erasure.sealed["flows"] == 2
        assert store.erase.list().items[0].sealed["flows"] == 2
        handle = erasure.target
        erased = {"$erased": handle}
        assert {each.reason for each in store.flows.transitions(flow_id) if each.reason} == {recorded.ERASED}
        assert store.contexts.get(flow_id).data == erased
        assert store.ledger.get(flow_id).intent == erased
        assert [each.reason for each in store.feedback.list(flow_id=flow_id).items] == [recorded.ERASED]
        assert {repr(each.detail) for each in store.audit.list(flow_id=flow_id).items} == {repr(erased)}
        [asked] = store.escalations.list(flow_id=flow_id).items
        assert (asked.reason, asked.comment) == (recorded.ERASED, recorded.ERASED)
        assert (asked.context, asked.proposal, asked.answer) == (erased, erased, erased)
        assert [step.arguments for step in store.flows.steps("d-1")] == [erased, erased]
        assert store.flows.inputs("d-1").arguments == erased
        with pytest.raises(errors.ErasedError):
            store.flows.result("d-1")
        assert store.verify.run(full=True).verdict is Verdict.VALID

    def test_an_open_flow_of_an_erased_person_is_not_run_again(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        worker = sync.Holdproof(store.core)

        @worker.flow(name="diagnose", agent="trader", lease_s=10)
        def crashing(flow: Any, finding: str) -> str:
            flow.step("note", len, finding)
            raise CrashError

        with pytest.raises(CrashError):
            crashing.opening(subject=NAME)(SECRET)
        store.erase.subject(NAME)
        clock.advance(10)
        diagnosed(store)
        [rerun] = store.flows.recover().reruns
        assert "ErasedError" in (rerun.error or "")
        assert store.flows.recover().reruns == ()
        with pytest.raises(errors.ErasedError), store.flows.run(resume=rerun.flow.flow_id):
            pass
        # An operator ends it; what says why is nobody's any more.
        store.flows.cancel(rerun.flow.flow_id, reason=f"{SECRET} was erased")
        assert store.flows.get(rerun.flow.flow_id).status == "CANCELLED"
        assert store.flows.transitions(rerun.flow.flow_id)[-1].reason == recorded.ERASED
        assert holding(store, SECRET) == []


class TestSqlite(OnSqlite, FlowSubjects):
    pass


class TestMemory(InMemory, FlowSubjects):
    pass


class TestPostgres(OnPostgres, FlowSubjects):
    pass
