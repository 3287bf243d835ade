"""The door of the server, on a real port: who is let in, who is refused, how, and what is written down."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdproof.api.catalogue import entries
from holdproof.server import ServerSettings
from holdproof.server.authentication import csrf
from holdproof.server.middleware import HEADERS
from tests.conformance.racing import together
from tests.web import Web, broken, problem, running


@pytest.fixture(scope="module")
def web(anywhere: tuple[Path, str | None]) -> Iterator[Web]:
    home, url = anywhere
    with running(home, url=url, parts=(broken("secret words"),)) as web:
        for name in ("trader", "other"):
            web.store.agents.register(name, version="1.0.0")
        yield web


def secret(web: Web, **about: Any) -> str:
    return web.store.tokens.create("test", **about).secret


def agent(web: Web, name: str = "trader") -> str:
    return f"{name}:{web.store.agents.register(name, version='1.0.0').token}"


def flow(web: Web, name: str = "trader") -> str:
    flow_id = web.store.flows.start(name).flow_id
    web.store.flows.transition(flow_id, "RUNNING")
    return flow_id


def refused(web: Web, code: str, path: str) -> None:
    """It was written down."""
    assert any((each.code, each.path) == (code, path) for each in web.denied()), web.denied()[-3:]


# --- who calls ---------------------------------------------------------------------------------------------------


def test_without_a_token_nothing_is_told(web: Web) -> None:
    answer = web.client().get("/v1/flows/list")
    told = problem(answer, 401, "access.unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert told["instance"].endswith(answer.headers["x-request-id"])
    refused(web, "access.unauthenticated", "/v1/flows/list")


def test_a_token_that_is_wrong_revoked_or_over_is_refused(web: Web) -> None:
    gone = web.store.tokens.create("gone")
    web.store.tokens.revoke(gone.token.token_id)
    over = web.store.tokens.create("over", ttl_s=0.001)
    link, wrong = web.store.logins.create_link().secret, agent(web)[:-2]
    for bearer in ("hp_nonsense", gone.secret, over.secret, link, wrong, "nobody:x", ":", "a b"):
        problem(web.client(bearer).get("/v1/agents/list"), 401, "access.unauthenticated")
    for header in ("Basic !!!", "Digest x", "Basic " + "YTpi", "Bearer"):
        answer = web.client().get("/v1/agents/list", headers={"Authorization": header})
        problem(answer, 401, "access.unauthenticated")
    assert web.client("hp_nonsense").get("/healthz").status_code == 401


def test_an_agent_comes_in_by_its_session_token_in_three_spellings(web: Web) -> None:
    web.store.agents.register("tëam:a b", version="1.0.0")
    token = web.store.agents.register("tëam:a b", version="1.0.0").token
    spelled = "t%C3%ABam%3Aa%20b"
    for given in ({"headers": {"Authorization": f"Bearer {spelled}:{token}"}}, {"auth": (spelled, token)}):
        answer = web.client().get("/v1/agents/get", params={"agent_id": "tëam:a b"}, **given)
        assert answer.status_code == 200, answer.text
    own = web.store.tokens.create("x", role="agent", agent_id="tëam:a b").secret
    assert web.client(own).get("/v1/flows/list", params={"agent_id": "tëam:a b"}).status_code == 200


def test_the_last_use_of_a_token_is_known(web: Web, tmp_path: Path) -> None:
    with running(tmp_path / "home", ServerSettings(flush_s=0.02)) as other:
        made = other.store.tokens.create("ci")
        assert other.client(made.secret).get("/v1/agents/list").status_code == 200
        for _ in range(500):
            if other.store.tokens.get(made.token.token_id).last_used_at is not None:
                return
            time.sleep(0.01)
        pytest.fail("it is not")


# --- what they may do --------------------------------------------------------------------------------------------


def test_an_auditor_reads_and_changes_nothing(web: Web) -> None:
    client = web.client(secret(web, role="auditor"))
    assert client.get("/v1/agents/list").status_code == 200
    for path, body in (
        ("/v1/agents/set_status", {"agent_id": "trader", "status": "RETIRED"}),
        ("/v1/tokens/create", {"name": "more"}),
        ("/v1/verify/run", {}),
        ("/v1/evaluations/reveal", {"evaluation_id": "b"}),
    ):
        problem(client.post(path, json=body), 403, "access.forbidden")
        refused(web, "access.forbidden", path)
    assert web.store.agents.get("trader").status == "ACTIVE"
    assert client.post("/v1/verify/run", json={"lock": False}).status_code == 200


def test_a_token_keeps_to_its_nouns_and_its_namespace(web: Web) -> None:
    client = web.client(secret(web, role="operator", resources=["flows"]))
    problem(client.get("/v1/agents/list"), 403, "access.forbidden")
    assert client.get("/v1/flows/list").status_code == 200
    bound = web.client(secret(web, ns="elsewhere"))
    problem(bound.get("/v1/agents/list", params={"ns": "main"}), 403, "use.namespace")
    problem(bound.get("/v1/log/head"), 403, "use.namespace")
    assert bound.get("/v1/agents/list").json()["items"] == []
    made = bound.post("/v1/tokens/create", json={"name": "child"})
    assert made.json()["token"]["ns"] == "elsewhere", made.text
    refused(web, "use.namespace", "/v1/log/head")


GIVEN: dict[str, Any] = {
    "to": "RUNNING",
    "text": "?",
    "action": "tool.call",
    "worker": "w",
    "token": 1,
    "data": {},
    "context": {},
    "patch": {},
    "changes": {},
    "expected_version": 1,
    "event_type": "x",
    "intent": {},
    "context_ref": "c",
    "evidence_hash": "e",
    "resources": {"seat": 1},
    "resource": "seat",
    "ttl_s": 1,
    "reason": "?",
    "failed_step": "s",
    "partial_state": {},
    "step": "s",
    "name": "work",
    "key": "k",
    "topic": "t",
    "value": 1,
    "stream": "s",
}


AGENT_RULES = {name: spec.exposure.agent.owns for name, spec in entries().items() if spec.exposure.agent is not None}


@pytest.mark.parametrize(("noun", "verb"), sorted(AGENT_RULES))
def test_an_agent_does_nothing_to_what_is_another_s(web: Web, noun: str, verb: str) -> None:
    theirs = flow(web, "other")
    asked = web.store.escalations.request(theirs, reason="?").id
    names = {"flow": theirs, "agent": "other", "escalation": asked}
    call = {
        each.name: GIVEN[each.name] for each in entries()[noun, verb].parameters if each.required and each.name in GIVEN
    }
    call |= {name: names[kind.rstrip("?")] for name, kind in AGENT_RULES[noun, verb].items()}
    before = web.store.flows.timeline(theirs)
    problem(web.client(agent(web)).post(f"/v1/{noun}/{verb}", json=call), 403, "access.forbidden")
    refused(web, "access.forbidden", f"/v1/{noun}/{verb}")
    assert web.store.flows.timeline(theirs) == before
    unknown = {"flow": "nothing", "agent": "nobody", "escalation": 10**9}
    call |= {name: unknown[kind.rstrip("?")] for name, kind in AGENT_RULES[noun, verb].items()}
    problem(web.client(agent(web)).post(f"/v1/{noun}/{verb}", json=call), 403, "access.forbidden")


def test_an_agent_decides_on_its_own_flows(web: Web) -> None:
    client = web.client(agent(web))
    made = client.post("/v1/flows/start", json={"agent_id": "trader"}).json()
    moved = client.post("/v1/flows/transition", json={"flow_id": made["flow_id"], "to": "RUNNING"})
    assert moved.json()["status"] == "RUNNING", moved.text
    asked = client.post("/v1/escalations/request", json={"flow_id": made["flow_id"], "reason": "?"}).json()
    assert client.get("/v1/escalations/get", params={"id": asked["id"]}).status_code == 200
    answer = {"id": asked["id"], "decision": "approve", "by": "trader"}
    problem(client.post("/v1/escalations/resolve", json=answer), 403, "access.forbidden")
    assert web.store.escalations.get(asked["id"]).status == "PENDING"


def test_a_request_may_be_cancelled_at_its_deadline(web: Web) -> None:
    client = web.client(agent(web))
    more: dict[str, Any] = {"on_deadline": "cancel", "deadline_s": 3600}
    asked = client.post("/v1/escalations/request", json={"flow_id": flow(web), "reason": "?", **more})
    assert asked.json()["on_deadline"] == "cancel", asked.text


def test_an_agent_does_not_help_itself_to_an_approval(web: Web) -> None:
    client, flow_id = web.client(agent(web)), flow(web)
    more: dict[str, Any] = {"on_deadline": "approve", "deadline_s": 0.01}
    raised = {"agent_id": "trader", "per_hour": 1000}
    problem(client.post("/v1/agents/set_budget", json=raised), 403, "access.forbidden")
    problem(
        client.post("/v1/escalations/request", json={"flow_id": flow_id, "reason": "?", **more}),
        403,
        "access.forbidden",
    )
    block = client.post("/v1/flows/run", json={"resume": flow_id}).json()["block"]
    answer = client.post(f"/v1/blocks/{block}/approve", json={"reason": "?", **more})
    problem(answer, 403, "access.forbidden")
    assert web.store.flows.get(flow_id).status == "RUNNING"


# --- browsers ----------------------------------------------------------------------------------------------------


def test_every_answer_tells_browsers_to_do_little(web: Web) -> None:
    client = web.client()
    for answer in (
        client.get("/healthz"),
        client.get("/nothing"),
        client.get("/login"),
        client.get("/static/bare.css"),
    ):
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers


def test_pages_have_no_script_or_style_inside(web: Web) -> None:
    client = web.client(Accept="text/html")
    for path in ("/login", "/login?code=x", "/docs", "/nothing"):
        page = client.get(path).text
        assert page.startswith("<!doctype html>"), path
        assert not re.search(r"<style|<script(?![^>]*src=)|style=|\son\w+=|javascript:|//[a-z]+\.", page), path


def test_what_a_link_carries_is_shown_escaped(web: Web) -> None:
    page = web.client().get("/login", params={"code": '"><script>alert(1)</script>'}).text
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_a_link_gives_a_session_in_a_cookie_that_scripts_cannot_read(web: Web) -> None:
    link = web.store.logins.create_link(name="Ada").secret
    client = web.client()
    assert client.get("/login", params={"code": link}).status_code == 200, "looking does not use it up"
    answer = client.post("/login", data={"code": link})
    flags = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    assert client.get("/v1/agents/list").status_code == 200
    again = web.client().post("/login", data={"code": link})
    problem(again, 401, "access.unauthenticated")
    assert "set-cookie" not in again.headers
    assert web.store.access_log.list(event="login", limit=1).items[0].caller == "operator:Ada"


def test_a_session_ends_by_logging_out_and_with_its_token(web: Web) -> None:
    client = web.logged_in()
    assert client.get("/v1/agents/list").status_code == 200
    cookie = client.cookies["holdproof"]
    assert client.post("/logout", data={"csrf": csrf(cookie)}).status_code == 303
    problem(client.get("/v1/agents/list", headers={"Cookie": f"holdproof={cookie}"}), 401, "access.unauthenticated")
    token = web.store.tokens.create("t", role="auditor").token
    other = web.logged_in(web.store.logins.create_link(token_id=token.token_id).secret)
    assert other.get("/v1/agents/list").status_code == 200
    web.store.tokens.revoke(token.token_id)
    problem(other.get("/v1/agents/list"), 401, "access.unauthenticated")


def test_a_session_s_secret_is_no_token_and_a_token_is_no_session(web: Web) -> None:
    client = web.logged_in()
    problem(web.client(client.cookies["holdproof"]).get("/v1/agents/list"), 401, "access.unauthenticated")
    cookie = {"Cookie": f"holdproof={secret(web)}"}
    problem(web.client().get("/v1/agents/list", headers=cookie), 401, "access.unauthenticated")


BODY = {"agent_id": "trader", "status": "ACTIVE"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-CSRF-Token": "guessed"},
        {"X-CSRF-Token": "\xff"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_request_that_a_page_of_somebody_else_sends_is_refused(web: Web, headers: dict[str, str]) -> None:
    client = web.logged_in()
    given = {"X-CSRF-Token": csrf(client.cookies["holdproof"])} if headers.keys() & {"Origin", "Sec-Fetch-Site"} else {}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in {**given, **headers}.items()]
    problem(client.post("/v1/agents/set_status", json=BODY, headers=raw), 403, "access.forged")
    refused(web, "access.forged", "/v1/agents/set_status")


def test_a_request_of_our_own_page_passes(web: Web) -> None:
    client = web.logged_in()
    own = {"X-CSRF-Token": csrf(client.cookies["holdproof"]), "Origin": web.listening.address}
    answer = client.post("/v1/agents/set_status", json=BODY, headers={**own, "Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 200, answer.text
    assert web.client(secret(web)).post("/v1/agents/set_status", json=BODY).status_code == 200, "a token is no cookie"


def test_nobody_is_logged_in_by_a_page_of_somebody_else(web: Web) -> None:
    code = {"code": web.store.logins.create_link().secret}
    foreign = {"Origin": "https://evil.example"}
    problem(web.client().post("/login", data=code, headers=foreign), 403, "access.forged")
    assert web.client().post("/login", data=code).status_code == 303


# --- what is no proper request -----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]"])
def test_a_name_that_was_bound_to_this_address_by_others_reaches_nothing(web: Web, host: str) -> None:
    problem(web.client().get("/healthz", headers={"Host": host}), 421, "request.host")
    refused(web, "request.host", "/healthz")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:80"])
def test_the_names_of_this_machine_are_known(web: Web, host: str) -> None:
    assert web.client().get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/%2e%2e%2f%2e%2e%2fapp.py"),
        *("/static/..%5capp.py", "/static//../app.py", "/tile/../../etc/passwd", "/tile/0/%2e%2e/%2e%2e/checkpoint"),
        *("/%00", "/static/bare.css%00.html", "/v1/./agents/list", "/a%0d%0aSet-Cookie:%20x=1"),
    ],
)
def test_an_address_that_leaves_its_folder_is_refused(web: Web, path: str) -> None:
    token = secret(web)
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    answer = web.raw(request.encode())
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"set-cookie" not in answer.lower()
    assert web.denied()[-1].code == "request.malformed"
    assert all(each.path.isprintable() for each in web.denied())


@pytest.mark.parametrize(
    "lines",
    [
        b"X: a\nSet-Cookie: y\r\n",
        b"X: a\x00b\r\n",
        b" X: folded\r\n",
        b"Bad Name: x\r\n",
        b"Content-Length: 1\r\nContent-Length: 2\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_headers_that_two_servers_could_read_differently_reach_no_route(web: Web, lines: bytes) -> None:
    answer = web.raw(b"GET /v1/agents/list HTTP/1.1\r\nHost: localhost\r\n" + lines + b"Connection: close\r\n\r\n")
    status = int(answer.split(b" ", 2)[1])
    assert status in {400, 401, 421}, answer
    assert b"set-cookie" not in answer.lower()


ASKED = sorted(f"{each.resource}/{each.method}" for each in entries().values() if each.plain_query)


@pytest.mark.parametrize(
    "evil", ["' OR 1=1 --", "'; DROP TABLE agent_registry; --", "%_\\", "x\0y", "${jndi:x}{{7*7}}"]
)
def test_what_a_filter_is_given_is_a_value_and_never_a_statement(web: Web, evil: str) -> None:
    client = web.client(secret(web))
    before = web.store.agents.list(limit=1000)
    for path in ASKED:
        noun, verb = path.split("/")
        texts = [each for each in entries()[noun, verb].parameters if '"string"' in json.dumps(each.schema({}))]
        given = {each.name: evil for each in texts if each.offered}
        answer = client.get(f"/v1/{path}", params=given)
        assert answer.status_code in {200, 403, 404, 409, 422}, f"{path} {answer.text}"
        if "agent_registry" in evil and answer.status_code == 200:
            assert "trader" not in answer.text, path
    assert web.store.agents.list(limit=1000) == before


def test_nothing_that_is_sent_comes_back_as_a_header(web: Web) -> None:
    evil = "x\r\nSet-Cookie: a=b"
    client = web.client()
    for answer in (
        client.get("/login", params={"code": evil}),
        client.post("/login", data={"code": evil}),
        client.get("/nothing", params={"x": evil}, headers={"X-Request-Id": "theirs"}),
    ):
        assert "set-cookie" not in answer.headers
        assert answer.headers["x-request-id"] != "theirs"


def test_two_hosts_are_no_host(web: Web) -> None:
    answer = web.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
    assert answer.split(b" ", 2)[1] in {b"400", b"421"}


def test_an_address_or_headers_without_end_are_refused(web: Web) -> None:
    client = web.client()
    problem(client.get("/healthz?" + "a" * 9000), 414, "request.long_url")
    problem(client.get("/healthz", headers={"X-Long": "a" * 33_000}), 431, "request.headers")
    problem(client.get("/healthz", headers=[("X-Many", "a")] * 101), 431, "request.headers")
    refused(web, "request.headers", "/healthz")


def test_what_is_not_there_is_a_problem_too(web: Web) -> None:
    problem(web.client().get("/nothing"), 404, "not_found")
    answer = web.client().delete("/healthz")
    problem(answer, 405, "request.method")
    assert "GET" in answer.headers["allow"]
    told = problem(web.client(secret(web)).get("/v1/flows/get", params={"flow_id": "x"}), 404, "not_found")
    assert told["fields"] == {"flow_id": "x"}
    problem(web.client(secret(web)).get("/v1/flows/list", params={"limit": "many"}), 422, "input.invalid")


def test_a_defect_tells_a_number_and_nothing_else(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    answer = web.client().get("/broken")
    told = problem(answer, 500, "internal")
    assert "secret words" not in answer.text
    assert "RuntimeError" not in answer.text
    assert told["instance"].rsplit(":", 1)[1] in caplog.text
    assert "secret words" in caplog.text
    assert "secret words" not in web.client(Accept="text/html").get("/broken").text


# --- health --------------------------------------------------------------------------------------------------------


def test_numbers_are_for_operators_and_auditors(web: Web) -> None:
    problem(web.client().get("/metrics"), 401, "access.unauthenticated")
    problem(web.client(agent(web)).get("/metrics"), 403, "access.forbidden")
    client = web.client(secret(web, role="auditor"))
    assert client.get("/v1/flows/list").status_code == 200
    text = client.get("/metrics").text
    assert 'holdproof_http_requests_total{method="GET",route="/metrics",status="401"}' in text
    assert re.search(r"^holdproof_log_leaves [1-9]", text, re.M)
    assert "holdproof_locked 0" in text
    assert 'route="/v1/flows/list"' in text


def test_health_is_for_everybody_and_tells_no_more_than_it_must(web: Web) -> None:
    assert web.client().get("/healthz").json() == {"status": "ok"}
    ready = web.client().get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["locked"] is False
    assert ready.json().keys() <= {"status", "database", "locked", "degraded"}


def test_a_locked_store_is_read_and_says_so(tmp_path: Path) -> None:
    with running(tmp_path / "home") as web:
        token = secret(web)
        web.store.lockdown.lock(reason="a drill")
        assert web.client().get("/readyz").json()["status"] == "locked"
        client = web.logged_in()
        assert client.get("/v1/agents/list").status_code == 200, "people come in to see why"
        answer = web.client(token).post("/v1/agents/register", json={"agent_id": "a", "version": "1.0.0"})
        problem(answer, 423, "locked")
        assert "holdproof_locked 1" in web.client(token).get("/metrics").text


def test_the_document_is_there_and_is_openapi_3_1(web: Web) -> None:
    described = json.loads(web.client().get("/openapi.json").text)
    assert described["openapi"].startswith("3.1")
    assert "/v1/flows/start" in described["paths"]
    assert "/v1/flows/start" in web.client().get("/docs").text


def test_many_use_one_link_at_once_and_one_comes_in(web: Web) -> None:
    code = web.store.logins.create_link().secret
    clients: list[httpx.Client] = [web.client() for _ in range(8)]
    found = together(8, lambda number: clients[number].post("/login", data={"code": code}).status_code)
    assert found == {303: 1, 401: 7}
