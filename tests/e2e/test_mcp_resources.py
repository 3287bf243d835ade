"""What the protocol offers beside tools: resources, prompts, output schemas, progress and cancellation."""

import asyncio
import io
import json
import zipfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
import pytest

from holdproof import sync
from tests.mcp_sessions import talk, talk_over_http
from tests.web import Web, running

mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")

from holdproof.server.mcp import Offer  # noqa: E402
from holdproof.server.mcp.calls import progress_of  # noqa: E402
from holdproof.server.mcp.resources import ResourceOffer  # noqa: E402
from holdproof.server.mcp.tools import describe, output_schema  # noqa: E402


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with running(tmp_path) as running_server:
        yield running_server


def _filled(store: Any) -> dict[str, Any]:
    """One of everything that is a resource."""
    store.agents.register("bot", version="1.0.0")
    flow = store.flows.start("bot", flow_type="refund").flow_id
    store.flows.transition(flow, "RUNNING")
    store.contexts.put(flow, {"limit": 500})
    asked = store.escalations.request(flow, reason="over the limit", proposal={"amount": 900})
    store.objects.put("note/limits", type="note", content="refunds over 500 need a person")
    judged = store.evaluations.submit({"ok": True}, evaluation_id="e-1", score=0.9)
    return {"flow_id": flow, "id": asked.id, "leaf_id": judged.leaf_id}


def _text(result: Any) -> Any:
    [content] = result.contents
    return json.loads(content.text)


# --- resources ---------------------------------------------------------------------------------------------------


def test_resources_are_read_by_their_uris_over_stdio(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        ids = _filled(store)
        proof = store.log.prove(ids["leaf_id"]).file.decode()
    flow = f"holdproof://flows/{ids['flow_id']}"

    async def work(session: Any) -> None:
        templates = {each.uri_template for each in (await session.list_resource_templates()).resource_templates}
        assert {"holdproof://flows/{flow_id}", "holdproof://bundles/{kind}/{subject}"} <= templates
        assert _text(await session.read_resource(flow))["flow_type"] == "refund"
        assert _text(await session.read_resource(f"{flow}/context"))["data"] == {"limit": 500}
        first = _text(await session.read_resource(f"{flow}/timeline?limit=2"))
        assert len(first["events"]) == 2
        following = _text(await session.read_resource(f"{flow}/timeline?cursor={first['next_cursor']}&limit=2"))
        assert following["events"][0] not in first["events"]
        assert _text(await session.read_resource(f"holdproof://escalations/{ids['id']}"))["reason"] == "over the limit"
        assert _text(await session.read_resource("holdproof://objects/note%2Flimits"))["type"] == "note"
        [read] = (await session.read_resource(f"holdproof://log/proofs/{ids['leaf_id']}")).contents
        assert (read.text, read.mime_type) == (proof, "text/plain")
        [bundle] = (await session.read_resource("holdproof://bundles/evaluation/e-1")).contents
        assert bundle.mime_type == "application/zip"
        assert "report.html" in zipfile.ZipFile(io.BytesIO(b64decode(bundle.blob))).namelist()
        for uri, status in (
            ("holdproof://flows/nothing", 404),
            ("holdproof://keys/1", 404),
            ("holdproof://escalations/seven", 422),
            (f"{flow}/timeline?limit=0", 422),
        ):
            with pytest.raises(mcp.MCPError) as refused:
                await session.read_resource(uri)
            assert refused.value.data["status"] == status, uri
            assert refused.value.code == -32602

    talk(tmp_path, "--operator", then=work)


def test_the_list_of_resources_names_every_one_that_can_be_read_page_by_page(web: Web) -> None:
    ids = _filled(web.store)
    for number in range(60):
        web.store.objects.put(f"note-{number:02}", type="note", content="tide")

    async def work(client: Any) -> None:
        uris: list[str] = []
        cursor = None
        pages = 0
        while pages == 0 or cursor is not None:
            page = await client.list_resources(cursor=cursor)
            uris += [each.uri for each in page.resources]
            cursor = page.next_cursor
            pages += 1
        assert pages >= 2
        assert len(set(uris)) == len(uris)
        assert {f"holdproof://flows/{ids['flow_id']}", f"holdproof://escalations/{ids['id']}"} <= set(uris)
        assert {"holdproof://log/head", "holdproof://evaluations/e-1", "holdproof://objects/note%2Flimits"} <= set(uris)
        assert sum(each.startswith("holdproof://objects/") for each in uris) == 61
        for uri in uris[:5]:
            assert (await client.read_resource(uri)).contents
        with pytest.raises(mcp.MCPError, match="no cursor"):
            await client.list_resources(cursor="nothing:1")

    talk_over_http(web.listening.address, web.store.tokens.create("models").secret, then=work)


def test_nothing_is_a_resource_that_the_caller_may_not_read_by_a_tool(web: Web) -> None:
    ids = _filled(web.store)
    web.store.agents.register("other", version="1.0.0")
    own = web.store.flows.start("other").flow_id
    token = web.store.tokens.create("other", role="agent", agent_id="other").secret

    async def work(client: Any) -> None:
        assert _text(await client.read_resource(f"holdproof://flows/{own}"))["agent_id"] == "other"
        tools = {tool.name for tool in (await client.list_tools()).tools}
        templates = {each.name for each in (await client.list_resource_templates()).resource_templates}
        assert templates - {"output_schema"} <= tools
        listed = {each.uri for each in (await client.list_resources()).resources}
        assert listed == {f"holdproof://flows/{own}"}
        for uri in (
            f"holdproof://flows/{ids['flow_id']}",
            f"holdproof://flows/{ids['flow_id']}/timeline",
            f"holdproof://flows/{ids['flow_id']}/context",
            f"holdproof://escalations/{ids['id']}",
            f"holdproof://bundles/flow/{ids['flow_id']}",
            f"holdproof://bundles/flow/{own}",
            f"holdproof://log/proofs/{ids['leaf_id']}",
            "holdproof://log/head",
            "holdproof://evaluations/e-1",
            "holdproof://objects/note%2Flimits",
            "holdproof://trail",
        ):
            with pytest.raises(mcp.MCPError) as refused:
                await client.read_resource(uri)
            assert refused.value.data["code"] == "access.forbidden", uri

    talk_over_http(web.listening.address, token, then=work)
    assert web.denied()


def test_a_set_of_tools_has_its_own_resources_only() -> None:
    for name, theirs in (("ask", {"escalations_get"}), ("decide", {"flows_get", "contexts_get"})):
        offered = {entry.name for entry, _ in ResourceOffer(Offer(sets=frozenset({name})))._templates}
        assert offered == theirs


def test_what_is_too_long_for_a_resource_is_refused_with_the_command_that_writes_it(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(web.store)
    monkeypatch.setattr("holdproof.server.mcp.resources._MOST_BYTES", 1000)

    async def work(client: Any) -> None:
        with pytest.raises(mcp.MCPError, match="1,000 at most") as refused:
            await client.read_resource("holdproof://bundles/evaluation/e-1")
        assert "export bundle --out FILE" in refused.value.data["remedy"]

    talk_over_http(web.listening.address, web.store.tokens.create("models").secret, then=work)


# --- prompts -----------------------------------------------------------------------------------------------------


def test_prompts_come_with_the_records_that_they_are_about(web: Web) -> None:
    ids = _filled(web.store)
    arguments = {"flow_id": ids["flow_id"], "id": str(ids["id"])}

    async def work(client: Any) -> None:
        prompts = {each.name: each for each in (await client.list_prompts()).prompts}
        assert prompts.keys() == {"explain_flow", "answer_escalation", "prove_decision"}
        tools = {tool.name for tool in (await client.list_tools()).tools}
        for name, prompt in prompts.items():
            assert all(each.description and each.required for each in prompt.arguments)
            asked = await client.get_prompt(name, {each.name: arguments[each.name] for each in prompt.arguments})
            text, *shown = [each.content for each in asked.messages]
            assert "{" not in text.text
            assert arguments[prompt.arguments[0].name] in text.text
            assert shown
            assert all(each.resource.text for each in shown)
            named = {word.strip("`,.:;()") for word in text.text.split() if "_" in word}
            assert named - {"flow_id", "next_cursor"} <= tools
        with pytest.raises(mcp.MCPError, match="takes flow_id"):
            await client.get_prompt("explain_flow", {})
        with pytest.raises(mcp.MCPError, match="no prompt"):
            await client.get_prompt("sing", {})

    talk_over_http(web.listening.address, web.store.tokens.create("models").secret, then=work)


def test_a_prompt_is_offered_to_nobody_who_may_not_use_all_of_it(web: Web) -> None:
    ids = _filled(web.store)
    token = web.store.tokens.create("bot", role="agent", agent_id="bot").secret

    async def work(client: Any) -> None:
        assert {each.name for each in (await client.list_prompts()).prompts} == {"explain_flow", "answer_escalation"}
        with pytest.raises(mcp.MCPError, match="no prompt prove_decision for this caller"):
            await client.get_prompt("prove_decision", {"flow_id": ids["flow_id"]})

    talk_over_http(web.listening.address, token, then=work)


# --- output schemas ----------------------------------------------------------------------------------------------


def test_every_answer_is_valid_by_the_output_schema_of_its_tool(web: Web) -> None:
    ids = _filled(web.store)
    flow = ids["flow_id"]
    ended = web.store.flows.start("bot").flow_id
    calls: dict[str, dict[str, Any]] = {
        "flows_start": {"agent_id": "bot"},
        "flows_get": {"flow_id": flow},
        "flows_transition": {"flow_id": ended, "to": "RUNNING"},
        "contexts_put": {"flow_id": ended, "data": {"n": 1}},
        "contexts_get": {"flow_id": flow},
        "audit_record": {"flow_id": ended, "event_type": "seen"},
        "ledger_append": {"flow_id": ended, "intent": {"n": 1}, "context_ref": "c", "evidence_hash": "e"},
        "locks_try_acquire": {"flow_id": ended, "resources": {"seat": 1}},
        "locks_release": {"flow_id": ended, "resource": "seat"},
        "escalations_request": {"flow_id": ended, "reason": "may I?", "proposal": {}},
        "escalations_wait": {"id": ids["id"], "timeout_s": 0.01},
        "escalations_wait_question": {"id": ids["id"], "timeout_s": 0.01},
        "escalations_get": {"id": ids["id"]},
        "feedback_record": {"agent_id": "bot", "flow_id": flow, "status": "good"},
        "flows_signal": {"flow_id": flow, "topic": "t", "value": 1},
        "escalations_reply": {"id": ids["id"], "text": "the one in Turin"},
        "objects_put": {"id": "a", "type": "note", "content": "b"},
        "objects_get": {"id": "note/limits"},
        "objects_search": {"text": "refunds"},
        "objects_history": {"id": "note/limits"},
        "objects_delete": {"id": "a"},
        "snapshots_create": {"message": "first"},
        "bundle_export": {"subject": "e-1"},
        "log_prove": {"leaf_id": ids["leaf_id"]},
        "flows_timeline": {"flow_id": flow},
        "evaluations_get": {"evaluation_id": "e-1"},
    }
    entries = Offer().tools()

    async def work(client: Any) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == entries.keys()
        # A question has to stand before it is answered; what restores comes last.
        web.store.escalations.ask(ids["id"], "which customer?", by="ann")
        names = sorted(tools, key=lambda name: (name not in calls, name == "objects_delete", name == "restore_memory"))
        succeeded = set()
        for name in [*calls, *(each for each in names if each not in calls)]:
            result = await client.call_tool(name, calls.get(name, {}))
            if result.is_error:
                # Without a node of IPFS or a snapshot elsewhere the seed's two have nothing to answer.
                assert name in {"checkpoint_memory", "restore_memory"}, (name, result.content[0].text)
                continue
            succeeded.add(name)
            whole = json.loads((await client.read_resource(f"holdproof://schemas/{name}")).contents[0].text)
            assert whole == output_schema(entries[name])
            for schema in (tools[name].output_schema, whole):
                jsonschema_rs.meta.validate(schema)
                jsonschema_rs.Draft202012Validator(schema).validate(result.structured_content)
        assert len(succeeded) >= len(tools) - 2

    talk_over_http(web.listening.address, web.store.tokens.create("models").secret, then=work)


def test_every_method_that_can_be_a_tool_has_a_valid_output_schema() -> None:
    from holdproof.api.catalogue import entries  # noqa: PLC0415 (only this test)

    for entry in entries().values():
        schema = output_schema(entry)
        jsonschema_rs.meta.validate(schema)
        assert schema["type"] == "object"
        short = describe(entry.name, entry).output_schema
        assert short is not None
        assert set(short.get("required", ())) == set(schema.get("properties", {}))


def test_a_bundle_is_a_file_for_the_client_and_a_line_for_the_model(web: Web) -> None:
    _filled(web.store)

    async def work(client: Any) -> None:
        result = await client.call_tool("bundle_export", {"subject": "e-1"})
        line, file = result.content
        zipped = b64decode(file.resource.blob)
        assert json.loads(line.text) == {"media_type": "application/zip", "bytes": len(zipped)}
        assert file.resource.uri == "holdproof://bundles/evaluation/e-1"
        assert "report.html" in zipfile.ZipFile(io.BytesIO(zipped)).namelist()

    talk_over_http(web.listening.address, web.store.tokens.create("models").secret, then=work)


# --- progress and cancellation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_long_work_tells_how_far_it_is_to_whoever_asks(web: Web, mode: str) -> None:
    _filled(web.store)
    reports: list[tuple[float, float | None, str | None]] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    async def work(client: Any) -> None:
        quiet = await client.call_tool("verify_run", {"full": True})
        told = await client.call_tool("verify_run", {"full": True}, progress_callback=heard)
        assert quiet.structured_content["verdict"] == told.structured_content["verdict"] == "VALID"

    talk_over_http(web.listening.address, web.store.tokens.create("models").secret, then=work, mode=mode)
    numbers = [number for number, _, _ in reports]
    assert numbers
    assert numbers == sorted(set(numbers))
    assert all(message for _, _, message in reports)


def test_progress_is_told_over_stdio_too_and_no_tool_takes_it_as_an_argument(tmp_path: Path) -> None:
    sync.open(tmp_path).close()
    reports: list[str | None] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        del progress, total
        reports.append(message)

    async def work(session: Any) -> None:
        assert not (await session.call_tool("verify_run", {}, progress_callback=heard)).is_error
        refused = await session.call_tool("verify_run", {"progress": True})
        assert "takes no progress" in refused.content[0].text

    talk(tmp_path, "--operator", then=work)
    assert reports


def test_nothing_is_told_of_a_call_that_has_ended() -> None:
    reports: list[str] = []

    async def report(number: float, total: float | None, message: str) -> None:
        del number, total
        reports.append(message)

    async def work() -> None:
        exchange: Any = SimpleNamespace(session=SimpleNamespace(report_progress=report), meta={"progress_token": 1})
        async with progress_of(exchange) as tell:
            assert tell is not None
            tell("rows", 1, 9)
            await asyncio.sleep(0.01)
        tell("rows", 2, 9)
        await asyncio.sleep(0.01)

    asyncio.run(work())
    assert reports == ["rows: 1 of 9"]


def test_a_call_that_its_client_gives_up_stops(tmp_path: Path) -> None:
    """A flow that waits for a lock gets it once it is free, unless its client has given the call up before."""
    with sync.open(tmp_path) as store:
        store.agents.register("bot", version="1.0.0")
        holder, waiter, other = (store.flows.start("bot").flow_id for _ in range(3))

    async def work(session: Any) -> None:
        seat = {"resources": {"seat": 1}}
        assert not (await session.call_tool("locks_try_acquire", {"flow_id": holder, **seat})).is_error
        waits = session.call_tool("locks_acquire", {"flow_id": waiter, **seat, "timeout_s": 60.0})
        waiting = asyncio.create_task(waits)
        await asyncio.sleep(0.5)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        assert not (await session.call_tool("locks_release", {"flow_id": holder, "resource": "seat"})).is_error
        assert not (await session.call_tool("locks_acquire", {"flow_id": other, **seat, "timeout_s": 30.0})).is_error
        held = await session.call_tool("locks_list", {})
        assert other in held.content[0].text
        assert waiter not in held.content[0].text

    talk(tmp_path, "--operator", "--resource", "locks", then=work)
