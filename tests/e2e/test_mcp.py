"""The store as tools for models, used by the official client: over stdio in a process of its own, and over HTTP."""

import asyncio
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from holdproof import sync
from holdproof.cli.app import app
from holdproof.db.sqlite.files import connect
from tests.mcp_sessions import talk
from tests.web import problem, running

mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")

from holdproof.server.mcp import Offer  # noqa: E402


def _value(result: Any) -> Any:
    assert not result.is_error, result.content[0].text
    return json.loads(result.content[0].text)


def test_a_model_decides_remembers_asks_and_proves(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("bot", version="1.0")

    async def work(session: Any) -> None:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert {"objects_put", "flows_start", "escalations_request", "verify_run", "checkpoint_memory"} <= tools.keys()
        assert tools["flows_start"].input_schema["required"] == ["agent_id"]
        assert "tx" not in json.dumps([tool.input_schema for tool in tools.values()])
        flow = _value(await session.call_tool("flows_start", {"agent_id": "bot"}))
        running = {"flow_id": flow["flow_id"], "to": "RUNNING"}
        assert _value(await session.call_tool("flows_transition", running))["status"] == "RUNNING"
        _value(await session.call_tool("objects_put", {"id": "note", "type": "note", "content": "tides"}))
        [found] = _value(await session.call_tool("objects_search", {"text": "tides"}))
        assert found["id"] == "note"
        asked = {"flow_id": flow["flow_id"], "reason": "buy?", "proposal": {"n": 1}}
        question = _value(await session.call_tool("escalations_request", asked))
        waited = await session.call_tool("escalations_wait", {"id": question["id"], "timeout_s": 0.01})
        assert _value(waited)["status"] == "PENDING"
        assert _value(await session.call_tool("verify_run", {}))["verdict"] == "VALID"
        said = (await session.call_tool("checkpoint_memory", {})).content[0].text
        assert said.startswith("Local dump complete.")

    talk(tmp_path, "--operator", then=work)


@pytest.mark.parametrize("words", [(), ("--read-only",), ("--tools", "ask")])
def test_who_names_no_caller_is_refused_with_those_to_name_and_no_store_is_made(
    tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDPROOF_TOKEN", raising=False)
    home = tmp_path / "home"
    refused = CliRunner().invoke(app, ["--home", str(home), "mcp", *words])
    assert refused.exit_code == 2
    said = " ".join(refused.output.split())
    assert "--agent NAME" in said
    assert "--operator" in said
    assert not home.exists()


def test_a_model_that_asked_a_person_does_not_go_on_by_itself(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("bot", version="1.0")

    async def work(session: Any) -> None:
        tools = {tool.name for tool in (await session.list_tools()).tools}
        assert {"objects_put", "flows_start", "escalations_request"} <= tools
        assert not tools & {"checkpoint_memory", "restore_memory", "escalations_resolve", "bundle_export"}
        flow = _value(await session.call_tool("flows_start", {"agent_id": "bot"}))
        running = {"flow_id": flow["flow_id"], "to": "RUNNING"}
        assert _value(await session.call_tool("flows_transition", running))["status"] == "RUNNING"
        request = {"flow_id": flow["flow_id"], "reason": "buy?", "proposal": {"n": 1}}
        by_itself = await session.call_tool("escalations_request", {**request, "on_deadline": "approve"})
        assert "access.forbidden" in by_itself.content[0].text
        _value(await session.call_tool("escalations_request", request))
        assert "access.forbidden" in (await session.call_tool("flows_transition", running)).content[0].text
        _value(await session.call_tool("objects_put", {"id": "note", "type": "note", "content": "tides"}))

    talk(tmp_path, "--agent", "bot", "--tools", "decide", "--tools", "ask", "--tools", "remember", then=work)


def test_no_tool_takes_a_destination(tmp_path: Path) -> None:
    async def work(session: Any) -> None:
        for tool in (await session.list_tools()).tools:
            assert not {"node", "url", "gateway"} & tool.input_schema["properties"].keys(), tool.name
        sent = await session.call_tool("checkpoint_memory", {"node": "http://127.0.0.1:9"})
        assert json.loads(sent.content[0].text)["code"] == "input.invalid"

    talk(tmp_path, "--operator", then=work)


def test_no_tool_of_a_whole_resource_takes_a_destination(tmp_path: Path) -> None:
    async def work(session: Any) -> None:
        tools = {tool.name: tool.input_schema["properties"].keys() for tool in (await session.list_tools()).tools}
        # What cannot do without one is no tool at all.
        assert not {"tenants_export", "tenants_move", "backup_create", "backup_rotate", "log_publish"} & tools.keys()
        asked = {"dest", "email", "folder", "place", "src", "target", "url"}
        assert [name for name, properties in tools.items() if asked & properties] == []
        for tool, values in (
            ("tenants_create", {"tenant": "acme", "place": "postgresql://elsewhere.example/acme"}),
            ("people_put", {"name": "ann", "email": "me@elsewhere.example"}),
        ):
            refused = json.loads((await session.call_tool(tool, values)).content[0].text)
            assert (refused["code"], "takes no" in refused["detail"]) == ("input.invalid", True)

    resources = [word for name in ("backup", "tenants", "log", "people") for word in ("--resource", name)]
    talk(tmp_path, "--operator", *resources, then=work)


def test_a_missing_argument_is_named(tmp_path: Path) -> None:
    async def work(session: Any) -> None:
        answer = json.loads((await session.call_tool("flows_get", {})).content[0].text)
        assert (answer["code"], answer["status"]) == ("input.invalid", 422)
        assert "needs flow_id" in answer["detail"]

    talk(tmp_path, "--operator", then=work)


def test_a_tool_that_is_not_for_the_caller_is_forbidden_before_its_arguments_are_read(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("bot", version="1.0")

    async def work(session: Any) -> None:
        tools = {tool.name for tool in (await session.list_tools()).tools}
        assert "objects_put" not in tools
        for arguments in ({}, {"id": 7, "unknown": True}, {"node": "http://127.0.0.1:9"}):
            answer = json.loads((await session.call_tool("objects_put", arguments)).content[0].text)
            assert answer["status"] == 403

    talk(tmp_path, "--agent", "bot", then=work)


def test_what_fails_tells_a_model_what_to_do(tmp_path: Path) -> None:
    async def work(session: Any) -> None:
        missing = await session.call_tool("flows_get", {"flow_id": "nothing"})
        assert missing.is_error
        assert json.loads(missing.content[0].text)["code"] == "not_found"
        wrong = await session.call_tool("flows_get", {"flow_id": 7, "ns": "main"})
        assert wrong.is_error
        assert "flow_id" in wrong.content[0].text
        unknown = await session.call_tool("keys_rotate", {"role": "judge"})
        assert unknown.is_error
        assert "there is no tool" in unknown.content[0].text

    talk(tmp_path, "--operator", then=work)


def test_read_only_offers_nothing_that_writes(tmp_path: Path) -> None:
    async def work(session: Any) -> None:
        names = {tool.name for tool in (await session.list_tools()).tools}
        assert {"objects_get", "verify_run", "flows_list"} <= names
        assert not names & {"objects_put", "flows_start", "escalations_request", "checkpoint_memory"}
        assert (await session.call_tool("objects_put", {"id": "x", "type": "t"})).is_error
        assert _value(await session.call_tool("verify_run", {}))["verdict"] == "VALID"

    talk(tmp_path, "--operator", "--read-only", then=work)


def test_a_model_that_finds_tampering_does_not_lock_the_store(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.evaluations.submit({"ok": True}, evaluation_id="e-1", score=0.4)
    with closing(connect(tmp_path / "kernel.db", busy_s=10)) as connection:
        connection.execute("UPDATE battles SET score = 1.0")

    async def work(session: Any) -> None:
        [verify] = [tool for tool in (await session.list_tools()).tools if tool.name == "verify_run"]
        assert "lock" not in verify.input_schema["properties"]
        refused = json.loads((await session.call_tool("verify_run", {"lock": True})).content[0].text)
        assert (refused["code"], refused["detail"]) == ("input.invalid", "a tool takes no lock")
        assert _value(await session.call_tool("verify_run", {}))["verdict"] == "TAMPERED"

    talk(tmp_path, "--operator", "--tools", "prove", then=work)
    with sync.open(tmp_path) as store:
        assert store.lockdown.status() is None


def test_an_agent_works_on_its_own_flows_only(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("bot", version="1.0")
        store.agents.register("other", version="1.0")
        theirs = store.flows.start("other").flow_id

    async def work(session: Any) -> None:
        mine = _value(await session.call_tool("flows_start", {"agent_id": "bot"}))
        assert mine["agent_id"] == "bot"
        for tool, given in (("flows_get", {"flow_id": theirs}), ("flows_start", {"agent_id": "other"})):
            refused = await session.call_tool(tool, given)
            assert refused.is_error
            assert "not one of agent bot" in refused.content[0].text
        assert (await session.call_tool("objects_put", {"id": "x", "type": "t"})).is_error

    talk(tmp_path, "--agent", "bot", then=work)


def test_an_agent_remembers_with_the_memory_that_is_named_beside_it_only(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("bot", version="1.0")

    async def names(session: Any) -> set[str]:
        return {tool.name for tool in (await session.list_tools()).tools}

    assert "objects_put" not in talk(tmp_path, "--agent", "bot", then=names)
    remembers = talk(tmp_path, "--agent", "bot", "--tools", "remember", then=names)
    assert {"objects_put", "objects_search"} <= remembers
    assert not remembers & {"checkpoint_memory", "restore_memory", "flows_start"}
    of_snapshots = talk(tmp_path, "--agent", "bot", "--resource", "snapshots", then=names)
    assert "snapshots_create" in of_snapshots
    assert all(name.startswith("snapshots_") for name in of_snapshots)


def test_every_verb_of_a_noun_can_be_offered(tmp_path: Path) -> None:
    async def work(session: Any) -> None:
        tools = {tool.name for tool in (await session.list_tools()).tools}
        assert {"keys_list", "keys_rotate"} <= tools
        assert all(name.startswith("keys_") for name in tools)

    # The program itself, where the other sessions have forked ones.
    program = [sys.executable, "-m", "holdproof"]
    talk(tmp_path, "--operator", "--resource", "keys", then=work, program=program)


def test_nothing_but_the_protocol_is_written_to_its_channel(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "holdproof", "--home", str(tmp_path), "mcp", "--operator"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
    assert done.stdout == b""


def test_a_server_has_the_same_tools_at_its_door(tmp_path: Path) -> None:
    async def talk(address: str, token: str) -> None:
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 (skipped without the extra)

        client: Any = httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"})  # its like is asked for
        async with (
            client,
            streamable_http_client(f"{address}/mcp/", http_client=client) as (reading, writing, *_),
            mcp.ClientSession(reading, writing) as session,
        ):
            await session.initialize()
            assert "objects_put" in {tool.name for tool in (await session.list_tools()).tools}
            _value(await session.call_tool("objects_put", {"id": "note", "type": "note", "content": "tides"}))

    with running(tmp_path) as web:
        asyncio.run(talk(web.listening.address, web.store.tokens.create("models").secret))
        assert web.store.objects.get("note").content == "tides"


def test_a_server_without_the_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holdproof.server.mcp", None)
    with running(tmp_path) as web:
        for _ in range(2):
            client = web.client(web.store.tokens.create("models").secret)
            told = problem(client.post("/mcp/", json={}), 500, "config.extra_missing")
            assert "pip install 'holdproof[mcp]'" in told["detail"]
        assert web.client().get("/healthz").is_success


# --- sets of tools -----------------------------------------------------------------------------------------------

SETS = ("ask", "decide", "prove", "remember")
ALL_SETS = tuple(word for name in SETS for word in ("--tools", name))
CHARACTERS_OF_A_TOKEN = 3
"""Tokenizers of models take 3 to 4 characters of JSON schemas in English as one token: the lower counts more tokens."""
CALLERS = (("--operator",), ("--operator", "--read-only"), ("--agent", "bot", *ALL_SETS))
WRONG = {
    '"many words"': {"string"},
    "7": {"integer", "number"},
    "0.5": {"number"},
    "true": {"boolean"},
    "[7]": {"array"},
    '{"a": 7}': {"object"},
    "null": {"null"},
}
"""A value of each type that JSON has, and the types of a schema that it is of."""


def _types(schema: Any) -> set[str]:
    """The types that a schema admits; none where it admits anything."""
    if "$ref" in schema:
        return {"object"}
    branches = [_types(each) for each in schema.get("anyOf", ())]
    if branches:
        return set().union(*branches) if all(branches) else set()
    return {schema["type"]} if "type" in schema else set()


def _required(tool: Any) -> list[str]:
    return list(tool.input_schema.get("required", ()))


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_small_enough_to_be_chosen_from(tmp_path: Path, name: str) -> None:
    sync.open(tmp_path).close()

    async def listed(session: Any) -> list[Any]:
        return list((await session.list_tools()).tools)

    tools = talk(tmp_path, "--operator", "--tools", name, then=listed)
    assert 6 <= len(tools) <= 9
    characters = sum(len(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools)
    assert characters / CHARACTERS_OF_A_TOKEN <= 3_000
    for tool in tools:
        assert tool.description
        for parameter, schema in tool.input_schema["properties"].items():
            assert schema.get("description"), f"{tool.name}: {parameter} is not described"


def test_the_sets_share_no_tool_and_are_all_offered_unless_some_are_named(tmp_path: Path) -> None:
    offers = {name: Offer(sets=frozenset({name})).tools().keys() for name in SETS}
    assert sum(map(len, offers.values())) == len(Offer().tools())
    assert set().union(*offers.values()) == Offer().tools().keys()


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (("--tools", "decision"), "there are ask, decide, prove, remember"),
        (("--tools", "decide", "--resource", "flows"), "exclude each other"),
    ],
)
def test_a_set_that_is_not_there_is_refused_with_those_that_are(
    tmp_path: Path, words: tuple[str, ...], cure: str
) -> None:
    command = [sys.executable, "-m", "holdproof", "--home", str(tmp_path), "mcp", "--operator", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert cure in " ".join(done.stderr.split())


def test_an_agent_that_is_not_registered_is_refused_with_the_command_that_registers_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdproof", "--home", str(tmp_path), "mcp", "--agent", "a clerk"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 3
    assert "holdproof agents register 'a clerk' --version 1.0.0" in done.stderr


@pytest.mark.parametrize("caller", CALLERS)
def test_every_tool_without_arguments_answers_or_names_what_is_missing(tmp_path: Path, caller: tuple[str, ...]) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("bot", version="1.0")

    async def work(session: Any) -> None:
        for tool in (await session.list_tools()).tools:
            result = await session.call_tool(tool.name, {})
            missing = _required(tool)
            if not missing:
                # A store without content answers, or says that there is nothing yet.
                assert not result.is_error or json.loads(result.content[0].text)["status"] < 500, tool.name
                continue
            refusal = json.loads(result.content[0].text)
            assert (result.is_error, refusal["status"]) == (True, 422), tool.name
            assert any(name in refusal["detail"] for name in missing), refusal
            assert refusal["code"] == "input.invalid", refusal

    talk(tmp_path, *caller, then=work)


def test_every_tool_refuses_arguments_of_a_wrong_type(tmp_path: Path) -> None:
    sync.open(tmp_path).close()

    async def work(session: Any) -> None:
        tried = 0
        for tool in (await session.list_tools()).tools:
            properties = tool.input_schema["properties"]
            for name in properties:
                kinds = _types(properties[name])
                for wrong in (each for each, kind in WRONG.items() if kinds and not kind & kinds):
                    result = await session.call_tool(tool.name, {name: json.loads(wrong)})
                    refusal = json.loads(result.content[0].text)
                    assert (result.is_error, refusal["code"]) == (True, "input.invalid"), (tool.name, name, refusal)
                    assert name in refusal["detail"], refusal
                    assert "Traceback" not in result.content[0].text
                    tried += 1
        assert tried > 400

    talk(tmp_path, "--operator", then=work)


def test_a_list_is_short_unless_more_is_asked_for(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        for number in range(12):
            store.objects.put(f"note-{number:02}", type="note", content="tide")

    async def work(session: Any) -> None:
        page = _value(await session.call_tool("objects_list", {}))
        assert len(page["items"]) == 10
        assert page["next_cursor"]
        assert len(_value(await session.call_tool("objects_list", {"limit": 12}))["items"]) == 12

    talk(tmp_path, "--operator", "--tools", "remember", then=work)
