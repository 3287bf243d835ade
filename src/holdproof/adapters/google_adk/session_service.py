"""The `BaseSessionService` of Google ADK: a transcript for each session, one for the state of an app, one of a user.

Rules:
- An event and all the state it changes, of session, user and app, are kept as one, or not at all.
- A session object that another writer has overtaken is refused (StaleSessionError): by its revision, never by a clock.
- State of an app and of a user is changed key by key: sessions that change other keys at the same time lose nothing.
- `last_update_time` is the timestamp of the last event, as in ADK's own services; of a session without one, when it was
  made.
- `temp:` is for the running invocation and reaches no disk. Events that are partial are not kept.
- A value of state that JSON cannot hold is refused, and not turned into some text.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdproof.adapters import documents
from holdproof.adapters.google_adk import places
from holdproof.adapters.shared_store import Where, shield_until_done
from holdproof.errors import ConflictError, InvalidInputError, NotFoundError
from holdproof.kernel import Tx, transcripts
from holdproof.model.transcripts import Transcript

_SESSION = "adk/session"
_USER = "adk/user"
_APP = "adk/app"
_STALE: Final = "the session has been modified in storage since it was read: get it again"


class HoldproofSessionService(places.StoreService, BaseSessionService):
    """Sessions on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `uri` is how a `services.yaml` names the store; what else ADK passes there is not needed.
    """

    def __init__(
        self, where: Where = None, *, uri: str | None = None, ns: str | None = None, agents_dir: str | None = None
    ) -> None:
        del agents_dir
        self._shared = places.open_shared(where, uri, ns)

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Begin a session; AlreadyExistsError where there is one with that id."""
        parts = _parted(state or {})
        id = (session_id or "").strip()
        ns = self._ns

        def write(tx: Tx) -> Session:
            chosen = id or tx.new_id()
            name = _name(_SESSION, app_name, user_id, chosen)
            # App before user before session, in every method: two writers never wait for each other in a ring.
            app, user = self._share(tx, app_name, user_id, parts, ns)
            try:
                rev = transcripts.append(tx, name, (), state=parts[""], expected=0, ns=ns)
            except ConflictError as error:
                raise AlreadyExistsError(f"Session with id {chosen} already exists.") from error
            session = Session(
                id=chosen,
                app_name=app_name,
                user_id=user_id,
                state=_merged(app, user, parts[""]),
                last_update_time=_seconds(tx.now),
            )
            return _marked(session, rev)

        return await shield_until_done((await self._shared.store()).write(write))

    def _share(
        self, tx: Tx, app_name: str, user_id: str, parts: Mapping[str, dict[str, Any]], ns: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Change what sessions share, always in this order; the state of the app and of the user."""
        app = _name(_APP, app_name)
        user = _name(_USER, app_name, user_id)
        return (
            transcripts.update_state(tx, app, parts["app"], ns=ns) if parts["app"] else _state(tx, app, ns),
            transcripts.update_state(tx, user, parts["user"], ns=ns) if parts["user"] else _state(tx, user, ns),
        )

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session with its state and its events, or those that `config` asks for; None where there is none."""
        ns = self._ns
        name = _name(_SESSION, app_name, user_id, session_id.strip())
        after = config.after_timestamp if config else None
        last = config.num_recent_events if config else None

        def read(tx: Tx) -> tuple[Transcript, list[Any], dict[str, Any]] | None:
            try:
                transcript = transcripts.get(tx, name, ns=ns)
            except NotFoundError:
                return None
            # One at least, for the time of the last event.
            items = transcripts.read_items(tx, name, last=None if after or last is None else max(1, last), ns=ns)
            app = _state(tx, _name(_APP, app_name), ns)
            user = _state(tx, _name(_USER, app_name, user_id), ns)
            return transcript, [item.value for item in items], _merged(app, user, transcript.state)

        stored = await (await self._shared.store()).read(read)
        if stored is None:
            return None
        transcript, values, state = stored
        updated = _updated(transcript, values[-1] if values else None)
        if after:
            values = [value for value in values if value["timestamp"] >= after]
        # ADK filters by time first, then takes the last so many.
        values = values if last is None else values[max(0, len(values) - last) :]
        return _session(transcript, state, updated, [Event.model_validate(value) for value in values])

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of an app or of one of its users, without their events, the one with the latest event last."""
        within = _name(_SESSION, app_name, *([] if user_id is None else [user_id])) + "/"
        ns = self._ns

        def read(tx: Tx) -> list[Session]:
            app = _state(tx, _name(_APP, app_name), ns)
            events = transcripts.last_items(tx, prefix=within, ns=ns)
            users = dict[str, dict[str, Any]]()
            sessions = []
            for one in documents.every(tx, within, ns=ns):
                user = _parts(one)[1]
                if user not in users:
                    users[user] = _state(tx, _name(_USER, app_name, user), ns)
                updated = _updated(one, events.get(one.name))
                sessions.append(_session(one, _merged(app, users[user], one.state), updated, []))
            return sessions

        sessions = await (await self._shared.store()).read(read)
        sessions.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Remove a session with its events; the state of its user and its app stays."""
        name = _name(_SESSION, app_name, user_id, session_id.strip())
        store = await self._shared.store()
        await shield_until_done(store.transcripts.delete(name, **self._shared.within()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return what is kept of a user in an app, without the prefix `user:`."""
        name = _name(_USER, app_name, user_id)
        ns = self._ns
        return await (await self._shared.store()).read(lambda tx: _state(tx, name, ns))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Keep an event and what it changes; then the session object has it too."""
        if event.partial:
            return event
        delta = event.actions.state_delta if event.actions else {}
        parts = _parted(delta or {})
        body = event.model_dump(mode="json", exclude_none=True)
        if delta:
            body["actions"]["state_delta"] = _plain(
                {k: v for k, v in delta.items() if not k.startswith(State.TEMP_PREFIX)}
            )
        name = _name(_SESSION, session.app_name, session.user_id, session.id)
        ns = self._ns

        def write(tx: Tx) -> int:
            try:
                transcript = transcripts.get(tx, name, ns=ns)
            except NotFoundError as error:
                raise SessionNotFoundError(f"Session {session.id} not found.") from error
            expected_rev = _revision(tx, session, transcript)
            self._share(tx, session.app_name, session.user_id, parts, ns)
            try:
                rev = transcripts.append(tx, name, [body], changes=parts[""], expected=expected_rev, ns=ns)
            except ConflictError as error:
                raise StaleSessionError(_STALE) from error
            return rev

        rev = await shield_until_done((await self._shared.store()).write(write))
        # Only after the commit: a session object never shows an event that was refused.
        appended: Event = await super().append_event(session, event)
        session.last_update_time = event.timestamp
        _marked(session, rev)
        return appended


# --- names -------------------------------------------------------------------------------------------------------


def _name(kind: str, *parts: str) -> str:
    return "/".join([kind, *(quote(part, safe=" @.:") for part in parts)])


def _parts(transcript: Transcript) -> tuple[str, str, str]:
    """App, user and id of a session."""
    app, user, id = transcript.name.removeprefix(_SESSION + "/").split("/")
    return unquote(app), unquote(user), unquote(id)


# --- state -------------------------------------------------------------------------------------------------------


def _parted(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """State by its scope, without prefixes; `temp:` is left out."""
    parts: dict[str, dict[str, Any]] = {"app": {}, "user": {}, "": {}}
    for key, value in _plain({k: v for k, v in state.items() if not k.startswith(State.TEMP_PREFIX)}).items():
        if key.startswith(State.APP_PREFIX):
            parts["app"][key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            parts["user"][key.removeprefix(State.USER_PREFIX)] = value
        else:
            parts[""][key] = value
    return parts


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    try:
        return dict(to_jsonable_python(state))
    except (PydanticSerializationError, ValueError) as error:
        raise InvalidInputError(f"the state holds what JSON cannot: {error}") from error


def _merged(app: Mapping[str, Any], user: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    shared = {State.APP_PREFIX + key: value for key, value in app.items()}
    return {**own, **shared, **{State.USER_PREFIX + key: value for key, value in user.items()}}


def _state(tx: Tx, name: str, ns: str) -> dict[str, Any]:
    try:
        return dict(transcripts.get(tx, name, ns=ns).state)
    except NotFoundError:
        return {}


# --- sessions ----------------------------------------------------------------------------------------------------


def _session(transcript: Transcript, state: dict[str, Any], updated: float, events: list[Event]) -> Session:
    app, user, id = _parts(transcript)
    session = Session(id=id, app_name=app, user_id=user, state=state, events=events, last_update_time=updated)
    return _marked(session, transcript.rev)


def _updated(transcript: Transcript, event: Any) -> float:
    """Return the time of a session's last event; when it was made where there is none."""
    return _seconds(transcript.created_at) if event is None else float(event["timestamp"])


def _marked(session: Session, rev: int) -> Session:
    # ADK's own field for this purpose: it travels with copies of the session.
    session._storage_update_marker = str(rev)
    return session


def _revision(tx: Tx, session: Session, transcript: Transcript) -> int:
    """Return the revision that a session object stands for; one that was made by hand goes by its time."""
    marker = session._storage_update_marker
    if marker is not None:
        return int(marker)
    last = transcripts.read_items(tx, transcript.name, last=1, ns=transcript.ns)
    if _updated(transcript, last[0].value if last else None) > session.last_update_time:
        raise StaleSessionError(_STALE)
    return transcript.rev


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).astimezone(UTC).timestamp()
