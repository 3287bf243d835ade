"""The verbs over HTTP as any client meets them: what is read, what is refused, what happens once; and tools at /mcp."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from holdproof import errors
from holdproof.api.catalogue import entries
from holdproof.remote import connect_sync
from tests.web import Web, running


class Place:
    """A whole server over one store, and those who call it."""

    def __init__(self, web: Web) -> None:
        self.url, self.near = web.listening.address, web.store
        self.agent = self.near.agents.register("bot", version="1.0").token
        self.near.agents.register("other", version="1.0")
        self.operator = self.near.tokens.create("op", role="operator").secret
        self.auditor = self.near.tokens.create("au", role="auditor").secret

    def http(self, token: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.operator if token is None else token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)


@pytest.fixture(scope="module")
def place(anywhere: tuple[Path, str | None]) -> Iterator[Place]:
    home, url = anywhere
    with running(home, url=url) as web:
        yield Place(web)


def test_every_verb_has_a_route_and_a_description(place: Place) -> None:
    with place.http() as http:
        described = http.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    paths = {f"/v1/{noun}/{verb}" for noun, verb in entries()}
    assert paths <= described["paths"].keys()
    text = json.dumps(described)
    referred = {each.split('"')[0] for each in text.split("#/components/schemas/")[1:]}
    assert referred <= described["components"]["schemas"].keys()


def test_a_verb_that_reads_is_a_page_and_a_post(place: Place) -> None:
    with place.http() as http:
        asked = http.get("/v1/agents/get", params={"agent_id": "bot"})
        posted = http.post("/v1/agents/get", json={"agent_id": "bot"})
        assert asked.json() == posted.json()
        assert asked.json()["agent_id"] == "bot"
        assert http.get("/v1/flows/start", params={"agent_id": "bot"}).status_code == 405


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/v1/agents/get", {}),
        ("/v1/agents/get", {"agent_id": 7}),
        ("/v1/agents/get", {"agent_id": "bot", "tx": 1}),
        ("/v1/agents/list", {"limit": "many"}),
        ("/v1/agents/list", {"limit": True}),
        ("/v1/image/dump", {"path": "/etc/passwd"}),
        ("/v1/objects/apply", {"changes": {}, "resolve": True}),
        ("/v1/flows/start", {"agent_id": "bot", "created_by": ["a"]}),
    ],
)
def test_what_does_not_fit_a_verb_is_refused_and_named(place: Place, path: str, given: dict[str, Any]) -> None:
    with place.http() as http:
        refused = http.post(path, json=given)
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["code"] == "input.invalid"


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"limit": NaN}', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(place: Place, body: bytes) -> None:
    with place.http() as http:
        assert http.post("/v1/agents/list", content=body).status_code == 422


def test_a_key_makes_a_post_happen_once(place: Place) -> None:
    with place.http() as http:
        key = {"Idempotency-Key": "start-1"}
        first = http.post("/v1/flows/start", json={"agent_id": "bot"}, headers=key)
        again = http.post("/v1/flows/start", json={"agent_id": "bot"}, headers=key)
        assert first.status_code == 200
        assert again.json() == first.json()
        other = http.post("/v1/flows/start", json={"agent_id": "other"}, headers=key)
        assert other.status_code == 409
        assert other.json()["code"] == "idempotency.conflict"
    with place.http(place.near.tokens.create("op2", role="operator").secret) as http:
        theirs = http.post("/v1/flows/start", json={"agent_id": "bot"}, headers=key)
        assert theirs.json()["flow_id"] != first.json()["flow_id"]


def test_a_version_is_an_etag_and_if_match_expects_it(place: Place) -> None:
    with place.http() as http:
        put = http.post("/v1/state/put", json={"agent_id": "bot", "data": {"n": 1}})
        tag = put.headers["etag"]
        change = {"agent_id": "bot", "data": {"n": 2}}
        assert http.post("/v1/state/update", json=change, headers={"If-Match": tag}).status_code == 200
        stale = http.post("/v1/state/update", json=change, headers={"If-Match": tag})
        assert stale.status_code == 412
        for wrong in ("W/x", "\xb2", "-1", "9" * 5_000):
            tags = {b"If-Match": wrong.encode("latin-1")}
            assert http.post("/v1/state/update", json=change, headers=tags).status_code == 422
        now = http.get("/v1/state/get", params={"agent_id": "bot"})
        assert now.json()["data"] == {"n": 2}
        same = http.get("/v1/state/get", params={"agent_id": "bot"}, headers={"If-None-Match": now.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")


def test_an_auditor_reads_and_changes_nothing(place: Place) -> None:
    with place.http(place.auditor) as http:
        assert http.get("/v1/flows/list").status_code == 200
        assert http.post("/v1/verify/run", json={"lock": False}).json()["verdict"] == "VALID"
        for path, given in (
            ("/v1/flows/start", {"agent_id": "bot"}),
            ("/v1/verify/run", {}),
            ("/v1/flows/run", {"agent_id": "bot"}),
            ("/v1/relational/transaction", {}),
        ):
            assert http.post(path, json=given).status_code == 403, path


def test_an_agent_has_its_own_flows_only(place: Place) -> None:
    theirs = place.near.flows.start("other").flow_id
    with connect_sync(place.url, f"bot:{place.agent}") as store:
        with store.flows.run("bot") as flow:
            assert flow.step("one", lambda: 1) == 1
        assert store.flows.get(str(flow.flow_id)).status == "COMPLETED"
        for attempt in (
            lambda: store.flows.get(theirs),
            lambda: store.flows.run("other").__enter__(),
            lambda: store.flows.run(resume=theirs).__enter__(),
            lambda: store.keys.list(),
        ):
            with pytest.raises(errors.ForbiddenError):
                attempt()


def test_a_block_and_an_exchange_belong_to_whoever_opened_them(place: Place) -> None:
    with connect_sync(place.url, f"bot:{place.agent}") as store, store.flows.run("bot") as flow:
        block = flow._block
        with place.http() as http:
            assert http.post(f"/v1/blocks/{block}/heartbeat", json={}).status_code == 404
            assert http.post(f"/v1/blocks/{block}/leave", json={}).status_code == 404

        def work() -> int:
            return 1

        assert flow.step("one", work) == 1


def test_nobody_gets_in_without_a_token(place: Place) -> None:
    with httpx.Client(base_url=place.url) as http:
        for path in ("/v1/flows/list", "/v1/status", "/v1/agents/get?agent_id=bot"):
            assert http.get(path).status_code == 401
        assert http.post("/v1/flows/run", json={"agent_id": "bot"}).status_code == 401
        assert http.post("/mcp/", json={}).status_code in {401, 400, 406}


def test_tools_at_the_server_are_called_by_whoever_the_door_knows(place: Place) -> None:
    async def work() -> None:
        headers = {"Authorization": f"Bearer bot:{place.agent}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            streamable_http_client(f"{place.url}/mcp/", http_client=http) as (reading, writing, *_),
            ClientSession(reading, writing) as session,
        ):
            await session.initialize()
            names = {tool.name for tool in (await session.list_tools()).tools}
            assert "flows_start" in names
            assert "verify_run" not in names
            started = await session.call_tool("flows_start", {"agent_id": "bot"})
            assert started.structured_content is not None
            assert started.structured_content["agent_id"] == "bot"
            assert (await session.call_tool("flows_start", {"agent_id": "other"})).is_error

    asyncio.run(work())


def test_spans_of_any_agent_are_taken_in_by_whoever_may_append_telemetry(place: Place) -> None:
    span = {"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331", "name": "think"}
    span |= {"startTimeUnixNano": "1767225600000000000", "endTimeUnixNano": "1767225601000000000"}
    traces = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    with place.http() as http:
        taken = http.post("/v1/traces", json=traces)
        assert taken.status_code == 200, taken.text
        found = http.get("/v1/telemetry/query", params={"span_id": span["spanId"]}).json()
        assert [each["trace_id"] for each in found] == [span["traceId"]]
        assert http.post("/v1/traces", content=b"x", headers={"Content-Type": "text/plain"}).status_code == 422
        assert http.post("/v1/traces", content=b"{", headers={"Content-Type": "application/json"}).status_code == 422
    with place.http(place.auditor) as http:
        assert http.post("/v1/traces", json=traces).status_code == 403
