"""Google ADK on a store: durable runs, sessions with their events and their state, memories and artifacts.

agent = HoldproofAgent(LlmAgent(name="support", …), "./store", agent_id="support")
ended = await agent.run("Refund order 42", flow_id="case-7")   # after a crash the same call goes on

service = HoldproofSessionService("./store")                  # instead of SqliteSessionService("sessions.db")
memory = HoldproofMemoryService("./store")                     # instead of InMemoryMemoryService()
artifacts = HoldproofArtifactService("./store")                # instead of FileArtifactService("artifacts")
runner = Runner(
    app_name="shop", agent=agent, session_service=service, memory_service=memory, artifact_service=artifacts
)
"""

from holdproof.errors import MissingExtraError

try:
    from holdproof.adapters.google_adk.agent import HoldproofAgent
    from holdproof.adapters.google_adk.artifact_service import HoldproofArtifactService
    from holdproof.adapters.google_adk.durability import HoldproofPlugin
    from holdproof.adapters.google_adk.memory_service import HoldproofMemoryService
    from holdproof.adapters.google_adk.session_service import HoldproofSessionService
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "google":
        raise MissingExtraError("the adapter needs google-adk: pip install 'holdproof[adk]'") from error
    raise

__all__ = [
    "HoldproofAgent",
    "HoldproofArtifactService",
    "HoldproofMemoryService",
    "HoldproofPlugin",
    "HoldproofSessionService",
]
