"""Durable runs of the Microsoft Agent Framework: every model call and every tool call is a step of a flow.

Rules:
- `middleware` gives the chat and function middleware that records the calls; put it last, next to the calls themselves.
  Outside a flow it changes nothing.
- A tool that was cut off is put to a person, unless its name is among those that are `safe` to repeat, or it is a tool
  of ours (memory.py).
- A tool that raised is answered in the same way when the run is repeated. An error of the store ends the run: it is
  not told to the model as if the tool had failed.
- Streamed calls cannot be recorded, and are refused in a flow.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from agent_framework import (
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
)
from pydantic_core import to_jsonable_python

from holdproof.adapters.model_steps import ModelCall, ModelReply, TokenUsage, ToolOptions, current_loop
from holdproof.errors import HoldproofError, InvalidInputError, ReplayedError

try:
    from agent_framework import MiddlewareFailure
except ImportError:  # before 1.17 a run goes on after such an error; the flow refuses whatever it does then
    MiddlewareFailure = None


SAFE: Final = "holdproof_safe"
"""The property by which a tool of ours says that it may be called again."""


def middleware(*, safe: Collection[str] = ()) -> list[Any]:
    """Return the middleware that makes an agent's calls steps; `safe` names the tools that may be called again."""
    return [HoldproofChatMiddleware(), HoldproofFunctionMiddleware(safe=safe)]


class HoldproofChatMiddleware(ChatMiddleware):
    """Makes the model calls of an agent steps."""

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Make a call once, whatever happens."""
        loop = current_loop()
        if loop is None:
            await call_next()
            return
        if context.stream:
            raise InvalidInputError(
                "a streamed call cannot be recorded: run the agent without stream=True", field="stream"
            )

        async def call() -> ModelReply:
            await call_next()
            response = context.result
            assert isinstance(response, ChatResponse), "a call that is not streamed gives a response"
            return ModelReply(
                output=to_jsonable_python(response.to_dict(), fallback=str),
                model=response.model,
                usage=_usage(response.usage_details),
            )

        record = await loop.model(_model_call(context), call)
        # Also of a call that was made here: a repeated run goes on with the same, to the last field.
        context.result = ChatResponse.from_dict(record)


class HoldproofFunctionMiddleware(FunctionMiddleware):
    """Makes the tool calls of an agent steps."""

    def __init__(self, *, safe: Collection[str] = ()) -> None:
        self._safe = frozenset(safe)

    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Make a call once, whatever happens."""
        loop = current_loop()
        if loop is None:
            await call_next()
            return
        name = context.function.name

        async def call() -> Any:
            await call_next()
            return _recorded(context.result)

        ours = (getattr(context.function, "additional_properties", None) or {}).get(SAFE) is True
        options = ToolOptions(safe=ours or name in self._safe)
        try:
            record = await loop.tool(name, to_jsonable_python(context.arguments, fallback=str), call, options)
        except ReplayedError:
            raise
        except HoldproofError as error:
            if MiddlewareFailure is None:
                raise
            raise MiddlewareFailure(str(error)) from error
        context.result = _result(record)


def _recorded(result: Any) -> Any:
    """Return what a tool gave as a person would write it: text as text, other contents by their fields."""
    if isinstance(result, list) and len(result) == 1 and getattr(result[0], "type", None) == "text":
        return result[0].text
    if isinstance(result, list) and all(isinstance(item, Content) for item in result):
        return {"contents": [to_jsonable_python(item.to_dict(), fallback=str) for item in result]}
    return to_jsonable_python(result, fallback=str)


def _result(record: Any) -> Any:
    if isinstance(record, dict) and record.keys() == {"contents"}:
        return [Content.from_dict(item) for item in record["contents"]]
    return record


def _model_call(context: Any) -> ModelCall:
    options = {key: value for key, value in dict(context.options or {}).items() if value is not None}
    tools = [_definition(tool) for tool in options.pop("tools", None) or ()]
    instructions = options.pop("instructions", None)
    system = [] if instructions is None else [{"role": "system", "contents": instructions}]
    client = context.client
    model = options.pop("model", None) or getattr(client, "model", None) or type(client).__name__
    return ModelCall(
        model=str(model),
        messages=[*system, *(_message(each) for each in context.messages)],
        parameters={key: to_jsonable_python(value, fallback=_name) for key, value in options.items()},
        tools=tools,
    )


def _message(message: Any) -> dict[str, Any]:
    """Return a message without the ids that the framework makes up, another in every process."""
    fields: dict[str, Any] = to_jsonable_python(message.to_dict(), fallback=str)
    fields["contents"] = [
        {name: value for name, value in content.items() if name != "id" or not str(value).startswith("af-")}
        for content in fields.get("contents", ())
    ]
    return fields


def _definition(tool: Any) -> Any:
    parameters = getattr(tool, "parameters", None)
    if callable(parameters):
        return {"name": tool.name, "description": tool.description, "parameters": parameters()}
    return to_jsonable_python(tool, fallback=_name)


def _name(value: Any) -> str:
    # The text of an object has its address, which is another in every process.
    return str(getattr(value, "__name__", type(value).__name__))


def _usage(details: Any) -> TokenUsage:
    counted = details or {}
    return TokenUsage(
        input_tokens=counted.get("input_token_count"),
        output_tokens=counted.get("output_token_count"),
        cached_tokens=counted.get("cache_read_input_token_count"),
        reasoning_tokens=counted.get("reasoning_output_token_count"),
    )
