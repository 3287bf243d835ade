"""Durable runs of the OpenAI Agents SDK: every model call and every tool call is a step of a flow.

Rules:
- `durable` gives an agent whose model, tools and MCP servers are wrapped, and so are those of the agents that it hands
  over to. Outside a flow the wrappers change nothing.
- Models that are given by their names are wrapped where they are looked up: `durable_config`.
- A tool that was cut off is put to a person, unless its name is among those that are `safe` to repeat, or its MCP
  server declares it idempotent or read-only.
- An agent that is used as a tool is no step: its own calls are.
- A streamed model call that is repeated gives its recorded response as one event.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import replace
from typing import Any

from agents import Agent, FunctionTool, Handoff, Model, ModelProvider, ModelResponse, MultiProvider, RunConfig
from agents.items import TResponseOutputItem
from agents.usage import Usage as AgentsUsage
from mcp.types import CallToolResult
from openai.types.responses import Response, ResponseCompletedEvent
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from holdproof.adapters.approvals import parse_arguments
from holdproof.adapters.model_steps import LoopSteps, ModelCall, ModelReply, TokenUsage, ToolOptions, current_loop

_OUTPUT: TypeAdapter[Any] = TypeAdapter(list[TResponseOutputItem])
_USAGE: TypeAdapter[Any] = TypeAdapter(AgentsUsage)
_WRAPPED = "_holdproof"
"""Marks what is wrapped already: an agent may be made durable twice, and two may share a server."""


class DurableModel(Model):
    """A model whose calls inside a flow are steps."""

    def __init__(self, model: Model, name: str) -> None:
        self.inner = model
        self._name = name

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Make the call once, whatever happens."""
        loop = current_loop()
        if loop is None:
            return await self.inner.get_response(*args, **kwargs)

        async def call() -> ModelReply:
            response = await self.inner.get_response(*args, **kwargs)
            return ModelReply(output=_dump(response), usage=_usage(response.usage))

        return _load(await loop.model(_model_call(self._name, *args, **kwargs), call))

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Make the call once; its events pass as they come, and are not recorded but for the response."""
        loop = current_loop()
        if loop is None:
            async for event in self.inner.stream_response(*args, **kwargs):
                yield event
            return
        events: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.ensure_future(self._stream(loop, events, args, kwargs))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            passed = False
            while (event := await events.get()) is not None:
                passed = True
                yield event
            response = await task
            if not passed:
                yield ResponseCompletedEvent(
                    type="response.completed", response=Response.model_validate(response), sequence_number=0
                )
        finally:
            task.cancel()

    async def _stream(self, loop: LoopSteps, events: "asyncio.Queue[Any]", args: Any, kwargs: Any) -> Any:
        async def call() -> ModelReply:
            response = None
            async for event in self.inner.stream_response(*args, **kwargs):
                response = getattr(event, "response", response)
                events.put_nowait(event)
            assert response is not None, "a stream ends with its response"
            return ModelReply(
                output=response.model_dump(mode="json"), model=response.model, usage=_usage(response.usage)
            )

        return await loop.model(_model_call(self._name, *args, **kwargs), call)

    async def close(self) -> None:
        """Close the model inside."""
        await self.inner.close()

    def get_retry_advice(self, request: Any) -> Any:
        """Return the advice of the model inside."""
        return self.inner.get_retry_advice(request)


class DurableProvider(ModelProvider):
    """Looks up models by name, and makes their calls steps."""

    def __init__(self, provider: ModelProvider) -> None:
        self.inner = provider

    def get_model(self, model_name: str | None) -> Model:
        """Return a model whose calls are steps."""
        return DurableModel(self.inner.get_model(model_name), model_name or "default")

    async def aclose(self) -> None:
        """Close the provider inside."""
        await self.inner.aclose()


def durable_config(config: RunConfig | None = None) -> RunConfig:
    """Return a run's configuration whose models are durable."""
    chosen = config or RunConfig()
    provider = chosen.model_provider or MultiProvider()
    if not isinstance(provider, DurableProvider):
        provider = DurableProvider(provider)
    return replace(chosen, model_provider=provider, model=_durable_model(chosen.model))


def durable(agent: Any, *, safe: Collection[str] = ()) -> Any:
    """Return an agent whose calls inside a flow are steps; `safe` names the tools that may be called again."""
    return _durable_agent(agent, frozenset(safe), {})


def _durable_agent(agent: Any, safe: frozenset[str], done: dict[int, Any]) -> Any:
    if id(agent) in done:
        return done[id(agent)]
    for server in agent.mcp_servers:
        _wrap_server(server, safe)
    clone = agent.clone(model=_durable_model(agent.model), tools=[_durable_tool(tool, safe) for tool in agent.tools])
    # Before its handoffs: agents may hand over in a circle.
    done[id(agent)] = clone
    clone.handoffs = [_durable_handoff(each, safe, done) for each in agent.handoffs]
    return clone


def _durable_model(model: Any) -> Any:
    if not isinstance(model, Model) or isinstance(model, DurableModel):
        return model
    return DurableModel(model, str(getattr(model, "model", type(model).__name__)))


def _durable_handoff(handoff: Any, safe: frozenset[str], done: dict[int, Any]) -> Any:
    if isinstance(handoff, Agent):
        return _durable_agent(handoff, safe, done)
    if not isinstance(handoff, Handoff):
        return handoff

    async def hand_over(context: Any, arguments: str) -> Any:
        return _durable_agent(await handoff.on_invoke_handoff(context, arguments), safe, done)

    return replace(handoff, on_invoke_handoff=hand_over)


def _durable_tool(tool: Any, safe: frozenset[str]) -> Any:
    if not isinstance(tool, FunctionTool) or getattr(tool, "_is_agent_tool", False) or hasattr(tool, _WRAPPED):
        return tool
    inner = tool.on_invoke_tool
    options = ToolOptions(safe=tool.name in safe)

    async def invoke(context: Any, arguments: str) -> Any:
        loop = current_loop()
        if loop is None:
            return await inner(context, arguments)
        # A person may have approved the call with other arguments than the model wrote.
        changed = loop.changed_arguments.get(context.tool_call_id)
        text = arguments if changed is None else json.dumps(changed)

        async def call() -> Any:
            return _recordable(await inner(context, text))

        return await loop.tool(tool.name, parse_arguments(text), call, options)

    wrapped = copy.copy(tool)
    wrapped.on_invoke_tool = invoke
    setattr(wrapped, _WRAPPED, True)
    return wrapped


def _wrap_server(server: Any, safe: frozenset[str]) -> None:
    """Make the calls of an MCP server steps: in place, since it holds a connection."""
    if getattr(server, _WRAPPED, False):
        return
    inner: Callable[..., Awaitable[Any]] = server.call_tool

    async def call_tool(tool_name: str, arguments: dict[str, Any] | None, *args: Any, **kwargs: Any) -> Any:
        loop = current_loop()
        if loop is None:
            return await inner(tool_name, arguments, *args, **kwargs)

        async def call() -> Any:
            return (await inner(tool_name, arguments, *args, **kwargs)).model_dump(mode="json", by_alias=True)

        options = ToolOptions(safe=tool_name in safe or await _declared_safe(server, tool_name))
        record = await loop.tool(tool_name, arguments, call, options)
        return CallToolResult.model_validate(record)

    server.call_tool = call_tool
    setattr(server, _WRAPPED, True)


async def _declared_safe(server: Any, tool_name: str) -> bool:
    for tool in getattr(server, "cached_tools", None) or getattr(server, "_tools_list", None) or ():
        hints = tool.annotations
        if tool.name == tool_name and hints is not None:
            return bool(hints.readOnlyHint or hints.idempotentHint)
    return False


def _recordable(value: Any) -> Any:
    """Return what a tool gave as it can be recorded: what the SDK would take the text of is that text."""
    if value is None or isinstance(value, str | int | float | bool | dict | list | BaseModel):
        return value
    return str(value)


def _dump(response: ModelResponse) -> dict[str, Any]:
    return {
        "output": [item if isinstance(item, dict) else _without_nulls(item) for item in response.output],
        "usage": _USAGE.dump_python(response.usage, mode="json"),
        "response_id": response.response_id,
    }


def _without_nulls(item: Any) -> Any:
    return item.model_dump(mode="json", exclude_unset=True)


def _load(record: dict[str, Any]) -> ModelResponse:
    return ModelResponse(
        output=_OUTPUT.validate_python(record["output"]),
        usage=_USAGE.validate_python(record["usage"]),
        response_id=record["response_id"],
    )


def _usage(usage: Any) -> TokenUsage:
    if usage is None:
        return TokenUsage()
    return TokenUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=getattr(usage.input_tokens_details, "cached_tokens", None) or None,
        reasoning_tokens=getattr(usage.output_tokens_details, "reasoning_tokens", None) or None,
    )


def _model_call(  # noqa: PLR0917 (as the SDK passes them)
    name: str,
    system_instructions: str | None,
    input: Any,
    model_settings: Any,
    tools: list[Any],
    output_schema: Any,
    handoffs: list[Any],
    tracing: Any,  # noqa: ARG001 (where spans go is no part of the call)
    **more: Any,
) -> ModelCall:
    items = [{"role": "user", "content": input}] if isinstance(input, str) else to_jsonable_python(input)
    system = [] if system_instructions is None else [{"role": "system", "content": system_instructions}]
    settings = {key: value for key, value in model_settings.to_json_dict().items() if value is not None}
    parameters = {key: to_jsonable_python(value, fallback=repr) for key, value in more.items() if value is not None}
    if output_schema is not None and not output_schema.is_plain_text():
        parameters["output_schema"] = output_schema.json_schema()
    offered = [_tool_definition(tool) for tool in tools]
    offered += [{"name": each.tool_name, "parameters": each.input_json_schema} for each in handoffs]
    return ModelCall(model=name, messages=[*system, *items], parameters={**settings, **parameters}, tools=offered)


def _tool_definition(tool: Any) -> dict[str, Any]:
    if isinstance(tool, FunctionTool):
        return {"name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
    return {"name": str(tool.name), "type": type(tool).__name__}
