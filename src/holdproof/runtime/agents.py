"""Agents: who may act, under which contract.

Rules:
- A version is any text. Where a supported range is given it is negotiated as SemVer: one outside the range is refused
  with VERSION_MISMATCH, and nothing is stored.
- Registering again renews token and contract, and keeps state, budget, history and a suspension.
- An agent's budget of escalations is its contract's, or what an operator set (`set_budget`), which counts more; without
  either there is none.
- A token is 256 random bits, shown once, stored as a hash, compared in constant time. A token that another kernel
  issued is stored as that kernel gave it.
- Only the kernel changes a status (`set_status`); every change is another leaf of the agent's record.
"""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from holdproof import paging, validation
from holdproof.crypto import canonical
from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import (
    AuthenticationError,
    InvalidInputError,
    NotFoundError,
    VersionMismatchError,
)
from holdproof.evidence.tables import StoredRecord, Table
from holdproof.model import jsontext, semver
from holdproof.model.agents import STATUSES, Agent, EscalationBudget, Registration
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page

AGENTS: Final = Table(
    "agent_registry",
    Agent,
    kind="agent",
    key="agent_id",
    per_namespace=True,
    logged=(
        *("agent_id", "contract", "priority", "status", "agent_version", "session_token", "suspension_reason"),
        *("escalation_budget", "registered_at", "updated_at", "ns"),
    ),
    loads={"contract": jsontext.load, "escalation_budget": jsontext.load},
)
_TOKEN_BYTES: Final = 32
_HASH_PREFIX: Final = "sha256:"

_FIND = sql(AGENTS.select("WHERE agent_id = :agent_id AND ns = :ns", leaf=True))
_ADD = sql(AGENTS.insert())
# `leaf_ver - 1`: the version that was read is the one that is replaced, or the transaction fails.
_CHANGE = sql(
    AGENTS.update(
        *("contract", "priority", "status", "agent_version", "session_token", "suspension_reason"),
        *("escalation_budget", "updated_at"),
        where="agent_id = :agent_id AND ns = :ns AND leaf_ver = :leaf_ver - 1",
    )
)


def register(
    tx: Tx,
    agent_id: str,
    *,
    version: str,
    contract: Any = None,
    priority: int = 0,
    supported: str | None = None,
    ns: str = MAIN,
) -> Registration:
    """Register an agent or renew its registration; return it with a new session token, which is shown this once.

    `version` is any text; with `supported` it is a SemVer version, and VersionMismatchError is raised where it is
    outside that range. A contract may name an `escalation_budget`.
    """
    validation.name("agent_id", agent_id)
    if supported is not None and not semver.accepts(supported, version):
        raise VersionMismatchError(
            f"VERSION_MISMATCH: {version!r} is not in {supported}", version=version, supported=supported
        )
    validation.name("version", version)
    if isinstance(contract, dict):
        EscalationBudget.parse(contract.get("escalation_budget"))
    token = urlsafe_b64encode(tx.random(_TOKEN_BYTES)).decode().rstrip("=")
    columns = {
        "contract": canonical.dump_text(contract or {}),
        "priority": priority,
        "agent_version": version,
        "session_token": digest(token),
    }
    return Registration(enroll(tx, agent_id, columns, ns=ns), token)


def enroll(tx: Tx, agent_id: str, columns: Mapping[str, Any], *, ns: str) -> Agent:
    """Write a registration, by column: a new agent, or the next version of one that exists."""
    # Two handshakes of a new agent must not both find that it is new.
    lock_exclusive(tx, f"agent:{agent_id}")
    row = tx.one(_FIND, agent_id=agent_id, ns=ns)
    if row is None:
        new = {
            "agent_id": agent_id,
            "status": "ACTIVE",
            "suspension_reason": None,
            "escalation_budget": None,
            "registered_at": tx.now,
            **columns,
            "updated_at": tx.now,
            "ns": validation.namespace(ns),
        }
        AGENTS.add(tx, _ADD, new)
        return AGENTS.from_columns(new)
    return _change(tx, AGENTS.record(row), columns)


def _change(tx: Tx, record: StoredRecord[Agent], changes: Mapping[str, Any]) -> Agent:
    return AGENTS.change(tx, _CHANGE, record, {**changes, "updated_at": tx.now})


def digest(token: str) -> str:
    """Return the hash of a session token, as it is stored."""
    return _HASH_PREFIX + sha256(token.encode()).hexdigest()


def set_status(tx: Tx, agent_id: str, status: str, *, reason: str | None = None, ns: str = MAIN) -> Agent:
    """Change what an agent may do, and record why."""
    validation.one_of("status", status, STATUSES)
    lock_exclusive(tx, f"agent:{agent_id}")
    return _change(tx, _record(tx, agent_id, ns), {"status": status, "suspension_reason": reason})


def set_budget(tx: Tx, agent_id: str, *, per_hour: int | None, on_exhausted: str = "refuse", ns: str = MAIN) -> Agent:
    """Set how many escalations an agent may request within an hour; None leaves that to its contract.

    One more is refused with the time at which the next is possible; with `on_exhausted="suspend"` the agent is
    suspended too, and the flow cancelled.
    """
    budget: Any = None if per_hour is None else {"per_hour": per_hour, "on_exhausted": on_exhausted}
    EscalationBudget.parse(budget)
    lock_exclusive(tx, f"agent:{agent_id}")
    text = None if budget is None else canonical.dump_text(budget)
    return _change(tx, _record(tx, agent_id, ns), {"escalation_budget": text})


def get(tx: Tx, agent_id: str, *, ns: str = MAIN) -> Agent:
    """Return one agent."""
    return _record(tx, agent_id, ns).value


def token(tx: Tx, agent_id: str, *, ns: str = MAIN) -> str | None:
    """Return an agent's token as it is stored: the hash of one of ours, another kernel's own text."""
    stored: str | None = _record(tx, agent_id, ns).columns["session_token"]
    return stored


def _record(tx: Tx, agent_id: str, ns: str) -> StoredRecord[Agent]:
    row = tx.one(_FIND, agent_id=agent_id, ns=ns)
    if row is None:
        raise NotFoundError(f"there is no agent {agent_id}", listed_by="agents list", agent_id=agent_id)
    return AGENTS.record(row)


def authenticate(tx: Tx, agent_id: str, token: str, *, ns: str = MAIN) -> Agent:
    """Return the agent that a session token belongs to.

    Raises AuthenticationError without saying whether the agent or the token was wrong.
    """
    if not isinstance(token, str):
        raise InvalidInputError("a token is a text", field="token")
    row = tx.one(_FIND, agent_id=agent_id, ns=ns)
    record = None if row is None else AGENTS.record(row)
    stored = None if record is None else record.columns["session_token"]
    # An unknown agent is compared too, with a hash that no token has: the answer takes as long either way.
    stored = stored or digest("")
    # A token of another kernel is stored as it is, and hashed here so that both sides have one length.
    hashed = stored if stored.startswith(_HASH_PREFIX) else digest(stored)
    same = hmac.compare_digest(hashed.encode(), digest(token).encode())
    if record is None or not same or not token:
        raise AuthenticationError("agent and token do not belong together", agent_id=agent_id)
    return record.value


_LIST = sql(
    AGENTS.select(
        "WHERE agent_id > :after AND ns = :ns AND (CAST(:status AS TEXT) IS NULL OR status = :status)"
        " ORDER BY agent_id LIMIT :limit"
    )
)


def list(
    tx: Tx, *, status: str | None = None, cursor: str | None = None, limit: int = 100, ns: str = MAIN
) -> Page[Agent]:
    """List agents by id."""
    if status is not None:
        validation.one_of("status", status, STATUSES)
    (after,) = paging.decode(cursor, "")
    rows = tx.all(_LIST, status=status, ns=ns, after=after, limit=paging.fetch(limit))
    return paging.page(map(AGENTS.from_row, rows), limit, lambda agent: (agent.agent_id,))
