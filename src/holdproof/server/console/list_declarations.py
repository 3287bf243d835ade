"""The pages that are one list, each declared: what it is called, which method gives its rows, and its columns."""

import json
from collections.abc import Mapping
from typing import Any, Final

from holdproof.model.times import END
from holdproof.server.console import memory_lists
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.console.list_pages import EmptyList, Filter, ListColumn, ListPage, Row

_FLOW: Final = ListColumn("flow_id", "flow", "flow")
_AGENT: Final = ListColumn("agent_id", "agent", "agent")
_TRUE: Final = {"yes": True, "no": False}


async def _check_evaluations(desk: Desk, rows: list[Row]) -> None:
    """Add what the store says of each evaluation's DBOM."""
    for row in rows:
        checked = await or_default(desk.store.dbom.verify(row["dbom"])) if row["dbom"] is not None else None
        row["verdict"] = "no DBOM" if checked is None else checked.verdict.word
        row["why"] = "imported without one" if checked is None else checked.why


def _read_rule(row: Row) -> None:
    """Show of a rule what it limits: its JSON also names what it left open."""
    rule = json.loads(row["rule"])
    parts = {name: value for name, value in rule.items() if value not in (None, END)}
    # The newest that went is known by its age and its id: the age says enough.
    row["rule"] = {name: value[0] if isinstance(value, list) else value for name, value in parts.items()}


EVALUATIONS: Final = ListPage(
    path="/evaluations",
    title="Evaluations",
    sub="Results that a judge scored, each with its signed DBOM.",
    resource="evaluations",
    method="list",
    at="timestamp",
    asks_time=True,
    columns=(
        ListColumn("evaluation_id", "evaluation", "evaluation"),
        ListColumn("score", "score", "number"),
        ListColumn("verdict", "verdict", "verdict", sorts=False),
        ListColumn("why", "why", sorts=False),
        ListColumn("dbom_hash", "DBOM", "id"),
        ListColumn("timestamp", "when", "time"),
    ),
    filters=(
        Filter("text", "Id", argument="text", placeholder="part of an id"),
        Filter("min", "Score from", argument="min_score", load=float, placeholder="0.5"),
        Filter("max", "to", argument="max_score", load=float, placeholder="1"),
        Filter("imported", "Imported", argument="imported", load=_TRUE.__getitem__, choices=("yes", "no")),
    ),
    complete=_check_evaluations,
    links=(("/evidence", "The log and its keys"),),
    empty=EmptyList(
        "No evaluation was submitted yet.",
        "A judge submits results, and gets each signed:",
        'await store.evaluations.submit(result, evaluation_id="b-17", score=0.82, intent=vector)',
    ),
)


def _read_answer(row: Row) -> None:
    """Tell answers of people from what nobody answered in time."""
    by = row["resolved_by"]
    row["how"] = "expired" if by == "deadline" else "answered" if by else "waits"


def _escalations(path: str, title: str, sub: str, at: str, empty: EmptyList, **more: Any) -> ListPage:
    """Declare a list of escalations whose range of time is that of one of their moments."""
    times = {"created_at": "asked", "resolved_at": "answered"}
    return ListPage(
        path=path,
        title=title,
        sub=sub,
        resource="escalations",
        method="list",
        at=at,
        live="escalation resolution",
        facts=("outcome",),
        shape=_read_answer,
        columns=(
            ListColumn("reason", "escalation", "escalation"),
            _AGENT,
            ListColumn("impact", "impact", "badge"),
            ListColumn("outcome", "outcome", "outcome"),
            ListColumn("resolved_by", "by", "people"),
            ListColumn("comment", "comment"),
            ListColumn(at, times[at], "time"),
        ),
        filters=(
            Filter("by", "Answered by", argument="answered_by", placeholder="ann"),
            Filter("agent", "Agent", "agent_id", argument="agent_id", facet=True),
            Filter("how", "Answer", "how", choices=("answered", "expired", "waits")),
            Filter("outcome", "Outcome", "outcome", facet=True),
            Filter("impact", "Impact", "impact", argument="impact", choices=("HIGH_IMPACT", "LOW_IMPACT")),
            Filter("flow", "Flow", "flow_id", argument="flow_id", placeholder="a flow's id"),
        ),
        empty=empty,
        **more,
    )


ESCALATIONS: Final = _escalations(
    "/escalations",
    "Escalations",
    "All that agents asked people, whether it waits or was answered.",
    "created_at",
    EmptyList(
        "Nothing was asked yet.",
        "A flow asks a person and waits for the answer:",
        'await flow.approve("Over the limit", proposal={"limit_eur": 42_000})',
    ),
    links=(("/inbox", "What waits"),),
)

DECIDED: Final = _escalations(
    "/inbox/decided",
    "What was decided",
    "Every answer, with who gave it, when, and why; and what expired unanswered.",
    "resolved_at",
    EmptyList(
        "No answer was given yet.",
        "Every answer stays here. Whoever may answer does so in the inbox, or in a terminal:",
        "holdproof escalations answer",
    ),
    arguments=lambda _: {"status": "RESOLVED"},
    links=(("/inbox", "What waits"), ("/escalations", "All escalations")),
)

CALLS: Final = ListPage(
    path="/calls",
    title="Calls",
    sub="Calls that run once, by their key. One that was started and never finished is unknown: it may have happened.",
    resource="idempotency",
    method="list",
    at="created_at",
    newest_first=False,
    columns=(
        ListColumn("key", "key"),
        ListColumn("state", "state", "badge"),
        ListColumn("created_at", "begun", "time"),
        ListColumn("expires_at", "forgotten", "time"),
        ListColumn("error", "error"),
        ListColumn("request_hash", "request", "id"),
    ),
    filters=(
        Filter(
            "state", "State", "state", argument="state", choices=("UNKNOWN", "RUNNING", "DONE", "FAILED"), facet=True
        ),
    ),
    empty=EmptyList(
        "No call was made under a key.",
        "A call runs once for its key, however often it is made. What became of an unknown one, a person says:",
        "holdproof idempotency settle o-17 '{\"paid\": true}'",
    ),
)

LOCKS: Final = ListPage(
    path="/locks",
    title="Locks",
    sub="What flows hold now. Others wait for it, until it is released or its time is up.",
    resource="locks",
    method="list",
    at="acquired_at",
    newest_first=False,
    live="flow",
    columns=(
        ListColumn("resource_id", "resource"),
        _FLOW,
        ListColumn("amount", "amount", "number"),
        ListColumn("capacity", "of", "number"),
        ListColumn("acquired_at", "since", "time"),
        ListColumn("expires_at", "free at the latest", "time"),
        ListColumn("fence", "fence", "number"),
    ),
    filters=(
        Filter("resource", "Resource", "resource_id", argument="resource", facet=True),
        Filter("flow", "Flow", "flow_id", argument="flow_id", placeholder="a flow's id"),
    ),
    empty=EmptyList(
        "Nothing is held.",
        "A flow takes what no other may use meanwhile, whole or in amounts:",
        'await store.locks.acquire(flow_id, {"ledger/2026-11": 1.0})',
    ),
)

LEDGER: Final = ListPage(
    path="/ledger",
    title="Ledger",
    sub="The one verified intent of each flow, as it was committed before anything was done.",
    resource="ledger",
    method="list",
    at="committed_at",
    live="flow",
    columns=(
        ListColumn("id", "entry", "number"),
        _FLOW,
        _AGENT,
        ListColumn("intent", "intent", "json"),
        ListColumn("evidence_hash", "evidence", "id"),
        ListColumn("context_ref", "context"),
        ListColumn("committed_at", "committed", "time"),
    ),
    filters=(Filter("agent", "Agent", "agent_id", argument="agent_id", facet=True),),
    empty=EmptyList(
        "No intent was committed.",
        "A flow commits what it is about to do, once:",
        "await store.ledger.append(flow_id, intent, context_ref=ref, evidence_hash=digest)",
    ),
)

BLOBS: Final = ListPage(
    path="/blobs",
    title="Blobs",
    sub="Bytes by key, checked by their hash at every read.",
    resource="blobs",
    method="list_stats",
    at="put_at",
    newest_first=False,
    columns=(
        ListColumn("key", "key"),
        ListColumn("size", "size", "bytes"),
        ListColumn("content_type", "type"),
        ListColumn("place", "place", "badge"),
        ListColumn("sha256", "SHA-256", "id"),
        ListColumn("put_at", "written", "time"),
    ),
    filters=(
        Filter("prefix", "Keys that begin with", argument="prefix", placeholder="backups/"),
        Filter("type", "Type", "content_type", facet=True),
        Filter("place", "Place", "place", facet=True),
    ),
    empty=EmptyList(
        "No blob is stored.",
        "Bytes are stored under a key:",
        'await store.blobs.put("notes/today.txt", b"...", content_type="text/plain")',
    ),
)

VECTORS: Final = ListPage(
    path="/vectors",
    title="Vectors",
    sub="What can be found by likeness, with its metadata; the numbers are left out.",
    resource="vectors",
    method="list",
    at="embedded_at",
    newest_first=False,
    columns=(
        ListColumn("id", "vector"),
        ListColumn("metadata", "metadata", "json"),
        ListColumn("model", "model"),
        ListColumn("embedded_at", "embedded", "time"),
    ),
    filters=(
        Filter("prefix", "Ids that begin with", argument="prefix", placeholder="note-"),
        Filter("model", "Model", "model", facet=True),
    ),
    empty=EmptyList(
        "No vector is stored.",
        "A vector is stored under an id, with what searches filter by:",
        'await store.vectors.add("note-1", [0.1, 0.9], {"kind": "note"})',
    ),
)

SKILLS: Final = ListPage(
    path="/skills",
    title="Skills",
    sub="Files that agents act by: only what was approved is loaded, and only as it was approved.",
    resource="skills",
    method="list",
    at="approval.approved_at",
    newest_first=False,
    columns=(
        ListColumn("path", "skill"),
        ListColumn("state", "state", "badge"),
        ListColumn("approval.approved_by", "said by"),
        ListColumn("approval.approved_at", "when", "time"),
        ListColumn("approval.comment", "comment"),
        ListColumn("lockdown.reason", "locked because"),
        ListColumn("approval.root", "root", "id"),
    ),
    filters=(
        Filter("state", "State", "state", choices=("APPROVED", "LOCKED", "REVOKED", "INVALID"), facet=True),
        Filter("by", "Said by", "approval.approved_by", facet=True),
    ),
    empty=EmptyList(
        "No skill was approved.",
        "Somebody reads a file and approves it, where it lies:",
        "holdproof skills approve skills/deploy.org --by ada --comment reviewed",
    ),
)

RETENTION: Final = ListPage(
    path="/retention",
    title="Retention",
    sub="What had its time and was removed, by which rule and by whom. Every proof stays whole.",
    resource="retention",
    method="list",
    at="pruned_at",
    columns=(
        ListColumn("pruned_at", "when", "time"),
        ListColumn("what", "what"),
        ListColumn("count", "removed", "number"),
        ListColumn("rule", "rule", "json"),
        ListColumn("who", "by"),
        ListColumn("id", "batch", "id"),
    ),
    shape=_read_rule,
    filters=(Filter("what", "What", "what", facet=True), Filter("who", "By", "who", facet=True)),
    links=(("/holds", "Floors and legal holds"),),
    empty=EmptyList(
        "Nothing was removed.",
        "Retention removes what is older than a rule says:",
        "holdproof retention prune flows --older-than-days 90 --dry-run",
    ),
)

HOLDS: Final = ListPage(
    path="/holds",
    title="Floors and holds",
    sub="What stays, whatever retention says: records for so many days at least, or until a hold is lifted.",
    resource="retention",
    method="rules",
    paged=False,
    at="set_at",
    arguments=lambda _: {"all": True},
    columns=(
        ListColumn("kind", "rule", "badge"),
        ListColumn("scope", "of"),
        ListColumn("target", "which", "id"),
        ListColumn("days", "days", "number"),
        ListColumn("reason", "reason"),
        ListColumn("set_at", "since", "time"),
        ListColumn("lifted_at", "lifted", "time"),
        ListColumn("lift_reason", "lifted because"),
    ),
    filters=(Filter("kind", "Rule", "kind", choices=("floor", "hold")), Filter("scope", "Of", "scope", facet=True)),
    links=(("/retention", "What was removed"),),
    empty=EmptyList(
        "There is no floor and no hold.",
        "Root signs that records stay:",
        "holdproof retention hold --flow-id order-1 --reason 'case 4711'",
    ),
)


def _backup_folder(desk: Desk) -> Mapping[str, Any] | None:
    folder = desk.state.store.context.settings.backups.folder
    return None if folder is None else {"folder": str(folder)}


BACKUPS: Final = ListPage(
    path="/backups",
    title="Backups",
    sub="Copies of the whole store, in the folder that the settings name. One that is damaged says so.",
    resource="backup",
    method="list",
    at="created_at",
    arguments=_backup_folder,
    columns=(
        ListColumn("created_at", "made", "time"),
        ListColumn("path", "where"),
        ListColumn("bytes", "bytes", "bytes"),
        ListColumn("size", "log entries", "number"),
        ListColumn("backend", "database"),
        ListColumn("keys", "with keys"),
        ListColumn("trust", "checked"),
    ),
    filters=(Filter("backend", "Database", "backend", facet=True),),
    empty=EmptyList(
        "There is no backup.",
        "The server makes them by itself once its config.yaml names a folder:",
        "backups: {folder: /mnt/backups, every_s: 3600, keep: 24}",
    ),
)

TENANTS: Final = ListPage(
    path="/tenants",
    title="Tenants",
    sub="Stores of their own below this one, whose heads its log records. One whose log is not believed says why.",
    resource="tenants",
    method="list",
    at="created_at",
    newest_first=False,
    columns=(
        ListColumn("name", "tenant"),
        ListColumn("status", "status", "badge"),
        ListColumn("finding", "finding"),
        ListColumn("size", "log entries", "number"),
        ListColumn("recorded_at", "recorded", "time"),
        ListColumn("place", "database"),
        ListColumn("created_at", "created", "time"),
    ),
    filters=(Filter("status", "Status", argument="status", choices=("active", "creating", "deleting", "deleted")),),
    empty=EmptyList(
        "There is no tenant.",
        "A tenant has its own log, keys and backups, and is exported, moved and deleted as a whole:",
        "holdproof tenants create acme",
    ),
)

ACCESS_LOG: Final = ListPage(
    path="/access/log",
    title="Accesses",
    sub="Who came in and who was refused; the same within a minute is one row, with how often.",
    resource="access_log",
    method="list",
    at="created_at",
    columns=(
        ListColumn("event", "event", "badge"),
        ListColumn("caller", "who"),
        ListColumn("address", "from"),
        ListColumn("method", "method"),
        ListColumn("path", "what"),
        ListColumn("detail", "why"),
        ListColumn("count", "times", "number"),
        ListColumn("created_at", "when", "time"),
    ),
    filters=(
        Filter("event", "Event", "event", argument="event", facet=True),
        Filter("caller", "Who", "caller", facet=True),
        Filter("address", "From", "address", facet=True),
    ),
    links=(("/access", "Who may come in"),),
    empty=EmptyList(
        "Nobody came in and nobody was refused.",
        "Logins and refused requests are written down as they happen:",
        "holdproof access-log list --event denied",
    ),
)

TOKENS: Final = ListPage(
    path="/access/tokens",
    title="Tokens",
    sub="Every token that was made, also those that have ended; the secret was shown once and is not here.",
    resource="tokens",
    method="list",
    at="created_at",
    arguments=lambda _: {"all": True},
    columns=(
        ListColumn("name", "name"),
        ListColumn("role", "role", "badge"),
        ListColumn("agent_id", "agent", "agent"),
        ListColumn("created_by", "made by"),
        ListColumn("last_used_at", "last used", "time"),
        ListColumn("expires_at", "ends", "time"),
        ListColumn("revoked_at", "revoked", "time"),
        ListColumn("created_at", "made", "time"),
    ),
    filters=(Filter("role", "Role", "role", facet=True), Filter("maker", "Made by", "created_by", facet=True)),
    links=(("/access", "Who may come in"),),
    empty=EmptyList(
        "No token was made.",
        "Programs and people come in by a token:",
        "holdproof tokens create my-program --role operator",
    ),
)

LISTS: Final = (
    ESCALATIONS,
    DECIDED,
    CALLS,
    ACCESS_LOG,
    TOKENS,
    EVALUATIONS,
    LOCKS,
    LEDGER,
    BLOBS,
    VECTORS,
    SKILLS,
    RETENTION,
    HOLDS,
    BACKUPS,
    TENANTS,
    *memory_lists.LISTS,
)
