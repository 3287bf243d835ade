"""DIR's storages for what guards: idempotency, sagas, locks, retries, escalations."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from holdproof.adapters.dir.storage import PAGE, DirStore, Storage, dumps, text
from holdproof.adapters.dir.turns import LastRead, TurnTaking
from holdproof.errors import ContentionTimeoutError, NotFoundError
from holdproof.kernel import (
    Tx,
    autocreate,
    budgets,
    escalation_rows,
    escalations,
    flows,
    idempotency,
    inbox,
    locks,
    retries,
    sagas,
)
from holdproof.model.coordination import Escalation
from holdproof.model.times import utc

_TTL_S: Final = 365 * 86_400.0
_PATIENCE_S: Final = 0.5


class IdempotencyStorage(Storage):
    """Results by key. Of any number of callers that find nothing, one is to execute; the others wait for its result."""

    def __init__(self, dir_store: DirStore, *, lease_s: float) -> None:
        super().__init__(dir_store)
        self._lease_s = lease_s
        self._claims: LastRead[str] = LastRead()

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the result of a key; None tells this caller to execute. A result that was None comes back as `{}`."""
        mark = self._claims.take(key)
        # This thread was told to execute and asks again: its step failed, and it still holds the claim.
        if mark is not None and self._is_still_ours(key, mark):  # it tries again
            self._claims.record(key, value=mark)
            return None
        entry = self._dir_store.find(lambda tx: idempotency.get(tx, key, ns=self._ns))
        if entry is None or entry.state != "DONE":
            claim = idempotency.claim(key, ttl_s=_TTL_S, lease_s=self._lease_s, ns=self._ns)
            outcome = self._store.run(claim)
            if isinstance(outcome, str):
                self._claims.record(key, value=outcome)
                return None
            entry = outcome
        return {} if entry.result is None else entry.result

    def _is_still_ours(self, key: str, mark: str) -> bool:
        return self._store.write(lambda tx: idempotency.renew(tx, key, mark, lease_s=self._lease_s, ns=self._ns))

    def set(self, key: str, result: Mapping[str, Any]) -> None:
        """Keep the result of a key for a year."""
        result_json = dumps(result)
        mark = self._claims.take(key) or ""
        self._store.write(lambda tx: idempotency.store(tx, key, result_json, owner=mark, ttl_s=_TTL_S, ns=self._ns))


class SagaStorage(Storage):
    """Flows with something to undo."""

    def mark_dirty(self, dfid: str, failed_step: str, partial_state_json: str) -> None:
        """Say that a flow failed at a step, with that much done."""
        partial_state = text("partial_state_json", partial_state_json)

        def write(tx: Tx) -> None:
            autocreate.flow(tx, dfid, ns=self._ns)
            sagas.put(tx, dfid, failed_step, partial_state, ns=self._ns)

        self._store.write(write)

    def get_dirty_flows(self) -> list[str]:
        """Return the flows that are dirty."""

        def page(tx: Tx, cursor: str) -> tuple[list[str], str | None]:
            listed = sagas.list(tx, ns=self._ns, cursor=cursor or None, limit=PAGE)
            return [dirty.flow_id for dirty in listed.items], listed.next_cursor

        return sorted(self._dir_store.read_all(page, ""))

    def get_dirty_state(self, dfid: str) -> dict[str, Any] | None:
        """Return what is known of a dirty flow."""
        dirty = self._dir_store.find(lambda tx: sagas.get(tx, dfid, ns=self._ns))
        return None if dirty is None else {"failed_step": dirty.failed_step, "partial_state": dirty.partial_state}

    def clear_dirty(self, dfid: str) -> None:
        """Say that a flow has nothing more to undo."""
        with suppress(NotFoundError):
            self._store.write(lambda tx: sagas.drop(tx, dfid, ns=self._ns))


class ResourceLockStorage(Storage):
    """Amounts of resources in the hands of flows; their capacity is the manager's to know."""

    def __init__(self, dir_store: DirStore) -> None:
        super().__init__(dir_store)
        self._seen: LastRead[float] = LastRead()

    def get_locked_amount(self, resource_id: str, exclude_dfid: str) -> float:
        """Return how much of a resource others hold."""
        others = self._store.read(lambda tx: locks.amount_of_others(tx, resource_id, exclude_dfid, ns=self._ns))
        return self._seen.record(resource_id, exclude_dfid, value=others)

    def acquire_batch(self, dfid: str, resources: Mapping[str, float], timeout_sec: float) -> bool:
        """Take all these amounts, or none: refused at once if others hold more than this thread was told before."""
        del timeout_sec  # the manager looks again, which waiting here would only delay
        others = {resource: self._seen.take(resource, dfid) or 0.0 for resource in resources}

        def write(tx: Tx) -> None:
            autocreate.flow(tx, dfid, ns=self._ns)
            locks.reserve(tx, dfid, resources, expected=others, ns=self._ns)

        try:
            self._store.write(write)
        except ContentionTimeoutError:
            return False
        return True

    def release(self, dfid: str) -> None:
        """Let everything go that a flow holds."""
        self._store.locks.release_all(dfid, ns=self._ns)


class IntentRetryStorage(Storage):
    """How often a flow's intent was rejected."""

    def __init__(self, dir_store: DirStore) -> None:
        super().__init__(dir_store)
        self._seen: LastRead[int] = LastRead()

    def get_count(self, dfid: str) -> int:
        """Return the count of a flow."""
        counter = self._dir_store.find(lambda tx: retries.get(tx, dfid, ns=self._ns))
        return self._seen.record(dfid, value=0 if counter is None else counter.rejection_count)

    def set_count(self, dfid: str, count: int) -> None:
        """Set the count of a flow; what this thread added to the count it was told is never lost."""
        last_count = self._seen.take(dfid)

        def write(tx: Tx) -> None:
            autocreate.flow(tx, dfid, ns=self._ns)
            retries.set_count(tx, dfid, count, base=last_count, ns=self._ns)

        self._store.write(write)

    def delete(self, dfid: str) -> None:
        """Forget the count of a flow."""
        self._store.write(lambda tx: retries.delete(tx, dfid, ns=self._ns))


class EscalationStorage(Storage):
    """Questions to people, and what they cost."""

    def __init__(self, dir_store: DirStore) -> None:
        super().__init__(dir_store)
        self._seen: LastRead[tuple[str, int]] = LastRead()
        self._turns = TurnTaking(_PATIENCE_S)

    def get_window_count(self, agent_id: str, since_str: str) -> int:
        """Return how many escalations an agent has spent since a moment (UTC), that one included."""
        since = utc(since_str)
        # DIR's manager reads the count and spends right after: other threads wait until it has.
        self._turns.begin(agent_id)
        count = self._store.read(lambda tx: budgets.count(tx, agent_id, since=since, ns=self._ns))
        return self._seen.record(agent_id, value=(since, count))[1]

    def record_budget_token(self, agent_id: str) -> None:
        """Spend one; ConflictError if others have spent since this thread was told the count: look again."""
        last_read = self._seen.take(agent_id)
        limit: dict[str, Any] = {} if last_read is None else {"since": last_read[0], "expected": last_read[1]}

        def write(tx: Tx) -> None:
            autocreate.agent(tx, agent_id, ns=self._ns)
            budgets.spend(tx, agent_id, **limit, ns=self._ns)

        try:
            self._store.write(write)
        finally:
            self._turns.end(agent_id)

    def insert_request(  # noqa: PLR0917 (the signature is DIR's)
        self, dfid: str, agent_id: str, reason: str, context_json: str, proposal_json: str, impact: str
    ) -> None:
        """Ask a person; where the flow goes meanwhile is for its lifecycle to say."""
        columns = {"agent_id": agent_id, "reason": reason, "impact": str(impact)}
        columns |= {"context_json": text("context_json", context_json)}
        columns |= {"proposal_json": text("proposal_json", proposal_json)}

        def write(tx: Tx) -> None:
            autocreate.flow(tx, dfid, agent_id=agent_id, ns=self._ns)
            flows.lock(tx, dfid, ns=self._ns)  # before its agent, as everybody does
            autocreate.agent(tx, agent_id, ns=self._ns)
            escalations.write(tx, dfid, columns, ns=self._ns)

        self._store.write(write)

    def resolve_request(self, dfid: str, resolved_at: str, decision: str, proposal_json: str | None) -> None:
        """Answer every pending question of a flow; another proposal stands beside the one that was shown."""
        # DIR's words, kept in its columns; people see the plain outcome.
        status = "REJECTED" if str(decision).upper() == "ABORT" else "APPROVED"
        answer: dict[str, Any] = {"status": status, "human_decision": str(decision), "resolved_at": utc(resolved_at)}
        answer |= {"resolved_by": autocreate.KERNEL}
        answer |= {"answer_json": text("proposal_json", proposal_json) if proposal_json else None}

        def write(tx: Tx) -> None:
            flows.lock(tx, dfid, ns=self._ns)
            escalation_rows.approve_all(tx, dfid, answer, ns=self._ns)

        with suppress(NotFoundError):
            self._store.write(write)

    def get_pending_requests(self) -> list[dict[str, Any]]:
        """Return the questions that wait for an answer, oldest first."""

        def page(tx: Tx, after: int) -> tuple[list[dict[str, Any]], int | None]:
            pending = inbox.scan_pending(tx, ns=self._ns, after=after, limit=PAGE)
            return [_request(each) for each in pending], pending[-1].id if len(pending) == PAGE else None

        return self._dir_store.read_all(page, 0)


def _request(escalation: Escalation) -> dict[str, Any]:
    names = ("agent_id", "reason", "context", "proposal", "impact")
    return {"dfid": escalation.flow_id, **{name: getattr(escalation, name) for name in names}}
