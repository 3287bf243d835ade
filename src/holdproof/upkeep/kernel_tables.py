"""Every table of the kernel schema: those whose rows have entries in the log, and those outside it.

`verify` walks what is listed here, whatever else a process has imported. A new table or column must be declared: a test
compares the declarations with the schema, and docs/format.md and docs/threat-model.md are made from them.
"""

from collections.abc import Mapping
from typing import Final

from holdproof.access import passkeys, tokens
from holdproof.evidence import (
    accesses,
    anchors,
    archives,
    erasures,
    evaluations,
    import_records,
    lockdown,
    prunings,
    restores,
    retention_rules,
    startup,
    tenant_limits,
    tenants,
    timestamps,
    verifications,
    witness_disputes,
    witnesses,
)
from holdproof.evidence.logged_tables import LoggedTable
from holdproof.memory.objects import commits, refs
from holdproof.memory.skills import skills
from holdproof.memory.threads import thread_entries
from holdproof.model.coverage import Columns, Cover, columns, not_covered
from holdproof.policy import policies
from holdproof.runtime import (
    agents,
    approvals,
    audit,
    calls,
    contexts,
    escalation_rows,
    feedback,
    flows,
    ledger,
    messages,
    people,
    policy_decisions,
    promises,
    published,
    queues,
    schedule_rows,
    state,
    steps,
    streams,
)
from holdproof.upkeep import outbox

TABLES: Final = (
    *(agents.AGENTS, audit.AUDIT, contexts.CONTEXT, escalation_rows.ESCALATIONS, evaluations.EVALUATIONS),
    *(calls.CALLS, feedback.FEEDBACK, flows.FLOWS),
    *(
        flows.TRANSITIONS,
        import_records.IMPORTED_ROWS,
        ledger.LEDGER,
        queues.QUEUES,
        schedule_rows.SCHEDULES,
        state.STATE,
        steps.STEPS,
        tokens.TOKENS,
    ),
    *(approvals.ANSWERS, approvals.MESSAGES, outbox.NOTIFICATIONS, passkeys.PASSKEYS),
    *(people.DELEGATIONS, people.PEOPLE),
    *(retention_rules.RULES, tenant_limits.RULES),
    *(messages.MESSAGES, promises.PROMISES, published.VALUES, streams.ITEMS),
    *(policies.POLICIES, policies.SETS, policy_decisions.POLICY_DECISIONS),
)
"""The logged tables whose rows are read and written through a descriptor."""
_LOGGED: Final[tuple[LoggedTable, ...]] = (
    *(table.logged for table in TABLES),
    *(*erasures.LOGGED, *lockdown.LOGGED, *prunings.LOGGED, *restores.LOGGED, *startup.LOGGED),
    *(
        *accesses.LOGGED,
        *anchors.LOGGED,
        *archives.LOGGED,
        *tenants.LOGGED,
        *timestamps.LOGGED,
        *verifications.LOGGED,
        *witness_disputes.LOGGED,
        *witnesses.LOGGED,
    ),
    *(*commits.LOGGED, *refs.LOGGED, *skills.LOGGED, *thread_entries.LOGGED),
)

LOGGED: Final[Mapping[str, LoggedTable]] = {each.table: each for each in sorted(_LOGGED, key=lambda each: each.table)}
"""The tables under the log, by name."""

_THE_LOG: Final = "they are the log: recomputed with --full, and compared with the signed head"
_FRAMEWORKS: Final = "what frameworks store, too much of it for an entry each: an edit is not found"
_LASTS: Final = "matters while a flow runs, and is written too often for an entry each; what comes of it has one"

UNLOGGED: Final[Mapping[str, Columns]] = {
    "log_leaves": columns("idx id ver leaf", Cover.ENTRY, _THE_LOG),
    "log_tiles": columns("level idx hashes", Cover.ENTRY, _THE_LOG),
    "log_stems": columns("level idx hash", Cover.ENTRY, _THE_LOG),
    "log_state": {
        **columns("id origin size frontier head", Cover.ENTRY, _THE_LOG),
        **columns("updated_at", Cover.NONE, "when the head was signed; nothing goes by it"),
    },
    "log_streams": {
        **columns("stream salt agent_id kind ns", Cover.HASHED, "`stream`, which the entries name"),
        **columns("n", Cover.REBUILT, "the numbers in the entries, with --full"),
    },
    "log_pending": columns(
        "seq id ver leaf agent_id dfid sourced",
        Cover.NONE,
        "entries that wait to be signed: who can write here can append to the log",
    ),
    "log_cosignatures": {
        **columns("origin size head", Cover.HASHED, "the witness's own signature"),
        **columns("url cosigned_at", Cover.NONE, "where and when a cosignature was received"),
    },
    "store_facts": columns(
        "key value updated_at",
        Cover.NONE,
        "the store's id is compared with the log's; an edited time of creation is not found; with another secret for"
        " names, subjects are not found by their names",
    ),
    "tenant_usage": columns(
        "ns minute entries bytes",
        Cover.NONE,
        "what namespaces with limits wrote: an edited count lets one write more than its limit, or nothing",
    ),
    "commit_marks": columns("worker mark at", Cover.NONE, "tells a worker whether its last commit arrived"),
    "access_logins": columns(
        "login_id kind token_id name role secret_hash created_at expires_at ended_at ns credential_id",
        Cover.NONE,
        "links and sessions: written while the store is locked too; one that was added lets somebody in",
    ),
    "access_events": columns(
        "id event status code caller address method path detail count created_at",
        Cover.NONE,
        "the access log: written while the store is locked too",
    ),
    "idempotency_cache": columns(
        "idempotency_key request_hash result created_at expires_at state owner lease_until error ns",
        Cover.NONE,
        "results of calls with an idempotency key: a repeated call gets what stands here, and runs again without it",
    ),
    "flow_leases": {
        **columns("queue partition_key priority", Cover.REBUILT, "the flow and its call, and again before it is run"),
        **columns("dfid worker token heartbeat_at expires_at ns", Cover.NONE, _LASTS),
        **columns(
            "waits_for previous_worker previous_heartbeat_at",
            Cover.NONE,
            "for people only: nothing is decided by it, and a worker that was lost has an entry of its own (audit)",
        ),
    },
    "queue_starts": columns("dfid queue started_at ns", Cover.NONE, _LASTS),
    "workers": columns(
        "worker_id name host pid functions queues concurrency running state started_at heartbeat_at ns",
        Cover.NONE,
        "what workers say of themselves, for people and metrics: flows go by their leases",
    ),
    "flow_attributes": columns("dfid ns key value", Cover.REBUILT, "`attributes` of the flow"),
    "resource_locks": columns("resource_id dfid amount acquired_at expires_at capacity fence ns", Cover.NONE, _LASTS),
    "lock_fences": columns("ns resource_id fence", Cover.NONE, _LASTS),
    "intent_retry": columns(
        "dfid rejection_count max_retries retry_policy next_retry_at backoff_until updated_at ns", Cover.NONE, _LASTS
    ),
    "passkey_challenges": columns(
        "challenge purpose person nonce origin escalation_id statement_hash expires_at used_at ns",
        Cover.NONE,
        "what somebody was asked to sign, for minutes; the signature is verified, and part of the answer's entry",
    ),
    "notification_deliveries": columns(
        "notification_id channel attempts next_at delivered_at problem",
        Cover.NONE,
        "what is still to be sent, written at every attempt; what was queued and how it ended have entries",
    ),
    "activity_hours": columns(
        "ns hour agent_id started completed failed cancelled escalations answers expired",
        Cover.NONE,
        "counts for overviews, made from rows that have entries; nothing is decided by them",
    ),
    "store_growth": columns(
        "hour at entries bytes", Cover.NONE, "sizes for charts; nothing is decided by them, and the log tells its own"
    ),
    "escalation_budget": columns("id agent_id created_at ns", Cover.NONE, _LASTS),
    "saga_dirty_state": columns("dfid failed_step partial_state_json created_at ns", Cover.NONE, _LASTS),
    "objects": columns("h data", Cover.REBUILT, "their hashes; refs, snapshots and the history name them"),
    "object_history": columns("ns entry cid data", Cover.REBUILT, "the chain, whose newest entry stands in `refs`"),
    "object_versions": columns("ns key n cid version at pruned_at", Cover.REBUILT, "the entries of the history"),
    "object_index": columns("ns key type parent cid", Cover.REBUILT, "the records of the tree"),
    "object_text": {
        **columns("ns key cid body", Cover.REBUILT, "the records of the tree"),
        **columns("id", Cover.NONE, "only a row number; the index of the text search goes by it"),
    },
    "object_search": columns("body", Cover.REBUILT, "the words of `object_text`, with --full; SQLite only"),
    "object_vectors": columns("ns key cid dimensions vector", Cover.REBUILT, "the volatile fields of the tree"),
    "sealed_blocks": columns(
        "subject cid what", Cover.NONE, "only counts what an erasure made unreadable; envelopes say the same"
    ),
    "thread_checkpoints": {
        **columns("checkpoint_ns checkpoint_id parent_id run_id metadata state h", Cover.HASHED, "`h`"),
        **columns("n thread epoch created_at", Cover.NONE, _FRAMEWORKS),
    },
    "thread_blocks": {
        **columns("h data", Cover.HASHED, "`h`"),
        **columns("thread", Cover.NONE, _FRAMEWORKS),
    },
    "thread_writes": columns(
        "thread checkpoint_ns checkpoint_id task_id idx channel task_path value", Cover.NONE, _FRAMEWORKS
    ),
    "threads": columns(
        "n ns thread_id status status_of facts created_at updated_at deleted_at dead_id", Cover.NONE, _FRAMEWORKS
    ),
    "thread_facts": columns("ns key value thread", Cover.NONE, _FRAMEWORKS),
    "thread_lines": columns("thread checkpoint_ns epoch writes writer", Cover.NONE, _FRAMEWORKS),
    "transcripts": columns("n ns name rev last state subject created_at updated_at", Cover.NONE, _FRAMEWORKS),
    "transcript_items": columns("transcript seq key tag body", Cover.NONE, _FRAMEWORKS),
    "notes": {
        **columns("path key value h", Cover.HASHED, "`h`"),
        **columns("n ns subject ttl_s expires_at created_at updated_at", Cover.NONE, _FRAMEWORKS),
    },
    "note_vectors": {
        **columns("field vector", Cover.HASHED, "`h` of the note"),
        **columns("note dimensions", Cover.NONE, _FRAMEWORKS),
    },
}
"""The tables whose rows have no entries of their own, with how each of their columns is covered."""
OUTSIDE: Final = frozenset(UNLOGGED)

COVERAGE: Final[Mapping[str, Columns]] = {**{name: each.coverage for name, each in LOGGED.items()}, **UNLOGGED}
"""How every column of the kernel schema is covered."""
_SERVICES: Final = (
    "`membrane.db`, `telemetry.db`, `blobs/`: what applications store; rows may be edited, and all of it deleted or"
    " replaced by an older state or by that of another store; only damage and blobs that differ from their hash"
    " are found"
)
NOT_COVERED: Final = (*not_covered(COVERAGE), _SERVICES)
"""What `verify` cannot find when it was edited, one line for each reason; it prints these lines."""
