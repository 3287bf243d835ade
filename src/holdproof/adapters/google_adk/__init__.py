"""Google ADK on a store: durable runs, and sessions with their events and their state.

agent = HoldproofAgent(LlmAgent(name="support", …), "./store", agent_id="support")
ended = await agent.run("Refund order 42", flow_id="case-7")   # after a crash the same call goes on

service = HoldproofSessionService("./store")                  # instead of SqliteSessionService("sessions.db")
runner = Runner(app_name="shop", agent=agent, session_service=service)
"""

from holdproof.errors import MissingExtraError

try:
    from holdproof.adapters.google_adk.agent import HoldproofAgent
    from holdproof.adapters.google_adk.durability import HoldproofPlugin
    from holdproof.adapters.google_adk.service import HoldproofSessionService
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "google":
        raise MissingExtraError("the adapter needs google-adk: pip install 'holdproof[adk]'") from error
    raise

__all__ = ["HoldproofAgent", "HoldproofPlugin", "HoldproofSessionService"]
