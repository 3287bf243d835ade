"""The shop assistant of Google ADK."""

from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.genai import types

from holdproof.adapters.google_adk import HoldproofAgent, HoldproofPlugin
from tests.conformance.agents import TOOLS, Shop

USAGE = types.GenerateContentResponseUsageMetadata(prompt_token_count=11, candidates_token_count=7)


class Scripted(BaseLlm):
    seen: Any

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        self.seen.calls.append("model")
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is not None:
            answer = last.function_response.response
            part = types.Part(text=f"heard: {answer.get('result', answer)}")
        else:
            part = types.Part(function_call=types.FunctionCall(name=last.text, args=TOOLS[last.text]))
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=USAGE)


def agent(seen: Shop, store: Any, **options: Any) -> HoldproofAgent:
    tools = [seen.look, FunctionTool(seen.refund, require_confirmation=True)]
    model = Scripted(model="scripted", seen=seen)
    made = LlmAgent(name="shop", instruction="Be kind.", model=model, tools=tools)

    async def plainly(durable: HoldproofAgent, prompt: str) -> Any:
        runner = InMemoryRunner(app=App(name="plain", root_agent=made, plugins=[HoldproofPlugin()]))
        session = await runner.session_service.create_session(app_name="plain", user_id="ann")
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        running = runner.run_async(user_id="ann", session_id=session.id, new_message=message)
        return [event async for event in running][-1].content.parts[0].text

    seen.plainly = plainly
    return HoldproofAgent(made, store, agent_id="shop", **options)
