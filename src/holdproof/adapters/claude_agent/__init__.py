"""The Claude Agent SDK on a store: the mirror of its session transcripts.

store = HoldproofSessionStore("./store")
options = ClaudeAgentOptions(session_store=store, resume=session_id)
"""

from holdproof.errors import MissingExtraError

try:
    from holdproof.adapters.claude_agent.session_store import HoldproofSessionStore
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "claude_agent_sdk":
        message = "the adapter needs claude-agent-sdk: pip install 'holdproof[claude-agent]'"
        raise MissingExtraError(message) from error
    raise

__all__ = ["HoldproofSessionStore"]
