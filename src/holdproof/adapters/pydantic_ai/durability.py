"""Durable runs of Pydantic AI agents: every model call and every tool call is a step of a flow.

Rules:
- `HoldproofDurability` plugs into the framework's own seam for durable execution. Outside a flow it changes nothing.
- Messages are recorded without their time stamps and run ids, which differ when a run is repeated.
- A tool with `metadata={"holdproof": {"safe": True}}` may be called again when a call was cut off; with `False` in
  place of the mapping it is not a step at all, and runs again with the code around it.
- Listing tools, validating arguments and streaming events are repeated when they were cut off; what a capability does
  besides is put to a person, like a tool.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Literal

from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    CapabilityOperationId,
    DurabilityEngineSpec,
    DurableOperation,
    DurableOperationBackend,
    JournalOperationNamer,
    ModelRequestId,
    ToolsetCallToolId,
    conversation_id_from_run_id,
    durable_unit_scope,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse
from pydantic_core import to_jsonable_python

from holdproof.adapters.model_steps import ModelCall, ModelReply, TokenUsage, ToolOptions, current_loop
from holdproof.errors import InvalidInputError

KEY: Final = "holdproof"
"""The key of a tool's metadata that says how its calls are run."""
_RETURNED: Final = "tool_return"
_NO_INPUT: Final = frozenset({"timestamp", "run_id", "conversation_id", "usage"})
"""The fields of messages that no model is shown; some of them differ when a run is repeated."""


class HoldproofDurability(BaseDurabilityCapability[Any]):
    """Make an agent durable inside flows: `Agent(…, name="support", capabilities=[HoldproofDurability()])`."""

    engine_spec = DurabilityEngineSpec(
        engine_name="Holdproof",
        durable_unit_noun="step",
        durable_container_noun="flow",
        codec=JSON_CODEC,
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        wrapped_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        tool_config_key=KEY,
    )

    def _bind_to_agent(self, agent: Any) -> None:
        # Made here and not at first use: a capability is copied for each agent that it is attached to.
        self._backend = _StepBackend(self.name)
        self._register_toolsets(agent)

    @property
    def in_durable_context(self) -> bool:
        """Whether the caller is in a flow, and not in one of its steps."""
        return current_loop() is not None

    def get_default_run_id(self) -> str | None:
        """Return an id that a run has again when it is repeated."""
        loop = current_loop()
        return None if loop is None else f"{loop.flow.flow_id}:{loop.number('run')}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return the id of a conversation that begins with a run."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    def get_durable_operation_backend(self) -> DurableOperationBackend[Any]:
        """Return what runs the framework's operations as steps."""
        return self._backend


class _StepBackend(DurableOperationBackend[Any]):
    def __init__(self, agent_name: str) -> None:
        self._namer = JournalOperationNamer(agent_name)

    def bind(self, operation: DurableOperation[Any, Any, Any]) -> "_StepOperation":
        return _StepOperation(operation, self._namer)

    def config_for_tool(
        self,
        operation: DurableOperation[Any, Any, Any],  # noqa: ARG002 (the framework passes it)
        *,
        tool: Any,
        tool_name: str,
    ) -> dict[str, Any] | Literal[False]:
        definition = getattr(tool, "tool_def", tool)
        chosen = (getattr(definition, "metadata", None) or {}).get(KEY, {})
        if chosen is False:
            return False
        if not isinstance(chosen, Mapping) or (unknown := sorted(chosen.keys() - {"safe", "retries", "timeout_s"})):
            what = unknown[0] if isinstance(chosen, Mapping) else repr(chosen)
            message = f"the metadata {KEY!r} of tool {tool_name} takes safe, retries and timeout_s, not {what}"
            raise InvalidInputError(message, tool=tool_name)
        return dict(chosen)

    def registrations(self) -> Sequence[Callable[..., object]]:
        return ()


class _StepOperation:
    """One of the framework's operations, as a step of the flow that its caller is in."""

    def __init__(self, operation: DurableOperation[Any, Any, Any], namer: JournalOperationNamer) -> None:
        self.operation = operation
        self._namer = namer

    async def __call__(self, params: Any, *, config: Any = None) -> Any:
        loop = current_loop()
        if loop is None:
            return await self.operation.handler(params)
        codec = self.operation.result_codec
        id = self.operation.operation_id

        async def body() -> Any:
            with durable_unit_scope():
                return codec.dump(await self.operation.handler(params))

        if isinstance(id, ModelRequestId):
            payload = await loop.model(_model_call(id, params), lambda: _reply(codec, body))
        elif isinstance(id, ToolsetCallToolId):
            options = ToolOptions(**(config or {}))
            arguments = to_jsonable_python(params.tool_args, fallback=repr)
            payload = _tagged(await loop.tool(params.name, arguments, lambda: _plain(body), options))
        else:
            name = self._namer.invocation_name(id, label=None).operation_name
            safe = not isinstance(id, CapabilityOperationId)
            payload = await loop.step(name, {}, body, safe=safe)
        return codec.load(payload)


async def _reply(codec: Any, body: Callable[[], Any]) -> ModelReply:
    payload = await body()
    value = codec.load(payload)
    # A streamed request gives its response among other things.
    response = value if isinstance(value, ModelResponse) else getattr(value, "response", None)
    if not isinstance(response, ModelResponse):
        return ModelReply(output=payload)
    counted = response.usage
    usage = TokenUsage(
        input_tokens=counted.input_tokens,
        output_tokens=counted.output_tokens,
        cached_tokens=counted.cache_read_tokens or None,
    )
    return ModelReply(output=payload, model=response.model_name, usage=usage, cost_usd=_cost(response))


def _cost(response: ModelResponse) -> Decimal | None:
    """Return what the price list that comes with Pydantic AI says; None for a model that is not on it."""
    try:
        price: Decimal = response.cost().total_price
    except (AssertionError, LookupError, ValueError):
        return None
    return price


def _model_call(id: ModelRequestId, params: Any) -> ModelCall:
    messages = ModelMessagesTypeAdapter.dump_python(params.messages, mode="json")
    offered = to_jsonable_python(params.model_request_parameters, fallback=repr)
    tools = [*offered.pop("function_tools", ()), *offered.pop("output_tools", ())]
    settings = to_jsonable_python(dict(params.model_settings or {}), fallback=repr)
    return ModelCall(
        model=id.model_name if id.model_id is None else f"{id.model_id} {id.model_name}",
        messages=[_repeatable(message) for message in messages],
        parameters={"settings": settings, "request": {k: v for k, v in offered.items() if v}},
        tools=[{name: value for name, value in tool.items() if value is not None} for tool in tools],
    )


def _repeatable(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what differs when the run is repeated."""
    fields = {name: value for name, value in message.items() if name not in _NO_INPUT and value is not None}
    fields["parts"] = [
        {name: value for name, value in part.items() if name != "timestamp" and value is not None}
        for part in message["parts"]
    ]
    return fields


async def _plain(body: Callable[[], Any]) -> Any:
    """Return what a tool returned as its own value, where the framework wraps it: as a person would write it."""
    payload = await body()
    if payload.keys() == {"kind", "result"} and payload["kind"] == _RETURNED and not _is_tagged(payload["result"]):
        return payload["result"]
    return payload


def _tagged(value: Any) -> Any:
    return value if _is_tagged(value) else {"kind": _RETURNED, "result": value}


def _is_tagged(value: Any) -> bool:
    return isinstance(value, dict) and "kind" in value
