"""Agents: who may act, under which contract.

Rules:
- A version outside the supported range is refused with VERSION_MISMATCH, and nothing is stored.
- Registering again renews token and contract, and keeps state, budget, history and a suspension.
- A token is 256 random bits, shown once, stored as a hash, compared in constant time. One that another kernel made is
  stored as it was given.
- Only the kernel changes a status (`set_status`); every change is another leaf of the agent's record.
"""

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any, Final

from holdproof.db import Row, Tx, lock_exclusive, sql
from holdproof.errors import (
    AlreadyExistsError,
    AuthenticationError,
    InvalidInputError,
    NotFoundError,
    VersionMismatchError,
)
from holdproof.evidence.leaves import Projection
from holdproof.model import semver
from holdproof.model.agents import STATUSES, Agent, AgentPage, Session
from holdproof.runtime import logged_rows
from holdproof.runtime.logged_rows import MAIN

AGENTS: Final = logged_rows.register(
    Projection(
        "agent_registry",
        1,
        (
            *("agent_id", "contract", "priority", "status", "agent_version", "session_token", "suspension_reason"),
            *("registered_at", "updated_at", "ns"),
        ),
    ),
    kind="agent",
    key="agent_id",
)
_TOKEN_BYTES: Final = 32
_HASHED: Final = "sha256:"

_FIND = sql(
    "SELECT agent_id, contract, priority, status, agent_version, session_token, suspension_reason, registered_at,"
    " updated_at, ns, leaf_id, leaf_ver FROM agent_registry WHERE agent_id = :agent_id"
)
_ADD = sql(
    "INSERT INTO agent_registry (agent_id, contract, priority, status, agent_version, session_token, suspension_reason,"
    " registered_at, updated_at, ns, leaf_id, leaf_ver, leaf_salt) VALUES (:agent_id, :contract, :priority, :status,"
    " :agent_version, :session_token, :suspension_reason, :registered_at, :updated_at, :ns, :leaf_id, :leaf_ver,"
    " :leaf_salt)"
)
_CHANGE = sql(
    "UPDATE agent_registry SET contract = :contract, priority = :priority, status = :status,"
    " agent_version = :agent_version, session_token = :session_token, suspension_reason = :suspension_reason,"
    " updated_at = :updated_at, leaf_id = :leaf_id, leaf_ver = :leaf_ver, leaf_salt = :leaf_salt"
    " WHERE agent_id = :agent_id AND ns = :ns AND leaf_ver = :leaf_ver - 1"
)


def register(
    tx: Tx,
    agent_id: str,
    *,
    version: str,
    contract: Any = None,
    priority: int = 0,
    supported: str = "1.x",
    ns: str = MAIN,
) -> Session:
    """The handshake: store the contract and give a new session token, which is shown this once."""
    logged_rows.name("agent_id", agent_id)
    if not semver.accepts(supported, version):
        raise VersionMismatchError(
            f"VERSION_MISMATCH: {version!r} is not in {supported}", version=version, supported=supported
        )
    token = urlsafe_b64encode(tx.random(_TOKEN_BYTES)).decode().rstrip("=")
    given = {"contract": logged_rows.dump(contract or {}), "priority": priority, "agent_version": version}
    given["session_token"] = digest(token)
    return Session(enroll(tx, agent_id, given, ns=ns), token)


def enroll(tx: Tx, agent_id: str, given: dict[str, Any], *, ns: str) -> Agent:
    """Write what a handshake brings: a new agent, or the next version of a known one."""
    lock_exclusive(tx, f"agent:{agent_id}")
    known = tx.one(_FIND, agent_id=agent_id)
    if known is None:
        row = {"agent_id": agent_id, "status": "ACTIVE", "suspension_reason": None, "registered_at": tx.now}
        row |= {**given, "updated_at": tx.now, "ns": ns}
        logged_rows.add(tx, _ADD, "agent", AGENTS, row)
        return _agent(row)
    if known[9] != ns:
        raise AlreadyExistsError(f"the name {agent_id} is taken", agent_id=agent_id)
    return _change(tx, known, given)


def _change(tx: Tx, known: Row, given: dict[str, Any]) -> Agent:
    row = dict(zip(AGENTS.columns, known, strict=False)) | given | {"updated_at": tx.now}
    logged_rows.change(tx, _CHANGE, "agent", AGENTS, row, leaf_id=known[10], leaf_ver=known[11])
    return _agent(row)


def digest(token: str) -> str:
    """What is stored of a token."""
    return _HASHED + sha256(token.encode()).hexdigest()


def set_status(tx: Tx, agent_id: str, status: str, *, reason: str | None = None, ns: str = MAIN) -> Agent:
    """Change what an agent may do, and say why."""
    logged_rows.one_of("status", status, STATUSES)
    lock_exclusive(tx, f"agent:{agent_id}")
    return _change(tx, _known(tx, agent_id, ns), {"status": status, "suspension_reason": reason})


def get(tx: Tx, agent_id: str, *, ns: str = MAIN) -> Agent:
    """One agent."""
    return _agent(dict(zip(AGENTS.columns, _known(tx, agent_id, ns), strict=False)))


def token(tx: Tx, agent_id: str, *, ns: str = MAIN) -> str | None:
    """What is stored of an agent's token: the hash of one of ours, another kernel's own as it was given."""
    stored: str | None = _known(tx, agent_id, ns)[5]
    return stored


def _known(tx: Tx, agent_id: str, ns: str) -> Row:
    row = tx.one(_FIND, agent_id=agent_id)
    if row is None or row[9] != ns:
        raise NotFoundError(f"there is no agent {agent_id}", agent_id=agent_id)
    return row


def authenticate(tx: Tx, agent_id: str, token: str, *, ns: str = MAIN) -> Agent:
    """The agent that a token belongs to; AuthenticationError tells nobody which of the two was wrong."""
    if not isinstance(token, str):
        raise InvalidInputError("a token is a text")
    row = tx.one(_FIND, agent_id=agent_id)
    stored = row[5] if row is not None and row[9] == ns and row[5] else digest("")
    hashed = stored if stored.startswith(_HASHED) else digest(stored)
    same = hmac.compare_digest(hashed.encode(), digest(token).encode())
    if row is None or row[9] != ns or not same or not token:
        raise AuthenticationError("agent and token do not belong together", agent_id=agent_id)
    return _agent(dict(zip(AGENTS.columns, row, strict=False)))


_LIST = sql(
    "SELECT agent_id, contract, priority, status, agent_version, session_token, suspension_reason, registered_at,"
    " updated_at, ns FROM agent_registry WHERE agent_id > :after AND ns = :ns"
    " AND (CAST(:status AS TEXT) IS NULL OR status = :status) ORDER BY agent_id LIMIT :limit"
)


def list(tx: Tx, *, status: str | None = None, ns: str = MAIN, after: str = "", limit: int = 100) -> AgentPage:
    """Agents by name, a page at a time: pass `next` of a page as `after` for the one that follows."""
    found = tx.all(_LIST, status=status, ns=ns, after=after, limit=logged_rows.limited(limit))
    agents, following = logged_rows.paged(
        found, limit, lambda row: _agent(dict(zip(AGENTS.columns, row, strict=True))), lambda agent: agent.agent_id
    )
    return AgentPage(agents, following)


def _agent(row: dict[str, Any]) -> Agent:
    shown = {column: row[column] for column in AGENTS.columns if column != "session_token"}
    return Agent(**shown | {"contract": logged_rows.load(row["contract"])})
