"""`holdproof mcp-proxy` between an MCP client and servers: one from PyPI, and small ones that misbehave."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdproof import sync
from holdproof.adapters import captured
from holdproof.adapters.capture_run import CaptureRun
from holdproof.adapters.mcp_proxy.http import HttpProxy
from holdproof.adapters.mcp_proxy.relay import Relay

_PATIENCE_S = 60.0

POLICY = """
@id("all") permit(principal, action, resource);
@id("no-convert") forbid(principal, action == Action::"tool.call", resource == Tool::"convert_time");
@id("ask-tokyo") @advice("ask") forbid(principal, action == Action::"tool.call", resource == Tool::"get_current_time")
when { context has timezone && context.timezone == "Asia/Tokyo" };
"""
# Answers each request with what it was sent, as often as asked; dies at the method `die`.
ECHO = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "die":
        sys.exit(7)
    if message.get("method") == "silent":
        continue
    if "id" in message:
        text = "x" * message.get("params", {}).get("size", 1)
        result = {"echo": message, "text": text}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def governed(home: Path) -> None:
    with sync.open(home) as store:
        store.policies.create("mcp", POLICY, by="ada")
        store.policies.activate("mcp", by="ada")


def events(home: Path) -> list[Any]:
    with sync.open(home, create=False) as store:
        recorded = list(reversed(store.audit.list(limit=500).items))
        report = store.verify.run(lock=False)
        assert report.findings == []
    return recorded


class Piped:
    """A proxy in a process of its own, spoken to line by line."""

    def __init__(self, home: Path, *words: str, server: str = ECHO) -> None:
        command = [sys.executable, "-m", "holdproof", "--home", str(home), "mcp-proxy", *words]
        self.process = subprocess.Popen(
            [*command, "--", sys.executable, "-c", server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, *messages: Any) -> None:
        assert self.process.stdin is not None
        for message in messages:
            line = message if isinstance(message, str) else json.dumps(message)
            self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def close(self) -> tuple[int, list[Any]]:
        """Close the client's end; return the exit code, and what still came."""
        out, _ = self.process.communicate(timeout=_PATIENCE_S)
        return self.process.returncode, [json.loads(line) for line in out.splitlines()]


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


class TestTimeServer:
    """In front of `mcp-server-time` from PyPI, by the official client."""

    @pytest.fixture(autouse=True)
    def _parts(self) -> None:
        self.mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")
        pytest.importorskip("mcp_server_time", reason="mcp-server-time is not installed")

    def talk(self, home: Path, *words: str, then: Callable[[Any], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            server = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]
            command = self.mcp.StdioServerParameters(
                command=sys.executable,
                args=["-m", "holdproof", "--home", str(home), "mcp-proxy", *words, "--", *server],
                env=dict(os.environ),
            )
            async with (
                self.mcp.stdio_client(command) as (reading, writing),
                self.mcp.ClientSession(reading, writing) as session,
            ):
                await session.initialize()
                return await then(session)

        return asyncio.run(run())

    def test_every_request_and_result_is_recorded(self, tmp_path: Path) -> None:
        async def work(session: Any) -> Any:
            await session.list_tools()
            return await session.call_tool("get_current_time", {"timezone": "UTC"})

        result = self.talk(tmp_path, "--agent", "clerk", then=work)
        assert not result.is_error
        recorded = events(tmp_path)
        kinds = [each.event_type for each in recorded]
        assert (kinds[0], kinds[-1]) == (captured.STARTED, captured.STOPPED)
        requested = next(each for each in recorded if each.event_type == "tool.requested")
        finished = next(each for each in recorded if each.event_type == "tool.finished")
        assert requested.detail["message"]["params"]["arguments"] == {"timezone": "UTC"}
        assert finished.detail["message"]["result"]["content"][0]["text"] == result.content[0].text
        assert finished.step_id == requested.step_id
        # Dense: a message that is missing would be a hole.
        assert [each.detail["n"] for each in recorded if "n" in each.detail] == list(range(1, len(recorded) - 1))

    def test_a_denied_call_does_not_reach_the_server_and_the_model_is_told(self, tmp_path: Path) -> None:
        governed(tmp_path)
        arguments = {"source_timezone": "UTC", "time": "10:00", "target_timezone": "Asia/Tokyo"}

        async def work(session: Any) -> Any:
            denied = await session.call_tool("convert_time", arguments)
            return denied, await session.call_tool("get_current_time", {"timezone": "UTC"})

        denied, allowed = self.talk(tmp_path, "--gate", then=work)
        assert denied.is_error
        assert "no-convert" in denied.content[0].text
        assert not allowed.is_error
        recorded = events(tmp_path)
        refused = next(each for each in recorded if each.event_type == "tool.requested")
        assert refused.detail["decision"]["decision"] == "deny"
        results = [each.detail["tool"] for each in recorded if each.event_type == "tool.finished"]
        assert results == ["get_current_time"]

    @pytest.mark.parametrize("decision", ["approve", "reject"])
    def test_an_asked_call_waits_for_a_person(self, tmp_path: Path, decision: str) -> None:
        governed(tmp_path)

        def answer(done: threading.Event) -> None:
            with sync.open(tmp_path, create=False) as store:
                while not done.wait(0.1):
                    for waiting in store.escalations.list(status="PENDING").items:
                        store.escalations.resolve(waiting.id, decision, by="ada")

        async def work(session: Any) -> Any:
            done = threading.Event()
            person = threading.Thread(target=answer, args=(done,))
            person.start()
            try:
                return await session.call_tool("get_current_time", {"timezone": "Asia/Tokyo"})
            finally:
                done.set()
                await asyncio.to_thread(person.join)

        result = self.talk(tmp_path, "--gate", then=work)
        assert bool(result.is_error) == (decision == "reject")
        kinds = [each.event_type for each in events(tmp_path)]
        assert ("tool.finished" in kinds) == (decision == "approve")


class TestPipes:
    def test_a_client_that_closes_its_end_still_gets_its_answers(self, tmp_path: Path) -> None:
        proxy = Piped(tmp_path)
        proxy.send(request(1, "one"), request("1", "two"))
        code, answers = proxy.close()
        assert (code, [each["id"] for each in answers]) == (0, [1, "1"])

    def test_an_answer_of_megabytes_passes_whole_and_is_recorded_whole(self, tmp_path: Path) -> None:
        proxy = Piped(tmp_path)
        proxy.send(request(1, "big", size=8_000_000))
        assert len(proxy.receive()["result"]["text"]) == 8_000_000
        assert proxy.close()[0] == 0
        result = next(each for each in events(tmp_path) if each.event_type == "mcp.result")
        with sync.open(tmp_path, create=False) as store:
            text = store.values.get(result.detail["message"]["result"]["text"]["$value"])
            assert text == "x" * 8_000_000

    def test_a_server_that_dies_leaves_an_entry_and_answers_for_its_requests(self, tmp_path: Path) -> None:
        proxy = Piped(tmp_path)
        proxy.send(request(1, "silent"), request(2, "die"))
        answers = [proxy.receive(), proxy.receive()]
        assert proxy.close() == (7, [])
        assert [(each["id"], each["error"]["code"]) for each in answers] == [(1, -32000), (2, -32000)]
        gone = next(each for each in events(tmp_path) if each.event_type == "mcp.server_gone")
        assert [each["method"] for each in gone.detail["unanswered"]] == ["silent", "die"]

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_the_server_and_the_recording_in_order(self, tmp_path: Path, number: int) -> None:
        proxy = Piped(tmp_path)
        proxy.send(request(1, "one"))
        proxy.receive()
        proxy.process.send_signal(number)
        assert proxy.process.wait(_PATIENCE_S) == 130
        proxy.close()
        last = events(tmp_path)[-1]
        assert (last.event_type, last.detail["reason"]) == (captured.STOPPED, f"signal {number}")

    def test_a_call_that_is_cancelled_while_it_waits_never_reaches_the_server(self, tmp_path: Path) -> None:
        governed(tmp_path)
        proxy = Piped(tmp_path, "--gate")
        call = request(5, "tools/call", name="get_current_time", arguments={"timezone": "Asia/Tokyo"})
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        proxy.send(call)
        with sync.open(tmp_path, create=False) as store:
            until = time.monotonic() + _PATIENCE_S
            while not store.escalations.list().items:
                assert time.monotonic() < until
                time.sleep(0.05)
        proxy.send(cancel, request(6, "after"))
        assert proxy.receive()["id"] == 6
        code, answers = proxy.close()
        assert (code, answers) == (0, [])
        kinds = [each.event_type for each in events(tmp_path)]
        assert "tool.cancelled" in kinds
        with sync.open(tmp_path, create=False) as store:
            assert [each.status for each in store.escalations.list(status=None).items] == ["CANCELLED"]

    @pytest.mark.parametrize("as_variable", [True, False])
    def test_what_a_person_calls_is_sealed_whole_and_goes_with_that_person(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_variable: bool
    ) -> None:
        governed(tmp_path)
        place = "Zurich-where-ada-lives"
        words = [] if as_variable else ["--subject", "ada"]
        if as_variable:
            monkeypatch.setenv("HOLDPROOF_SUBJECT", "ada")
        proxy = Piped(tmp_path, "--gate", *words)
        for id, name in ((1, "look_up"), (2, "convert_time")):
            proxy.send(request(id, "tools/call", name=name, arguments={"place": place}))
            assert proxy.receive()["id"] == id
        # Asked about, and dropped when the client goes away.
        asked = request(3, "tools/call", name="get_current_time", arguments={"timezone": "Asia/Tokyo", "of": place})
        proxy.send(asked)
        until = time.monotonic() + _PATIENCE_S
        with sync.open(tmp_path, create=False) as store:
            while not store.escalations.list().items:
                assert time.monotonic() < until
                time.sleep(0.05)
        assert proxy.close()[0] == 0
        recorded = events(tmp_path)
        assert place in json.dumps([each.detail for each in recorded])
        with sync.open(tmp_path, create=False) as store:
            assert [each.decision for each in store.policies.decisions().items] == ["ask", "deny", "allow"]
            [escalation] = store.escalations.list(status=None).items
            assert place in json.dumps(escalation.to_dict())
            # Nothing of it is in clear in any file of the store, the erasure only ends who can read it.
            assert [
                each for each in tmp_path.rglob("*") if each.is_file() and place.encode() in each.read_bytes()
            ] == []
            store.erase.subject("ada")
            assert place not in json.dumps(store.escalations.get(escalation.id).to_dict())
        for each in events(tmp_path):
            if each.event_type.startswith(("tool.", "mcp.", "recorder.")):
                assert set(each.detail) == {"$erased"}

    def test_with_a_gate_what_cannot_be_read_goes_no_further(self, tmp_path: Path) -> None:
        governed(tmp_path)
        proxy = Piped(tmp_path, "--gate", server=ECHO.replace("json.loads(line)", '{"id": 0, "line": line}'))
        proxy.send("{not json", '{"id": 1, "method": "tools/call", "method": "ping"}')
        assert json.loads(proxy.receive()["result"]["echo"]["line"]) == {"id": 1, "method": "ping"}
        proxy.close()

    def test_a_command_that_is_not_there_is_said(self, tmp_path: Path) -> None:
        words = ["--home", str(tmp_path), "mcp-proxy", "--", "no-such-server"]
        done = subprocess.run([sys.executable, "-m", "holdproof", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 3
        assert "check the command after --" in done.stderr
        assert done.stdout == ""


class _HttpServer(BaseHTTPRequestHandler):
    """Answers calls as JSON, and everything else as a stream of two messages."""

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"auth": self.headers.get("Authorization")}}
        is_call = message["method"] == "tools/call"
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}
        lines = f"event: message\ndata: {json.dumps(progress)}\n\ndata: {json.dumps(answer)}\n\n"
        body = (json.dumps(answer) if is_call else lines).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if is_call else "text/event-stream")
        self.send_header("Mcp-Session-Id", "s-1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class TestHttp:
    @pytest.fixture
    def proxy(self, tmp_path: Path) -> Iterator[HttpProxy]:
        governed(tmp_path)
        with sync.open(tmp_path) as store, ThreadingHTTPServer(("127.0.0.1", 0), _HttpServer) as server:
            run = CaptureRun(store, agent_id="mcp", kind="mcp-proxy")
            run.start({})
            url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
            with HttpProxy(Relay(run, gate=True), url, 0) as proxy:
                threads = [
                    threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.02})
                    for each in (server, proxy)
                ]
                for thread in threads:
                    thread.start()
                yield proxy
                for each in (proxy, server):
                    each.shutdown()
                for thread in threads:
                    thread.join()
            run.stop("done")

    def kinds(self, proxy: HttpProxy) -> list[str]:
        run = proxy.relay.run
        return [each.event_type for each in reversed(run.store.audit.list(flow_id=run.flow_id).items)]

    def test_calls_and_streams_pass_with_their_headers_and_are_recorded(self, proxy: HttpProxy) -> None:
        headers = {"Authorization": "Bearer secret"}
        call = request(1, "tools/call", name="get_current_time", arguments={"timezone": "UTC"})
        answer = httpx.post(proxy.address, json=call, headers=headers)
        assert answer.json()["result"]["auth"] == "Bearer secret"
        assert answer.headers["Mcp-Session-Id"] == "s-1"
        stream = httpx.post(proxy.address, json=request(2, "tools/list"))
        assert [json.loads(line[6:]).get("id") for line in stream.text.splitlines() if line.startswith("data: ")] == [
            None,
            2,
        ]
        assert self.kinds(proxy) == [
            captured.STARTED,
            "tool.requested",
            "tool.finished",
            "mcp.request",
            "mcp.notification",
            "mcp.result",
        ]
        requested = proxy.relay.run.store.audit.list(event_type="tool.requested").items
        assert "secret" not in json.dumps([each.detail for each in requested])

    def test_a_denied_call_is_answered_by_the_proxy(self, proxy: HttpProxy) -> None:
        answer = httpx.post(proxy.address, json=request(1, "tools/call", name="convert_time")).json()
        assert answer["result"]["isError"] is True
        assert self.kinds(proxy) == [captured.STARTED, "tool.requested", "tool.refused"]

    @pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
    def test_a_page_of_another_site_cannot_use_it(self, proxy: HttpProxy, headers: dict[str, str]) -> None:
        assert httpx.post(proxy.address, json=request(1, "ping"), headers=headers).status_code == 403
        assert self.kinds(proxy) == [captured.STARTED]

    def test_a_server_that_is_not_there_is_recorded_and_said(self, tmp_path: Path) -> None:
        with sync.open(tmp_path) as store:
            run = CaptureRun(store, agent_id="mcp", kind="mcp-proxy")
            run.start({})
            with HttpProxy(Relay(run, gate=False), "http://127.0.0.1:9/mcp", 0) as proxy:
                thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02})
                thread.start()
                answer = httpx.post(proxy.address, json=request(1, "ping"))
                assert self.kinds(proxy)[-1] == "mcp.server_gone"
                proxy.shutdown()
                thread.join()
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, -32000)
