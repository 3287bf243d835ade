"""Strangers: agents and flows that another kernel (DIR) writes about before anybody has opened them here.

Rules:
- The first write about a flow that nobody opened opens it: as a root, or below the root that it is said to have.
- Its agent is the one that is named, else the other kernel itself; one that nobody registered is enrolled for it.
- Recording is not opening: no agent need be ACTIVE for that.
- Enrolling an agent again as ACTIVE does not lift a suspension; only a change of status does.
"""

from typing import Any, Final

from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import AlreadyExistsError
from holdproof.model.agents import STATUSES
from holdproof.runtime import agents, flows, logged_rows

KERNEL: Final = "__dir_kernel__"

_AGENT = sql("SELECT ns FROM agent_registry WHERE agent_id = :agent_id")


def agent(tx: Tx, agent_id: str, *, ns: str) -> None:
    """Make sure that there is such an agent."""
    known = tx.one(_AGENT, agent_id=agent_id)
    if known is None:
        lock_exclusive(tx, f"agent:{agent_id}")
        known = tx.one(_AGENT, agent_id=agent_id)
    if known is None:
        nothing = {"contract": "{}", "priority": 0, "agent_version": None, "session_token": None}
        agents.enroll(tx, logged_rows.name("agent_id", agent_id), nothing, ns=ns)
    elif known[0] != ns:
        raise AlreadyExistsError(f"the name {agent_id} is taken", agent_id=agent_id)


def enroll(tx: Tx, agent_id: str, given: dict[str, Any], *, status: str, ns: str) -> None:
    """Enroll an agent as the other kernel says, its token and the text of its contract as they are given."""
    logged_rows.one_of("status", status, STATUSES)
    demoted = {} if status == "ACTIVE" else {"status": status}
    agents.enroll(tx, logged_rows.name("agent_id", agent_id), given | demoted, ns=ns)


_FLOW = sql("SELECT ns FROM decision_flows WHERE dfid = :dfid")


def flow(tx: Tx, flow_id: str, *, agent_id: str | None = None, root: str | None = None, ns: str) -> None:
    """Make sure that there is such a flow, and its root."""
    if _there(tx, flow_id, ns):
        return
    family = sorted({flow_id, root or flow_id})
    for each in family:
        lock_exclusive(tx, f"flow:{each}")
    if _there(tx, flow_id, ns):
        return
    owner = agent_id or KERNEL
    agent(tx, owner, ns=ns)
    if root is not None and root != flow_id and not _there(tx, root, ns):
        flows.enter(tx, owner, flow_id=logged_rows.name("root_flow_id", root), ns=ns)
    parent = root if root != flow_id else None
    flows.enter(tx, owner, flow_id=logged_rows.name("flow_id", flow_id), parent=parent, ns=ns)


def _there(tx: Tx, flow_id: str, ns: str) -> bool:
    known = tx.one(_FLOW, dfid=flow_id)
    if known is not None and known[0] != ns:
        raise AlreadyExistsError(f"there is a flow {flow_id} already", flow_id=flow_id)
    return known is not None
