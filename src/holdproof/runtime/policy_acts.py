"""Acts that policies decide about when their caller asks: tool calls, memory writes, exports.

Flows and steps ask by themselves (policy_gate.py). Whoever carries out another act for an agent (a proxy, a hook, an
adapter, the server) calls `decide` right before it.

Rules:
- Allowed is recorded, and returned; denied is recorded, and PolicyDeniedError.
- Asked opens an escalation: in the flow that the act belongs to, or in one of its own. The act waits for its answer:
  called again with the same inputs, `decide` names the same escalation until that is answered, and then allows the act
  once, or denies it.
- The inputs of a memory write are recorded only for a person, sealed; of any other only their hash is.
- Without active policies everything is allowed, and nothing is recorded: the decision has the id 0.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdproof import validation
from holdproof.content import encryption
from holdproof.db import Refused, Tx
from holdproof.errors import IllegalTransitionError
from holdproof.model.flows import Flow
from holdproof.model.namespaces import MAIN
from holdproof.model.policies import ALLOW, ASK, DENY, PolicyDecision
from holdproof.policy.engine import Ruling
from holdproof.policy.requests import PolicyRequest, inputs_of
from holdproof.runtime import flows, inbox, policy_decisions, policy_gate
from holdproof.runtime.policy_gate import Decided

_WRITE: Final = "memory.write"
ACTS: Final = frozenset({"tool.call", _WRITE, "export"})
_OPENED_BY: Final = ("KERNEL", "policy")
"""Who created a flow that stands for one act which a policy asks about."""


def decide(
    tx: Tx,
    agent_id: str,
    action: str,
    resource: str,
    *,
    context: Mapping[str, Any] | None = None,
    flow_id: str | None = None,
    subject: str | None = None,
    ns: str = MAIN,
) -> PolicyDecision | Refused:
    """Let the active policies decide about an act of an agent that is about to happen, and record what they decide.

    `action` is tool.call, memory.write or export, `context` its inputs by name; with `subject` they are that person's,
    and sealed. Where the decision is `ask`, wait for the answer to its `escalation`, and call again. Raises
    PolicyDeniedError where it is denied.
    """
    validation.one_of("action", action, ACTS)
    flow = None if flow_id is None else flows.lock(tx, flow_id, ns=ns)
    handle = None if flow is None else flow.subject
    if handle is None and subject is not None:
        handle = encryption.label(tx, subject, ns=ns)
    inputs = inputs_of(lambda: context or {})
    request = PolicyRequest(
        validation.name("agent_id", agent_id),
        action,
        validation.name("resource", resource),
        context=inputs.context,
        within=None if flow is None else flow.flow_type,
        # What is written may be a person's although nobody says so, as where it replaces what was.
        keeps_inputs=action != _WRITE or handle is not None,
        problem=inputs.problem,
    )
    decided = policy_gate.decide(tx, request, ns=ns)
    if decided is None:
        digest = policy_decisions.inputs_hash_of(tx, request, subject=handle)
        return PolicyDecision(0, flow_id, agent_id, action, resource, 1, ALLOW, "", digest, [], None, tx.now, ns)
    if decided.ruling.decision == DENY:
        policy_gate.record_denial(tx, decided, flow_id=flow_id, n=1, subject=handle, ns=ns)
        return Refused(policy_gate.refusal(decided, flow_id=flow_id))
    if decided.ruling.decision == ASK:
        earlier = policy_decisions.latest(tx, decided.request, subject=handle, ns=ns)
        if earlier is not None and earlier.decision == ASK and flow_id in (None, earlier.flow_id):
            return _answered(tx, decided, earlier, handle, ns)
        return _ask(tx, decided, flow, handle, ns)
    digest = decided.policy_hash
    return policy_decisions.record(tx, decided.request, decided.ruling, digest, flow_id=flow_id, subject=handle, ns=ns)


def _ask(tx: Tx, decided: Decided, flow: Flow | None, subject: str | None, ns: str) -> PolicyDecision:
    """Open the escalation of an act, in its flow or in one of its own, which waits for the answer."""
    request = decided.request
    if flow is None:
        # Not governed: it stands for this act alone, about which policies have decided.
        opened = flows.open_flow(
            tx,
            request.agent_id,
            flow_type=request.action,
            created_by=_OPENED_BY,
            subject_handle=subject,
            governed=False,
            ns=ns,
        )
        flow = flows.transition(tx, opened.flow_id, "RUNNING", ns=ns)
    elif flow.status != "RUNNING":
        raise IllegalTransitionError(
            f"a policy asks about {request.action}, and only a RUNNING flow waits for that, not one that is"
            f" {flow.status}",
            flow_id=flow.flow_id,
            from_status=flow.status,
        )
    decision = policy_gate.let_pass(tx, decided, flow)
    assert decision.escalation is not None, "the policies ask"
    flows.await_policy(tx, flow, decision.escalation)
    return decision


def _answered(
    tx: Tx, decided: Decided, earlier: PolicyDecision, subject: str | None, ns: str
) -> PolicyDecision | Refused:
    """Return what came of an act that was asked about: still asked, allowed once, or denied."""
    assert earlier.escalation is not None, "written together"
    assert earlier.flow_id is not None, "an escalation has a flow"
    answer = inbox.confirmed(tx, earlier.escalation, ns=ns)
    if answer.status == "PENDING":
        return earlier
    word = ALLOW if answer.approved else DENY
    ruling = Ruling(word, decided.ruling.statements, (f"{answer.outcome} in escalation {answer.id}",))
    outcome = decided._replace(ruling=ruling)
    decision = policy_decisions.record(
        tx,
        decided.request,
        ruling,
        decided.policy_hash,
        flow_id=earlier.flow_id,
        subject=subject,
        escalation=answer.id,
        ns=ns,
    )
    flow = flows.get(tx, earlier.flow_id, ns=ns)
    if (flow.created_by_type, flow.created_by_id) == _OPENED_BY and flow.status == "RUNNING":
        # It stood for this act alone.
        flows.transition(tx, flow.flow_id, "COMPLETED", ns=ns)
    return decision if answer.approved else Refused(policy_gate.refusal(outcome, flow_id=earlier.flow_id))
