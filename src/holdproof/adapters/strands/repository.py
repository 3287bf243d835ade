"""The `SessionRepository` of Strands: a transcript for each agent of a session, its messages as items.

Rules:
- A message is durable when `create_message` returns. Its id is given once: of two processes that continue one session
  at once, the second is refused, and nothing of the first is overwritten.
- A redacted message stays where it was, and what it said before is gone from the database.
- Messages are listed by their ids, whatever was updated since.
"""

from typing import Any, Final

from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage

from holdproof.adapters import documents
from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where
from holdproof.errors import ConflictError, InvalidInputError, NotFoundError
from holdproof.kernel import Tx, transcripts

SESSIONS: Final = "strands/"
AGENTS: Final = "strands-agent/"
GROUPS: Final = "strands-multi/"


class HoldproofSessionRepository(StoreAdapter, SessionRepository):
    """Sessions on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `subject` names the person whose sessions these are: `store.erase.subject(name)` then removes them.
    """

    def __init__(self, where: Where = None, *, subject: str | None = None, ns: str | None = None) -> None:
        self._shared = SharedStore(where, ns=ns)
        self._subject = subject

    # --- sessions ----------------------------------------------------------------------------------------------------

    def create_session(self, session: Session, **_: Any) -> Session:
        """Write a new session; SessionException where there is one with its id."""
        name = documents.joined(SESSIONS, session.session_id)
        self._create(name, session.to_dict(), f"Session {session.session_id} already exists")
        return session

    def read_session(self, session_id: str, **_: Any) -> Session | None:
        """Return a session, None where there is none."""
        state = self._state(documents.joined(SESSIONS, session_id))
        return None if state is None else Session.from_dict(state)

    def delete_session(self, session_id: str, **_: Any) -> None:
        """Delete a session with all that is in it; SessionException where there is none."""
        within = self._within()

        def write(tx: Tx) -> None:
            if not transcripts.delete(tx, documents.joined(SESSIONS, session_id), **within):
                raise SessionException(f"Session {session_id} does not exist")
            for prefix in (AGENTS, GROUPS):
                for each in list(documents.every(tx, documents.joined(prefix, session_id, ""), **within)):
                    transcripts.delete(tx, each.name, **within)

        self._shared.sync_store().write(write)

    # --- agents ------------------------------------------------------------------------------------------------------

    def create_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Write a new agent of a session; SessionException where there is one with its id, or no such session."""
        self._check_session(session_id)
        name = documents.joined(AGENTS, session_id, session_agent.agent_id)
        message = f"Agent {session_agent.agent_id} already exists in session {session_id}"
        self._create(name, session_agent.to_dict(), message)

    def read_agent(self, session_id: str, agent_id: str, **_: Any) -> SessionAgent | None:
        """Return an agent of a session, None where there is none."""
        state = self._state(documents.joined(AGENTS, session_id, agent_id))
        return None if state is None else SessionAgent.from_dict(state)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Write an agent in the place of what it was; SessionException where there is none."""
        name = documents.joined(AGENTS, session_id, session_agent.agent_id)
        created_at = self._update(name, session_agent.to_dict(), f"Agent {session_agent.agent_id}", session_id)
        session_agent.created_at = created_at

    # --- messages ----------------------------------------------------------------------------------------------------

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any) -> None:
        """Add a message of an agent; SessionException where there is one with its id, or no such agent."""
        name = documents.joined(AGENTS, session_id, agent_id)
        value = documents.exact("a message", session_message.to_dict())
        key = _key(session_message.message_id)
        within = self._within()

        def write(tx: Tx) -> None:
            self._check_agent(tx, name, session_id, agent_id)
            if not transcripts.append_new(tx, name, [(key, value)], subject=self._subject, **within):
                raise SessionException(
                    f"Message {key} already exists in agent {agent_id} in session {session_id}: another process"
                    " continues this session too"
                )

        self._shared.sync_store().write(write)

    def read_message(self, session_id: str, agent_id: str, message_id: int, **_: Any) -> SessionMessage | None:
        """Return a message of an agent, None where there is none."""
        name = documents.joined(AGENTS, session_id, agent_id)
        key = _key(message_id)
        try:
            item = self._shared.sync_store().transcripts.get_item(name, key, **self._within())
        except NotFoundError:
            return None
        return SessionMessage.from_dict(item.value)

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any) -> None:
        """Write a message in the place of what it was; SessionException where there is none."""
        name = documents.joined(AGENTS, session_id, agent_id)
        key = _key(session_message.message_id)
        value = documents.exact("a message", session_message.to_dict())
        within = self._within()

        def write(tx: Tx) -> str:
            try:
                created_at = str(transcripts.get_item(tx, name, key, **within).value["created_at"])
            except NotFoundError:
                raise SessionException(f"Message {key} does not exist") from None
            transcripts.put_item(tx, name, key, {**value, "created_at": created_at}, **within)
            return created_at

        session_message.created_at = self._shared.sync_store().write(write)

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **_: Any
    ) -> list[SessionMessage]:
        """Return the messages of an agent by their ids; SessionException where there is no such agent."""
        name = documents.joined(AGENTS, session_id, agent_id)
        within = self._within()

        def read(tx: Tx) -> list[dict[str, Any]]:
            self._check_agent(tx, name, session_id, agent_id)
            return [item.value for item in transcripts.read_items(tx, name, **within)]

        values = self._shared.sync_store().read(read)
        # An updated message is the last item of its transcript, but keeps its place in the conversation.
        values.sort(key=lambda value: value["message_id"])
        end = None if limit is None else offset + limit
        return [SessionMessage.from_dict(value) for value in values[offset:end]]

    # --- several agents ----------------------------------------------------------------------------------------------

    def create_multi_agent(self, session_id: str, multi_agent: Any, **_: Any) -> None:
        """Write the state of a new group of agents; SessionException where there is one with its id."""
        self._check_session(session_id)
        name = documents.joined(GROUPS, session_id, multi_agent.id)
        message = f"MultiAgent {multi_agent.id} already exists in session {session_id}"
        self._create(name, multi_agent.serialize_state(), message)

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **_: Any) -> dict[str, Any] | None:
        """Return the state of a group of agents, None where there is none."""
        return self._state(documents.joined(GROUPS, session_id, multi_agent_id))

    def update_multi_agent(self, session_id: str, multi_agent: Any, **_: Any) -> None:
        """Write the state of a group of agents in the place of what it was; SessionException where there is none."""
        name = documents.joined(GROUPS, session_id, multi_agent.id)
        self._update(name, multi_agent.serialize_state(), f"MultiAgent state {multi_agent.id}", session_id)

    # --- documents ---------------------------------------------------------------------------------------------------

    def _create(self, name: str, value: Any, conflict: str) -> None:
        """Write a document that is not there yet."""
        put = self._shared.sync_store().transcripts.put_state
        try:
            put(name, documents.exact("a state", value), expected=0, subject=self._subject, **self._within())
        except ConflictError as error:
            raise SessionException(conflict) from error

    def _update(self, name: str, value: dict[str, Any], what: str, session_id: str) -> str:
        """Write a document in the place of the one that is there; return when that was created."""
        within = self._within()

        def write(tx: Tx) -> str:
            try:
                before = transcripts.get(tx, name, **within).state
            except NotFoundError:
                raise SessionException(f"{what} in session {session_id} does not exist") from None
            created_at = str(before.get("created_at", ""))
            merged = {**value, "created_at": created_at} if "created_at" in value else value
            transcripts.put_state(tx, name, documents.exact("a state", merged), **within)
            return created_at

        return self._shared.sync_store().write(write)

    def _state(self, name: str) -> dict[str, Any] | None:
        try:
            state: dict[str, Any] = self._shared.sync_store().transcripts.get(name, **self._within()).state
        except NotFoundError:
            return None
        return state

    def _check_session(self, session_id: str) -> None:
        if self._state(documents.joined(SESSIONS, session_id)) is None:
            raise SessionException(f"Session {session_id} does not exist")

    def _check_agent(self, tx: Tx, name: str, session_id: str, agent_id: str) -> None:
        try:
            transcripts.get(tx, name, **self._within())
        except NotFoundError:
            raise SessionException(f"Agent {agent_id} does not exist in session {session_id}") from None


def _key(message_id: Any) -> str:
    if isinstance(message_id, bool) or not isinstance(message_id, int):
        raise InvalidInputError(f"message_id=<{message_id}> | message id must be an integer", field="message_id")
    return str(message_id)
