"""Events as they happen, and the log at its public addresses, on a real port."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness import tiles as log_tiles
from holdproof.crypto import checkpoint, merkle, tiles
from holdproof.crypto.tiles import Tile
from holdproof.runtime import agents
from holdproof.server import ServerSettings
from tests.web import Web, problem, running


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    settings = ServerSettings(heartbeat_s=0.2, poll_s=0.1)
    with running(tmp_path_factory.mktemp("streams") / "home", settings) as web:
        for name in ("trader", "other"):
            web.store.agents.register(name, version="1.0.0")
        yield web


class Following:
    """A stream of events, read one by one."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.place = ""

    def next(self) -> tuple[str, dict[str, Any]]:
        """The next event; beats and places are taken note of."""
        kind, data = "", ""
        for line in self._lines:
            if line.startswith("id: "):
                self.place = line[4:]
            elif line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
            elif not line and data:
                return kind, json.loads(data)
        raise EOFError

    def settled(self) -> str:
        """The place once the next one was told."""
        before = self.place
        for line in self._lines:
            if line.startswith("id: "):
                self.place = line[4:]
            if self.place != before:
                return self.place
        raise EOFError

    def beat(self) -> bool:
        """Wait for a sign of life; False if the stream ended."""
        return any(line.startswith(":") for line in self._lines)


@contextmanager
def following(client: httpx.Client, **headers: str) -> Iterator[Following]:
    with client.stream("GET", "/v1/events", headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        lines = answer.iter_lines()
        assert next(lines) == "retry: 2000"
        yield Following(lines)


def operator(web: Web, **about: Any) -> httpx.Client:
    return web.client(web.store.tokens.create("x", **about).secret)


def test_a_question_is_told_as_it_is_asked_and_as_it_is_answered(web: Web) -> None:
    with following(operator(web, role="auditor")) as events:
        flow_id = web.store.flows.start("trader").flow_id
        web.store.flows.transition(flow_id, "RUNNING")
        for status in ("CREATED", "RUNNING"):
            kind, told = events.next()
            assert (kind, told["flow_id"], told["to_status"]) == ("flow", flow_id, status)
        asked = web.store.escalations.request(flow_id, reason="sell?", impact="HIGH_IMPACT", proposal={"secret": 1})
        found = dict(events.next() for _ in range(2))
        assert (found["escalation"]["id"], found["escalation"]["impact"]) == (asked.id, "HIGH_IMPACT")
        assert found["flow"]["to_status"] == "WAITING_ESCALATION"
        assert "secret" not in json.dumps(found)
        web.store.escalations.resolve(asked.id, "approve", by="ann")
        answered = dict(events.next() for _ in range(2))
        assert (answered["resolution"]["id"], answered["resolution"]["resolved_by"]) == (asked.id, "ann")


def test_a_stream_goes_on_where_it_broke_off(web: Web) -> None:
    client = operator(web)
    with following(client) as events:
        flow_id = web.store.flows.start("trader").flow_id
        web.store.flows.transition(flow_id, "RUNNING")
        while events.next()[1]["to_status"] != "RUNNING":
            pass
        place = events.settled()
    web.store.flows.transition(flow_id, "COMPLETED")
    with following(client, **{"Last-Event-ID": place}) as events:
        kind, told = events.next()
        # What happened a moment before the break may come a second time.
        while told["to_status"] != "COMPLETED":
            assert told["flow_id"] == flow_id
            kind, told = events.next()
        assert (kind, told["flow_id"]) == ("flow", flow_id)
    problem(client.get("/v1/events", headers={"Last-Event-ID": "nonsense"}), 422, "input.invalid")


def test_a_stream_ends_with_its_token_however_much_there_is_to_tell(web: Web) -> None:
    made = web.store.tokens.create("x", role="auditor")
    with following(web.client(made.secret)) as events:
        web.store.tokens.revoke(made.token.token_id)
        for _ in range(500):  # an event is there before every beat
            flow_id = web.store.flows.start("trader").flow_id
            web.store.flows.transition(flow_id, "RUNNING")
            try:
                events.next()
            except EOFError:
                return
    pytest.fail("it goes on")


def test_an_agent_hears_of_its_own_flows_only(web: Web) -> None:
    token = web.store.agents.register("trader", version="1.0.0").token
    with following(web.client(f"trader:{token}")) as events:
        for name in ("other", "trader"):
            flow_id = web.store.flows.start(name).flow_id
            web.store.flows.transition(flow_id, "RUNNING")
        assert events.next()[1]["flow_id"] == flow_id


def test_a_token_hears_of_its_namespace_and_its_nouns_only(web: Web) -> None:
    web.store.agents.register("far", version="1.0.0", ns="far")
    problem(operator(web, ns="far").get("/v1/events", params={"ns": "main"}), 403, "use.namespace")
    problem(operator(web, resources=["log"]).get("/v1/events"), 403, "access.forbidden")
    problem(web.client().get("/v1/events"), 401, "access.unauthenticated")
    with following(operator(web, ns="far")) as events:
        near = web.store.flows.start("trader").flow_id
        web.store.flows.transition(near, "RUNNING")
        away = web.store.flows.start("far", ns="far").flow_id
        web.store.flows.transition(away, "RUNNING", ns="far")
        assert events.next()[1]["flow_id"] == away


def test_a_stream_shows_that_it_lives_and_ends_with_its_token(web: Web) -> None:
    made = web.store.tokens.create("short")
    with following(web.client(made.secret)) as events:
        assert events.beat()
        web.store.tokens.revoke(made.token.token_id)
        assert not events.beat() or not events.beat()
    client = web.logged_in()
    with following(client) as events:
        assert events.beat()
        web.store.logins.logout(client.cookies["holdproof"])
        assert not events.beat() or not events.beat()


def test_the_server_ends_though_somebody_listens(tmp_path: Path) -> None:
    with running(tmp_path / "home", ServerSettings(heartbeat_s=60)) as web:
        stream = operator(web).stream("GET", "/v1/events")
        answer = stream.__enter__()
        assert answer.status_code == 200


def test_only_so_many_streams_are_open(tmp_path: Path) -> None:
    with running(tmp_path / "home", ServerSettings(most_streams=1)) as web:
        client = operator(web)
        with following(client):
            answer = web.client(web.store.tokens.create("y").secret).get("/v1/events")
            problem(answer, 429, "access.rate_limited")
            assert int(answer.headers["retry-after"]) >= 1


def test_one_caller_has_only_so_many_streams_and_leaves_the_others_theirs(tmp_path: Path) -> None:
    with running(tmp_path / "home", ServerSettings(most_streams_per_caller=1)) as web:
        client = operator(web)
        other = web.client(web.store.tokens.create("other").secret)
        with following(client):
            problem(client.get("/v1/events"), 429, "access.rate_limited")
            with following(other):
                pass


def test_a_stranger_builds_the_signed_root_out_of_tiles(web: Web) -> None:
    web.store.write(lambda tx: [agents.register(tx, f"many{number}", version="1.0.0") for number in range(300)])
    client = operator(web, role="auditor")
    head = checkpoint.parse(client.get("/checkpoint").content).checkpoint
    assert head.size > tiles.WIDTH

    def fetch(tile: Tile) -> bytes:
        answer = client.get(f"/{tile.path}")
        assert answer.status_code == 200, answer.text
        forever = "immutable" in answer.headers["cache-control"]
        assert forever is (tile.width == tiles.WIDTH)
        return answer.content

    assert tiles.root_at(head.size, fetch) == head.root
    bundle = client.get("/tile/entries/000").content
    first = merkle.leaf_hashes(log_tiles.decode_bundle(bundle))
    assert b"".join(first) == client.get("/tile/0/000").content


@pytest.mark.parametrize("path", ["0/000.p/0", "0/0", "9/000", "entries/x", "0/x001/000", "0/000.p/999", "etc/passwd"])
def test_what_is_no_tile_is_not_there(web: Web, path: str) -> None:
    problem(operator(web).get(f"/tile/{path}"), 404, "not_found")


def test_the_log_is_for_auditors_unless_it_is_public(web: Web, tmp_path: Path) -> None:
    token = web.store.agents.register("trader", version="1.0.0").token
    for path in ("/checkpoint", "/tile/0/000.p/1"):
        problem(web.client().get(path), 401, "access.unauthenticated")
        problem(web.client(f"trader:{token}").get(path), 403, "access.forbidden")
    with running(tmp_path / "home", ServerSettings(public_log=True)) as other:
        assert other.client().get("/checkpoint").status_code == 200
        assert other.client().get("/tile/0/000.p/1").status_code == 200
        problem(other.client().get("/v1/log/head"), 401, "access.unauthenticated")
