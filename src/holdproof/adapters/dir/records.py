"""DIR's storages for what is recorded: agents, contexts, audit, ledger, transitions."""

from collections.abc import Mapping
from typing import Any

from holdproof import validation
from holdproof.adapters.dir.storage import PAGE, Storage, dumps, named_agent, text
from holdproof.errors import NotFoundError
from holdproof.kernel import Tx, agents, audit, autocreate, contexts, documents, flows, ledger, state
from holdproof.model.records import SEVERITIES, AuditEvent, LedgerEntry


class AgentRegistryStorage(Storage):
    """Agents, their contracts and their status."""

    def upsert_agent(  # noqa: PLR0917 (the signature is DIR's)
        self,
        agent_id: str,
        contract_json: str,
        priority: int,
        status: str,
        agent_version: str | None,
        session_token: str | None,
    ) -> None:
        """Register an agent, or renew its contract and token; state, budget, history and a suspension stay."""
        # DIR hands over JSON texts: they are stored as they are, so that hashes of them still match.
        columns = {"contract": text("contract_json", contract_json), "priority": priority}
        columns |= {"agent_version": agent_version, "session_token": session_token}
        self._store.write(lambda tx: autocreate.enroll(tx, agent_id, columns, status=str(status), ns=self._ns))

    def get_agent(self, agent_id: str) -> dict[str, Any] | None:
        """Return an agent with its contract and token."""
        pair = self._dir_store.find(
            lambda tx: (agents.get(tx, agent_id, ns=self._ns), agents.token(tx, agent_id, ns=self._ns))
        )
        if pair is None:
            return None
        agent, token = pair
        names = ("agent_id", "contract", "priority", "status", "agent_version")
        return {**{name: getattr(agent, name) for name in names}, "session_token": token}

    def update_status(self, agent_id: str, status: str, suspension_reason: str | None) -> bool:
        """Change what an agent may do; whether there is one."""
        try:
            self._store.agents.set_status(agent_id, str(status), reason=suspension_reason, ns=self._ns)
        except NotFoundError:
            return False
        return True

    def get_status(self, agent_id: str) -> tuple[str, str | None] | None:
        """Status and reason of an agent."""
        agent = self._dir_store.find(lambda tx: agents.get(tx, agent_id, ns=self._ns))
        return None if agent is None else (agent.status, agent.suspension_reason)

    def list_active_agents(self) -> list[str]:
        """Return the names of all agents that are ACTIVE."""

        def page(tx: Tx, cursor: str) -> tuple[list[str], str | None]:
            listed = agents.list(tx, status="ACTIVE", ns=self._ns, cursor=cursor or None, limit=PAGE)
            return [agent.agent_id for agent in listed.items], listed.next_cursor

        return self._dir_store.read_all(page, "")


class ContextStorage(Storage):
    """What flows are given and agents keep, as the very text that was given."""

    def get_session(self, dfid: str) -> str | None:
        """The text of a flow's context; nothing of one that was taken."""
        document = self._dir_store.find(lambda tx: documents.get(tx, contexts.CONTEXTS, dfid, self._ns))
        if document is None:
            return None
        _, stored = document
        return None if stored.taken_at is not None else stored.data

    def set_session(self, dfid: str, data_json: str, *, agent_id: str | None = None) -> None:
        """Give a flow its context."""
        body = validation.json_text("data_json", data_json)

        def write(tx: Tx) -> None:
            autocreate.flow(tx, dfid, agent_id=named_agent(agent_id), ns=self._ns)
            documents.put(tx, contexts.CONTEXTS, dfid, body, expected=None, ns=self._ns)

        self._store.write(write)

    def get_state(self, agent_id: str) -> str | None:
        """The text of an agent's state."""
        document = self._dir_store.find(lambda tx: documents.get(tx, state.STATES, agent_id, self._ns))
        if document is None:
            return None
        _, stored = document
        return stored.data

    def set_state(self, agent_id: str, data_json: str) -> None:
        """Keep a state for an agent."""
        body = validation.json_text("data_json", data_json)

        def write(tx: Tx) -> None:
            autocreate.agent(tx, agent_id, ns=self._ns)
            documents.put(tx, state.STATES, agent_id, body, expected=None, ns=self._ns)

        self._store.write(write)


class DecisionAuditStorage(Storage):
    """What happened in flows."""

    def record(
        self,
        dfid: str,
        event: str,
        *,
        step_id: str = "",
        state: str = "",
        details: Mapping[str, Any] | None = None,
        root_dfid: str | None = None,
        agent_id: str | None = None,
        severity: str = "INFO",
    ) -> None:
        """Add an event; a severity that DIR does not know is INFO."""
        columns = {"event_type": str(event), "severity": severity if severity in SEVERITIES else "INFO"}
        columns |= {"step_id": step_id, "state": state, "detail_json": dumps(details or {})}
        columns |= {"root_dfid": root_dfid} if root_dfid else {}

        def write(tx: Tx) -> None:
            # DIR records events of flows that it never announced: they are created with the first event.
            autocreate.flow(tx, dfid, agent_id=named_agent(agent_id, details), root=root_dfid, ns=self._ns)
            audit.write(tx, dfid, columns, ns=self._ns)

        self._store.write(write)

    def events_for_dfid(self, dfid: str) -> list[dict[str, Any]]:
        """Return the events of one flow, in the order they came."""

        def page(tx: Tx, after: int) -> tuple[list[dict[str, Any]], int | None]:
            events = audit.scan(tx, flow_id=dfid, ns=self._ns, after=after, limit=PAGE)
            return [_event(event) for event in events], events[-1].id if len(events) == PAGE else None

        return self._dir_store.read_all(page, 0)

    def all_events_chronological(self) -> list[dict[str, Any]]:
        """Return the events of all flows, in the order they came."""

        def page(tx: Tx, after: int) -> tuple[list[dict[str, Any]], int | None]:
            events = audit.scan(tx, ns=self._ns, after=after, limit=PAGE)
            return [_event(event) for event in events], events[-1].id if len(events) == PAGE else None

        return self._dir_store.read_all(page, 0)


def _event(event: AuditEvent) -> dict[str, Any]:
    return {
        "dfid": event.flow_id,
        "root_dfid": event.root_flow_id,
        "event": event.event_type,
        "event_type": event.event_type,
        "timestamp": event.created_at,
        "created_at": event.created_at,
        "severity": event.severity,
        "step_id": event.step_id,
        "state": event.state,
        "details": event.detail,
    }


class DecisionLedgerStorage(Storage):
    """The one verified intent of each flow."""

    def append(self, pci: Any, *, agent_id: str, root_dfid: str | None = None) -> None:
        """Commit a proof-carrying intent; the first one of a flow stays."""
        columns = {"intent_payload": dumps(pci.intent_payload), "context_ref": pci.context_ref, "agent_id": agent_id}
        columns |= {"evidence_hash": pci.evidence_hash, "signature": pci.signature or ""}
        columns |= {"root_dfid": root_dfid} if root_dfid else {}

        def write(tx: Tx) -> None:
            autocreate.flow(tx, pci.dfid, agent_id=agent_id, root=root_dfid, ns=self._ns)
            autocreate.agent(tx, agent_id, ns=self._ns)
            ledger.commit(tx, pci.dfid, columns, ns=self._ns)

        self._store.write(write)

    def get_by_dfid(self, dfid: str) -> dict[str, Any] | None:
        """Return the entry of one flow."""
        entry = self._dir_store.find(lambda tx: ledger.get(tx, dfid, ns=self._ns))
        return None if entry is None else _entry(entry)

    def entries_for_dfid(self, dfid: str) -> list[dict[str, Any]]:
        """Return the entry of one flow, if there is one, as a list."""
        entry = self.get_by_dfid(dfid)
        return [] if entry is None else [entry]

    def all_entries_chronological(self) -> list[dict[str, Any]]:
        """Return all entries, in the order they came."""

        def page(tx: Tx, after: int) -> tuple[list[dict[str, Any]], int | None]:
            entries = ledger.scan(tx, ns=self._ns, after=after, limit=PAGE)
            return [_entry(entry) for entry in entries], entries[-1].id if len(entries) == PAGE else None

        return self._dir_store.read_all(page, 0)


def _entry(entry: LedgerEntry) -> dict[str, Any]:
    names = ("agent_id", "context_ref", "evidence_hash", "signature", "committed_at")
    return {
        "dfid": entry.flow_id,
        "root_dfid": entry.root_flow_id,
        **{name: getattr(entry, name) for name in names},
        "intent_payload": entry.intent,
    }


class LifecycleStorage(Storage):
    """Transitions of flows, in DIR's words."""

    def record_transition(self, dfid: str, from_status: str, to_status: str, *, root_dfid: str | None = None) -> None:
        """Move a flow and record it as given; an illegal move is IllegalTransitionError, and nothing is recorded."""

        def write(tx: Tx) -> None:
            autocreate.flow(tx, dfid, root=root_dfid, ns=self._ns)
            flows.record(tx, dfid, str(from_status), str(to_status), root=root_dfid, ns=self._ns)

        self._store.write(write)
