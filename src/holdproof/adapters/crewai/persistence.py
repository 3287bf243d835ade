"""The `FlowPersistence` of CrewAI: a transcript for each flow, and an escalation for each pause.

Rules:
- A state is durable when `save_state` returns. It is written whole, the last writer's.
- A pause, its state and its request in the inbox are one: either all of them are there, or none.
- A flow waits for one decision at most. Where it is resumed by its own call, the request is taken out of the inbox.
- A value that JSON has no form for is written as its text, which CrewAI promises; NaN and cycles are refused.
"""

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Final

from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence.base import FlowPersistence
from pydantic import BaseModel, PrivateAttr, field_serializer
from pydantic_core import PydanticSerializationError

from holdproof import sync
from holdproof.adapters import documents
from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where, located
from holdproof.errors import ConflictError, InvalidInputError, NotFoundError
from holdproof.kernel import Refused, Tx, autocreate, escalations, flows, inbox, transcripts
from holdproof.model.coordination import Escalation

PREFIX: Final = "crewai/"
FRAMEWORK: Final = "crewai"
DEADLINE: Final = "deadline"
_UNNAMED: Final = "<a store that a checkpoint does not name>"


class HoldproofFlowPersistence(StoreAdapter, FlowPersistence):
    """States of flows on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `subject` names the person whose flows these are: `store.erase.subject(name)` then removes them. `agent_id` is who
    asks in the inbox; without it, the class of the flow. `deadline_s` limits how long a pause waits for its decision.
    """

    model_config: ClassVar[Any] = {"arbitrary_types_allowed": True}

    persistence_type: str = "HoldproofFlowPersistence"
    where: Any = None
    subject: str | None = None
    agent_id: str | None = None
    deadline_s: float | None = None
    ns: str | None = None
    _shared: SharedStore = PrivateAttr()

    def __init__(self, where: Where = None, /, **options: Any) -> None:
        where = options.pop("where", where)
        super().__init__(where=where, **options)
        self._shared = SharedStore(where, ns=self.ns)

    @field_serializer("where")
    def _dumped(self, where: Any) -> str | None:
        """Return the folder for a checkpoint of CrewAI; a URL may hold a password, and is not written down."""
        if where is None:
            return None
        folder = located(where)[0] if isinstance(where, str | Path) else None
        return _UNNAMED if folder is None else str(folder)

    # --- states ------------------------------------------------------------------------------------------------------

    def init_db(self) -> None:
        """Do nothing: a store that is open has its tables."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel) -> None:
        """Write the state of a flow in the place of the one before."""
        name = documents.joined(PREFIX, flow_uuid)
        changes = {"method": method_name, "state": _plain(state_data)}
        self._store().write(lambda tx: self._change(tx, name, changes))

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the newest state of a flow, None where there is none."""
        return self._document(flow_uuid).get("state")

    # --- pauses ------------------------------------------------------------------------------------------------------

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: dict[str, Any] | BaseModel
    ) -> None:
        """Write the state of a flow that waits for a person, and ask in the inbox; a request before is cancelled.

        Raises BudgetExhaustedError where the agent has spent its budget of requests: the state is saved all the same.
        """
        name = documents.joined(PREFIX, flow_uuid)
        state = _plain(state_data)
        request = documents.exact("a context", context.to_dict())
        agent_id = self.agent_id or context.flow_class.rpartition(".")[2] or FRAMEWORK

        def write(tx: Tx) -> Refused | None:
            self._settle(tx, name)
            self._change(tx, name, {"method": context.method_name, "state": state, "pending": None})
            escalation = self._request(tx, flow_uuid, request, agent_id)
            if isinstance(escalation, Refused):
                return escalation
            self._change(tx, name, {"pending": {"context": request, "state": state, "escalation": escalation.id}})
            return None

        self._store().write(write)

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return state and context of a flow that waits, None for one that does not."""
        pending = self._document(flow_uuid).get("pending")
        if pending is None:
            return None
        return pending["state"], PendingFeedbackContext.from_dict(pending["context"])

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """End a pause: the flow goes on. A request that nobody decided is taken out of the inbox."""
        name = documents.joined(PREFIX, flow_uuid)

        def write(tx: Tx) -> None:
            if self._settle(tx, name):
                self._change(tx, name, {"pending": None})

        self._store().write(write)

    def wait_feedback(self, flow_uuid: str, *, timeout_s: float | None = None) -> str:
        """Wait for the decision about a paused flow and return it as the feedback that `Flow.resume` takes.

        That is the comment, or `feedback` of an approval with changes, else `approved` or `rejected`; where
        the deadline decided, nothing: CrewAI takes the default outcome then.

        Raises NotFoundError where the flow does not wait, ConflictError where nobody has decided when the time is
        over, or the request was cancelled.
        """
        pending = self._document(flow_uuid).get("pending")
        if pending is None:
            raise NotFoundError(f"the flow {flow_uuid} waits for no feedback", flow_uuid=flow_uuid)
        id = pending["escalation"]
        escalation = self._store().escalations.wait(id, timeout_s=timeout_s, **self._within())
        if escalation.status == "PENDING":
            raise ConflictError(f"escalation {id} is not decided yet", id=id)
        if escalation.status == "CANCELLED":
            raise ConflictError(f"escalation {id} was cancelled by {escalation.resolved_by}", id=id)
        return _feedback(escalation)

    # --- rows --------------------------------------------------------------------------------------------------------

    def _store(self) -> sync.Holdproof:
        # Not sooner: CrewAI restores every flow of a process with a checkpoint, also those that nobody goes on with.
        if self.where == _UNNAMED:
            raise InvalidInputError(
                "the checkpoint does not name the store of its flow, which was open or has a URL: pass persistence=",
                field="where",
            )
        return self._shared.sync_store()

    def _change(self, tx: Tx, name: str, changes: Mapping[str, Any]) -> None:
        transcripts.append(tx, name, (), changes=changes, subject=self.subject, **self._within())

    def _document(self, flow_uuid: str) -> dict[str, Any]:
        name = documents.joined(PREFIX, flow_uuid)
        try:
            document: dict[str, Any] = self._store().transcripts.get(name, **self._within()).state
        except NotFoundError:
            return {}
        return document

    def _request(self, tx: Tx, flow_uuid: str, request: Mapping[str, Any], agent_id: str) -> Escalation | Refused:
        within = self._within()
        autocreate.agent(tx, agent_id, **within)
        flow = flows.start(tx, agent_id, flow_type=FRAMEWORK, subject=self.subject, **within)
        flows.transition(tx, flow.flow_id, "RUNNING", **within)
        escalation = escalations.request(
            tx,
            flow.flow_id,
            reason=request["message"] or "the flow waits for feedback",
            context={
                "framework": FRAMEWORK,
                "flow": flow_uuid,
                "method": request["method_name"],
                "outcomes": request["emit"],
            },
            proposal={"output": request["method_output"], "feedback": None},
            deadline_s=self.deadline_s,
            **within,
        )
        if isinstance(escalation, Refused) and flows.get(tx, flow.flow_id, **within).status == "RUNNING":
            # Nobody works on this flow: it is there to ask, and may not.
            flows.transition(tx, flow.flow_id, "FAILED", reason="the budget of requests is spent", **within)
        return escalation

    def _settle(self, tx: Tx, name: str) -> bool:
        """End the request of a paused flow, decided or not; return whether the flow is paused."""
        within = self._within()
        try:
            transcripts.get(tx, name, **within)
        except NotFoundError:
            return False
        # Changing nothing takes the row: of two processes that end a pause, the second sees that it is over.
        pending = transcripts.update_state(tx, name, {}, **within).get("pending")
        if pending is None:
            return False
        escalation = inbox.get(tx, pending["escalation"], **within)
        flow = flows.get(tx, escalation.flow_id, **within)
        if escalation.status == "PENDING":
            comment = "the flow was resumed by its own call"
            escalations.resolve(tx, escalation.id, "cancel", by=FRAMEWORK, comment=comment, **within)
        elif flow.status == "RUNNING":
            flows.transition(tx, flow.flow_id, "COMPLETED", causation_id=f"escalation:{escalation.id}", **within)
        return True


def _feedback(escalation: Escalation) -> str:
    if escalation.resolved_by == DEADLINE:
        return ""
    changed = escalation.answer.get("feedback") if isinstance(escalation.answer, Mapping) else None
    if isinstance(changed, str) and changed:
        return changed
    return escalation.comment or ("approved" if escalation.approved else "rejected")


def _plain(state: Any) -> dict[str, Any]:
    """Return a state as JSON; CrewAI makes the types of a structured state anew from it."""
    if not isinstance(state, dict | BaseModel):
        kind = type(state).__name__
        raise InvalidInputError(f"a state must be a dict or a pydantic model, not {kind}", field="state")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(_fields(state), default=_text, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"the state holds what JSON cannot: {error}", field="state") from error
    return plain


def _fields(state: dict[str, Any] | BaseModel) -> dict[str, Any]:
    if isinstance(state, dict):
        return state
    try:
        return state.model_dump(mode="json")
    except PydanticSerializationError:
        # A field without a form in JSON: the others keep theirs.
        return state.model_dump()


def _text(value: Any) -> Any:
    """Return what stands for a value in JSON: as CrewAI's own persistence does it, a text where there is no form."""
    if isinstance(value, BaseModel):
        return _fields(value)
    if isinstance(value, set | frozenset):
        return list(value)
    return value.isoformat() if isinstance(value, date) else str(value)
