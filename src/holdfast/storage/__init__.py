"""What services store: the provider and its four stores, under the names of today and the seed's; ready services."""

from holdfast.model.sessions import CLISession, CLISessionAgent, CLISessionArtifact, CLISessionEvent
from holdfast.model.storage import (
    STORAGE_POLYNOMIAL,
    SearchResult,
    StorageOp,
    StorageState,
    StorageStatus,
    TelemetryEvent,
)
from holdfast.storage.dreams import Dreams
from holdfast.storage.instances import Instances
from holdfast.storage.lifecycle import Lifecycle, bootstrap
from holdfast.storage.provider import StorageProvider
from holdfast.storage.selfgrow import SelfGrow
from holdfast.storage.sessions import CLISessionService, create_cli_session_service
from holdfast.storage.shapes import Shapes
from holdfast.storage.stores import (
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
