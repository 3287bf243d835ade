"""Decisions of policies: recorded before the act, and decided again under a draft.

Rules:
- A decision is recorded with its entry in the transaction of the act that it allows, or of the escalation that it asks
  for. One that denies is recorded too: with the step that fails by it, or in a transaction of its own.
- What it was decided on (the request) is stored sealed where it is a person's, and erased with that person; then the
  hash of the inputs is left, which tells nothing without that person's key.
- Of inputs that are not to be recorded, as those of a memory write that names no person, the hash alone is kept, and no
  message of the engine that may quote them.
- `reevaluate` reads; it decides about what was recorded, and writes nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdproof import paging, validation
from holdproof.crypto import canonical
from holdproof.db import Tx, sql
from holdproof.evidence import logged_tables
from holdproof.evidence.tables import Table, numbered
from holdproof.model import jsontext
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.policies import ACTIONS, DECISIONS, PolicyDecision, PolicyDifference, Reevaluation
from holdproof.model.times import BEGINNING
from holdproof.policy import engine, policies
from holdproof.policy.engine import CompiledPolicies, Ruling
from holdproof.policy.requests import PolicyRequest
from holdproof.runtime import recorded

POLICY_DECISIONS: Final = Table(
    "policy_decisions",
    PolicyDecision,
    kind="policy",
    key="id",
    logged=(
        *("id", "dfid", "agent_id", "action", "resource", "n", "decision", "policy_hash", "inputs_hash", "request"),
        *("reasons", "escalation", "decided_at", "ns"),
    ),
    loads={"reasons": jsontext.load},
)
_DRAFT: Final = "draft"
"""The name of the policy that `reevaluate` is given, unless it takes the place of another."""
_NEXT = numbered("SELECT {id}", "policy_decisions")
_ADD = sql(POLICY_DECISIONS.insert())


def record(
    tx: Tx,
    request: PolicyRequest,
    ruling: Ruling,
    policy_hash: str,
    *,
    flow_id: str | None,
    n: int = 1,
    subject: str | None = None,
    escalation: int | None = None,
    ns: str,
) -> PolicyDecision:
    """Write a decision, with its entry; `subject` is the handle of the person whose inputs they are."""
    [(number,)] = tx.all(_NEXT)
    # Messages of the engine may quote inputs; a person's stand nowhere in the clear, nor what is not to be recorded.
    quotable = ruling if subject is None and request.keeps_inputs else ruling.without_values()
    row = {
        "id": number,
        "dfid": flow_id,
        "agent_id": request.agent_id,
        "action": request.action,
        "resource": request.resource,
        "n": n,
        "decision": ruling.decision,
        "policy_hash": policy_hash,
        "inputs_hash": inputs_hash_of(tx, request, subject=subject),
        "request": recorded.store(tx, request.text(), subject),
        "reasons": canonical.dump_text([*quotable.reasons]),
        "escalation": escalation,
        "decided_at": tx.now,
        "ns": ns,
    }
    POLICY_DECISIONS.add(tx, _ADD, row)
    return POLICY_DECISIONS.from_columns(row)


def inputs_hash_of(tx: Tx, request: PolicyRequest, *, subject: str | None) -> str:
    """Return the hash of a request's inputs, as its decision has it."""
    return recorded.fingerprint(tx, request.inputs(), subject)


_OF_ACT = logged_tables.selecting(
    POLICY_DECISIONS.logged,
    "id",
    "t.dfid = :dfid AND t.ns = :ns AND t.action = :action AND t.resource = :resource AND t.n = :n"
    " AND t.decision = 'ask'",
)
_PENDING = logged_tables.selecting(
    POLICY_DECISIONS.logged,
    "id",
    "t.dfid = :dfid AND t.ns = :ns AND t.decision = 'ask' AND EXISTS (SELECT 1 FROM escalation_requests e"
    " WHERE e.id = t.escalation AND e.status = 'PENDING')",
)


def asked(tx: Tx, flow_id: str, action: str, resource: str, n: int, *, ns: str) -> PolicyDecision | None:
    """Return the decision that asked about an act of a flow, compared with the log; None for none."""
    params = {"dfid": flow_id, "action": action, "resource": resource, "n": n, "ns": ns}
    rows = logged_tables.confirm(tx, POLICY_DECISIONS.logged, _OF_ACT, **params)
    return next((POLICY_DECISIONS.from_columns(row) for row in reversed(rows)), None)


def pending(tx: Tx, flow_id: str, *, ns: str) -> int | None:
    """Return an escalation that a policy asked for about a flow, and nobody has answered; None for none."""
    return next(iter(every_pending(tx, flow_id, ns=ns)), None)


def every_pending(tx: Tx, flow_id: str, *, ns: str) -> tuple[int, ...]:
    """Return the escalations that policies asked for about a flow, and nobody has answered, compared with the log."""
    rows = logged_tables.confirm(tx, POLICY_DECISIONS.logged, _PENDING, dfid=flow_id, ns=ns)
    return tuple(row["escalation"] for row in rows)


_LATEST = logged_tables.selecting(
    POLICY_DECISIONS.logged,
    "id",
    "t.id = (SELECT max(d.id) FROM policy_decisions d WHERE d.ns = :ns AND d.agent_id = :agent_id"
    " AND d.action = :action AND d.resource = :resource AND d.inputs_hash = :inputs_hash)",
)


def latest(tx: Tx, request: PolicyRequest, *, subject: str | None, ns: str) -> PolicyDecision | None:
    """Return the newest decision about an act of an agent with the same inputs, compared with the log."""
    params = {"agent_id": request.agent_id, "action": request.action, "resource": request.resource}
    inputs_hash = inputs_hash_of(tx, request, subject=subject)
    for row in logged_tables.confirm(tx, POLICY_DECISIONS.logged, _LATEST, **params, inputs_hash=inputs_hash, ns=ns):
        return POLICY_DECISIONS.from_columns(row)
    return None


# --- reading -----------------------------------------------------------------------------------------------------

# By number: rows are only added, so that the newest has the largest.
_LIST = sql(
    POLICY_DECISIONS.select(
        "WHERE id < :before AND ns = :ns AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id)"
        " AND (CAST(:flow_id AS TEXT) IS NULL OR dfid = :flow_id)"
        " AND (CAST(:action AS TEXT) IS NULL OR action = :action)"
        " AND (CAST(:decision AS TEXT) IS NULL OR decision = :decision) ORDER BY id DESC LIMIT :limit"
    )
)


def list(
    tx: Tx,
    *,
    agent_id: str | None = None,
    flow_id: str | None = None,
    action: str | None = None,
    decision: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Page[PolicyDecision]:
    """List what policies decided, newest first."""
    if action is not None:
        validation.one_of("action", action, ACTIONS)
    if decision is not None:
        validation.one_of("decision", decision, DECISIONS)
    filters = {"agent_id": agent_id, "flow_id": flow_id, "action": action, "decision": decision}
    return POLICY_DECISIONS.page(tx, _LIST, cursor, limit, ns=ns, **filters)


# --- hindsight ---------------------------------------------------------------------------------------------------

_SINCE = logged_tables.selecting(
    POLICY_DECISIONS.logged,
    "id",
    "t.ns = :ns AND t.id IN (SELECT d.id FROM policy_decisions d WHERE d.ns = :ns AND d.id > :after"
    " AND d.decided_at >= :since ORDER BY d.id LIMIT :limit)",
)


def reevaluate(
    tx: Tx,
    draft: str,
    *,
    since: str | None = None,
    name: str | None = None,
    cursor: str | None = None,
    limit: int = 1000,
    ns: str = MAIN,
) -> Reevaluation:
    """Decide recorded decisions again under a draft, oldest first, and list those that would differ.

    The draft decides alone; with `name` it takes the place of that policy beside the others that are active. `limit`
    decisions are examined at most, each compared with its entry in the log; go on with `next_cursor`. Raises
    PolicySyntaxError for a draft that is not Cedar.
    """
    engine.check(draft)
    compiled = CompiledPolicies(_with_draft(tx, draft, name, ns).items())
    (after,) = paging.decode(cursor, 0)
    start = BEGINNING if since is None else validation.moment("since", since)
    params = {"ns": ns, "after": after, "since": start, "limit": paging.fetch(limit)}
    rows = logged_tables.confirm(tx, POLICY_DECISIONS.logged, _SINCE, **params)
    page = paging.page(rows, limit, lambda row: (row["id"],))
    unknown = 0
    differences = []
    for row in page.items:
        request = _request(tx, row)
        if request is None:
            unknown += 1
            continue
        ruling = compiled.decide(request)
        if ruling.decision != row["decision"]:
            differences.append(_difference(row, ruling))
    return Reevaluation(len(page.items), unknown, tuple(differences), page.next_cursor)


def _with_draft(tx: Tx, draft: str, name: str | None, ns: str) -> dict[str, str]:
    """Return the texts that decide, by policy."""
    if name is None:
        return {_DRAFT: draft}
    current = policies.active(tx, ns=ns)
    return {**({} if current is None else current.texts), validation.name("name", name): draft}


def _request(tx: Tx, row: Mapping[str, Any]) -> PolicyRequest | None:
    """Return what was decided about; None once it was erased with its person, or if inputs were not to be recorded."""
    parts = recorded.load(tx, row["request"])
    if parts.get("context") is None:
        return None
    return PolicyRequest.parse(row["agent_id"], row["action"], row["resource"], parts)


def _difference(row: Mapping[str, Any], ruling: Ruling) -> PolicyDifference:
    return PolicyDifference(
        id=row["id"],
        flow_id=row["dfid"],
        agent_id=row["agent_id"],
        action=row["action"],
        resource=row["resource"],
        decided_at=row["decided_at"],
        decision=row["decision"],
        draft=ruling.decision,
        reasons=ruling.reasons,
    )
