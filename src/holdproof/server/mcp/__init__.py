"""The store for models: tools, resources, prompts and tasks of the Model Context Protocol.

Rules:
- A tool is a method: `objects_put` is `store.objects.put`, its schema made from the operation. The seed's two have
  their own names: `checkpoint_memory` and `restore_memory`.
- Tools come in sets, by what a model does with them: decide, ask, remember, prove. Each is small enough to be chosen
  from; a client that needs one of them asks for that one.
- Resources and prompts are made of methods that are tools of the same client, under the same decision (`calls.py`).
- No tool takes a destination (`DESTINATIONS`): text that a model read must not be able to send a store's content
  anywhere.
- Read-only offers what reads. No tool locks the store.
"""

from holdproof.server.mcp.offer import TOOL_SETS, Offer, named_resources, tool_sets
from holdproof.server.mcp.serving import caller_for, over_http, over_stdio, server

__all__ = ["TOOL_SETS", "Offer", "caller_for", "named_resources", "over_http", "over_stdio", "server", "tool_sets"]
