"""CrewAI on a store: states come back, a pause is a request in the inbox, a checkpoint is restored."""

import asyncio
import datetime
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from harness import quiet_crewai
from holdproof import errors, sync
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

if importlib.util.find_spec("crewai") is None:
    pytest.skip("not installed: pip install crewai", allow_module_level=True)
quiet_crewai.quieten()
flow_module: Any = pytest.importorskip("crewai.flow.flow")
feedback: Any = pytest.importorskip("crewai.flow.async_feedback")
human: Any = pytest.importorskip("crewai.flow.human_feedback")
persistence: Any = pytest.importorskip("crewai.flow.persistence")
bus: Any = pytest.importorskip("crewai.events.event_bus")
config: Any = pytest.importorskip("crewai.state.checkpoint_config")
adapter: Any = pytest.importorskip("holdproof.adapters.crewai")


class Later:
    """A provider that leaves the answer to somebody else."""

    def request_feedback(self, context: Any, flow: Any) -> str:
        del flow
        raise feedback.HumanFeedbackPending(context=context)


def reviewed(saved: Any) -> Any:
    """A flow that writes a draft, waits for a person and uses what they said."""

    class Review(flow_module.Flow):  # type: ignore[misc]
        @flow_module.start()  # type: ignore[untyped-decorator]
        @human.human_feedback(message="Publish?", provider=Later())  # type: ignore[untyped-decorator]
        def draft(self) -> dict[str, int]:
            self.state["drafts"] = self.state.get("drafts", 0) + 1
            return {"words": 300}

        @flow_module.listen(draft)  # type: ignore[untyped-decorator]
        def publish(self, result: Any) -> str:
            self.state["said"] = result.feedback
            return f"published: {result.feedback}"

    return persistence.persist(saved)(Review)


def context(flow_id: str, **fields: Any) -> Any:
    given = {"flow_class": "app.Review", "method_name": "draft", "method_output": {"n": 1}, "message": "Publish?"}
    return feedback.PendingFeedbackContext(flow_id=flow_id, **{**given, **fields})


class CrewAI(OnStore):
    def test_the_newest_state_comes_back(self, store: sync.Holdproof) -> None:
        saved = adapter.HoldproofFlowPersistence(store)
        saved.init_db()
        assert saved.load_state("f/ä %2F") is None
        for n in range(3):
            saved.save_state("f/ä %2F", "step", {"n": n, "id": "f"})
        assert saved.load_state("f/ä %2F") == {"n": 2, "id": "f"}
        saved.save_state("empty", "step", {})
        assert saved.load_state("empty") == {}
        assert saved.load_state("f") is None

    def test_types_of_a_state_are_written_as_crewai_writes_them_and_what_json_cannot_hold_is_refused(
        self, store: sync.Holdproof
    ) -> None:
        class State(flow_module.FlowState):  # type: ignore[misc]
            due: datetime.date = datetime.date(2026, 11, 19)
            names: set[str] = Field(default={"ada"})

        saved = adapter.HoldproofFlowPersistence(store)
        saved.save_state("f", "step", State(id="f"))
        assert State.model_validate(saved.load_state("f")) == State(id="f")
        saved.save_state("g", "step", {"path": Path("/a"), "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)})
        assert saved.load_state("g") == {"path": "/a", "at": "2026-01-01T00:00:00+00:00"}
        cycle: dict[str, Any] = {}
        cycle["self"] = cycle
        for wrong in ({"x": float("nan")}, ["no state"], cycle):
            with pytest.raises(errors.InvalidInputError):
                saved.save_state("f", "step", wrong)
        assert saved.load_state("f")["id"] == "f"

    def test_a_pause_is_decided_in_the_inbox_and_the_flow_goes_on_with_what_was_said(
        self, store: sync.Holdproof
    ) -> None:
        saved = adapter.HoldproofFlowPersistence(store)
        review = reviewed(saved)
        flow = review()
        assert isinstance(flow.kickoff(), feedback.HumanFeedbackPending)
        [request] = store.escalations.list(status="PENDING")
        assert (request.reason, request.agent_id) == ("Publish?", "Review")
        assert request.proposal == {"output": {"words": 300}, "feedback": None}
        with pytest.raises(errors.ConflictError, match="not decided"):
            saved.wait_feedback(flow.flow_id, timeout_s=0)
        store.escalations.resolve(request.id, "approve", by="ann", comment="ship it")
        # Another process: only the id of the flow is known there.
        again = review.from_pending(flow.flow_id, adapter.HoldproofFlowPersistence(store))
        assert again.resume(saved.wait_feedback(flow.flow_id)) == "published: ship it"
        assert saved.load_state(flow.flow_id)["said"] == "ship it"
        assert saved.load_pending_feedback(flow.flow_id) is None
        assert store.flows.get(request.flow_id).status == "COMPLETED"
        with pytest.raises(errors.NotFoundError, match="waits for no feedback"):
            saved.wait_feedback(flow.flow_id)

    def test_a_flow_that_is_resumed_by_its_own_call_leaves_no_request_behind(self, store: sync.Holdproof) -> None:
        saved = adapter.HoldproofFlowPersistence(store)
        review = reviewed(saved)
        flow = review()
        flow.kickoff()
        assert review.from_pending(flow.flow_id, saved).resume("from Slack") == "published: from Slack"
        [request] = store.escalations.list()
        assert (request.status, request.resolved_by) == ("CANCELLED", "crewai")
        assert store.flows.get(request.flow_id).status == "CANCELLED"
        saved.clear_pending_feedback(flow.flow_id)
        saved.clear_pending_feedback("never there")
        assert saved.load_state("never there") is None

    def test_a_second_pause_replaces_the_first(self, store: sync.Holdproof) -> None:
        saved = adapter.HoldproofFlowPersistence(store)
        for n in range(2):
            saved.save_pending_feedback("f", context("f", message=f"{n}?"), {"id": "f", "n": n})
        state, pending = saved.load_pending_feedback("f")
        assert (state["n"], pending.message, pending.method_output) == (1, "1?", {"n": 1})
        assert [(one.reason, one.status) for one in store.escalations.list()] == [
            ("1?", "PENDING"),
            ("0?", "CANCELLED"),
        ]

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            ({"decision": "approve"}, "approved"),
            ({"decision": "reject"}, "rejected"),
            ({"decision": "reject", "comment": "too long"}, "too long"),
            ({"decision": "approve", "proposal": {"feedback": "shorter"}}, "shorter"),
        ],
    )
    def test_a_decision_becomes_the_feedback_it_says(
        self, store: sync.Holdproof, answer: dict[str, Any], said: str
    ) -> None:
        saved = adapter.HoldproofFlowPersistence(store, agent_id="editor")
        saved.save_pending_feedback("f", context("f"), {"id": "f"})
        [request] = store.escalations.list()
        assert request.agent_id == "editor"
        store.escalations.resolve(request.id, by="ann", **answer)
        assert saved.wait_feedback("f") == said

    def test_a_deadline_says_nothing_and_a_cancelled_request_is_an_error(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        saved = adapter.HoldproofFlowPersistence(store, deadline_s=60)
        saved.save_pending_feedback("f", context("f"), {"id": "f"})
        clock.advance(61)
        assert saved.wait_feedback("f", timeout_s=30) == ""
        patient = adapter.HoldproofFlowPersistence(store)
        patient.save_pending_feedback("h", context("h"), {"id": "h"})
        newest = store.escalations.list().items[0]
        store.escalations.resolve(newest.id, "cancel", by="ann")
        with pytest.raises(errors.ConflictError, match="cancelled by ann"):
            patient.wait_feedback("h")

    def test_a_pause_beyond_the_budget_is_refused_and_its_state_is_saved(self, store: sync.Holdproof) -> None:
        store.agents.register("editor", version="1.0.0")
        store.agents.set_budget("editor", per_hour=1)
        saved = adapter.HoldproofFlowPersistence(store, agent_id="editor")
        saved.save_pending_feedback("f", context("f"), {"id": "f"})
        with pytest.raises(errors.BudgetExhaustedError):
            saved.save_pending_feedback("g", context("g"), {"id": "g"})
        assert saved.load_state("g") == {"id": "g"}
        assert saved.load_pending_feedback("g") is None
        assert store.flows.list(status="RUNNING").items == []

    def test_erasing_a_person_removes_flows_requests_and_checkpoints(self, store: sync.Holdproof) -> None:
        saved = adapter.HoldproofFlowPersistence(store, subject="Ada")
        saved.save_pending_feedback("f", context("f", method_output="for Ada only"), {"id": "f"})
        provider = adapter.HoldproofCheckpointProvider(store, subject="Ada")
        place = provider.checkpoint("{}", "crew")
        [request] = store.escalations.list()
        assert store.escalations.get(request.id).proposal["output"] == "for Ada only"
        store.erase.subject("Ada")
        assert saved.load_state("f") is None
        assert store.escalations.get(request.id).proposal != {"output": "for Ada only", "feedback": None}
        with pytest.raises(errors.NotFoundError):
            provider.from_checkpoint(place)

    def test_it_works_inside_a_running_loop(self, store: sync.Holdproof) -> None:
        async def cell() -> Any:
            saved = adapter.HoldproofFlowPersistence(store)
            saved.save_state("f", "step", {"id": "f"})
            provider = adapter.HoldproofCheckpointProvider(store)
            place = await provider.acheckpoint('{"n": 1}', "crew")
            return saved.load_state("f"), await provider.afrom_checkpoint(place)

        assert asyncio.run(cell()) == ({"id": "f"}, '{"n": 1}')

    def test_pruning_keeps_the_newest_of_one_branch(self, store: sync.Holdproof) -> None:
        provider = adapter.HoldproofCheckpointProvider(store)
        places = [provider.checkpoint(f'{{"n": {n}}}', "crew", branch="main") for n in range(5)]
        other = provider.checkpoint("{}", "crew", branch="fork/ä")
        assert provider.prune("crew", 2, branch="main") == 3
        assert json.loads(provider.from_checkpoint(places[4])) == {"n": 4}
        assert json.loads(provider.from_checkpoint(places[3])) == {"n": 3}
        for gone in (*places[:3], "crew#none"):
            with pytest.raises(errors.NotFoundError):
                provider.from_checkpoint(gone)
        assert provider.prune("crew", 0, branch="main") == 2
        assert provider.prune("nowhere", 1) == 0
        assert provider.from_checkpoint(other) == "{}"
        with pytest.raises(errors.InvalidInputError):
            provider.from_checkpoint("crew")

    def test_a_flow_is_restored_from_a_checkpoint_that_was_exported(
        self, store: sync.Holdproof, tmp_path: Path
    ) -> None:
        # CrewAI keeps the flows of a process together, and those of other tests are among them.
        bus.crewai_event_bus.reset_runtime_state()
        provider = adapter.HoldproofCheckpointProvider(store)

        class Count(flow_module.Flow):  # type: ignore[misc]
            @flow_module.start()  # type: ignore[untyped-decorator]
            def one(self) -> int:
                self.state["n"] = self.state.get("n", 0) + 1
                return int(self.state["n"])

        settings = config.CheckpointConfig(
            location="counts", provider=provider, on_events=["method_execution_finished"]
        )
        flow = Count(checkpoint=settings)
        assert settings.provider is provider
        flow.kickoff()
        [transcript] = store.transcripts.list(prefix="crewai-checkpoints/")
        item = store.transcripts.list_items(transcript.name).items[0]
        path = provider.export(f"counts#{item.key}", tmp_path)
        restored = Count.from_checkpoint(config.CheckpointConfig(restore_from=path))
        assert restored.state["n"] == 1


def test_a_checkpoint_names_the_folder_of_a_flow_and_no_password(tmp_path: Path) -> None:
    with adapter.HoldproofFlowPersistence(tmp_path / "store") as saved:
        saved.save_state("f", "step", {"id": "f"})
        dumped = saved.model_dump(mode="json")
        with adapter.HoldproofFlowPersistence.model_validate(dumped) as again:
            assert again.load_state("f") == {"id": "f"}
    secret = adapter.HoldproofFlowPersistence("postgresql://ann:secret@db/x")
    dumped = secret.model_dump(mode="json")
    assert "secret" not in json.dumps(dumped)
    with pytest.raises(errors.InvalidInputError, match="pass persistence="):
        adapter.HoldproofFlowPersistence.model_validate(dumped).load_state("f")
    with pytest.raises(errors.ClosedError):
        saved.load_state("f")


class TestSqlite(OnSqlite, CrewAI):
    pass


class TestMemory(InMemory, CrewAI):
    pass


class TestPostgres(OnPostgres, CrewAI):
    pass
