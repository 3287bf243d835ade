"""Our own operations as spans and metrics: `holdproof.flows.start`, `holdproof.locks.acquire` and so on.

Each verb of a store that is traced is a span of that name, and a histogram of its seconds. A refusal is a span with the
status ERROR and `error.type`, the stable code of the error; what failed for the caller's own reasons is told apart so.
A store that nobody traces pays nothing: its verbs are not wrapped.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from holdproof import __version__, sync
from holdproof.client import Holdproof
from holdproof.errors import HoldproofError
from holdproof.kernel import unwrap_methods, wrap_methods

_SCOPE = "holdproof"


def instrument(store: Holdproof | sync.Holdproof, *, tracer_provider: Any = None, meter_provider: Any = None) -> None:
    """Trace and meter the methods of a store from now on; without providers, by the global ones."""
    tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider)
    meter = metrics.get_meter(_SCOPE, __version__, meter_provider)

    def watcher(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        seconds = meter.create_histogram(f"holdproof.{name}", unit="s", description=f"how long {name} takes")
        # Made once for each method, not for each call.
        attributes = {"holdproof.operation": name, **({"holdproof.ns": store.ns} if store.ns else {})}

        def watched(*args: Any, **kwargs: Any) -> Any:
            span = tracer.start_span(f"holdproof.{name}", kind=SpanKind.INTERNAL, attributes=attributes)
            ending = _Ending(span, seconds)
            try:
                answer = call(*args, **kwargs)
            except BaseException as error:
                ending(error)
                raise
            # The caller may await a future late, or never: the span ends with the work.
            if isinstance(answer, asyncio.Future):
                answer.add_done_callback(ending.on_done)
                return answer
            if inspect.isawaitable(answer):
                return _awaited(answer, ending)
            ending(None)
            return answer

        return watched

    wrap_methods(store, watcher)


def uninstrument(store: Holdproof | sync.Holdproof) -> None:
    """Stop tracing the methods of a store."""
    unwrap_methods(store)


class _Ending:
    """The end of a span, told once."""

    def __init__(self, span: Any, seconds: Any) -> None:
        self._span = span
        self._seconds = seconds
        self._began = perf_counter()

    def on_done(self, answer: "asyncio.Future[Any]") -> None:
        """The end of something that is awaited elsewhere."""
        self(asyncio.CancelledError() if answer.cancelled() else answer.exception())

    def __call__(self, error: BaseException | None) -> None:
        failed = {} if error is None else {"error.type": _code(error)}
        if error is not None:
            self._span.set_attributes(failed)
            self._span.set_status(Status(StatusCode.ERROR, str(error)[:500]))
        self._seconds.record(perf_counter() - self._began, failed)
        self._span.end()


async def _awaited(answer: Awaitable[Any], ending: _Ending) -> Any:
    try:
        value = await answer
    except BaseException as error:
        ending(error)
        raise
    ending(None)
    return value


def _code(error: BaseException) -> str:
    return error.code if isinstance(error, HoldproofError) else type(error).__name__
