"""Operations as functions of a transaction, for code that composes several into one atomic change.

The resources of a store (`store.notes.put(…)`) run one operation each. Code in the same process can run any number of
them in one transaction, all or nothing:

    from holdproof.kernel import Tx, flows, locks

    def begin(tx: Tx) -> None:
        flow = flows.start(tx, "trader", ns="main")
        locks.acquire(tx, "account-7", flow=flow.flow_id, ns="main")

    store.write(begin)

This module and the clients are all that adapters use of Holdproof; a contract of import-linter holds them to it.

- Functions of a transaction take `tx` first and `ns` by keyword. They may run more than once, so they must not have
  side effects outside the transaction.
- `Work` is a generator of effects (`Read`, `Write`, `Call`); `store.run(work)` drives it, in sync and async clients.
- Names may be added here; a name that is here is changed only with an entry in the changelog.
"""

from holdproof.content import values
from holdproof.db import MEMORY, Call, Give, Read, Refused, Stream, Tx, Work, Write, ask
from holdproof.db.sqlite.readonly import foreign_rows
from holdproof.executors import unwrap_methods, wrap_methods
from holdproof.memory.notes import notes
from holdproof.memory.objects import objects
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.memory.threads import deltas as thread_deltas
from holdproof.memory.threads import line_writers, thread_index, thread_writes, threads
from holdproof.memory.threads import removal as thread_removal
from holdproof.memory.transcripts import transcripts
from holdproof.runtime import (
    agents,
    audit,
    autocreate,
    budgets,
    contexts,
    documents,
    escalation_rows,
    escalations,
    flows,
    idempotency,
    inbox,
    ledger,
    locks,
    retries,
    sagas,
    state,
)
from holdproof.store.opening import Store, open_store

__all__ = [
    "MAIN",
    "MEMORY",
    "Call",
    "Give",
    "Read",
    "Refused",
    "Store",
    "Stream",
    "Tx",
    "Work",
    "Write",
    "agents",
    "ask",
    "audit",
    "autocreate",
    "budgets",
    "contexts",
    "documents",
    "escalation_rows",
    "escalations",
    "flows",
    "foreign_rows",
    "idempotency",
    "inbox",
    "ledger",
    "line_writers",
    "locks",
    "notes",
    "objects",
    "open_store",
    "retries",
    "sagas",
    "state",
    "thread_deltas",
    "thread_index",
    "thread_removal",
    "thread_writes",
    "threads",
    "transcripts",
    "unwrap_methods",
    "values",
    "wrap_methods",
]
