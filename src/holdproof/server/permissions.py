"""Who calls, and what they may do: the one decision that the API, the tools and the console ask for.

Rules:
- What is not allowed here is forbidden. Which methods that concerns, their declarations say (executors/exposure.py).
- An operator may do everything; a list of resources narrows that, and creates no tokens.
- An auditor reads; nothing that shows a secret, tries one, waits, or writes on the side.
- An agent decides: on its own flows, escalations and state, by its own name. It answers no escalation, neither by a
  deadline nor by going on without the answer, and sets no budget. A list of resources adds storage and memory.
- A caller bound to a namespace gets a store that is open for that one only, and sends the server to no address.
- Nobody tries secrets through a method: authentication is the server's own. What is public (`Exposure.public`) does not
  come here: anybody may call it at its route, since an argument proves the right.
- Nobody signs with another's name: who did something is the caller, and a link to log in by is the caller's own.
- What an agent writes by a grant of its token, active policies decide about too (`memory.write`).
- What the server stores for one caller (`Idempotency-Key`) is read and settled by operators only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdproof.api.catalogue import MethodSpec, methods
from holdproof.api.parameters import ADDRESSES
from holdproof.client import Holdproof
from holdproof.errors import FlowWaitingError, ForbiddenError, HoldproofError
from holdproof.executors import AgentRule
from holdproof.model.access import Login, Token
from holdproof.model.agents import Agent
from holdproof.model.flows import UNDOABLE
from holdproof.model.namespaces import EVERY
from holdproof.model.policies import ASK

RESERVED_KEYS: Final = "http:"
"""How the idempotency keys begin under which the server stores answers."""

_WAITS: Final = "WAITING_ESCALATION"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller."""

    role: str
    name: str
    ns: str | None = None
    """The namespace they are bound to; None for every one."""
    agent_id: str | None = None
    resources: frozenset[str] | None = None
    """The resources that their token names; None for all, or for an agent none beside its own."""
    token_id: str | None = None
    login_id: str | None = None
    csrf: str | None = field(default=None, repr=False)
    """What a form of their session has to carry; None for a caller without a cookie."""
    until: str | None = None
    """When their session ends; None for a caller without one."""

    @property
    def who(self) -> str:
        """The caller as records name it."""
        return f"{self.role}:{self.name}"

    @property
    def called_by(self) -> str | None:
        """The agent that a call of a function records as its caller; None for anybody else."""
        return self.agent_id

    @property
    def login(self) -> dict[str, str | None] | None:
        """As what a passkey that they register opens the console; None for an agent, which has no console."""
        if self.role == "agent":
            return None
        return {"role": self.role, "token_id": self.token_id, "ns": self.ns or EVERY}

    @property
    def inside(self) -> bool:
        """Whether they may be told what went wrong inside the server."""
        return self.role != "agent"

    @classmethod
    def of_token(cls, token: Token) -> "Caller":
        """The holder of a token."""
        names = None if token.resources is None else frozenset(token.resources)
        return cls(token.role, token.agent_id or token.name, _bound(token.ns), token.agent_id, names, token.token_id)

    @classmethod
    def of_agent(cls, agent: Agent) -> "Caller":
        """An agent with its session token."""
        return cls("agent", agent.agent_id, agent.ns, agent.agent_id)

    @classmethod
    def of_login(cls, login: Login, csrf: str) -> "Caller":
        """Somebody at the console."""
        names = None if login.resources is None else frozenset(login.resources)
        return cls(
            login.role,
            login.name,
            _bound(login.ns),
            None,
            names,
            login.token_id,
            login_id=login.login_id,
            csrf=csrf,
            until=login.expires_at,
        )


def _bound(ns: str) -> str | None:
    return None if ns == EVERY else ns


@dataclass(frozen=True, slots=True)
class Claim:
    """An argument that has to name something of the caller's own."""

    kind: str
    value: Any


def may(caller: Caller, resource: str, method: str) -> bool:
    """Say whether a caller may use a method at all; on what, is decided when it is called (`claims`, `permit`)."""
    spec = methods().get((resource, method))
    if spec is None or spec.exposure.internal:
        return False
    if caller.role == "agent":
        granted = spec.grantable and resource in (caller.resources or frozenset())
        return granted or spec.exposure.agent is not None
    if caller.resources is not None and (resource not in caller.resources or spec.exposure.delegates):
        return False
    if caller.role == "operator":
        return True
    looks = (spec.reads and not spec.exposure.reveals) or bool(spec.exposure.read_only_with)
    return caller.role == "auditor" and looks


def require(caller: Caller, resource: str, method: str) -> None:
    """Raise ForbiddenError unless a caller may use a method at all."""
    if not may(caller, resource, method):
        raise _forbidden(caller, resource, method, f"an {caller.role} may not use {resource}.{method}")


def claims(caller: Caller, resource: str, method: str, arguments: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Return what still has to be the caller's own for this call; ForbiddenError if it may not be made at all."""
    require(caller, resource, method)
    exposure = methods()[resource, method].exposure
    if caller.role == "auditor":
        for name, value in exposure.read_only_with.items():
            if arguments.get(name) is not value:
                _refuse_auditor(caller, resource, method, name, value)
    if caller.ns is not None and (addresses := sorted(ADDRESSES & arguments.keys())):
        raise _forbidden(caller, resource, method, f"whoever runs the store says where {addresses[0]} is")
    trusted = caller.role == "operator" and caller.resources is None
    if resource == "idempotency" and not trusted and str(arguments.get("key", "")).startswith(RESERVED_KEYS):
        reserved = f"keys that begin with {RESERVED_KEYS} are reserved for the server's own answers"
        raise _forbidden(caller, resource, method, reserved)
    if caller.role != "agent" or exposure.agent is None:
        return ()
    return _agent_claims(caller, resource, method, exposure.agent, arguments)


def _refuse_auditor(caller: Caller, resource: str, method: str, name: str, value: Any) -> None:
    words = f"{name}={str(value).lower()}"
    raise _forbidden(caller, resource, method, f"an auditor may use {resource}.{method} with {words} only")


def _agent_claims(
    caller: Caller, resource: str, method: str, rule: AgentRule, arguments: Mapping[str, Any]
) -> tuple[Claim, ...]:
    if refused := sorted(arguments.keys() & set(rule.never)):
        raise _forbidden(caller, resource, method, f"an agent does not set {' or '.join(refused)}")
    for name, value in rule.refused.items():
        if arguments.get(name) == value:
            raise _forbidden(caller, resource, method, f"an agent does not set {name}={value}")
    owned = []
    for name, kind in rule.owns.items():
        value = arguments.get(name)
        if value is not None or not kind.endswith("?"):
            owned.append(Claim(kind.rstrip("?"), value))
    return tuple(owned)


async def permit(store: Holdproof, caller: Caller, resource: str, method: str, arguments: Mapping[str, Any]) -> None:
    """Let a call pass, or ForbiddenError; `arguments` are by name, and what they name is looked up in `store`."""
    for claim in claims(caller, resource, method, arguments):
        owner, status = await _standing(store, claim)
        if owner != caller.agent_id:
            text = f"this {claim.kind} is not one of agent {caller.agent_id}"
            raise _forbidden(caller, resource, method, text)
        rule = methods()[resource, method].exposure.agent
        moves = rule is not None and rule.moves is not None and arguments.get(rule.moves) not in UNDOABLE
        if moves and status == _WAITS:
            raise _forbidden(caller, resource, method, "the flow waits for an answer, and goes on by that")
        if rule is not None and rule.not_while_asked and status == _WAITS:
            text = "the flow waits for an answer: what the person is asked about does not change meanwhile"
            raise _forbidden(caller, resource, method, text)
    spec = methods()[resource, method]
    if caller.agent_id is not None and caller.role == "agent" and spec.exposure.agent is None and not spec.reads:
        await _ask_policies(store, caller.agent_id, f"{resource}.{method}", arguments)


async def _ask_policies(store: Holdproof, agent_id: str, resource: str, arguments: Mapping[str, Any]) -> None:
    """Let policies decide about what an agent is about to write by a grant of its token: storage and memory."""
    subject = arguments.get("subject")
    decision = await store.policies.decide(
        agent_id,
        "memory.write",
        resource,
        context={name: value for name, value in arguments.items() if name != "ns"},
        subject=subject if isinstance(subject, str) else None,
    )
    if decision.decision == ASK:
        raise FlowWaitingError(
            f"a policy asks about {resource}: call again once escalation {decision.escalation} is answered",
            flow_id=decision.flow_id,
            escalation=decision.escalation,
        )


async def _standing(store: Holdproof, claim: Claim) -> tuple[str | None, str | None]:
    """Return the owner and the status of something; what is absent is nobody's, so nobody learns which."""
    try:
        if claim.kind == "flow" and isinstance(claim.value, str):
            flow = await store.flows.get(claim.value)
            return flow.agent_id, flow.status
        if claim.kind == "escalation" and isinstance(claim.value, int):
            return (await store.escalations.get(claim.value)).agent_id, None
    except HoldproofError:
        return None, None
    return (claim.value if claim.kind == "agent" and isinstance(claim.value, str) else None), None


def signed(caller: Caller, spec: MethodSpec, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that the server sets whatever was passed: who calls, and what has to hold as it happens."""
    own: dict[str, Any] = {each.name: caller.who for each in spec.parameters if each.names_caller}
    if "created_by" in arguments and spec.parameter("created_by") is not None:
        own["created_by"] = (caller.role, caller.name)
    own |= {name: getattr(caller, name) for name in spec.exposure.from_caller}
    rule = spec.exposure.agent
    if caller.role == "agent" and rule is not None and rule.moves and arguments.get(rule.moves) == "RUNNING":
        # Checked once more in the transaction: an escalation may come between this decision and the move.
        own["expected_status"] = "CREATED"
    return own


def _forbidden(caller: Caller, resource: str, method: str, text: str) -> ForbiddenError:
    return ForbiddenError(text, resource=resource, method=method, role=caller.role)
