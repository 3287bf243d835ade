"""What a hostile caller with a token of its own tries at the door, on a real port."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from holdproof.adapters.otel.receiver import Received, receive
from holdproof.runtime import calls
from holdproof.server import ServerSettings, remote_contexts
from holdproof.server.exchange import Exchanges
from tests.conformance.racing import together
from tests.web import Web, problem, running

EXCHANGES: list[Exchanges] = []


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with pytest.MonkeyPatch.context() as patching:
        begin = Exchanges.__init__

        def known(self: Exchanges) -> None:
            begin(self)
            EXCHANGES.append(self)

        patching.setattr(Exchanges, "__init__", known)
        with running(tmp_path_factory.mktemp("hostile") / "home", ServerSettings(flush_s=0.05)) as web:
            for name in ("bot", "trader"):
                web.store.agents.register(name, version="1.0.0")
            web.store.agents.register("far", version="1.0.0", ns="far")
            web.store.relational.execute("CREATE TABLE things (a)")
            yield web


def caller(web: Web, **about: Any) -> httpx.Client:
    return web.client(web.store.tokens.create("test", **about).secret)


def agent(web: Web, *resources: str, name: str = "bot") -> httpx.Client:
    return caller(web, role="agent", agent_id=name, resources=resources or None)


def waiting(web: Web, client: httpx.Client) -> tuple[str, int]:
    """A flow of the agent, and its question."""
    flow_id = client.post("/v1/flows/start", json={"agent_id": "bot"}).json()["flow_id"]
    client.post("/v1/flows/transition", json={"flow_id": flow_id, "to": "RUNNING"})
    return flow_id, web.store.escalations.request(flow_id, reason="a million").id


# --- blocks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idle_s", [None, -1, 0, 1e300, 301, "x", [1], True])
def test_nobody_holds_the_writer_for_as_long_as_they_like(web: Web, idle_s: Any) -> None:
    answer = agent(web, "relational").post("/v1/relational/transaction", json={"idle_s": idle_s})
    problem(answer, 422, "input.invalid")
    web.store.relational.execute("INSERT INTO things (a) VALUES (1)")


def test_a_block_that_is_left_in_words_nobody_understands_stays_open(web: Web) -> None:
    client = agent(web, "relational")
    block = client.post("/v1/relational/transaction", json={"idle_s": 60}).json()["block"]
    assert client.post(f"/v1/blocks/{block}/execute", json={"query": "INSERT INTO things VALUES (2)"}).is_success
    problem(client.post(f"/v1/blocks/{block}/leave", json={"problem": 3}), 422, "input.invalid")
    assert client.post(f"/v1/blocks/{block}/leave", json={"error": "Oh: no"}).is_success
    problem(client.post(f"/v1/blocks/{block}/leave", json={}), 404, "not_found")
    assert web.store.relational.fetch_all("SELECT a FROM things WHERE a = 2") == []


def test_of_too_many_blocks_their_owner_loses_one_and_what_it_held_is_let_go(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_contexts, "_MOST", 3)
    greedy, other = agent(web, "relational"), agent(web, name="trader")
    kept = other.post("/v1/flows/run", json={"agent_id": "trader"}).json()
    held = greedy.post("/v1/relational/transaction", json={"idle_s": 60}).json()["block"]
    greedy.post(f"/v1/blocks/{held}/execute", json={"query": "INSERT INTO things VALUES (3)"})
    opened = [greedy.post("/v1/flows/run", json={"agent_id": "bot"}).json() for _ in range(4)]
    problem(greedy.post(f"/v1/blocks/{held}/leave", json={}), 404, "not_found")
    assert web.store.relational.execute("INSERT INTO things VALUES (4)") == 1, "the writer is free"
    assert web.store.relational.fetch_all("SELECT a FROM things WHERE a = 3") == []
    assert other.post(f"/v1/blocks/{kept['block']}/leave", json={}).is_success
    assert web.store.flows.get(opened[0]["flow_id"]).status == "RUNNING", "it is resumed, not failed"


def test_what_a_block_is_given_is_read_by_its_type(web: Web) -> None:
    client = agent(web)
    for wrong in ({"nosuch": 1}, {"lease_s": "x"}, {"call": 1}, {"created_by": 7}, {"worker": 7}):
        problem(client.post("/v1/flows/run", json={"agent_id": "bot", **wrong}), 422, "input.invalid")
    block = client.post("/v1/flows/run", json={"agent_id": "bot"}).json()["block"]
    for verb, given in (
        ("lock", {}),
        ("lock", {"resources": 7}),
        ("lock", {"resources": {}, "flow_id": "another"}),
        ("step", {}),
        ("step", {"name": "x", "on_unknown": "perhaps"}),
        ("heartbeat", {"x": 1}),
        ("approve", {"reason": 3}),
    ):
        problem(client.post(f"/v1/blocks/{block}/{verb}", json=given), 422, "input.invalid")
    problem(client.post(f"/v1/blocks/{block}/execute", json={"query": ""}), 404, "not_found")
    assert client.post(f"/v1/blocks/{block}/leave", json={}).is_success


def test_an_exchange_whose_answer_cannot_begin_is_forgotten(web: Web) -> None:
    bound, before = caller(web, ns="far"), sum(len(each._open) for each in EXCHANGES)
    for _ in range(3):
        problem(bound.post("/v1/verify/run", json={"progress": True}), 403, "use.namespace")
    assert sum(len(each._open) for each in EXCHANGES) == before


def test_an_agent_has_no_function_of_another_run_with_its_own_arguments(web: Web) -> None:
    ran: list[Any] = []

    @web.store.flow(name="wire-money", agent="trader", lease_s=10)
    def wire_money(flow: Any, amount: int) -> None:
        ran.append((flow.flow_id, amount))

    call = {"name": "wire-money", "version": "1.0", "arguments": '{"args": [1000000], "kwargs": {}}'}
    about = {"flow_type": "wire-money", "flow_version": "1.0", "lease_s": 0.001, "call": call}
    mine = agent(web).post("/v1/flows/run", json={"agent_id": "bot", **about}).json()["flow_id"]
    theirs = {**call, "agent_id": None}
    forged = agent(web).post("/v1/flows/run", json={"agent_id": "bot", **about, "call": theirs}).json()["flow_id"]
    own = agent(web, name="trader").post("/v1/flows/run", json={"agent_id": "trader", **about}).json()["flow_id"]
    written = web.store.read(lambda tx: [calls.find(tx, each, ns="main") for each in (mine, forged)])
    assert [each and each.agent_id for each in written] == ["bot", "bot"]
    found = web.store.flows.recover("worker")
    assert ran == [(own, 1000000)]
    assert {mine, forged} <= {each.flow_id for each in found.orphans}


# --- links -------------------------------------------------------------------------------------------------------


def test_a_link_that_a_token_made_ends_with_the_token(web: Web) -> None:
    made = web.store.tokens.create("boss")
    client = web.client(made.secret)
    other = web.store.tokens.create("other", role="operator").token
    given = {"token_id": other.token_id, "name": "ada", "role": "operator"}
    link = client.post("/v1/logins/create_link", json=given).json()
    assert (link["login"]["token_id"], link["login"]["name"]) == (made.token.token_id, "boss")
    session = web.logged_in(client.post("/v1/logins/create_link", json={}).json()["secret"])
    assert session.get("/v1/agents/list").is_success
    web.store.tokens.revoke(made.token.token_id)
    problem(web.client().post("/login", data={"code": link["secret"]}), 401, "access.unauthenticated")
    problem(session.get("/v1/agents/list"), 401, "access.unauthenticated")
    problem(caller(web).post("/v1/logins/create_link", json={"ttl_s": 3601}), 422, "input.invalid")


def test_an_operator_sees_who_is_logged_in_and_ends_it(web: Web) -> None:
    session, client = web.logged_in(), caller(web)
    assert session.get("/v1/agents/list").is_success
    newest = client.get("/v1/logins/list").json()["items"][0]
    assert (newest["kind"], newest["name"]) == ("session", "operator")
    assert "secret" not in json.dumps(newest)
    problem(client.post("/v1/logins/end", json=newest | {"x": 1}), 422, "input.invalid")
    problem(caller(web, role="auditor").post("/v1/logins/end", json=newest | {"x": 1}), 403, "access.forbidden")
    about = {"login_id": newest["login_id"]}
    problem(caller(web, role="auditor").post("/v1/logins/end", json=about), 403, "access.forbidden")
    assert client.post("/v1/logins/end", json=about).json()["ended_at"]
    problem(session.get("/v1/agents/list"), 401, "access.unauthenticated")


# --- secrets and keys --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/tokens/create", {"name": "x"}),
        ("/v1/logins/create_link", {}),
        ("/v1/agents/register", {"agent_id": "new", "version": "1.0.0"}),
    ],
)
def test_a_secret_is_kept_under_no_key(web: Web, path: str, body: dict[str, Any]) -> None:
    answer = caller(web).post(path, json=body, headers={"Idempotency-Key": "k"})
    problem(answer, 422, "input.invalid")


def test_what_the_door_keeps_for_one_caller_is_nothing_for_others(web: Web) -> None:
    made = web.store.tokens.create("keeper")
    client, key = web.client(made.secret), {"Idempotency-Key": "order-1"}
    first = client.post("/v1/flows/start", json={"agent_id": "bot"}, headers=key)
    assert client.post("/v1/flows/start", json={"agent_id": "bot"}, headers=key).json() == first.json()
    kept = {"key": f"http:operator:keeper:{made.token.token_id}:order-1"}
    for other in (caller(web, role="auditor"), agent(web, "idempotency"), caller(web, resources=["idempotency"])):
        problem(other.post("/v1/idempotency/get", json=kept), 403, "access.forbidden")
    for verb in ("settle", "delete", "once"):
        more = {"settle": {"result": 1}, "once": {"request": 1, "fn": True}}.get(verb, {})
        problem(agent(web, "idempotency").post(f"/v1/idempotency/{verb}", json=kept | more), 403, "access.forbidden")
    assert client.post("/v1/idempotency/get", json=kept).is_success, "an operator settles what nobody knows"


def test_a_key_changes_nothing_of_an_answer_but_that_it_comes_once(web: Web) -> None:
    client, key = caller(web), {"Idempotency-Key": "state-1"}
    for _ in range(2):
        answer = client.post("/v1/state/put", json={"agent_id": "bot", "data": {"a": 1}}, headers=key)
        assert answer.headers["etag"] == f'"{answer.json()["version"]}"'
        assert answer.json()["version"] == 1
    put = {"key": "kept", "data": {"$bytes": "aGk="}}
    for _ in range(2):
        client.post("/v1/blobs/put", json=put, headers={"Idempotency-Key": "blob-1"})


def test_a_key_counts_where_an_answer_comes_line_by_line(web: Web) -> None:
    client, key = caller(web), {"Idempotency-Key": "gc-1"}
    first, second = (client.post("/v1/image/dump", json={"progress": True}, headers=key) for _ in range(2))
    told = [json.loads(line) for answer in (first, second) for line in answer.text.splitlines() if line]
    done = [line for line in told if "done" in line]
    assert len(done) == 2, told
    assert done[0] == done[1]
    assert not any("progress" in json.loads(line) for line in second.text.splitlines() if line), "nothing was done"


# --- questions ---------------------------------------------------------------------------------------------------


def test_an_agent_does_not_go_on_without_the_answer_to_its_question(web: Web) -> None:
    client = agent(web)
    flow_id, asked = waiting(web, client)
    for to in ("RUNNING", "COMPLETED"):
        problem(client.post("/v1/flows/transition", json={"flow_id": flow_id, "to": to}), 403, "access.forbidden")
    assert web.store.escalations.get(asked).status == "PENDING"
    assert client.post("/v1/flows/transition", json={"flow_id": flow_id, "to": "CANCELLED"}).is_success
    flow_id, asked = waiting(web, client)
    assert caller(web).post("/v1/flows/transition", json={"flow_id": flow_id, "to": "RUNNING"}).is_success, (
        "a person may"
    )


def test_an_agent_does_not_slip_past_its_question_while_it_is_asked(web: Web) -> None:
    for _ in range(5):
        flow_id = web.store.flows.start("bot").flow_id
        web.store.flows.transition(flow_id, "RUNNING")
        clients = [agent(web) for _ in range(6)]

        def act(number: int, flow_id: str = flow_id, clients: list[httpx.Client] = clients) -> str:
            if number == 0:
                return web.store.escalations.request(flow_id, reason="?").status
            answer = clients[number].post("/v1/flows/transition", json={"flow_id": flow_id, "to": "RUNNING"})
            return str(answer.is_success)

        assert together(6, act) == {"PENDING": 1, "False": 5}
        assert web.store.flows.get(flow_id).status == "WAITING_ESCALATION"


def test_what_is_done_carries_the_name_of_who_did_it(web: Web) -> None:
    _, asked = waiting(web, agent(web))
    boss = web.client(web.store.tokens.create("boss").secret)
    answer = {"id": asked, "decision": "approve", "by": "operator:alice", "comment": "ok"}
    assert boss.post("/v1/escalations/resolve", json=answer).json()["resolved_by"] == "operator:boss"
    made = boss.post("/v1/tokens/create", json={"name": "x", "by": "somebody"}).json()
    assert made["token"]["created_by"] == "operator:boss"
    begun = agent(web).post("/v1/flows/start", json={"agent_id": "bot", "created_by": ["operator", "alice"]}).json()
    assert (begun["created_by_type"], begun["created_by_id"]) == ("agent", "bot")


def test_a_retired_agent_comes_in_by_no_token(web: Web) -> None:
    session = web.store.agents.register("old", version="1.0.0").token
    token = web.store.tokens.create("old", role="agent", agent_id="old").secret
    web.store.agents.set_status("old", "RETIRED", reason="left")
    for bearer in (f"old:{session}", token):
        problem(web.client(bearer).get("/v1/flows/list", params={"agent_id": "old"}), 403, "agent.inactive")


# --- what is beyond a namespace, and beyond the store -------------------------------------------------------------


def test_whoever_is_bound_to_a_namespace_learns_nothing_of_the_whole(web: Web) -> None:
    for role in ("operator", "auditor"):
        bound = caller(web, role=role, ns="far")
        for path in ("/v1/status", "/v1/check", "/metrics", "/v1/storage/status"):
            problem(bound.get(path), 403, "use.namespace")
    granted = caller(web, role="auditor", ns="far", resources=["storage"])
    for path in ("/v1/status", "/metrics"):
        assert granted.get(path).is_success, path


def test_whoever_is_bound_to_a_namespace_sees_no_job_of_another(web: Web) -> None:
    theirs, others = caller(web, ns="far"), caller(web, role="auditor", ns="elsewhere")
    begun = theirs.post("/flows/recover", data={"confirmed": "yes"})
    place = begun.headers["location"]
    assert theirs.get(place).is_success
    problem(others.get(place), 404, "not_found")
    assert caller(web, role="auditor").get(place).is_success


def test_whoever_is_bound_to_a_namespace_erases_nothing_of_services(web: Web) -> None:
    web.store.blobs.put("face.jpg", b"x", subject="anna")
    problem(caller(web, ns="main").post("/v1/erase/subject", json={"name": "anna"}), 404, "not_found")
    assert web.store.blobs.exists("face.jpg")


@pytest.mark.parametrize("where", ["node", "gateway"])
def test_whoever_is_bound_to_a_namespace_sends_the_server_nowhere(web: Web, where: str) -> None:
    given = {"cid": "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi", where: "http://127.0.0.1:1/"}
    problem(caller(web, ns="far").post("/v1/archive/restore", json=given), 403, "access.forbidden")


def test_nobody_looks_at_the_server_s_disk_through_skills(web: Web) -> None:
    given = {"paths": ["/etc/passwd"]}
    problem(agent(web, "skills").post("/v1/skills/verify", json={}), 403, "access.forbidden")
    problem(caller(web).post("/v1/skills/verify", json=given), 422, "input.invalid")
    problem(agent(web, "skills").post("/v1/skills/verify", json=given), 403, "access.forbidden")
    assert caller(web).post("/v1/skills/verify", json={}).is_success


# --- what should fail properly -------------------------------------------------------------------------------------


def test_what_cannot_be_reckoned_with_or_read_is_refused_and_no_defect(web: Web) -> None:
    client = agent(web)
    flow_id = web.store.flows.start("bot").flow_id
    huge = f'{{"flow_id": "{flow_id}", "resources": {{"a": {"1" * 400}}}}}'
    problem(client.post("/v1/locks/try_acquire", content=huge), 422, "input.invalid")


def test_what_is_nested_too_deeply_is_refused_before_anything_is_written(web: Web) -> None:
    client = agent(web)
    for depth in (100, 199, 200, 300, 450, 900, 3000):
        deep = f'{{"agent_id": "bot", "data": {{"x": {"[" * depth}{"]" * depth}, "depth": {depth}}}}}'
        taken = client.post("/v1/state/put", content=deep).status_code == 200
        assert taken == (depth <= 199), depth
        assert (web.store.state.get("bot").data["depth"] == depth) == taken
    assert client.get("/v1/state/get", params={"agent_id": "bot"}).json()["data"]["depth"] == 199


def test_spans_that_take_long_to_read_keep_nobody_else_waiting(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, others = threading.Event(), threading.Event()

    def read(*given: Any, **named: Any) -> Received:
        reading.set()
        assert others.wait(60), "somebody else was kept waiting"
        return receive(*given, **named)

    monkeypatch.setattr("holdproof.server.otlp.receive", read)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(caller(web).post, "/v1/traces", json={})
        assert reading.wait(60)
        assert web.client().get("/healthz").is_success
        others.set()
        assert sent.result().is_success


def test_methods_that_somebody_invents_are_counted_as_one(web: Web) -> None:
    for method in ("INVENTED", "PROPFIND", "PURGE"):  # the first does not come past the reader of HTTP
        web.client().request(method, "/healthz")
    text = caller(web).get("/metrics").text
    assert not any(method in text for method in ("INVENTED", "PROPFIND", "PURGE"))
    assert 'method="OTHER"' in text


def test_the_description_is_made_once_however_often_it_is_asked_for(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    first = {path: web.client().get(path).content for path in ("/openapi.json", "/docs")}
    monkeypatch.setattr("holdproof.server.docs.page", None)
    monkeypatch.setattr("holdproof.server.docs.json", None)
    assert {path: web.client().get(path).content for path in first} == first


def test_an_auditor_takes_away_what_only_reads(web: Web) -> None:
    client = caller(web, role="auditor")
    for path in ("audit/export", "flows/export", "telemetry/export", "watch/look"):
        assert client.post(f"/v1/{path}", json={}).is_success, path


# --- tools -------------------------------------------------------------------------------------------------------

TOOLS = {"Accept": "application/json, text/event-stream"}


def tool(client: httpx.Client, name: str, **given: Any) -> httpx.Response:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": given}}
    return client.post("/mcp/", json=asked, headers=TOOLS)


def result(answer: httpx.Response) -> Any:
    """What a tool answered: the one event of its stream."""
    [event] = [line for line in answer.text.splitlines() if line.startswith("data: {")]
    return json.loads(event.removeprefix("data: "))["result"]


def test_nobody_uses_tools_without_a_token(web: Web) -> None:
    problem(tool(web.client(), "flows_get", flow_id="x"), 401, "access.unauthenticated")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_nobody_holds_a_stream_open_that_carries_nothing(web: Web, method: str) -> None:
    with agent(web).stream(method, "/mcp/", headers=TOOLS, timeout=10) as answer:
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    problem(web.client().get("/mcp/", headers=TOOLS), 401, "access.unauthenticated")


def test_a_tool_that_is_refused_is_written_down(web: Web) -> None:
    flow_id = web.store.flows.start("trader").flow_id
    answer = result(tool(agent(web), "flows_get", flow_id=flow_id))
    assert answer["isError"]
    assert answer["structuredContent"]["code"] == "access.forbidden"
    assert ("agent:bot", "/mcp/") in {(each.caller, each.path) for each in web.denied()}


def test_a_tool_signs_with_the_caller_s_name_and_tells_no_words_of_the_inside(
    web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr("holdproof.server.mcp.serving.loaded", fail)
    answer = tool(agent(web), "flows_get", flow_id="x")
    assert result(answer)["structuredContent"]["code"] == "internal"
    assert "secret words" not in answer.text
    assert "secret words" in caplog.text


def test_a_call_is_written_as_it_was_asked_for(web: Web) -> None:
    call = {"name": "n", "version": "1", "arguments": '{"args": [], "kwargs": {}}'}
    made = caller(web).post("/v1/flows/run", json={"agent_id": "bot", "call": call}).json()
    written = web.store.read(lambda tx: calls.get(tx, made["flow_id"]))
    assert (written.name, written.version, written.arguments) == ("n", "1", {"args": [], "kwargs": {}})


def test_an_agent_changes_nothing_that_a_person_is_asked_about(web: Web) -> None:
    token = web.store.agents.register("asker", version="1.0.0").token
    client = web.client(f"asker:{token}")
    flow_id = web.store.flows.start("asker").flow_id
    web.store.flows.transition(flow_id, "RUNNING")
    event = {"flow_id": flow_id, "event_type": "ESCALATION_APPROVED", "detail": {"recorded_by": "operator:ops"}}
    assert client.post("/v1/audit/record", json=event).is_success
    [written] = [each for each in web.store.flows.timeline(flow_id).events if each.kind == "audit"]
    assert written.note is not None
    assert written.note.endswith("by agent:asker")
    web.store.escalations.request(flow_id, reason="buy?", proposal={"n": 1})
    for path, body in (
        ("audit/record", event),
        ("contexts/put", {"flow_id": flow_id, "data": {"n": 2}}),
        ("ledger/append", {"flow_id": flow_id, "intent": {"n": 2}, "context_ref": "c", "evidence_hash": "e"}),
    ):
        problem(client.post(f"/v1/{path}", json=body), 403, "access.forbidden")


def test_an_agent_does_not_say_how_often_it_may_fail(web: Web) -> None:
    token = web.store.agents.register("retrier", version="1.0.0").token
    client = web.client(f"retrier:{token}")
    flow_id = web.store.flows.start("retrier").flow_id
    body = {"flow_id": flow_id, "reason": "no", "max_retries": 1_000_000}
    problem(client.post("/v1/retries/reject", json=body), 403, "access.forbidden")


def test_no_namespace_is_called_like_all_of_them(web: Web) -> None:
    answer = caller(web).post("/v1/agents/register", json={"agent_id": "a", "version": "1.0.0", "ns": "*"})
    problem(answer, 422, "input.invalid")
