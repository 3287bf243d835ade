"""Google ADK on a store: a session with its user state, a memory and an artifact, continued by a second process.

python examples/google_adk_sessions.py [FOLDER]

The model is scripted, so that this needs neither a network nor a key. With a real one only `model=` changes.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.genai import types

from holdproof.adapters.google_adk import HoldproofArtifactService, HoldproofMemoryService, HoldproofSessionService


class Scripted(BaseLlm):
    """A model that answers with the number of messages it received."""

    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield one response."""
        del stream
        said = f"I have heard {len(llm_request.contents)} messages."
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=said)]))


async def turn(service: HoldproofSessionService, text: str) -> str:
    """Run one turn of the conversation and return the answer."""
    agent = LlmAgent(name="support", model=Scripted(), output_key="user:last_answer")
    runner = Runner(app_name="shop", agent=agent, session_service=service)
    said = ""
    message = types.Content(role="user", parts=[types.Part(text=text)])
    async for event in runner.run_async(user_id="ada", session_id="s1", new_message=message):
        if event.is_final_response() and event.content and event.content.parts:
            said = event.content.parts[0].text or ""
    return said


async def main(folder: str) -> None:
    """Run one turn in each of two processes."""
    async with HoldproofSessionService(folder) as service:
        await service.create_session(app_name="shop", user_id="ada", session_id="s1")
        print("agent:", await turn(service, "Hello."))
    async with HoldproofSessionService(folder) as service:
        print("agent:", await turn(service, "Do you remember me?"))
        session = await service.get_session(app_name="shop", user_id="ada", session_id="s1")
        assert session is not None
        print("events:", len(session.events))
        print("of the user:", await service.get_user_state(app_name="shop", user_id="ada"))
        assert session.state["user:last_answer"] == "I have heard 3 messages."
        async with HoldproofMemoryService(folder) as memory:
            await memory.add_session_to_memory(session)
            found = await memory.search_memory(app_name="shop", user_id="ada", query="Who said remember?")
            print("remembered:", [part.text for each in found.memories for part in each.content.parts or ()])
    async with HoldproofArtifactService(folder) as artifacts:
        chat = {"app_name": "shop", "user_id": "ada", "session_id": "s1", "filename": "receipt.txt"}
        for text in ("30 euros", "25 euros"):
            version = await artifacts.save_artifact(**chat, artifact=types.Part(text=text))
        first = await artifacts.load_artifact(**chat, version=0)
        assert first is not None
        print("receipt:", f"version {version}, the first says {first.text}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else scratch))
