"""Agents of Google ADK as durable functions: each run a flow, confirmations of its tools as escalations."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from google.adk.apps import App
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from holdproof.adapters.approvals import ToolCall
from holdproof.adapters.durable_agents import DurableAgent
from holdproof.adapters.google_adk.durability import HoldproofPlugin
from holdproof.adapters.model_steps import LoopSteps
from holdproof.errors import InvalidInputError

CONFIRM: Final = "adk_request_confirmation"
"""The name of the function call by which ADK asks for a confirmation."""
_APP: Final = "holdproof"


class HoldproofAgent(DurableAgent):
    """An agent whose runs survive their process.

    A run has a session of its own, in memory, which every process that continues it makes again from the record;
    `state` is what it starts with. `safe` names the tools that only read, or may be repeated; `plugins` are the app's
    others.
    """

    framework = "google-adk"

    def __init__(
        self, agent: Any, *args: Any, safe: Collection[str] = (), plugins: Sequence[Any] = (), **options: Any
    ) -> None:
        self._plugins = [*plugins, HoldproofPlugin(safe=safe)]
        super().__init__(agent, *args, **options)

    async def _drive(self, loop: LoopSteps, prompt: Any, options: dict[str, Any]) -> tuple[Any, Any]:
        user_id = options.pop("user_id", self._agent_id)
        sessions = InMemorySessionService()
        session = await sessions.create_session(
            app_name=_APP, user_id=user_id, session_id=loop.flow.flow_id, state=options.pop("state", None)
        )
        app = App(name=_APP, root_agent=self.agent, plugins=self._plugins)
        runner = Runner(app=app, session_service=sessions)
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        while True:
            running = runner.run_async(user_id=user_id, session_id=session.id, new_message=message, **options)
            events = [event async for event in running]
            waiting = [call for event in events for call in event.get_function_calls() if call.name == CONFIRM]
            if not waiting:
                return _text(events), events
            message = await self._confirmed(loop, waiting)

    async def _confirmed(self, loop: LoopSteps, waiting: Sequence[Any]) -> Any:
        """Ask for confirmations, and return the message by which ADK is told of them."""
        originals = [call.args["originalFunctionCall"] for call in waiting]
        # ADK gives calls another id in every process; their place among those that wait stays the same.
        ids = [f"{original['name']} {n}" for n, original in enumerate(originals, 1)]
        calls = [
            ToolCall(id, original["name"], original.get("args")) for id, original in zip(ids, originals, strict=True)
        ]
        by_call = await loop.approve(self.framework, calls, self._approvals)
        if changed := [id for id in ids if by_call[id].arguments is not None]:
            raise InvalidInputError(f"ADK runs a call as the model made it: reject {changed[0]}", call=changed[0])
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=CONFIRM, response={"confirmed": by_call[id].approved}
                )
            )
            for id, call in zip(ids, waiting, strict=True)
        ]
        return types.Content(role="user", parts=parts)


def _text(events: Sequence[Any]) -> str | None:
    """Return the text of the last answer; None where there is none."""
    for event in reversed(events):
        if event.is_final_response() and event.content is not None:
            texts = [part.text for part in event.content.parts or () if part.text and not part.thought]
            if texts:
                return "".join(texts)
    return None
