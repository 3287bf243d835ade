"""Strands Agents on a store: sessions with their messages, and the bytes of its unified storage.

manager = RepositorySessionManager("customer-42", HoldproofSessionRepository("./store"))
agent = Agent(session_manager=manager)
"""

from holdproof.errors import MissingExtraError

try:
    from holdproof.adapters.strands.repository import HoldproofSessionRepository
    from holdproof.adapters.strands.storage import HoldproofStorage
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "strands":
        raise MissingExtraError("the adapter needs strands-agents: pip install 'holdproof[strands]'") from error
    raise

__all__ = ["HoldproofSessionRepository", "HoldproofStorage"]
