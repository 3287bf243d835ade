"""CrewAI on a store: the state of flows, what they wait for in the inbox, and the checkpoints of crews.

@persist(HoldproofFlowPersistence("./store"))
class Review(Flow[ReviewState]): …
"""

from holdproof.errors import MissingExtraError

try:
    from holdproof.adapters.crewai.checkpoints import HoldproofCheckpointProvider
    from holdproof.adapters.crewai.persistence import HoldproofFlowPersistence
except ModuleNotFoundError as error:
    if error.name is not None and error.name.partition(".")[0] == "crewai":
        raise MissingExtraError("the adapter needs crewai: pip install 'holdproof[crewai]'") from error
    raise

__all__ = ["HoldproofCheckpointProvider", "HoldproofFlowPersistence"]
