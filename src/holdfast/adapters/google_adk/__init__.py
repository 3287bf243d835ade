"""Google ADK on a store: sessions with their events and their state.

service = HoldfastSessionService("./store")                  # instead of SqliteSessionService("sessions.db")
runner = Runner(app_name="shop", agent=agent, session_service=service)
"""

from holdfast.errors import MissingExtraError

try:
    from holdfast.adapters.google_adk.service import HoldfastSessionService
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "google":
        raise MissingExtraError("the adapter needs google-adk: pip install 'holdfast[adk]'") from error
    raise

__all__ = ["HoldfastSessionService"]
