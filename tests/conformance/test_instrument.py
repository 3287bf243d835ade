"""`holdproof.instrument()`: calls of real SDKs to models, against a local endpoint; on every backend."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

import holdproof
from holdproof import errors
from holdproof.adapters import captured
from holdproof.db import sql
from holdproof.model.records import AuditEvent
from tests.conformance.store_backends import StoreInMemory, StoreOnPostgres, StoreOnSqlite, sound

anthropic = pytest.importorskip("anthropic", reason="the SDK of Anthropic is not installed")
openai = pytest.importorskip("openai", reason="the SDK of OpenAI is not installed")

USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
CHAT = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-real",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello you"}}],
    "usage": USAGE,
}
MESSAGE = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "claude-real",
    "content": [{"type": "text", "text": "Hello you"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 7, "output_tokens": 2},
}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-real", "choices": [choice]}


CHUNKS = [
    _chunk({"role": "assistant", "content": "Hello"}),
    _chunk({"content": " you"}),
    _chunk({}, "stop"),
    {**_chunk({}), "choices": [], "usage": USAGE},
]
EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {**MESSAGE, "content": [], "usage": {"input_tokens": 7, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " you"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 2},
    },
    {"type": "message_stop"},
]


LEFT = threading.Event()
"""Set once nobody waits for the rest of the slow stream."""


class _Endpoint(BaseHTTPRequestHandler):
    """Answers as OpenAI and Anthropic do."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_openai = "completions" in self.path
        if request["model"] == "broken":
            self._send(400, "application/json", json.dumps({"error": {"message": "no such model"}}))
        elif request["model"] == "slow":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(f"data: {json.dumps(CHUNKS[0])}\n\n".encode())
            self.wfile.flush()
            LEFT.wait(60)
        elif request.get("stream"):
            parts = [(None, each) for each in CHUNKS] if is_openai else [(each["type"], each) for each in EVENTS]
            lines = [f"event: {name}\n" * (name is not None) + f"data: {json.dumps(each)}\n\n" for name, each in parts]
            self._send(200, "text/event-stream", "".join(lines) + ("data: [DONE]\n\n" if is_openai else ""))
        else:
            self._send(200, "application/json", json.dumps(CHAT if is_openai else MESSAGE))

    def _send(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


ASKED = [{"role": "user", "content": "Say hello"}]


def ask_openai(url: str, **options: Any) -> str:
    with openai.OpenAI(api_key="sk-secret", base_url=f"{url}/v1", max_retries=0) as client:
        answer = client.chat.completions.create(model="gpt-x", messages=ASKED, temperature=0.5, **options)
        if options.get("stream"):
            return "".join(each.choices[0].delta.content or "" for each in answer if each.choices)
        return str(answer.choices[0].message.content)


async def ask_openai_async(url: str, **options: Any) -> str:
    async with openai.AsyncOpenAI(api_key="sk-secret", base_url=f"{url}/v1", max_retries=0) as client:
        answer = await client.chat.completions.create(model="gpt-x", messages=ASKED, temperature=0.5, **options)
        if options.get("stream"):
            return "".join([each.choices[0].delta.content or "" async for each in answer if each.choices])
        return str(answer.choices[0].message.content)


def ask_anthropic(url: str, **options: Any) -> str:
    with anthropic.Anthropic(api_key="sk-secret", base_url=url, max_retries=0) as client:
        common = {"model": "claude-x", "max_tokens": 99, "messages": ASKED, "system": "Be kind"}
        if options.get("stream"):
            with client.messages.stream(**common) as stream:
                return "".join(stream.text_stream)
        return str(client.messages.create(**common).content[0].text)


async def ask_anthropic_async(url: str, **options: Any) -> str:
    async with anthropic.AsyncAnthropic(api_key="sk-secret", base_url=url, max_retries=0) as client:
        common = {"model": "claude-x", "max_tokens": 99, "messages": ASKED, "system": "Be kind"}
        if options.get("stream"):
            async with client.messages.stream(**common) as stream:
                return "".join([each async for each in stream.text_stream])
        return str((await client.messages.create(**common)).content[0].text)


class Instrumented:
    @pytest.fixture(autouse=True)
    def _store(self, endpoint: str) -> Iterator[None]:
        self.url_of_model = endpoint
        with self.open() as store:  # type: ignore[attr-defined]
            self.store = store
            yield
            sound(store)

    def _events(self, flow_id: str) -> list[AuditEvent]:
        return list(reversed(self.store.audit.list(flow_id=flow_id, limit=500).items))

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("way", ["openai", "openai_async", "anthropic", "anthropic_async"])
    def test_a_call_is_recorded_with_what_was_asked_and_answered(self, way: str, stream: bool) -> None:
        options = {"stream": True} if stream else {}
        ask = globals()[f"ask_{way}"]
        with holdproof.instrument(self.store, agent_id="writer") as recording:
            answer = ask(self.url_of_model, **options)
            text = asyncio.run(answer) if asyncio.iscoroutine(answer) else answer
        assert text == "Hello you"
        started, asked, answered, stopped = self._events(recording.flow_id)
        assert (started.event_type, stopped.event_type) == (captured.STARTED, captured.STOPPED)
        assert (asked.event_type, answered.event_type) == ("model.requested", "model.answered")
        provider, model = ("openai", "gpt-x") if "openai" in way else ("anthropic", "claude-x")
        assert (asked.detail["provider"], asked.detail["model"]) == (provider, model)
        assert self.store.values.get(asked.detail["messages"]["$list"]) == ASKED
        parameter = ("temperature", 0.5) if provider == "openai" else ("max_tokens", 99)
        assert asked.detail["parameters"][parameter[0]] == parameter[1]
        assert asked.detail["system"] == (None if provider == "openai" else "Be kind")
        assert answered.detail["tokens"] == {"input": 7, "output": 2}
        assert answered.detail["model"] == ("gpt-real" if provider == "openai" else "claude-real")
        said = answered.detail["output"][0]
        assert (said["content"] if provider == "openai" else said["text"]) == "Hello you"
        assert (answered.detail["complete"], answered.step_id) == (True, asked.step_id)
        assert "sk-secret" not in json.dumps([each.detail for each in self._events(recording.flow_id)])
        assert self.store.flows.get(recording.flow_id).status == "COMPLETED"

    def test_a_refused_call_is_recorded_and_the_program_sees_its_own_error(self) -> None:
        with (
            holdproof.instrument(self.store) as recording,
            openai.OpenAI(api_key="k", base_url=f"{self.url_of_model}/v1", max_retries=0) as client,
            pytest.raises(openai.BadRequestError),
        ):
            client.chat.completions.create(model="broken", messages=ASKED)
        failed = self._events(recording.flow_id)[2]
        assert (failed.event_type, failed.detail["status"], failed.severity) == ("model.failed", 400, "WARNING")

    def test_a_server_that_is_not_there_is_recorded(self) -> None:
        with holdproof.instrument(self.store) as recording, pytest.raises(openai.APIConnectionError):
            ask_openai("http://127.0.0.1:9")
        failed = self._events(recording.flow_id)[2]
        assert (failed.event_type, failed.detail["error"]) == ("model.failed", "ConnectError")

    def test_a_stream_that_is_left_is_recorded_as_far_as_it_was_read(self) -> None:
        with (
            holdproof.instrument(self.store) as recording,
            openai.OpenAI(api_key="k", base_url=f"{self.url_of_model}/v1", max_retries=0) as client,
        ):
            stream = client.chat.completions.create(model="slow", messages=ASKED, stream=True)
            next(iter(stream))
            stream.close()
            LEFT.set()
        answered = self._events(recording.flow_id)[2]
        assert (answered.event_type, answered.detail["complete"]) == ("model.answered", False)
        assert answered.detail["output"] == [{"role": "assistant", "content": "Hello"}]

    def test_a_conversation_that_grows_costs_only_what_is_new(self) -> None:
        before = self._bytes()
        message = {"role": "user", "content": "x" * 3000}
        with (
            holdproof.instrument(self.store),
            openai.OpenAI(api_key="k", base_url=f"{self.url_of_model}/v1", max_retries=0) as client,
        ):
            for count in range(1, 31):
                messages: Any = [{**message, "n": n} for n in range(count)]
                client.chat.completions.create(model="gpt-x", messages=messages)
        # Thirty turns: 465 messages were sent, 30 of them new. Each turn writes the blocks at the list's end again.
        assert self._bytes() - before < 465 * 3000 / 4

    def _bytes(self) -> int:
        query = sql("SELECT coalesce(sum(length(data)), 0) FROM objects")
        return int(self.store.read(lambda tx: tx.all(query))[0][0])

    def test_the_calls_of_a_person_are_sealed_and_go_with_that_person(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with holdproof.instrument(self.store):
            self._say("nobody lives in Basel " * 500)
        monkeypatch.setenv("HOLDPROOF_SUBJECT", "ada")
        secret = "ada lives in Zurich " * 500
        with holdproof.instrument(self.store) as recording:
            self._say(secret)
        assert secret in json.dumps(self._events(recording.flow_id)[1].detail)
        # Long texts too: what the content store shares is out of an erasure's reach.
        assert self._blocks_with(b"Basel") > 0
        assert self._blocks_with(b"Zurich") == 0
        self.store.erase.subject("ada")
        for event in self._events(recording.flow_id):
            assert set(event.detail) == {"$erased"}
        # Another recording of the same agent looks at what earlier ones left, erased or not.
        with holdproof.instrument(self.store, subject="grace") as another:
            pass
        assert self._events(another.flow_id)[0].detail["seam"] == "httpx"

    def _say(self, text: str) -> None:
        with openai.OpenAI(api_key="k", base_url=f"{self.url_of_model}/v1", max_retries=0) as client:
            client.chat.completions.create(model="gpt-x", messages=[{"role": "user", "content": text}])

    def _blocks_with(self, word: bytes) -> int:
        blocks = self.store.read(lambda tx: tx.all(sql("SELECT data FROM objects")))
        return sum(word in bytes(data) for (data,) in blocks)

    def test_a_store_that_is_lost_stops_no_call_and_leaves_a_gap(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def lost(*_: Any, **__: Any) -> Any:
            raise errors.UnavailableError("the store is gone")

        with holdproof.instrument(self.store) as recording:
            with monkeypatch.context() as patch:
                patch.setattr(self.store, "write", lost)
                assert ask_openai(self.url_of_model) == "Hello you"
            assert ask_openai(self.url_of_model) == "Hello you"
        kinds = [each.event_type for each in self._events(recording.flow_id)]
        assert kinds == [captured.STARTED, captured.GAP, "model.requested", "model.answered", captured.STOPPED]
        gap = self._events(recording.flow_id)[1]
        assert (gap.detail["missing"], gap.detail["kinds"]) == ([[1, 2]], {"model.requested": 1, "model.answered": 1})

    def test_a_process_is_recorded_once_and_other_requests_are_not(self) -> None:
        before = httpx.Client.send
        with holdproof.instrument(self.store) as recording:
            with pytest.raises(errors.ConflictError):
                holdproof.instrument(self.store)
            httpx.post(f"{self.url_of_model}/elsewhere", json={"model": "gpt-x"})
        assert httpx.Client.send is before
        assert [each.event_type for each in self._events(recording.flow_id)] == [captured.STARTED, captured.STOPPED]

    def test_a_recording_whose_process_died_is_ended_by_the_next(self) -> None:
        with holdproof.instrument(self.store, agent_id="writer") as first:
            pass
        gone = {"pid": 2**22 + 1, "host": self._events(first.flow_id)[0].detail["host"]}
        flow = self.store.flows.start("writer", flow_type="instrument")
        self.store.flows.transition(flow.flow_id, "RUNNING")
        self.store.audit.record(flow.flow_id, captured.STARTED, detail=gone)
        with holdproof.instrument(self.store, agent_id="writer"):
            pass
        assert self._events(flow.flow_id)[-1].event_type == captured.DIED
        assert self.store.flows.get(flow.flow_id).status == "COMPLETED"

    def test_the_recording_of_an_erased_person_whose_process_died_is_ended_by_the_next(self) -> None:
        """Which process it was is erased too."""
        with holdproof.instrument(self.store, agent_id="writer"):
            pass
        flow = self.store.flows.start("writer", flow_type="instrument", subject="ada")
        self.store.flows.transition(flow.flow_id, "RUNNING")
        self.store.audit.record(flow.flow_id, captured.STARTED, detail={"pid": 2**22 + 1, "host": "here"})
        self.store.erase.subject("ada")
        with holdproof.instrument(self.store, agent_id="writer"):
            pass
        assert self.store.flows.get(flow.flow_id).status == "COMPLETED"

    def test_each_call_is_a_span_with_the_attributes_of_the_conventions(self) -> None:
        sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra otel is not installed")
        export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
        processor = pytest.importorskip("opentelemetry.sdk.trace.export")
        exporter = export.InMemorySpanExporter()
        provider = sdk.TracerProvider()
        provider.add_span_processor(processor.SimpleSpanProcessor(exporter))
        with holdproof.instrument(self.store, tracer_provider=provider) as recording:
            ask_anthropic(self.url_of_model)
        [span] = exporter.get_finished_spans()
        assert span.name == "chat claude-x"
        assert dict(span.attributes) == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": "claude-x",
            "gen_ai.request.max_tokens": 99,
            "gen_ai.response.model": "claude-real",
            "gen_ai.response.finish_reasons": ("end_turn",),
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 2,
            "holdproof.flow_id": recording.flow_id,
            "holdproof.call": "1",
        }


class TestInstrumentOnSqlite(Instrumented, StoreOnSqlite):
    pass


class TestInstrumentInMemory(Instrumented, StoreInMemory):
    pass


class TestInstrumentOnPostgres(Instrumented, StoreOnPostgres):
    pass
