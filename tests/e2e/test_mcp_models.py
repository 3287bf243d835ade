"""What a model can do with the tools by their list alone, and what it is told when it calls one wrongly."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from holdproof import sync
from tests.mcp_sessions import talk
from tests.scripted_model import ScriptedModel

pytest.importorskip("mcp", reason="the extra mcp is not installed")

WORDS = {
    ("agents_list", "status"),
    ("audit_list", "severity"),
    ("audit_record", "severity"),
    ("bundle_export", "kind"),
    ("escalations_count", "status"),
    ("escalations_list", "impact"),
    ("escalations_list", "order"),
    ("escalations_list", "status"),
    ("escalations_request", "impact"),
    ("escalations_request", "on_deadline"),
    ("feedback_record", "source"),
    ("flows_facets", "status"),
    ("flows_list", "status"),
    ("flows_transition", "expected_status"),
    ("flows_transition", "to"),
    ("agents_set_status", "status"),
}
"""The parameters that take a few words only and say which."""


async def _tools(session: Any) -> list[Any]:
    return list((await session.list_tools()).tools)


def test_a_model_decides_by_the_descriptions_alone(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("bot", version="1.0.0")
    facts = {"agent_id": "bot", "flow_type": "refund", "event_type": "limit.checked", "data": {"limit": 500}}

    async def work(session: Any) -> None:
        model = ScriptedModel(session, await _tools(session), facts)
        flow = await model.do("Open a flow for the agent that starts the work")
        await model.do("Change the status of the flow to RUNNING")
        await model.do("Put the context of the flow")
        assert '"limit": 500' in json.dumps(await model.do("Get the context of the flow"))
        await model.do("Record an audit event")
        await model.do("Change the status of the flow to COMPLETED")
        assert (await model.do("Get one flow"))["status"] == "COMPLETED"
        assert flow["flow_type"] == "refund"

    talk(tmp_path, "--agent", "bot", "--tools", "decide", then=work)
    with sync.open(tmp_path) as store:
        [flow] = store.flows.list().items
        assert store.audit.list(flow_id=flow.flow_id).items[0].event_type == "limit.checked"


def test_a_model_asks_a_person_and_waits_by_the_descriptions_alone(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("bot", version="1.0.0")
    facts = {"agent_id": "bot", "reason": "over the limit", "proposal": {"amount": 900}}

    def answer(id: int) -> None:
        with sync.open(tmp_path) as store:
            store.escalations.resolve(id, "approve", by="ann", comment="it is due")

    async def work(session: Any) -> None:
        model = ScriptedModel(session, await _tools(session), facts)
        await model.do("Open a flow for the agent that starts the work")
        await model.do("Change the status of the flow to RUNNING")
        asked = await model.do("Request a human decision about the flow: HIGH_IMPACT")
        assert (asked["status"], asked["impact"]) == ("PENDING", "HIGH_IMPACT")
        waiting = asyncio.create_task(model.do("Wait until the escalation is resolved by a person"))
        await asyncio.to_thread(answer, asked["id"])
        answered = await waiting
        assert (answered["status"], answered["resolved_by"]) == ("APPROVED", "ann")
        assert (await model.do("Get one flow"))["status"] == "RUNNING"

    talk(tmp_path, "--agent", "bot", "--tools", "decide", "--tools", "ask", then=work)


def test_a_model_remembers_and_proves_by_the_descriptions_alone(tmp_path: Path) -> None:
    facts = {"id": "note/limits", "type": "note", "content": "refunds over 500 need a person", "text": "refunds"}

    async def work(session: Any) -> None:
        model = ScriptedModel(session, await _tools(session), facts)
        await model.do("Put an object to keep it")
        [found] = await model.do("Search the objects that have these words")
        assert found["id"] == "note/limits"
        await model.do("Create a snapshot: sign the objects as they are now")
        trail = await model.do("List the audit trail of everything that happened")
        assert any(each["kind"] == "snapshot" for each in trail["items"])
        proof = await model.do("Prove that an entry is in the log")
        assert proof["index"] == trail["items"][0]["index"]
        assert (await model.do("Verify the whole store"))["verdict"] == "VALID"

    talk(tmp_path, "--operator", "--tools", "remember", "--tools", "prove", then=work)


def test_a_word_that_a_parameter_does_not_take_is_answered_with_those_it_takes(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("bot", version="1.0.0")
        flow = store.flows.start("bot").flow_id
    usual = {
        "agent_id": "bot",
        "flow_id": flow,
        "reason": "why",
        "event_type": "x",
        "subject": flow,
        "status": "FAILED",
    }

    async def work(session: Any) -> None:
        declared = set()
        for tool in await _tools(session):
            properties = tool.input_schema["properties"]
            for name, schema in properties.items():
                texts = [schema, *schema.get("anyOf", ())]
                [words] = [each["enum"] for each in texts if "enum" in each] or [()]
                if not words:
                    continue
                declared.add((tool.name, name))
                given = {each: usual[each] for each in tool.input_schema["required"] if each in usual}
                if "to" in properties:
                    given["to"] = "RUNNING"
                result = await session.call_tool(tool.name, {**given, name: "nonsense"})
                refusal = json.loads(result.content[0].text)
                assert (result.is_error, refusal["code"]) == (True, "input.invalid"), (tool.name, name, refusal)
                assert set(words) == _named(refusal["detail"]), (tool.name, name, refusal["detail"])
        assert declared >= {each for each in WORDS if each[0] in {tool.name for tool in await _tools(session)}}

    talk(tmp_path, "--operator", then=work)
    resources = [word for name in ("agents", "audit", "escalations", "flows") for word in ("--resource", name)]
    talk(tmp_path, "--operator", *resources, then=work)


def _named(detail: str) -> set[str]:
    """The words that a refusal names: `status is one of A, B, not 'nonsense'`, or `effects: not one of A, B`."""
    listed = re.split(r" one of |kinds are ", detail)[-1]
    return set(re.sub(r", not '.*", "", listed).split(", "))
