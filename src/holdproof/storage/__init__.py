"""Application storage: the provider and its four stores, under our names and the seed's, and services built on them."""

from typing import TYPE_CHECKING

from holdproof.lazy import lazy_exports

if TYPE_CHECKING:
    from holdproof.model.sessions import CLISession, CLISessionAgent, CLISessionArtifact, CLISessionEvent
    from holdproof.model.storage import (
        STORAGE_POLYNOMIAL,
        SearchResult,
        StorageOp,
        StorageState,
        StorageStatus,
        TelemetryEvent,
    )
    from holdproof.storage.dreams import Dreams
    from holdproof.storage.instances import Instances
    from holdproof.storage.lifecycle import Lifecycle, bootstrap
    from holdproof.storage.provider import StorageProvider
    from holdproof.storage.selfgrow import SelfGrow
    from holdproof.storage.sessions import CLISessionService, create_cli_session_service
    from holdproof.storage.shapes import Shapes
    from holdproof.storage.stores import (
        BlobStore,
        IBlobStore,
        IRelationalStore,
        ITelemetryStore,
        IVectorStore,
        RelationalStore,
        TelemetryStore,
        VectorStore,
    )

__all__ = [
    "STORAGE_POLYNOMIAL",
    "BlobStore",
    "CLISession",
    "CLISessionAgent",
    "CLISessionArtifact",
    "CLISessionEvent",
    "CLISessionService",
    "Dreams",
    "IBlobStore",
    "IRelationalStore",
    "ITelemetryStore",
    "IVectorStore",
    "Instances",
    "Lifecycle",
    "RelationalStore",
    "SearchResult",
    "SelfGrow",
    "Shapes",
    "StorageOp",
    "StorageProvider",
    "StorageState",
    "StorageStatus",
    "TelemetryEvent",
    "TelemetryStore",
    "VectorStore",
    "bootstrap",
    "create_cli_session_service",
]

# A store that opens none of them loads none of them.
_MODULES = {
    "holdproof.model.sessions": "CLISession CLISessionAgent CLISessionArtifact CLISessionEvent",
    "holdproof.model.storage": "STORAGE_POLYNOMIAL SearchResult StorageOp StorageState StorageStatus TelemetryEvent",
    "holdproof.storage.dreams": "Dreams",
    "holdproof.storage.instances": "Instances",
    "holdproof.storage.lifecycle": "Lifecycle bootstrap",
    "holdproof.storage.provider": "StorageProvider",
    "holdproof.storage.selfgrow": "SelfGrow",
    "holdproof.storage.sessions": "CLISessionService create_cli_session_service",
    "holdproof.storage.shapes": "Shapes",
    "holdproof.storage.stores": (
        "BlobStore IBlobStore IRelationalStore ITelemetryStore IVectorStore RelationalStore TelemetryStore VectorStore"
    ),
}
__getattr__, __dir__ = lazy_exports(
    __name__, {name: module for module, names in _MODULES.items() for name in names.split()}
)
