"""What a decision rests on: each model, tool, skill, object, policy and answer of a flow, and nothing of others."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.client import Holdproof
from holdproof.model.materials import ToolUse
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

SEARCH = {"name": "search", "parameters": {"type": "object"}}
OTHER = {"type": "function", "function": {"name": "search", "parameters": {"type": "string"}}}
SYSTEM = {"role": "system", "content": "be brief"}
ABSENT = "0198a7c2-9c1e-7a3b-8d4e-5f6071829304"


def model(model: str, messages: Any, parameters: Any, tools: Any) -> dict[str, Any]:
    """A model call, as adapters record it."""
    del parameters, tools
    return {
        "output": f"{len(messages)} messages",
        "model": f"{model}-2026-11",
        "usage": {"input_tokens": 10, "output_tokens": 5},
        "cost_usd": "0.01",
    }


def tool(tool: str, arguments: Any) -> str:
    return f"{tool}: {arguments}"


class MaterialsOfFlows(OnStore):
    def decided(self, store: sync.Holdproof, **opening: Any) -> str:
        """A flow that asks a model twice and calls two tools; what it returns."""
        with store.flows.run("trader", flow_type="trade", **opening) as flow:
            said: list[Any] = [SYSTEM]
            for text in ("buy?", "sure?"):
                said.append({"role": "user", "content": text})
                asked: dict[str, Any] = {
                    "model": "m",
                    "messages": list(said),
                    "parameters": {"temperature": 0.5},
                    "tools": [SEARCH],
                }
                flow.step("model m", model, **asked)
            flow.step("model m", model, model="m", messages=[], parameters={}, tools=[OTHER])
            for name in ("search", "pay"):
                flow.step(f"tool {name}", tool, tool=name, arguments={"n": 1})
            return str(flow.flow_id)

    def test_models_and_tools_are_shown_with_their_hashes_and_counts(self, store: sync.Holdproof) -> None:
        bill = store.materials.get(self.decided(store))
        assert [(each.name, each.answered_by, each.parameters, each.calls) for each in bill.models] == [
            ("m", "m-2026-11", {"temperature": 0.5}, 2),
            ("m", "m-2026-11", {}, 1),
        ]
        first, second = bill.models
        assert (first.input_tokens, first.output_tokens, first.costs_usd) == (20, 10, ("0.01", "0.01"))
        assert len(set(first.prompt_hashes)) == 2
        assert first.system_hash is not None
        assert second.system_hash is None
        search, other, pay = bill.tools
        assert (search.name, search.calls, other.name, other.calls) == ("search", 1, "search", 1)
        assert search.schema_hash != other.schema_hash
        assert pay == ToolUse("pay", None, 1)
        assert (bill.code.name, bill.code.version, bill.agent_id, bill.status) == (
            "trade",
            "1.0",
            "trader",
            "COMPLETED",
        )

    def test_what_a_step_reads_and_writes_is_noted_and_what_others_do_is_not(self, store: sync.Holdproof) -> None:
        store.objects.put("rule", type="rule", content="buy low")
        store.objects.put("other", type="rule", content="not looked at")

        def work() -> None:
            for _ in range(2):
                store.objects.get("rule")
            store.objects.put("plan", type="plan", content="buy")
            store.objects.apply({"other": None, "rule": {"type": "rule", "content": "sell high"}})
            with pytest.raises(errors.NotFoundError):
                store.objects.get("none")
            assert store.objects.delete("none") is False

        with store.flows.run("trader") as flow:
            flow.step("look", work)
            store.objects.get("plan")  # outside of a step: it would not be read again in a re-run
        head = store.objects.get("rule")
        used = store.materials.get(flow.flow_id).memory
        assert [(each.action, each.id, each.version) for each in used] == [
            ("read", "rule", 1),
            ("written", "plan", 1),
            ("written", "other", None),
            ("written", "rule", head.version),
        ]
        assert used[3].cid == head.cid
        assert used[2].cid is None
        assert len({each.tree for each in used}) == 3
        assert store.verify.run().verdict.sound

    def test_lists_searches_and_the_async_client_are_noted_too(self, store: sync.Holdproof) -> None:
        client = Holdproof(store.core)

        async def work() -> None:
            await client.objects.put("top", type="note", content="milk", children=["below"])
            await client.objects.put("below", type="note", content="bread", parent="top")

            async def look() -> int:
                found = [*await client.objects.search("milk"), *await client.objects.children("top")]
                return len(found) + len((await client.objects.list()).items)

            async with client.flows.run("trader") as flow:
                assert await flow.step("look", look) == 4
            bill = await client.materials.get(flow.flow_id)
            assert [(each.action, each.id) for each in bill.memory] == [("read", "top"), ("read", "below")]

        asyncio.run(work())

    def test_a_step_that_fails_leaves_no_note_of_what_was_rolled_back(self, store: sync.Holdproof) -> None:
        def work() -> None:
            store.objects.put("a", type="note", expected_version=7)

        with pytest.raises(errors.HoldproofError), store.flows.run("trader") as flow:
            flow.step("write", work)
        assert store.materials.get(flow.flow_id).memory == ()

    def test_a_skill_is_shown_with_who_approved_it(self, store: sync.Holdproof, tmp_path: Path) -> None:
        skill = tmp_path / "deploy.org"
        skill.write_text("* deploy\nwith care\n")
        approval = store.skills.approve(str(skill), by="ada", comment="reviewed")

        with store.flows.run("trader") as flow:
            flow.step("load", lambda: store.skills.load(str(skill)).text)
        [use] = store.materials.get(flow.flow_id).skills
        assert (use.root, use.approval_id, use.approved_by) == (approval.root, approval.id, "ada")

    def test_answers_and_policies_are_shown(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            asked = store.escalations.request(flow.flow_id, reason="large", proposal={"n": 1})
            store.escalations.resolve(asked.id, "approve", by="ada", proposal={"n": 2})
        [answer] = store.materials.get(flow.flow_id).answers
        assert (answer.outcome, answer.by) == ("approved with changes", "ada")
        assert answer.answer_hash is not None

    def test_captured_calls_count_once_they_are_answered(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            for call in ("c1", "c2"):
                detail = {"call": call, "model": "m", "messages": {"$list": "cid"}, "system": "s", "tools": [SEARCH]}
                store.audit.record(flow.flow_id, "model.requested", detail=detail)
            answer = {"call": "c1", "model": "m-2", "tokens": {"input": 3, "output": 4}}
            store.audit.record(flow.flow_id, "model.answered", detail=answer)
        [use] = store.materials.get(flow.flow_id).models
        assert (use.answered_by, use.calls, use.input_tokens, use.output_tokens) == ("m-2", 1, 3, 4)

    def test_notes_that_somebody_else_writes_are_no_materials(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            forged = {"objects": [{"id": "a", "version": 1, "cid": "x"}], "tree": "t", "ns": "main"}
            store.audit.record(flow.flow_id, "memory.read", detail=forged, by="mallory")
        assert store.materials.get(flow.flow_id).memory == ()

    def test_the_same_record_has_the_same_hash_and_another_one_another(self, store: sync.Holdproof) -> None:
        one, two = self.decided(store), self.decided(store)
        bills = [store.materials.get(each) for each in (one, one, two)]
        assert bills[0] == bills[1]
        assert bills[0].hash != bills[2].hash
        with pytest.raises(errors.NotFoundError):
            store.materials.get(ABSENT)

    def test_a_flow_that_recorded_nothing_has_an_empty_bill(self, store: sync.Holdproof) -> None:
        flow = store.flows.start("trader")
        bill = store.materials.get(flow.flow_id)
        assert (bill.models, bill.tools, bill.memory, bill.answers, bill.result_hash) == ((), (), (), (), None)
        assert json.loads(store.materials.cyclonedx(flow.flow_id).text)["components"] == []

    def test_of_a_person_who_was_erased_calls_are_counted_and_not_guessed(self, store: sync.Holdproof) -> None:
        flow_id = self.decided(store, subject="Ada")
        assert len(store.materials.get(flow_id).models) == 2
        store.erase.subject("Ada")
        bill = store.materials.get(flow_id)
        assert (bill.models, bill.tools, bill.unreadable) == ((), (), 5)
        assert store.verify.run().verdict.sound

    def test_the_cyclonedx_export_is_valid_and_deterministic(self, store: sync.Holdproof) -> None:
        schema: Any = pytest.importorskip("cyclonedx.schema", reason="not installed: pip install cyclonedx-python-lib")
        validation: Any = pytest.importorskip("cyclonedx.validation.json")
        store.objects.put("rule", type="rule", content="buy low")
        flow_id = self.decided(store)
        with store.flows.run("trader") as flow:
            flow.step("look", lambda: store.objects.get("rule").content)
        for id in (flow_id, flow.flow_id):
            document = store.materials.cyclonedx(id)
            validator = validation.JsonStrictValidator(schema.SchemaVersion.V1_6)
            assert validator.validate_str(document.text) is None
            assert store.materials.cyclonedx(id) == document
        parts = json.loads(store.materials.cyclonedx(flow_id).text)["components"]
        assert [(each["type"], each["name"]) for each in parts] == [
            ("machine-learning-model", "m-2026-11"),
            ("machine-learning-model", "m-2026-11"),
            ("application", "search"),
            ("application", "search"),
            ("application", "pay"),
        ]

    def test_a_signed_statement_holds_here_and_says_when_the_record_went_on(self, store: sync.Holdproof) -> None:
        flow = store.flows.start("trader")
        document = store.materials.sign(flow.flow_id)
        checked = store.materials.check(document.text)
        assert (checked.flow_id, checked.unchanged) == (flow.flow_id, True)
        assert checked.hash == store.materials.get(flow.flow_id).hash
        store.flows.transition(flow.flow_id, "RUNNING")
        assert store.materials.check(document.text).unchanged is False

    def test_a_statement_that_was_changed_or_is_of_another_store_is_refused(self, store: sync.Holdproof) -> None:
        document = store.materials.sign(store.flows.start("trader").flow_id).text
        envelope = json.loads(document)
        payload = envelope["payload"]
        envelope["payload"] = payload[:40] + ("B" if payload[40] == "A" else "A") + payload[41:]
        for wrong in (json.dumps(envelope), "{}", ""):
            with pytest.raises(errors.FormatError):
                store.materials.check(wrong)
        with sync.open(":memory:") as other:
            other.agents.register("trader", version="1.0.0")
            foreign = other.materials.sign(other.flows.start("trader").flow_id).text
        with pytest.raises(errors.ProofError, match="no judge key"):
            store.materials.check(foreign)


class TestSqlite(OnSqlite, MaterialsOfFlows):
    pass


class TestMemory(InMemory, MaterialsOfFlows):
    pass


class TestPostgres(OnPostgres, MaterialsOfFlows):
    pass
