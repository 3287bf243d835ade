"""The storage of the Decision Intelligence Runtime (DIR): its ten protocols over one store.

    stores = bundle("trader")                       # or a PostgreSQL URL, ":memory:", or a store that is open
    runtime = DecisionRuntime(stores)               # DIR's own managers take them through `storage=`

Every name, keyword and shape is DIR's. What is different keeps DIR's managers from harm: agents keep their suspension,
flows move along legal edges only, and nothing is granted twice because others wrote between a look and a write.
"""

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from holdproof import sync
from holdproof.adapters.dir.guards import (
    EscalationStorage,
    IdempotencyStorage,
    IntentRetryStorage,
    ResourceLockStorage,
    SagaStorage,
)
from holdproof.adapters.dir.records import (
    AgentRegistryStorage,
    ContextStorage,
    DecisionAuditStorage,
    DecisionLedgerStorage,
    LifecycleStorage,
)
from holdproof.adapters.dir.storage import DirStore
from holdproof.adapters.shared_store import located

__all__ = [
    "AgentRegistryStorage",
    "Bundle",
    "ContextStorage",
    "DecisionAuditStorage",
    "DecisionLedgerStorage",
    "EscalationStorage",
    "IdempotencyStorage",
    "IntentRetryStorage",
    "LifecycleStorage",
    "ResourceLockStorage",
    "SagaStorage",
    "bundle",
]


@dataclass(frozen=True, slots=True)
class Bundle:
    """One storage for each of DIR's managers, all on one store. Close it, or use it as a context manager."""

    store: sync.Holdproof
    agent_registry: AgentRegistryStorage
    context: ContextStorage
    idempotency: IdempotencyStorage
    decision_audit: DecisionAuditStorage
    decision_ledger: DecisionLedgerStorage
    saga: SagaStorage
    resource_lock: ResourceLockStorage
    intent_retry: IntentRetryStorage
    escalation: EscalationStorage
    lifecycle: LifecycleStorage

    def close(self) -> None:
        """Close the store; may be called twice."""
        self.store.close()

    def __enter__(self) -> "Bundle":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def bundle(
    where: str | Path | sync.Holdproof | None = None, *, ns: str = "main", lease_s: float = 30.0, **options: Any
) -> Bundle:
    """DIR's storages on the store at a home, a URL or `:memory:`, or on one that is open.

    `lease_s` is how long a step may take under DIR's IdempotencyGuard before its worker is taken for dead.
    """
    # DIR's managers are synchronous, so the bundle holds a sync client in any case.
    store = where if isinstance(where, sync.Holdproof) else sync.open(*located(where), **options)
    dir_store = DirStore(store, ns)
    # In the order of the fields: one storage for each of DIR's ten protocols.
    return Bundle(
        store,
        AgentRegistryStorage(dir_store),
        ContextStorage(dir_store),
        IdempotencyStorage(dir_store, lease_s=lease_s),
        DecisionAuditStorage(dir_store),
        DecisionLedgerStorage(dir_store),
        SagaStorage(dir_store),
        ResourceLockStorage(dir_store),
        IntentRetryStorage(dir_store),
        EscalationStorage(dir_store),
        LifecycleStorage(dir_store),
    )
