"""Everything a store has, by noun."""

from holdproof.api.access import AccessResources
from holdproof.api.evidence import EvidenceResources
from holdproof.api.memory import MemoryResources
from holdproof.api.runtime import RuntimeResources
from holdproof.api.storage import StorageResources
from holdproof.executors import Executor


class Resources(
    RuntimeResources[Executor],
    EvidenceResources[Executor],
    MemoryResources[Executor],
    StorageResources[Executor],
    AccessResources[Executor],
):
    """The nouns of a store, shown by a face."""

    def __init__(self, face: Executor) -> None:
        RuntimeResources.__init__(self, face)
        EvidenceResources.__init__(self, face)
        MemoryResources.__init__(self, face)
        StorageResources.__init__(self, face)
        AccessResources.__init__(self, face)
