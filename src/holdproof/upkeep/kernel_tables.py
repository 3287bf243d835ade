"""Every table of the kernel schema: those whose rows have entries in the log, and those outside it.

`verify` walks what is listed here, whatever else a process has imported; a test compares the lists with the schema. The
columns that entries commit to, and why a table is outside, are in docs/format.md.
"""

from collections.abc import Mapping
from typing import Final

from holdproof.access import tokens
from holdproof.evidence import erasures, evaluations, import_records, lockdown, prunings, restores, startup
from holdproof.evidence.logged_tables import LoggedTable
from holdproof.memory.objects import commits, refs
from holdproof.memory.skills import skills
from holdproof.runtime import agents, audit, contexts, escalation_rows, feedback, flows, ledger, state, steps

TABLES: Final = (
    *(agents.AGENTS, audit.AUDIT, contexts.CONTEXT, escalation_rows.ESCALATIONS, feedback.FEEDBACK, flows.FLOWS),
    *(flows.TRANSITIONS, import_records.IMPORTED_ROWS, ledger.LEDGER, state.STATE, steps.STEPS, tokens.TOKENS),
)
"""The logged tables whose rows are read and written through a descriptor."""
_LOGGED: Final[tuple[LoggedTable, ...]] = (
    *(table.logged for table in TABLES),
    *(*erasures.LOGGED, *evaluations.LOGGED, *lockdown.LOGGED, *prunings.LOGGED, *restores.LOGGED, *startup.LOGGED),
    *(*commits.LOGGED, *refs.LOGGED, *skills.LOGGED),
)

LOGGED: Final[Mapping[str, LoggedTable]] = {each.table: each for each in sorted(_LOGGED, key=lambda each: each.table)}
"""The tables under the log, by name."""

OUTSIDE: Final = frozenset(
    [
        # They are the log, or prove themselves by a signature.
        *("log_leaves", "log_tiles", "log_stems", "log_state", "log_pending", "log_witnesses", "log_cosignatures"),
        # Facts about the store and its connections.
        *("store_facts", "commit_marks"),
        # Written while the store is locked too.
        *("access_logins", "access_events"),
        # Coordination: it matters while it lasts, and what comes of it is a transition, a step or an escalation.
        *("escalation_budget", "flow_calls", "flow_leases", "idempotency_cache", "intent_retry", "lock_fences"),
        *("resource_locks", "saga_dirty_state"),
        # Blocks that prove themselves by their hash, under the roots that refs and snapshots name, and what follows
        # from them.
        *(
            "objects",
            "object_history",
            "object_versions",
            "object_index",
            "object_text",
            "object_vectors",
            "sealed_blocks",
        ),
        # What frameworks store: too much of it for an entry each.
        *("threads", "thread_facts", "thread_lines", "thread_checkpoints", "thread_writes", "thread_blocks"),
        *("transcripts", "transcript_items", "notes", "note_vectors"),
    ]
)
"""The tables whose rows have no entries of their own."""
