"""Application storage: the provider and its four stores, under our names and the seed's, and services built on them."""

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
