"""Messages, promises, published values and streams at a server, from the command line and as tools."""

import asyncio
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.db import sql
from holdproof.remote import connect_sync
from holdproof.server import ServerSettings
from tests.web import Web, problem, running


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    settings = ServerSettings(heartbeat_s=0.2, poll_s=0.1, rate_s=0)
    with running(tmp_path_factory.mktemp("signals") / "home", settings) as web:
        for name in ("trader", "other"):
            web.store.agents.register(name, version="1.0.0")
        yield web


def secret(web: Web, **about: Any) -> str:
    return web.store.tokens.create("test", **about).secret


def operator(web: Web, **about: Any) -> httpx.Client:
    return web.client(secret(web, **about))


# --- promises ----------------------------------------------------------------------------------------------------


def test_who_has_the_token_of_a_promise_resolves_it_without_an_account(web: Web) -> None:
    with web.store.flows.run("trader") as flow:
        promise = flow.promise("payment")
        nobody = web.client()
        body = {"token": promise.token, "value": {"paid": {"$decimal": "9.90"}}}
        first = nobody.post(promise.url, json=body)
        assert (first.status_code, first.json()["state"]) == (200, "RESOLVED")
        # A key would be stored before the token is looked at: it is not, and the same answer again is harmless.
        assert nobody.post(promise.url, json=body, headers={"Idempotency-Key": "k"}).json() == first.json()
        assert web.store.read(lambda tx: tx.one(sql("SELECT count(*) FROM idempotency_cache"))) == (0,)
        problem(nobody.post(promise.url, json={**body, "value": 2}), 409, "escalations.resolved")
        assert promise.wait() == {"paid": Decimal("9.90")}
        second = flow.promise("payment")
        assert nobody.post("/v1/promises/reject", json={"token": second.token, "reason": "no"}).status_code == 200
        with pytest.raises(errors.PromiseRejectedError, match="no"):
            second.wait()


def test_a_guessed_token_is_refused_written_down_and_costs_its_address(web: Web) -> None:
    problem(web.client().post("/v1/promises/resolve", json={"token": "hpp_x"}), 401, "access.unauthenticated")
    assert any(each.path == "/v1/promises/resolve" for each in web.denied())


def test_what_nobody_may_do_without_an_account_stays_so(web: Web) -> None:
    flow_id = web.store.flows.start("trader").flow_id
    nobody = web.client()
    for path, body in (
        ("/v1/promises/list", {"flow_id": flow_id}),
        ("/v1/flows/signal", {"flow_id": flow_id, "topic": "t"}),
        ("/v1/flows/stream", {"flow_id": flow_id, "stream": "s"}),
    ):
        problem(nobody.post(path, json=body), 401, "access.unauthenticated")
    problem(nobody.get("/v1/streams", params={"flow_id": flow_id, "stream": "s"}), 401, "access.unauthenticated")
    problem(nobody.post("/v1/promises/resolve", json={"token": "x" * 70_000}), 413, "request.too_large")


def test_requests_without_an_account_are_limited_by_their_address(tmp_path: Path) -> None:
    with running(tmp_path / "home", ServerSettings(rate_s=1, burst=5, denied_cost=5)) as web:
        nobody = web.client()
        codes = [nobody.post("/v1/promises/resolve", json={"token": "hpp_x"}).status_code for _ in range(3)]
        assert codes[0] == 401
        assert codes[-1] == 429


def test_a_promise_is_resolved_in_whichever_namespace_its_flow_is(web: Web) -> None:
    far = sync.Holdproof(web.store.core, "far")
    far.agents.register("far-agent", version="1.0.0")
    with far.flows.run("far-agent") as flow:
        token = flow.promise("p").token
        assert web.client().post("/v1/promises/resolve", json={"token": token, "value": 1}).status_code == 200
        # Through a store of another namespace it is not there.
        with pytest.raises(errors.UnauthenticatedError):
            sync.Holdproof(web.store.core, "near").promises.resolve(token, 1)


# --- signals -----------------------------------------------------------------------------------------------------


def test_a_signal_carries_tagged_json_and_the_name_of_its_caller(web: Web) -> None:
    with web.store.flows.run("trader") as flow:
        body = {"flow_id": flow.flow_id, "topic": "pay", "value": {"$decimal": "9.90"}, "by": "somebody else"}
        sent = operator(web).post("/v1/flows/signal", json=body).json()
        assert sent["sent_by"] == "operator:test"
        assert flow.receive("pay") == Decimal("9.90")
        for hidden in ({"$cid": "x"}, {"$sealed": "x"}, {"$erased": "x"}, {"$no": 1}, {"$int": "1", "more": 1}):
            refused = operator(web).post("/v1/flows/signal", json={**body, "value": [hidden]})
            problem(refused, 422, "value.unrecordable")


def test_an_agent_signals_and_reads_its_own_flows_only(web: Web) -> None:
    token = web.store.agents.register("trader", version="1.0.0").token
    client = web.client(f"trader:{token}")
    own = web.store.flows.start("trader").flow_id
    others = web.store.flows.start("other").flow_id
    assert client.post("/v1/flows/signal", json={"flow_id": own, "topic": "t", "value": 1}).status_code == 200
    assert client.get("/v1/flows/messages", params={"flow_id": own}).json()[0]["recorded"] == 1
    problem(client.post("/v1/flows/signal", json={"flow_id": others, "topic": "t"}), 403, "access.forbidden")
    problem(client.get("/v1/flows/messages", params={"flow_id": others}), 403, "access.forbidden")
    problem(client.get("/v1/flows/list_published", params={"flow_id": others}), 403, "access.forbidden")
    problem(client.get("/v1/streams", params={"flow_id": others, "stream": "s"}), 403, "access.forbidden")
    with (
        connect_sync(web.listening.address, f"trader:{token}") as store,
        pytest.raises(errors.ForbiddenError),
        store.flows.run("trader") as flow,
    ):
        # Inside a block as outside of it.
        flow.send(others, "t", 1)
    assert web.store.flows.messages(others) == ()


def test_what_a_remote_flow_records_never_stands_for_content_of_others(web: Web) -> None:
    client = operator(web)
    hidden = json.dumps({"args": [{"$cid": "x"}], "kwargs": {}})
    call = {"name": "buy", "version": "1.0", "arguments": hidden}
    problem(client.post("/v1/flows/run", json={"agent_id": "trader", "call": call}), 422, "value.unrecordable")
    block = client.post("/v1/flows/run", json={"agent_id": "trader"}).json()["block"]
    left = client.post(f"/v1/blocks/{block}/leave", json={"result": '{"$sealed": "x"}'})
    problem(left, 422, "value.unrecordable")
    assert client.post(f"/v1/blocks/{block}/leave", json={}).status_code == 200


# --- streams -----------------------------------------------------------------------------------------------------


def events(client: httpx.Client, flow_id: str, *, last: str | None = None, **params: Any) -> Iterator[tuple[str, Any]]:
    """The events of a stream, each as its kind and data; beats are left out."""
    headers = {} if last is None else {"Last-Event-ID": last}
    asked = {"flow_id": flow_id, "stream": "tokens", **params}
    with client.stream("GET", "/v1/streams", params=asked, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        kind = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                yield kind, json.loads(line[6:])


def test_a_stream_is_followed_as_it_is_written_and_resumed_at_an_offset(web: Web) -> None:
    client = operator(web, role="auditor")
    with web.store.flows.run("trader") as flow:
        tokens = flow.stream("tokens")
        tokens.write("a")
        following = events(client, flow.flow_id)
        assert next(following) == ("item", "a")
        tokens.write({"when": Decimal("1.5")})
        assert next(following) == ("item", {"when": {"$decimal": "1.5"}})
        tokens.write("c")
        tokens.close()
        assert [*following] == [("item", "c"), ("end", {})]
        assert [data for _, data in events(client, flow.flow_id, last="1")] == ["c", {}]
        assert [data for _, data in events(client, flow.flow_id, offset=2)] == ["c", {}]
    problem(client.get("/v1/streams", params={"flow_id": "nobody", "stream": "s"}), 404, "not_found")
    lost = {"flow_id": flow.flow_id, "stream": "s"}
    problem(client.get("/v1/streams", params=lost, headers={"Last-Event-ID": "x"}), 422, "input.invalid")


def test_a_follower_is_told_of_an_edited_item(web: Web) -> None:
    with web.store.flows.run("trader") as flow:
        flow.stream("tokens").write("tea")
        edit = sql("UPDATE flow_stream_items SET value = :value WHERE dfid = :dfid")
        web.store.write(lambda tx: tx.execute(edit, value='"a yacht"', dfid=flow.flow_id))
        [(kind, data)] = events(operator(web), flow.flow_id)
        assert (kind, data["code"]) == ("failed", "evidence.tampered")
        web.store.write(lambda tx: tx.execute(edit, value='"tea"', dfid=flow.flow_id))


def test_a_stream_ends_with_its_callers_token(web: Web) -> None:
    created = web.store.tokens.create("x", role="auditor")
    with web.store.flows.run("trader") as flow:
        flow.stream("tokens").write("a")
        following = events(web.client(created.secret), flow.flow_id)
        assert next(following) == ("item", "a")
        web.store.tokens.revoke(created.token.token_id)
        assert [*following] == []


# --- command line and tools --------------------------------------------------------------------------------------


def test_the_command_line_signals_resolves_and_reads(tmp_path: Path) -> None:
    home = tmp_path / "home"

    def run(*words: str) -> Any:
        done = CliRunner().invoke(app, ["--home", str(home), "--json", *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    with sync.open(home) as store:
        store.agents.register("trader", version="1.0.0")
        with store.flows.run("trader", flow_id="talk") as flow:
            promise = flow.promise("payment")
            flow.publish("progress", Decimal("0.5"))
            flow.stream("tokens").write("a")
            flow.stream("tokens").close()
            run("flows", "signal", "talk", "pay", '{"$decimal": "9.90"}', "--idempotency-key", "k")
            assert flow.receive("pay") == Decimal("9.90")
            run("promises", "resolve", promise.token, '"paid"')
            assert promise.wait() == "paid"
            assert json.loads(run("flows", "published", "talk", "progress"))["version"] == 1
            assert json.loads(run("flows", "stream", "talk", "tokens"))["recorded"] == "a"
            assert [each["state"] for each in json.loads(run("promises", "list", "talk"))] == ["RESOLVED"]
            [message] = json.loads(run("flows", "messages", "talk"))
            assert message["received_at"]


def test_a_tool_signals_a_flow(web: Web) -> None:
    mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 (an extra)

    async def signal(flow_id: str) -> Any:
        client: Any = httpx.AsyncClient(headers={"Authorization": f"Bearer {secret(web)}"})  # its like is asked for
        async with (
            client,
            streamable_http_client(f"{web.listening.address}/mcp", http_client=client) as (reading, writing, *_),
            mcp.ClientSession(reading, writing) as session,
        ):
            await session.initialize()
            return await session.call_tool("flows_signal", {"flow_id": flow_id, "topic": "t", "value": {"n": 1}})

    with web.store.flows.run("trader") as flow:
        answer = asyncio.run(signal(flow.flow_id))
        assert not answer.is_error, answer.content[0].text
        assert flow.receive("t") == {"n": 1}
