"""The gate before an act: active policies decide, their decision is recorded, and the act goes on, waits or is refused.

Rules:
- Without active policies everything is allowed, and nothing is recorded; the queries that acts make anyway say whether
  the namespace has policies (`policies.HAS_POLICIES`).
- Allowed: the decision is recorded in the transaction of the act.
- Denied: PolicyDeniedError. A flow that may not start, and an act outside of a flow, are rolled back, and the decision
  recorded in a transaction of its own before the caller hears of it (`HoldproofError.record`).
- Asked: an escalation in the flow, which waits; approved, the act goes on without being decided again. What is approved
  is the act with its inputs: the same step with others is NonDeterminismError, and nothing runs.
- Policies that cannot be read or asked deny. A row that was edited is TamperedError, and nothing runs.
- This module stands below flows.py and moves no flow.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from holdproof.content import encryption
from holdproof.crypto import canonical
from holdproof.db import Tx
from holdproof.errors import NonDeterminismError, NotFoundError, PolicyDeniedError
from holdproof.evidence import logged_tables
from holdproof.model import jsontext
from holdproof.model.flows import Flow
from holdproof.model.policies import ASK, DENY, PolicyDecision
from holdproof.policy import engine, policies
from holdproof.policy.engine import Ruling
from holdproof.policy.requests import Inputs, PolicyRequest, inputs_of, named_inputs, record_of
from holdproof.runtime import escalation_rows, policy_decisions, recorded
from holdproof.runtime.agents import AGENTS


class Decided(NamedTuple):
    """What active policies decided about a request: the ruling, and the hash of the policies."""

    request: PolicyRequest
    ruling: Ruling
    policy_hash: str


class Awaited(NamedTuple):
    """An escalation that a policy asked for, and whether it is about the act that waits for it."""

    escalation: int
    own: bool


_AGENT = logged_tables.selecting(AGENTS.logged, "agent_id", "t.agent_id = :agent_id AND t.ns = :ns")


def decide(tx: Tx, request: PolicyRequest, *, ns: str) -> Decided | None:
    """Let the active policies decide; None where there are none. Nothing is recorded yet.

    Raises TamperedError where a policy, or the agent's registration, is not what its entry in the log says.
    """
    active = policies.active(tx, ns=ns)
    if active is None:
        return None
    compiled = active.compiled
    if isinstance(compiled, str):
        return Decided(request, engine.denied(compiled), active.hash)
    whole = replace(request, agent=_agent(tx, request.agent_id, ns))
    if whole.problem is not None:
        return Decided(whole, engine.denied(whole.problem), active.hash)
    return Decided(whole, compiled.decide(whole), active.hash)


def _agent(tx: Tx, agent_id: str, ns: str) -> dict[str, Any]:
    """Return the attributes of the principal, compared with the log: what a contract says may decide."""
    for row in logged_tables.confirm(tx, AGENTS.logged, _AGENT, agent_id=agent_id, ns=ns):
        contract = jsontext.load(row["contract"])
        return record_of(
            {
                "version": row["agent_version"],
                "priority": row["priority"],
                "contract": contract if isinstance(contract, Mapping) else {},
            }
        )
    raise NotFoundError(f"there is no agent {agent_id}: register it (agents register)", agent_id=agent_id)


def refusal(decided: Decided, *, flow_id: str | None = None) -> PolicyDeniedError:
    """Return the error of an act that was denied."""
    request = decided.request
    # A message may be recorded with the flow: the statements alone quote no inputs.
    why = ", ".join(decided.ruling.without_values().reasons)
    return PolicyDeniedError(
        f"{request.action} {request.resource} by agent {request.agent_id} is denied: {why}",
        agent_id=request.agent_id,
        action=request.action,
        resource=request.resource,
        reasons=[*decided.ruling.without_values().reasons],
        policy_hash=decided.policy_hash,
        flow_id=flow_id,
    )


# --- flows -------------------------------------------------------------------------------------------------------


def start(
    tx: Tx,
    flow: Flow,
    *,
    subject: str | None,
    attributes: Mapping[str, str] | None,
    inputs: str | None = None,
    function: Callable[..., Any] | None = None,
) -> int | None:
    """Decide about a flow that this transaction opens; return the escalation that it has to wait for, if any.

    `inputs` is the text of the arguments that its function is called with. Raises PolicyDeniedError.
    """
    about = {"version": flow.flow_version, "priority": flow.priority, "attributes": attributes or {}}
    context, problem = _inputs(inputs, function)
    request = PolicyRequest(
        flow.agent_id, "flow.start", flow.flow_type, about=record_of(about), context=context, problem=problem
    )
    decided = decide(tx, request, ns=flow.ns)
    if decided is None:
        return None
    if decided.ruling.decision == DENY:
        error = refusal(decided)
        error.record = partial(_record_denial, decided=decided, subject=subject, handle=flow.subject, ns=flow.ns)
        raise error
    return let_pass(tx, decided, flow).escalation


def _inputs(text: str | None, function: Callable[..., Any] | None) -> Inputs:
    """Return what policies see of arguments, given their text; nothing where there is none."""
    return inputs_of(lambda: {} if text is None else named_inputs(recorded.parse(text), function))


def let_pass(tx: Tx, decided: Decided, flow: Flow, *, n: int = 1) -> PolicyDecision:
    """Record a decision that does not deny; one that asks is recorded with the escalation that it opens."""
    number = _escalate(tx, decided, flow) if decided.ruling.decision == ASK else None
    return policy_decisions.record(
        tx,
        decided.request,
        decided.ruling,
        decided.policy_hash,
        flow_id=flow.flow_id,
        n=n,
        subject=flow.subject,
        escalation=number,
        ns=flow.ns,
    )


def _escalate(tx: Tx, decided: Decided, flow: Flow) -> int:
    """Open the escalation that a policy asks for; it costs the agent's budget nothing."""
    if tx.limiter is not None:
        tx.limiter.require(tx, flow.ns, "open_escalations")
    request = decided.request
    context = {
        "action": request.action,
        "resource": request.resource,
        "policies": [*decided.ruling.statements],
        "inputs": request.context if request.keeps_inputs else None,
    }
    reason = f"a policy asks: {request.action} {request.resource}"
    columns = {
        "reason": reason,
        "context_json": canonical.dump_text(context),
        "proposal_json": "{}",
        "impact": "HIGH_IMPACT",
        "opened_by": "kernel",
    }
    return escalation_rows.open_request(tx, flow, columns).id


def _record_denial(tx: Tx, *, decided: Decided, subject: str | None, handle: str | None, ns: str) -> None:
    """Record a denial whose act was rolled back; a person who was unknown before that has no handle any more."""
    if subject is not None:
        handle = encryption.label(tx, subject, ns=ns)
    record_denial(tx, decided, flow_id=None, n=1, subject=handle, ns=ns)


def record_denial(
    tx: Tx, decided: Decided, *, flow_id: str | None, n: int, subject: str | None, ns: str
) -> PolicyDecision:
    """Record a decision that denies."""
    request, ruling, digest = decided
    return policy_decisions.record(tx, request, ruling, digest, flow_id=flow_id, n=n, subject=subject, ns=ns)


# --- steps -------------------------------------------------------------------------------------------------------


def step_request(
    flow: Flow, name: str, arguments: str | None, *, function: Callable[..., Any] | None, recorded_args: bool
) -> PolicyRequest:
    """Return what policies are asked about a step that is about to begin.

    Arguments that are not to be recorded decide too, and only their hash is kept. Those that cannot be recorded no
    policy sees: `resource.inputs_known` is false then.
    """
    context, problem = _inputs(arguments, function)
    return PolicyRequest(
        flow.agent_id,
        "step",
        name,
        about={"inputs_known": arguments is not None},
        context=context,
        within=flow.flow_type,
        keeps_inputs=recorded_args,
        problem=problem,
    )


def awaited(tx: Tx, flow: Flow, request: PolicyRequest, n: int, *, approved: bool) -> Awaited | None:
    """Return the escalation that a step has to wait for: its own, unless that is `approved`, or that of another act.

    Raises NonDeterminismError where its own was about other inputs.
    """
    name = request.resource
    own = None if approved else policy_decisions.asked(tx, flow.flow_id, "step", name, n, ns=flow.ns)
    if own is not None:
        if own.inputs_hash != policy_decisions.inputs_hash_of(tx, request, subject=flow.subject):
            raise NonDeterminismError(
                f"a policy asked about step {name} {n} with other arguments", step=name, flow_id=flow.flow_id
            )
        assert own.escalation is not None, "written together"
        return Awaited(own.escalation, own=True)
    other = policy_decisions.pending(tx, flow.flow_id, ns=flow.ns) if flow.status == "WAITING_ESCALATION" else None
    return None if other is None else Awaited(other, own=False)
