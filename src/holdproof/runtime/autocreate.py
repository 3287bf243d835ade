"""Agents and flows that another kernel (DIR) writes about before anybody registered or opened them here.

Rules:
- The first write about an unknown flow opens it: as a root, or below the root that the write names.
- Its agent is the one that is named, else the other kernel itself; an unregistered agent is registered for it.
- Recording is not opening: the agent need not be ACTIVE.
- Registering an agent again as ACTIVE does not lift a suspension; only a change of status does.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdproof import validation
from holdproof.content import encryption
from holdproof.db import Tx, lock_exclusive, sql
from holdproof.model.agents import STATUSES
from holdproof.runtime import agents, flows

KERNEL: Final = "__dir_kernel__"

_AGENT = sql("SELECT 1 FROM agent_registry WHERE agent_id = :agent_id AND ns = :ns")


def agent(tx: Tx, agent_id: str, *, ns: str) -> None:
    """Register an agent unless it is registered."""
    if tx.one(_AGENT, agent_id=agent_id, ns=ns) is not None:
        return
    # Looked for again under the lock: another transaction may have registered it meanwhile.
    lock_exclusive(tx, f"agent:{agent_id}")
    if tx.one(_AGENT, agent_id=agent_id, ns=ns) is None:
        unknown = {"contract": "{}", "priority": 0, "agent_version": None, "session_token": None}
        agents.enroll(tx, validation.name("agent_id", agent_id), unknown, ns=ns)


def enroll(tx: Tx, agent_id: str, columns: Mapping[str, Any], *, status: str, ns: str) -> None:
    """Register an agent as the other kernel says, its token and the text of its contract as they are."""
    validation.one_of("status", status, STATUSES)
    demotion = {} if status == "ACTIVE" else {"status": status}
    agents.enroll(tx, validation.name("agent_id", agent_id), {**columns, **demotion}, ns=ns)


_FLOW = sql("SELECT 1 FROM decision_flows WHERE dfid = :dfid AND ns = :ns")


def flow(tx: Tx, flow_id: str, *, agent_id: str | None = None, root: str | None = None, ns: str) -> None:
    """Open a flow, and its root, unless they are there."""
    if _exists(tx, flow_id, ns):
        return
    # In the order of their names, as everybody locks several flows: no two transactions wait for each other.
    for each in sorted({flow_id, root or flow_id}):
        lock_exclusive(tx, f"flow:{each}")
    if _exists(tx, flow_id, ns):
        return
    owner = agent_id or KERNEL
    agent(tx, owner, ns=ns)
    if root is not None and root != flow_id and not _exists(tx, root, ns):
        flows.enter(tx, owner, flow_id=validation.name("root_flow_id", root), ns=ns)
    parent = root if root != flow_id else None
    flows.enter(tx, owner, flow_id=validation.name("flow_id", flow_id), parent=parent, ns=ns)


def session(tx: Tx, agent_id: str, *, flow_id: str, flow_type: str, subject: str | None = None, ns: str) -> None:
    """Open the flow of a session that is recorded; `subject` names the person whose it is."""
    agent(tx, agent_id, ns=ns)
    handle = None if subject is None else encryption.label(tx, subject, ns=ns)
    flows.enter(tx, agent_id, flow_id=flow_id, flow_type=flow_type, subject=handle, ns=ns)


def _exists(tx: Tx, flow_id: str, ns: str) -> bool:
    return tx.one(_FLOW, dfid=flow_id, ns=ns) is not None
