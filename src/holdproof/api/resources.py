"""Everything a store has, by resource."""

from holdproof.api.access import AccessResources
from holdproof.api.evidence import EvidenceResources
from holdproof.api.memory import MemoryResources
from holdproof.api.runtime import RuntimeResources
from holdproof.api.storage import StorageResources
from holdproof.executors import Executor, Resource


class Resources(
    RuntimeResources[Executor],
    EvidenceResources[Executor],
    MemoryResources[Executor],
    StorageResources[Executor],
    AccessResources[Executor],
):
    """The resources of a store, offered by an executor."""

    def __init__(self, executor: Executor) -> None:
        RuntimeResources.__init__(self, executor)
        EvidenceResources.__init__(self, executor)
        MemoryResources.__init__(self, executor)
        StorageResources.__init__(self, executor)
        AccessResources.__init__(self, executor)
        # Tokens are checked in a layer below, where no resource is declared: these are the ones of this store.
        self.tokens.grantable_names = frozenset(
            name for name, each in vars(self).items() if isinstance(each, Resource) and each.grantable
        )
