"""Durable runs of Google ADK agents: every model call and every tool call is a step of a flow.

Rules:
- `HoldproofPlugin` wraps a model and a tool, in place, the first time that they are about to be called; outside a flow
  the wrappers change nothing. The callbacks of agents and of other plugins are called as ever, around the step.
- What a tool changes beside its result (state, transfer, confirmation, artifacts) is recorded with it.
- A tool that was cut off is put to a person, unless its name is among those that are `safe` to repeat.
- Long-running tools only start something that reports later: they are no steps.
- A model call is recorded without its partial responses; in a flow those do not reach the caller either.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Final

from google.adk.agents import LlmAgent
from google.adk.events.event_actions import EventActions
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from pydantic_core import to_jsonable_python

from holdproof.adapters.model_steps import ModelCall, ModelReply, TokenUsage, ToolOptions, current_loop

_WRAPPED: Final = "_holdproof"
_ACTIONS: Final = "adk_actions"
"""The key of a recorded result that has more than the result."""


class HoldproofPlugin(BasePlugin):
    """Make the calls of an app's agents steps: `App(…, plugins=[HoldproofPlugin(safe=["lookup"])])`."""

    def __init__(self, *, safe: Collection[str] = (), name: str = "holdproof") -> None:
        super().__init__(name=name)
        self._safe = frozenset(safe)

    async def before_agent_callback(self, *, agent: Any, callback_context: Any) -> None:  # noqa: ARG002 (a hook)
        """Wrap the model of an agent."""
        if isinstance(agent, LlmAgent):
            _wrap_model(agent.canonical_model)

    async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> None:  # noqa: ARG002
        """Wrap a tool."""
        _wrap_tool(tool, ToolOptions(safe=tool.name in self._safe))


def _wrap_model(model: Any) -> None:
    if _WRAPPED in model.__dict__:
        return
    inner: Callable[..., AsyncIterator[Any]] = model.generate_content_async

    async def generate(llm_request: Any, stream: bool = False) -> AsyncIterator[Any]:
        loop = current_loop()
        if loop is None:
            async for response in inner(llm_request, stream):
                yield response
            return

        async def call() -> ModelReply:
            responses = [response async for response in inner(llm_request, stream)]
            whole = [response for response in responses if not response.partial]
            last = whole[-1] if whole else None
            output = [response.model_dump(mode="json", exclude_none=True) for response in whole]
            return ModelReply(output=output, model=getattr(last, "model_version", None), usage=_usage(last))

        name = llm_request.model or model.model
        for record in await loop.model(_model_call(name, llm_request), call):
            yield LlmResponse.model_validate(record)

    # Models are pydantic objects, which take no attributes but their fields.
    object.__setattr__(model, "generate_content_async", generate)
    object.__setattr__(model, _WRAPPED, True)


def _wrap_tool(tool: Any, options: ToolOptions) -> None:
    if tool.is_long_running or _WRAPPED in tool.__dict__:
        return
    inner = tool.run_async

    async def run_async(*, args: dict[str, Any], tool_context: Any) -> Any:
        loop = current_loop()
        if loop is None:
            return await inner(args=args, tool_context=tool_context)
        called: list[bool] = []

        async def call() -> Any:
            called.append(True)
            result = to_jsonable_python(await inner(args=args, tool_context=tool_context), fallback=str)
            changes = tool_context.actions.model_dump(mode="json", exclude_defaults=True)
            actions = {name: change for name, change in changes.items() if change}
            # A tool that changes nothing else is recorded as a person would write its result.
            return {"result": result, _ACTIONS: actions} if actions else result

        record = await loop.tool(tool.name, to_jsonable_python(args, fallback=str), call, options)
        if not isinstance(record, dict) or _ACTIONS not in record:
            return record
        if not called:
            _act_again(tool_context, record[_ACTIONS])
        return record["result"]

    tool.run_async = run_async
    setattr(tool, _WRAPPED, True)


def _act_again(tool_context: Any, record: dict[str, Any]) -> None:
    """Change what a tool changed when it ran, before this process was there."""
    actions = EventActions.model_validate(record)
    for name in actions.model_fields_set:
        if name == "state_delta":
            tool_context.state.update(actions.state_delta)
        else:
            setattr(tool_context.actions, name, getattr(actions, name))


def _model_call(name: str, request: Any) -> ModelCall:
    messages = request.model_dump(mode="json", include={"contents"}, exclude_none=True)["contents"]
    config = {
        field: _plain(getattr(request.config, field))
        for field in type(request.config).model_fields
        if getattr(request.config, field) is not None
    }
    system = config.pop("system_instruction", None)
    tools = config.pop("tools", None) or []
    return ModelCall(
        model=name,
        messages=([] if system is None else [{"role": "system", "parts": system}]) + messages,
        parameters=config,
        tools=[each for tool in tools for each in _declarations(tool)],
    )


def _declarations(tool: Any) -> list[Any]:
    """Return the functions that a tool declares; what is no function, as a search of the provider, is itself."""
    declared = tool.get("function_declarations") if isinstance(tool, dict) else None
    return [tool] if declared is None else list(declared)


def _plain(value: Any) -> Any:
    """Return a setting as JSON: functions by their names, since the text of an object has its address."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if inspect.isclass(value) or callable(value):
        return getattr(value, "__name__", type(value).__name__)
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_none=True)
    return to_jsonable_python(value, fallback=lambda each: type(each).__name__)


def _usage(response: Any) -> TokenUsage:
    counted = getattr(response, "usage_metadata", None)
    if counted is None:
        return TokenUsage()
    return TokenUsage(
        input_tokens=counted.prompt_token_count,
        output_tokens=counted.candidates_token_count,
        cached_tokens=counted.cached_content_token_count,
        reasoning_tokens=counted.thoughts_token_count,
    )
