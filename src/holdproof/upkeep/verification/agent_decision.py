"""A flow as an attestation: an in-toto predicate about what an agent decided, and what came of it.

After draft-gilda-audit-agent-audit-record: a decision, the observed effect, how fresh the record is, and whether the
two agree. Of proven records only.

Rules:
- No content: of inputs, results and answers it names the entries of the log, whose hashes are salted. What stands in
  them is in the bundle, for whoever may see it.
- `agreement` is computed, never claimed: `unknown` while the flow runs or where a step is in doubt; `no` where a flow
  that did not complete left a step standing that has something to undo it, or where one that completed undid a step;
  else `yes`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from holdproof.crypto import canonical, statement
from holdproof.crypto.canonical import Json
from holdproof.crypto.statement import ResourceDescriptor, Statement
from holdproof.upkeep.verification.offline import ProvenRecord

PREDICATE_TYPE: Final = "urn:holdproof:agent-decision:v1"

Agreement = Literal["yes", "no", "unknown"]
_ENDED: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED", "COMPENSATED"})
_SETTLED: Final = frozenset({"DONE", "FAILED"})
"""The states in which a flow and a step stay."""


def encode(flow_id: str, records: Sequence[ProvenRecord], head: Mapping[str, Any]) -> bytes:
    """Return the statement about a flow as canonical bytes; its subject is the record that opened the flow."""
    (opening,) = _of(records, "decision_flows")
    digest = canonical.sha256_hex(canonical.dumps(dict(opening.content)))
    subject = ResourceDescriptor({"sha256": digest}, flow_id)
    return statement.encode(Statement((subject,), PREDICATE_TYPE, _predicate(opening, records, head)))


def _predicate(opening: ProvenRecord, records: Sequence[ProvenRecord], head: Mapping[str, Any]) -> dict[str, Json]:
    flow = opening.content
    moves = _of(records, "flow_transitions")
    status = str(moves[-1].content["to_status"]) if moves else "CREATED"
    steps = _of(records, "flow_steps")
    return {
        "agent": {"id": flow["agent_id"], "flow_type": flow["flow_type"], "flow_version": flow["flow_version"]},
        "decision": {
            "status": status,
            "opened_at": flow["created_at"],
            "decided_at": moves[-1].content["created_at"] if moves else None,
            "inputs": [each.index for each in _of(records, "flow_calls")],
            "policies": [_policy(each) for each in _of(records, "policy_decisions")],
            "approvals": [_approval(each) for each in _of(records, "escalation_requests")],
        },
        "observed_effect": [_step(each) for each in steps],
        "freshness": {"newest_entry_at": max(each.at for each in records), "head": dict(head)},
        "agreement": agreement(status, [each.content for each in steps]),
    }


def _of(records: Sequence[ProvenRecord], table: str) -> list[ProvenRecord]:
    return sorted((each for each in records if each.table == table), key=lambda each: each.index)


def _step(record: ProvenRecord) -> dict[str, Json]:
    row = record.content
    named: dict[str, Json] = {name: row[name] for name in ("name", "n", "state", "compensates", "finished_at")}
    return {**named, "entry": record.index}


def _approval(record: ProvenRecord) -> dict[str, Json]:
    row = record.content
    return {"outcome": row["status"], "by": row["resolved_by"], "at": row["resolved_at"], "entry": record.index}


def _policy(record: ProvenRecord) -> dict[str, Json]:
    row = record.content
    named: dict[str, Json] = {name: row[name] for name in ("decision", "action", "resource", "policy_hash")}
    return {**named, "entry": record.index}


def agreement(status: str, steps: Sequence[Mapping[str, Any]]) -> Agreement:
    """Compare the status of a flow with the states of its steps."""
    if status not in _ENDED or any(step["state"] not in _SETTLED for step in steps):
        return "unknown"
    done = [step for step in steps if step["state"] == "DONE"]
    undone = {step["compensates"] for step in done if step["compensates"]}
    if status == "COMPLETED":
        return "no" if undone else "yes"
    # Only a step that was declared with what undoes it can stand where it should not: others have no effect to undo.
    standing = {f"{step['name']} {step['n']}" for step in done if step["undo"]} - undone
    return "no" if standing else "yes"
