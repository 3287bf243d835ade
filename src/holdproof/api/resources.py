"""Everything a store has, by resource."""

from holdproof.access import tokens
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


# Tokens are checked below this layer, where resources are not known: their declarations are told once, here.
tokens.grantable.update(
    name
    for name, each in vars(Resources(None)).items()  # type: ignore[type-var]
    if isinstance(each, Resource) and each.grantable
)
