"""What services store: the provider and its four stores, under the names of today and those of the seed."""

from holdfast.model.sessions import CLISession, CLISessionAgent, CLISessionArtifact, CLISessionEvent
from holdfast.model.storage import (
    STORAGE_POLYNOMIAL,
    SearchResult,
    StorageOp,
    StorageState,
    StorageStatus,
    TelemetryEvent,
)
from holdfast.storage.provider import StorageProvider
from holdfast.storage.sessions import CLISessionService, create_cli_session_service
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
    "IBlobStore",
    "IRelationalStore",
    "ITelemetryStore",
    "IVectorStore",
    "RelationalStore",
    "SearchResult",
    "StorageOp",
    "StorageProvider",
    "StorageState",
    "StorageStatus",
    "TelemetryEvent",
    "TelemetryStore",
    "VectorStore",
    "create_cli_session_service",
]
