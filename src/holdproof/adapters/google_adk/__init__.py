"""Google ADK on a store: sessions with their events and their state.

service = HoldproofSessionService("./store")                  # instead of SqliteSessionService("sessions.db")
runner = Runner(app_name="shop", agent=agent, session_service=service)
"""

from holdproof.errors import MissingExtraError

try:
    from holdproof.adapters.google_adk.service import HoldproofSessionService
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "google":
        raise MissingExtraError("the adapter needs google-adk: pip install 'holdproof[adk]'") from error
    raise

__all__ = ["HoldproofSessionService"]
