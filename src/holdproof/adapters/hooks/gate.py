"""Policies at the hook: what they decide about a call, and how the agent is told.

Rules:
- Nothing that goes wrong here lets a call pass: it is then asked about, where the agent can ask, or denied.
- What policies are asked about in the session of a person is sealed, as the session is.
- Where the agent asks its own user, the escalation of the policy is resolved when the call has happened, in that user's
  name, and used up by that call. What the user refuses stays open until the session ends, and is cancelled then.
"""

import getpass
from collections.abc import Mapping
from typing import Any, Final

from holdproof import sync
from holdproof.adapters import captured
from holdproof.adapters.hooks import tools
from holdproof.adapters.hooks.sessions import HookEvent
from holdproof.errors import HoldproofError, PolicyDeniedError
from holdproof.kernel import autocreate
from holdproof.model.policies import PolicyDecision

ACTION: Final = "tool.call"


def decide(store: sync.Holdproof, event: HookEvent, call: tools.AgentCall) -> dict[str, Any]:
    """Let the store's policies decide about a call; return the decision as it is recorded with the event."""
    try:
        store.write(lambda tx: autocreate.agent(tx, event.agent_id, ns=event.ns))
        decision = _decision(store, event, call)
    except PolicyDeniedError as error:
        return {"decision": "deny", "reason": error.message}
    except HoldproofError as error:
        return {"decision": "ask", "reason": f"the policies could not be asked: {error.message}"}
    if decision.decision != "ask":
        return {"decision": decision.decision, "id": decision.id}
    in_agent = tools.asks_in_the_agent(event.tool, event.event)
    where = "agent" if in_agent else "inbox"
    reasons = [str(each) for each in decision.reasons]
    return {"decision": "ask", "id": decision.id, "escalation": decision.escalation, "asked_in": where, "by": reasons}


def _decision(store: sync.Holdproof, event: HookEvent, call: tools.AgentCall) -> PolicyDecision:
    """Ask the policies; what they are asked about is a person's as the session is, and sealed."""
    whose: dict[str, Any] = {}
    if event.subject is not None:
        whose["subject"] = event.subject
    elif store.read(lambda tx: captured.is_of_a_person(tx, event.flow_id, ns=event.ns)):
        # Only the flow knows whose it is: nothing stores a person's name.
        whose["flow_id"] = event.flow_id
    return store.policies.decide(event.agent_id, ACTION, call.name, context=context_of(call), **whose, ns=event.ns)


def context_of(call: tools.AgentCall) -> Mapping[str, Any]:
    """Return the arguments of a call as the inputs of a decision."""
    return captured.plain(call.arguments)  # type: ignore[no-any-return]  # (a mapping stays one)


def words(decision: Mapping[str, Any]) -> str:
    """Say to the agent and its user why a call does not just go on."""
    if decision["decision"] == "deny":
        return f"Denied by a Holdproof policy: {decision['reason']}"
    if "escalation" not in decision:
        return str(decision["reason"])
    number = decision["escalation"]
    if decision["asked_in"] == "agent":
        return f"A Holdproof policy asks about this call (escalation {number})"
    return (
        f"A Holdproof policy asks about this call: answer escalation {number}"
        f" (`holdproof escalations resolve {number} approve --by NAME`), then try the same call again"
    )


def approved_in_agent(store: sync.Holdproof, event: HookEvent, call: tools.AgentCall, escalation: int) -> None:
    """Record that the agent's user let a call happen which a policy had asked about, and use the approval up."""
    by = f"{_user()} in {event.tool}"
    comment = "the agent asked its user, and the call happened"
    store.escalations.resolve(escalation, "approve", by=by, comment=comment, ns=event.ns)
    _decision(store, event, call)


def cancel(store: sync.Holdproof, escalation: int, *, tool: str, ns: str) -> None:
    """Cancel what a policy asked about a call that never happened."""
    comment = "the session ended, and the call had not happened"
    store.escalations.resolve(escalation, "cancel", by=f"{_user()} in {tool}", comment=comment, ns=ns)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"
