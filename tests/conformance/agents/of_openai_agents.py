"""The shop assistant of the OpenAI Agents SDK."""

import json
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from holdproof.adapters.openai_agents import HoldproofAgent
from tests.conformance.agents import TOOLS, Shop


def _message(text: str) -> Any:
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="message-1", type="message", role="assistant", status="completed", content=[part])


def _call(name: str, arguments: Any, call_id: str) -> Any:
    return ResponseFunctionToolCall(
        name=name, arguments=json.dumps(arguments), call_id=call_id, id=call_id, type="function_call"
    )


class Scripted(Model):
    def __init__(self, seen: Shop) -> None:
        self.model = "scripted"
        self._seen = seen

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        self._seen.calls.append("model")
        last = {"content": input} if isinstance(input, str) else input[-1]
        if last.get("type") == "function_call_output":
            output: list[Any] = [_message(f"heard: {last['output']}")]
        else:
            output = [_call(last["content"], TOOLS[last["content"]], "call-1")]
        usage = Usage(requests=1, input_tokens=11, output_tokens=7, total_tokens=18)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("these runs are not streamed")


def agent(seen: Shop, store: Any, **options: Any) -> HoldproofAgent:
    tools = [function_tool(seen.look), function_tool(needs_approval=True)(seen.refund)]
    made = Agent(name="shop", instructions="Be kind.", model=Scripted(seen), tools=tools)
    config = RunConfig(tracing_disabled=True)

    async def plainly(durable: HoldproofAgent, prompt: str) -> Any:
        return (await Runner.run(durable.agent, prompt, run_config=config)).final_output

    seen.plainly = plainly
    return HoldproofAgent(made, store, agent_id="shop", run_config=config, **options)
