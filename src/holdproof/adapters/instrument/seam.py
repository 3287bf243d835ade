"""Where httpx sends a request, wrapped: `Client.send` and `AsyncClient.send`.

There are two of it, httpx and httpx2, with the same classes: each that is installed is wrapped, since one program may
use SDKs of both.
"""

import importlib
import importlib.util
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any, Final

import anyio.to_thread

from holdproof.adapters.capture_run import CaptureRun
from holdproof.adapters.captured import Conversation
from holdproof.adapters.instrument import wire
from holdproof.adapters.otel.gen_ai import SpanOfCall

_LIBRARIES: Final = ("httpx", "httpx2")


class _Call:
    """A call that is under way."""

    def __init__(self, seam: "Seam", facts: wire.CapturedCall, id: str) -> None:
        self.seam = seam
        self.facts = facts
        self.id = id
        self.began = perf_counter()
        self.span = SpanOfCall(
            facts, seam.tracer_provider, {"holdproof.flow_id": seam.run.flow_id, "holdproof.call": id}
        )
        self._ended = False

    def requested(self, request: Any) -> None:
        """Record the call before it is sent."""
        url = request.url.copy_with(query=None, userinfo=b"")
        detail = {
            "call": self.id,
            "provider": self.facts.provider,
            "operation": self.facts.operation,
            "model": self.facts.model,
            "url": str(url),
            "parameters": self.facts.parameters,
            "system": self.facts.system,
            "tools": self.facts.tools,
            "messages": Conversation(self.facts.messages),
        }
        self.seam.run.record("model.requested", detail, step_id=self.id)

    def answered(self, response: Any, raw: bytes | None, *, complete: bool) -> None:
        """Record the answer: what was read of a stream, or the whole body."""
        if self._ended:
            return
        self._ended = True
        # Read as the response says it is packed; one that was read whole is unpacked already.
        try:
            shadow = response if raw is None else type(response)(200, headers=_unpacking(response), content=raw)
            text = shadow.text
        except Exception as error:  # (of zlib, brotli, or of httpx about them: a stream that is left ends anywhere)
            text = f"({type(error).__name__}: {error})"
        answer = wire.understand(self.facts, response.headers.get("Content-Type", ""), text, complete=complete)
        detail = {
            "call": self.id,
            "status": response.status_code,
            "model": answer.model,
            "output": answer.output,
            "tokens": {"input": answer.input_tokens, "output": answer.output_tokens},
            "finish": answer.finish,
            "complete": answer.complete,
            "seconds": round(perf_counter() - self.began, 3),
        }
        failed = response.status_code >= 400
        kind = "model.failed" if failed else "model.answered"
        self.seam.run.record(kind, detail, severity="WARNING" if failed else "INFO", step_id=self.id)
        self.span.end(answer, f"HTTP {response.status_code}" if failed else None)

    def failed(self, error: BaseException) -> None:
        """Record that no answer came."""
        if self._ended:
            return
        self._ended = True
        seconds = round(perf_counter() - self.began, 3)
        detail = {"call": self.id, "error": type(error).__name__, "message": str(error)[:2000], "seconds": seconds}
        self.seam.run.record("model.failed", detail, severity="WARNING", step_id=self.id)
        self.span.end(None, type(error).__name__)


def _unpacking(response: Any) -> dict[str, str]:
    names = ("Content-Type", "Content-Encoding")
    return {name: response.headers[name] for name in names if name in response.headers}


class _Tee:
    """A stream that records what was read of it, when it ends or is left."""

    def __init__(self, stream: Any, call: _Call, response: Any) -> None:
        self._stream = stream
        self._call = call
        self._response = response
        self._pieces: list[bytes] = []
        self._complete = False

    def _answered(self) -> None:
        self._call.answered(self._response, b"".join(self._pieces), complete=self._complete)


class _SyncTee(_Tee):
    """The stream of a sync client."""

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._stream:
                self._pieces.append(piece)
                yield piece
        except Exception as error:
            self._call.failed(error)
            raise
        self._complete = True

    def close(self) -> None:
        """See httpx.SyncByteStream."""
        self._stream.close()
        self._answered()


class _AsyncTee(_Tee):
    """The stream of an async client."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                self._pieces.append(piece)
                yield piece
        except Exception as error:
            self._call.failed(error)
            raise
        self._complete = True

    async def aclose(self) -> None:
        """See httpx.AsyncByteStream."""
        await self._stream.aclose()
        await _in_thread(self._answered)


class _Library:
    """One of the HTTP libraries, wrapped."""

    def __init__(self, name: str, seam: "Seam") -> None:
        self._module: Any = importlib.import_module(name)
        self._seam = seam
        self._send = self._module.Client.send
        self._send_async = self._module.AsyncClient.send
        # Each library asks whether a stream is one of its own.
        self._tee = type("SyncTee", (_SyncTee, self._module.SyncByteStream), {})
        self._async_tee = type("AsyncTee", (_AsyncTee, self._module.AsyncByteStream), {})

    def remove(self) -> None:
        """Put the library back as it was."""
        self._module.Client.send = self._send
        self._module.AsyncClient.send = self._send_async

    def install(self) -> None:
        """Wrap the sending of requests."""

        def send(client: Any, request: Any, **options: Any) -> Any:
            call = self._seam.call_of(request, self._module)
            if call is None:
                return self._send(client, request, **options)
            call.requested(request)
            try:
                response = self._send(client, request, **options)
            except BaseException as error:
                call.failed(error)
                raise
            if response.is_stream_consumed:
                call.answered(response, None, complete=True)
            else:
                response.stream = self._tee(response.stream, call, response)
            return response

        async def send_async(client: Any, request: Any, **options: Any) -> Any:
            call = self._seam.call_of(request, self._module)
            if call is None:
                return await self._send_async(client, request, **options)
            await _in_thread(partial(call.requested, request))
            try:
                response = await self._send_async(client, request, **options)
            except BaseException as error:
                # Not awaited: a task that is cancelled could not wait, and the record is short.
                call.failed(error)
                raise
            if response.is_stream_consumed:
                await _in_thread(partial(call.answered, response, None, complete=True))
            else:
                response.stream = self._async_tee(response.stream, call, response)
            return response

        self._module.Client.send = send
        self._module.AsyncClient.send = send_async


class Seam:
    """Wraps what is sent, and puts it back."""

    def __init__(self, run: CaptureRun, tracer_provider: Any) -> None:
        """Record into a run; spans are those of a tracer provider."""
        self.run = run
        self.tracer_provider = tracer_provider
        self._lock = threading.Lock()
        self._count = 0
        self._libraries: list[_Library] = []

    def call_of(self, request: Any, module: Any) -> _Call | None:
        """Return the call that a request is; None for one that is none, or whose body is sent in pieces."""
        try:
            body = request.content
        except module.RequestNotRead:
            return None
        facts = wire.recognise(request.method, request.url.path, body)
        if facts is None:
            return None
        with self._lock:
            self._count += 1
            return _Call(self, facts, str(self._count))

    def install(self) -> None:
        """Wrap every library that is installed."""
        self._libraries = [_Library(name, self) for name in _LIBRARIES if importlib.util.find_spec(name)]
        for library in self._libraries:
            library.install()

    def remove(self) -> None:
        """Put them back as they were."""
        for library in self._libraries:
            library.remove()
        self._libraries = []


async def _in_thread(act: Callable[[], None]) -> None:
    """Run a write beside the event loop, asyncio's or trio's."""
    await anyio.to_thread.run_sync(act)
