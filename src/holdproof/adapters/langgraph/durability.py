"""Durable runs of LangGraph: model calls, tool calls and functions of a graph as steps of a flow.

Rules:
- `durable` gives a model, a tool or a function of which each call inside a flow is a step. Outside a flow it is as it
  was, but for tools that are to be approved: those ask by `interrupt()` wherever they run.
- Every model and tool of LangChain that a durable run calls has to be durable: one that is not is refused when it is
  called (`RunningTasks`), since it would be called again after a crash.
- A tool that was cut off is put to a person, unless its name is among those that are `safe` to repeat.
- A tool that raised is answered in the same way when the run is repeated. A tool that interrupts the graph has no
  effect that counts: its step records what it asked, and it is called again with the answer.
- What a tool gives is recorded as it is, with LangChain's own types; what cannot be recorded is an UnrecordableError.
- Messages are recorded without their ids, which are others in every process, and without what no model is sent.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial, wraps
from inspect import iscoroutinefunction, signature
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, message_to_dict, messages_from_dict
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt
from pydantic_core import to_jsonable_python

from holdproof.adapters.langgraph.running_tasks import DURABLE, current_task, in_its_thread
from holdproof.adapters.model_steps import (
    LoopSteps,
    ModelCall,
    ModelReply,
    TokenUsage,
    ToolOptions,
    current_loop,
)
from holdproof.errors import InvalidInputError, ReplayedError
from holdproof.validation import error_text

_ASKS: Final = "holdproof.asks"
"""The key of the record of a tool that interrupted the graph: what it asked."""
_UNSENT: Final = frozenset({"id", "response_metadata", "usage_metadata", "example"})
_ROLES: Final = {"human": "user", "ai": "assistant"}
Calling = Callable[[], Awaitable[Any]]


def durable(part: Any, *, safe: bool | Collection[str] = False, approve: bool | Collection[str] = False) -> Any:
    """Return a chat model, a tool or a function whose calls inside a flow are steps; or a list of tools like that.

    `safe` says that a call may be repeated, `approve` that a person is asked before it: of all, or of those with these
    names. A function is a node's helper or a task: its arguments and its result are recorded.
    """
    if isinstance(part, list | tuple):
        return [durable(_as_tool(each), safe=safe, approve=approve) for each in part]
    if isinstance(part, BaseChatModel):
        return _durable_model(part)
    if isinstance(part, BaseTool):
        return _durable_tool(part, safe=_applies(safe, part.name), approve=_applies(approve, part.name))
    if not callable(part) or isinstance(part, type):
        raise InvalidInputError(
            f"a {type(part).__name__} cannot be made durable: pass the chat model, the tool or the function itself",
            field="part",
        )
    name = str(getattr(part, "__name__", type(part).__name__))
    if _applies(approve, name):
        raise InvalidInputError("a function asks by interrupt() itself: approve= is for tools", field="approve")
    return _durable_function(part, name, safe=_applies(safe, name))


def _as_tool(part: Any) -> Any:
    """Return the tool of a function in a list of tools, as `create_react_agent` makes it."""
    return tool(part) if callable(part) and not isinstance(part, BaseTool | BaseChatModel | type) else part


def _applies(chosen: bool | Collection[str], name: str) -> bool:
    return chosen if isinstance(chosen, bool) else name in chosen


def _copy(part: Any) -> Any:
    return part.model_copy(update={"tags": [*(part.tags or ()), DURABLE]})


def _durable_model(model: Any) -> Any:
    if DURABLE in (model.tags or ()):
        return model
    copy = _copy(model)

    async def agenerate(messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        inner = _with_manager(model._agenerate, run_manager)
        loop = current_loop()
        if loop is None:
            result: ChatResult = await inner(messages, stop=stop, **kwargs)
            return result
        request = _model_call(model, messages, stop, kwargs)
        return await _generation(loop, request, lambda: inner(messages, stop=stop, **kwargs))

    def generate(messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        inner = partial(_with_manager(model._generate, run_manager), messages, stop=stop, **kwargs)
        loop = current_loop()
        if loop is None:
            result: ChatResult = inner()
            return result
        request = _model_call(model, messages, stop, kwargs)
        return in_its_thread(loop, f"model {request.model}", inner, lambda call: _generation(loop, request, call))

    async def astream(messages: Any, stop: Any = None, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        if current_loop() is None:
            async for chunk in model._astream(messages, stop=stop, **kwargs):
                yield chunk
            return
        yield _whole(await agenerate(messages, stop, None, **_unmanaged(kwargs)))

    def stream(messages: Any, stop: Any = None, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        if current_loop() is None:
            yield from model._stream(messages, stop=stop, **kwargs)
            return
        yield _whole(generate(messages, stop, None, **_unmanaged(kwargs)))

    # Models are pydantic objects, which take no attributes but their fields.
    for name, method in {
        "_agenerate": agenerate,
        "_generate": generate,
        "_astream": astream,
        "_stream": stream,
    }.items():
        object.__setattr__(copy, name, method)
    return copy


def _with_manager(inner: Callable[..., Any], run_manager: Any) -> Callable[..., Any]:
    return partial(inner, run_manager=run_manager) if "run_manager" in signature(inner).parameters else inner


def _unmanaged(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name not in ("run_manager", "stream")}


async def _generation(loop: LoopSteps, request: ModelCall, run: Calling) -> ChatResult:
    async def call() -> ModelReply:
        return _reply(await run())

    record = await loop.model(request, call, task=current_task())
    generations = [
        ChatGeneration(message=messages_from_dict([each["message"]])[0], generation_info=each["info"])
        for each in record["generations"]
    ]
    return ChatResult(generations=generations, llm_output=record["llm_output"])


def _reply(result: ChatResult) -> ModelReply:
    generations = [
        {"message": message_to_dict(each.message), "info": each.generation_info} for each in result.generations
    ]
    message: Any = result.generations[0].message
    metadata = {**(result.llm_output or {}), **message.response_metadata}
    return ModelReply(
        output=to_jsonable_python({"generations": generations, "llm_output": result.llm_output}, fallback=str),
        model=metadata.get("model_name"),
        usage=_usage(getattr(message, "usage_metadata", None)),
    )


def _usage(counted: Mapping[str, Any] | None) -> TokenUsage:
    if not counted:
        return TokenUsage()
    return TokenUsage(
        input_tokens=counted.get("input_tokens"),
        output_tokens=counted.get("output_tokens"),
        cached_tokens=counted.get("input_token_details", {}).get("cache_read"),
        reasoning_tokens=counted.get("output_token_details", {}).get("reasoning"),
    )


def _model_call(model: Any, messages: Any, stop: Any, kwargs: Mapping[str, Any]) -> ModelCall:
    parameters = {**model._identifying_params, **kwargs, "stop": stop}
    tools = parameters.pop("tools", None) or ()
    settings = {key: to_jsonable_python(value, fallback=_type_name) for key, value in parameters.items()}
    return ModelCall(
        model=_name(model),
        messages=[_message(each) for each in messages],
        parameters={key: value for key, value in settings.items() if value not in (None, [], {})},
        tools=to_jsonable_python(list(tools), fallback=_type_name),
    )


def _name(model: Any) -> str:
    return str(getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__)


def _type_name(value: Any) -> str:
    # The text of an object has its address, which is another in every process.
    return str(getattr(value, "__name__", type(value).__name__))


def _message(message: BaseMessage) -> dict[str, Any]:
    fields = message.model_dump(mode="json", exclude=set(_UNSENT))
    kind = fields.pop("type")
    return {
        "role": _ROLES.get(kind, kind),
        **{key: value for key, value in fields.items() if value not in (None, [], {})},
    }


def _whole(result: ChatResult) -> ChatGenerationChunk:
    """Return a reply as the one chunk of its stream."""
    [generation] = result.generations
    fields = generation.message.model_dump(exclude={"type"})
    return ChatGenerationChunk(message=AIMessageChunk(**fields), generation_info=generation.generation_info)


def _durable_tool(part: Any, *, safe: bool, approve: bool) -> Any:
    if DURABLE in (part.tags or ()):
        return part
    copy = _copy(part)
    options = ToolOptions(safe=safe)
    visible = _visible_arguments(part)

    @wraps(part._arun)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        kwargs, refusal = _approved(part, visible, kwargs) if approve else (kwargs, None)
        loop = current_loop()
        if loop is None or refusal is not None:
            return await part._arun(*args, **kwargs) if refusal is None else refusal
        return await _tool_step(loop, part.name, visible(kwargs), options, lambda: part._arun(*args, **kwargs))

    @wraps(part._run)
    def run(*args: Any, **kwargs: Any) -> Any:
        kwargs, refusal = _approved(part, visible, kwargs) if approve else (kwargs, None)
        loop = current_loop()
        if loop is None or refusal is not None:
            return part._run(*args, **kwargs) if refusal is None else refusal
        return in_its_thread(
            loop,
            f"tool {part.name}",
            partial(part._run, *args, **kwargs),
            lambda call: _tool_step(loop, part.name, visible(kwargs), options, call),
        )

    object.__setattr__(copy, "_arun", arun)
    object.__setattr__(copy, "_run", run)
    return copy


def _visible_arguments(part: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return what takes the arguments that a model wrote out of those that a tool is called with."""
    schema = part.tool_call_schema
    names = frozenset(schema.get("properties", ()) if isinstance(schema, dict) else schema.model_fields)
    return lambda kwargs: {
        name: to_jsonable_python(value, fallback=_type_name) for name, value in kwargs.items() if name in names
    }


def _approved(part: Any, visible: Callable[..., Any], kwargs: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Ask before a call; return its arguments as they were approved, and what the model is told of a refusal."""
    answer = interrupt({"tool": part.name, "arguments": visible(kwargs)})
    if isinstance(answer, Mapping):
        return {**kwargs, **answer}, None
    if answer is True:
        return kwargs, None
    refusal = f"refused: {answer}" if isinstance(answer, str) else "refused"
    return kwargs, (refusal, None) if part.response_format == "content_and_artifact" else refusal


async def _tool_step(loop: LoopSteps, name: str, arguments: Any, options: ToolOptions, run: Calling) -> Any:
    return await _with_interrupts(
        run, lambda call: loop.tool(name, arguments, call, options, task=current_task()), loop
    )


async def _with_interrupts(run: Calling, step: Callable[[Calling], Awaitable[Any]], loop: LoopSteps) -> Any:
    """Make a step of a call that may interrupt the graph, or raise."""
    interrupts: list[GraphInterrupt] = []
    failures: list[Exception] = []

    async def call() -> Any:
        try:
            return await run()
        except GraphInterrupt as interruption:
            interrupts.append(interruption)
            return {_ASKS: to_jsonable_python(interruption.args[0][0].value, fallback=str)}
        except Exception as error:
            failures.append(error)
            raise

    try:
        record = await step(call)
    except Exception as error:
        # The same for the graph whether it happened now or before the process died: by its text, which is recorded.
        if isinstance(error, ReplayedError) and not failures:
            text = str(error.fields.get("error"))
        elif failures and error is failures[-1]:
            text = error_text(error) if loop.flow.held.lease.subject is None else type(error).__name__
        else:
            raise
        kind, _, message = text.partition(": ")
        raise ToolException(message) if kind == ToolException.__name__ else ReplayedError(text) from error
    if not isinstance(record, dict) or _ASKS not in record:
        return record
    if interrupts:
        raise interrupts[0]
    while True:
        # Answers that it got are passed over; the one that it waited for interrupts the graph again.
        interrupt(record[_ASKS])


def _durable_function(fn: Any, name: str, *, safe: bool) -> Any:
    parameters = signature(fn)

    def arguments_of(args: Any, kwargs: Any) -> Any:
        return dict(parameters.bind(*args, **kwargs).arguments)

    def as_step(loop: LoopSteps, arguments: Any, call: Calling) -> Awaitable[Any]:
        return _with_interrupts(call, lambda run: loop.step(name, arguments, run, safe=safe, task=current_task()), loop)

    if iscoroutinefunction(fn):

        @wraps(fn)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            loop = current_loop()
            if loop is None:
                return await fn(*args, **kwargs)
            return await as_step(loop, arguments_of(args, kwargs), partial(fn, *args, **kwargs))

        return acall

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        loop = current_loop()
        if loop is None:
            return fn(*args, **kwargs)
        arguments = arguments_of(args, kwargs)
        return in_its_thread(loop, name, partial(fn, *args, **kwargs), lambda run: as_step(loop, arguments, run))

    return call
