"""The tasks of a graph that run at once: which of them may reach a step, and in which thread its function runs."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from queue import SimpleQueue
from typing import Any, Final, TypeVar
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.config import get_config

from holdproof.adapters.model_steps import LoopSteps, current_loop
from holdproof.errors import InvalidInputError

T = TypeVar("T")
DURABLE: Final = "holdproof:durable"
"""The tag of models and tools whose calls are steps."""
_NODE: Final = "graph:step:"
"""How the tag starts that LangGraph gives each task of a graph."""


class RunningTasks(BaseCallbackHandler):
    """Counts the tasks of a graph that run, and refuses models and tools that are not durable."""

    raise_error = True
    run_inline = True

    def __init__(self) -> None:
        self._running: dict[UUID, str] = {}

    def __call__(self) -> frozenset[str]:
        """Return the tasks that run now and wait for none of their own."""
        places = frozenset(self._running.values())
        return frozenset(one for one in places if not any(other.startswith(f"{one}|") for other in places))

    def on_chain_start(self, *_: Any, run_id: UUID, tags: Any = None, metadata: Any = None, **__: Any) -> None:
        """Count a task."""
        if any(tag.startswith(_NODE) for tag in tags or ()):
            self._running[run_id] = str((metadata or {}).get("langgraph_checkpoint_ns"))

    def on_chain_end(self, *_: Any, run_id: UUID, **__: Any) -> None:
        """Count it no longer."""
        self._running.pop(run_id, None)

    def on_chain_error(self, *_: Any, run_id: UUID, **__: Any) -> None:
        """Count it no longer."""
        self._running.pop(run_id, None)

    def on_chat_model_start(self, serialized: Any, *_: Any, tags: Any = None, **__: Any) -> None:
        """Refuse a model whose calls would be no steps."""
        _refuse("model", serialized, tags)

    def on_llm_start(self, serialized: Any, *_: Any, tags: Any = None, **__: Any) -> None:
        """Refuse a model that completes text."""
        _refuse("model", serialized, tags)

    def on_tool_start(self, serialized: Any, *_: Any, tags: Any = None, **__: Any) -> None:
        """Refuse a tool whose calls would be no steps."""
        _refuse("tool", serialized, tags)


def _refuse(kind: str, serialized: Any, tags: Any) -> None:
    # Inside a step there is no loop: what a tool calls belongs to the tool's step.
    if current_loop() is not None and DURABLE not in (tags or ()):
        name = str((serialized or {}).get("name") or kind)
        raise InvalidInputError(
            f"the {kind} {name} is not durable: give the graph durable({kind}), of holdproof.adapters.langgraph",
            field=kind,
        )


def current_task() -> str | None:
    """Return the task of a graph that the caller is part of; None outside a graph."""
    try:
        metadata = get_config().get("metadata") or {}
    except RuntimeError:
        return None
    place = metadata.get("langgraph_checkpoint_ns")
    return None if place is None else str(place)


def in_its_thread(
    loop: LoopSteps, what: str, fn: Callable[[], Any], step: Callable[[Callable[[], Awaitable[Any]]], Awaitable[T]]
) -> T:
    """Make a step for a caller that is not async; its function runs in the caller's own thread, which waits for it.

    Not in another thread of the pool: callers that wait could fill it.
    """
    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop.event_loop:
        raise InvalidInputError(
            f"{what} is called without await in async code, which a step cannot be: await its async call, or make the"
            " node a plain function",
            field="call",
        )
    calls: SimpleQueue[tuple[contextvars.Context, asyncio.Future[Any]] | None] = SimpleQueue()

    async def here() -> Any:
        future = loop.event_loop.create_future()
        calls.put((contextvars.copy_context(), future))
        return await future

    async def whole() -> T:
        return await step(here)

    work: Coroutine[Any, Any, T] = whole()
    task = asyncio.run_coroutine_threadsafe(work, loop.event_loop)
    task.add_done_callback(lambda _: calls.put(None))
    while (call := calls.get()) is not None:
        context, future = call
        try:
            result = context.run(fn)
        except BaseException as error:
            loop.event_loop.call_soon_threadsafe(_settle, future, None, error)
        else:
            loop.event_loop.call_soon_threadsafe(_settle, future, result, None)
    return task.result()


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():  # the step ran out of time, and nobody waits
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
