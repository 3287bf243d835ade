"""Who calls, and what they may do: the one decision that the API and the console ask.

Rules:
- What is not allowed here is forbidden.
- An operator may do everything; a list of nouns narrows that, and makes no tokens.
- An auditor reads; nothing that shows a secret, tries one, waits, or writes on the side.
- An agent decides: on its own flows, questions and state, by its own name. It answers no question, not by a deadline
  and not by going on without the answer either, and sets no budget. A list of nouns adds what services and memory keep.
- Whoever is bound to a namespace is given a store that is open for that one only, and sends the server to no address.
- Nobody tries secrets through a verb: who somebody is, the door finds out.
- Nobody signs with another's name: who did something is the caller, and a link to log in by is the caller's own.
- What the door keeps for one caller (`Idempotency-Key`) is read and settled by operators only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdproof.access.tokens import GRANTABLE
from holdproof.api.catalogue import MethodSpec
from holdproof.client import Holdproof
from holdproof.errors import ForbiddenError, HoldproofError
from holdproof.model.access import Login, Token
from holdproof.model.agents import Agent
from holdproof.model.flows import UNDOABLE
from holdproof.model.namespaces import EVERY

INNER: Final = frozenset(
    {("agents", "authenticate")}
    | {("tokens", verb) for verb in ("authenticate_agent", "authenticate", "touch")}
    | {("logins", verb) for verb in ("authenticate", "exchange", "logout")}
    | {("access_log", "record")}
)
"""Verbs that are no way in for anybody: they take secrets, or are the server's own."""

SECRETS: Final = frozenset({("evaluations", "reveal")})
"""Verbs that read what was sealed."""

MINTING: Final = frozenset({("tokens", "create"), ("logins", "create_link")})
"""Verbs that give rights away: not for whoever has only some of them."""

TRUSTED: Final = frozenset({("skills", verb) for verb in ("approve", "revoke", "status", "verify")})
"""Verbs of nouns that an agent may be given, by which a person vouches for something or looks at the server's disk."""

PLACES: Final = frozenset({"gateway", "node", "url"})
"""Parameters that have the server talk to an address; not for whoever is bound to a namespace."""

SIGNED: Final = frozenset({"author", "by", "who"})
"""Parameters that name whoever does something."""

KEPT: Final = "http:"
"""How the keys begin under which the door keeps answers."""

_FLOW: Final = {"flow_id": "flow"}
_AGENT: Final = {"agent_id": "agent"}
_ASKED: Final = {"id": "escalation"}

DECIDING: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    ("agents", "get"): _AGENT,
    ("flows", "start"): {**_AGENT, "parent": "flow?"},
    ("flows", "list"): _AGENT,
    ("flows", "tree"): _FLOW,
    **{("flows", verb): _FLOW for verb in ("get", "transition", "transitions", "timeline", "steps")},
    **{("flows", verb): _FLOW for verb in ("lease", "heartbeat", "release")},
    **{("contexts", verb): _FLOW for verb in ("put", "update", "get", "take")},
    **{("state", verb): _AGENT for verb in ("put", "update", "get")},
    ("feedback", "list"): _AGENT,
    **{("audit", verb): _FLOW for verb in ("record", "list")},
    **{("ledger", verb): _FLOW for verb in ("append", "get")},
    ("ledger", "list"): _AGENT,
    **{("locks", verb): _FLOW for verb in ("acquire", "try_acquire", "extend", "release", "release_all", "list")},
    **{("retries", verb): _FLOW for verb in ("reject", "get", "allowed")},
    **{("sagas", verb): _FLOW for verb in ("mark_dirty", "get")},
    ("escalations", "request"): _FLOW,
    ("escalations", "list"): _AGENT,
    **{("escalations", verb): _ASKED for verb in ("get", "wait")},
}
"""What an agent may do, and which arguments have to name something of its own; with `?` they may be left out."""

_MOVES: Final = ("flows", "transition")
_WAITS: Final = "WAITING_ESCALATION"
_KEPT_FROM_AGENTS: Final = frozenset({"budget", "window_s"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whom the door knows."""

    role: str
    name: str
    ns: str | None = None
    """The namespace they are bound to; None for every one."""
    agent_id: str | None = None
    nouns: frozenset[str] | None = None
    token_id: str | None = None
    login_id: str | None = None
    csrf: str | None = field(default=None, repr=False)
    """What a form of their session has to carry; None for whoever came without a cookie."""

    @property
    def who(self) -> str:
        """The caller as records name it."""
        return f"{self.role}:{self.name}"

    @property
    def inside(self) -> bool:
        """Whether they may be told what went wrong inside the server."""
        return self.role != "agent"

    @classmethod
    def of_token(cls, token: Token) -> "Caller":
        """The holder of a token."""
        names = None if token.nouns is None else frozenset(token.nouns)
        return cls(token.role, token.agent_id or token.name, _bound(token.ns), token.agent_id, names, token.token_id)

    @classmethod
    def of_agent(cls, agent: Agent) -> "Caller":
        """An agent with its session token."""
        return cls("agent", agent.agent_id, agent.ns, agent.agent_id)

    @classmethod
    def of_login(cls, login: Login, csrf: str) -> "Caller":
        """Somebody at the console."""
        names = None if login.nouns is None else frozenset(login.nouns)
        return cls(
            login.role, login.name, _bound(login.ns), None, names, login.token_id, login_id=login.login_id, csrf=csrf
        )


def _bound(ns: str) -> str | None:
    return None if ns == EVERY else ns


@dataclass(frozen=True, slots=True)
class Claim:
    """An argument that has to name something of the caller's own."""

    kind: str
    value: Any


def may(caller: Caller, noun: str, verb: str, *, reads: bool) -> bool:
    """Whether a caller may use a verb at all; on what is asked when it does (`claims`, `permit`)."""
    if (noun, verb) in INNER or verb == "close":
        return False
    if caller.role == "agent":
        granted = noun in (caller.nouns or frozenset()) & GRANTABLE and (noun, verb) not in TRUSTED
        return granted or (noun, verb) in DECIDING
    if caller.nouns is not None and (noun not in caller.nouns or (noun, verb) in MINTING):
        return False
    if caller.role == "operator":
        return True
    looks = (reads and (noun, verb) not in SECRETS) or (noun, verb) == ("verify", "run")
    return caller.role == "auditor" and looks


def claims(caller: Caller, noun: str, verb: str, arguments: Mapping[str, Any], *, reads: bool) -> tuple[Claim, ...]:
    """What still has to be the caller's own for this call; ForbiddenError if it may not be made at all."""
    if not may(caller, noun, verb, reads=reads):
        raise _forbidden(caller, noun, verb, f"{_article(caller.role)} may not use {noun}.{verb}")
    if caller.role == "auditor" and noun == "verify" and arguments.get("lock", True) is not False:
        raise _forbidden(caller, noun, verb, "an auditor verifies without locking: lock=false")
    if caller.ns is not None and (places := sorted(PLACES & arguments.keys())):
        raise _forbidden(caller, noun, verb, f"whoever runs the store says where {places[0]} is")
    trusted = caller.role == "operator" and caller.nouns is None
    if noun == "idempotency" and not trusted and str(arguments.get("key", "")).startswith(KEPT):
        raise _forbidden(caller, noun, verb, f"keys that begin with {KEPT} are kept by the server for their callers")
    if caller.role != "agent" or (noun, verb) not in DECIDING:
        return ()
    if refused := sorted(_KEPT_FROM_AGENTS & arguments.keys()):
        raise _forbidden(caller, noun, verb, f"an agent does not set {' or '.join(refused)}")
    if arguments.get("on_deadline", "reject") == "approve":
        raise _forbidden(caller, noun, verb, "an agent's question is not approved by letting its deadline pass")
    wanted = DECIDING[noun, verb].items()
    found = ((name, kind.rstrip("?"), arguments.get(name), kind.endswith("?")) for name, kind in wanted)
    return tuple(Claim(kind, value) for _, kind, value, optional in found if not (optional and value is None))


async def permit(
    store: Holdproof, caller: Caller, noun: str, verb: str, arguments: Mapping[str, Any], *, reads: bool
) -> None:
    """Let a call pass, or ForbiddenError; `arguments` are by name, and what they name is looked up in `store`."""
    for claim in claims(caller, noun, verb, arguments, reads=reads):
        owner, status = await _standing(store, claim)
        if owner != caller.agent_id:
            said = f"this {claim.kind} is not one of agent {caller.agent_id}"
            raise _forbidden(caller, noun, verb, said)
        if (noun, verb) == _MOVES and status == _WAITS and arguments.get("to") not in UNDOABLE:
            raise _forbidden(caller, noun, verb, "the flow waits for an answer, and goes on by that")


async def _standing(store: Holdproof, claim: Claim) -> tuple[str | None, str | None]:
    """Whose something is, and how it stands; what is not there is nobody's, so that nobody learns which."""
    try:
        if claim.kind == "flow" and isinstance(claim.value, str):
            flow = await store.flows.get(claim.value)
            return flow.agent_id, flow.status
        if claim.kind == "escalation" and isinstance(claim.value, int):
            return (await store.escalations.get(claim.value)).agent_id, None
    except HoldproofError:
        return None, None
    return (claim.value if claim.kind == "agent" and isinstance(claim.value, str) else None), None


def signed(caller: Caller, entry: MethodSpec, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the door says in a caller's place, whatever they said: who they are, and what has to hold as it happens."""
    found: dict[str, Any] = {each.name: caller.who for each in entry.parameters if each.name in SIGNED}
    if "created_by" in arguments and entry.parameter("created_by") is not None:
        found["created_by"] = (caller.role, caller.name)
    if (entry.noun, entry.verb) == ("logins", "create_link"):
        found |= {"token_id": caller.token_id, "name": caller.name, "role": caller.role}
    if caller.role == "agent" and (entry.noun, entry.verb) == _MOVES and arguments.get("to") == "RUNNING":
        found["expected_status"] = "CREATED"  # asked once more in the transaction: a question may come between
    return found


def _article(role: str) -> str:
    return f"an {role}"


def _forbidden(caller: Caller, noun: str, verb: str, said: str) -> ForbiddenError:
    return ForbiddenError(said, noun=noun, verb=verb, role=caller.role)
