"""The `BaseArtifactService` of Google ADK: files of a session or of a user, with all their versions.

A transcript for each artifact, with an item for what is known of each version; its bytes are a transcript of their own,
in pieces, so that listing versions reads none of them.

Rules:
- A version is durable, whole, when `save_artifact` returns its number. Numbers are given once: of two saves at the same
  time each has its own.
- A name that begins with `user:`, or that comes without a session, is the user's; any other is the session's.
- A reference (`artifact://…`) leads only to artifacts that its own app, user and session may read.
- Deleting an artifact deletes all its versions, as one.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from google.adk.artifacts import BaseArtifactService
from google.adk.artifacts.artifact_util import is_artifact_ref, parse_artifact_uri, validate_artifact_reference_scope
from google.adk.artifacts.base_artifact_service import ArtifactVersion, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from holdproof.adapters import documents
from holdproof.adapters.google_adk import places
from holdproof.adapters.google_adk.places import Subject
from holdproof.adapters.shared_store import Where, shield_until_done
from holdproof.errors import NotFoundError
from holdproof.kernel import Tx, transcripts
from holdproof.model.times import to_micros

PREFIX: Final = "adk-artifact/"
BYTES: Final = "adk-artifact-bytes/"
_USER: Final = "user:"
_PIECE: Final = 192 << 10
_MOST_REFERENCES: Final = 5
_REMOVED: Final = types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b""))
"""What ADK saves as the next version when a session is rewound to before the artifact was there."""


class HoldproofArtifactService(places.StoreService, BaseArtifactService):
    """Artifacts on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `subject` names the person whose artifacts these are, or is a function that does so for an app and a user:
    `store.erase.subject(name)` then removes them. `uri` is how a `services.yaml` names the store; what else ADK passes
    there is not needed.
    """

    def __init__(
        self,
        where: Where = None,
        *,
        uri: str | None = None,
        subject: Subject = None,
        ns: str | None = None,
        agents_dir: str | None = None,
    ) -> None:
        del agents_dir
        self._shared = places.open_shared(where, uri, ns)
        self._subject = subject

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Save a new version of an artifact and return its number, which begins at 0."""
        parts = _parts(app_name, user_id, session_id, filename)
        part = ensure_part(artifact)
        _check_kind(part)
        _check_reference(part, app_name, user_id, session_id)
        body, data = _split(part)
        facts = {
            "part": body,
            "mime_type": _mime_type(part),
            "custom_metadata": documents.exact("custom_metadata", custom_metadata or {}),
        }
        pieces = [b64encode(data[at : at + _PIECE]).decode() for at in range(0, len(data), _PIECE)]
        name = documents.joined(PREFIX, *parts)
        subject = places.owner(self._subject, app_name, user_id)
        within = self._within()

        def write(tx: Tx) -> int:
            # The row first: two saves at the same time wait for each other here, and count one after the other.
            transcripts.append(tx, name, (), subject=subject, **within)
            version = int(transcripts.get(tx, name, **within).state.get("versions", 0))
            transcripts.update_state(tx, name, {"versions": version + 1}, **within)
            transcripts.put_item(tx, name, str(version), {**facts, "created_at": tx.now}, subject=subject, **within)
            if pieces:
                transcripts.append(tx, documents.joined(BYTES, *parts, str(version)), pieces, subject=subject, **within)
            return version

        return await shield_until_done((await self._shared.store()).write(write))

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """Return a version of an artifact, the latest without one; None where there is none."""
        scope = (app_name, user_id, session_id)
        parts = _parts(*scope, filename)
        store = await self._shared.store()
        within = self._within()

        def read(tx: Tx) -> types.Part | None:
            path = parts
            number = version
            for _ in range(_MOST_REFERENCES + 1):
                part = _load(tx, path, number, within)
                if part is None or not is_artifact_ref(part):
                    return part
                target = _check_reference(part, *scope)
                path = _parts(target.app_name, target.user_id, target.session_id, target.filename)
                number = target.version
            raise InputValidationError(f"the artifact {filename} leads to more than {_MOST_REFERENCES} others")

        part = await store.read(read)
        # An artifact that a rewind took away is there only for its history.
        return None if part in (None, _REMOVED, types.Part()) else part

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        """Return the names of a user's artifacts, and of those of a session, sorted; each can be loaded as it is."""
        scopes = [_USER] if session_id is None else [_USER, _session_scope(session_id)]
        within = self._within()

        def read(tx: Tx) -> list[str]:
            prefixes = [documents.joined(PREFIX, app_name, user_id, scope, "") for scope in scopes]
            return [
                documents.parted("", each.name)[-1]
                for prefix in prefixes
                for each in documents.every(tx, prefix, **within)
            ]

        return sorted(await (await self._shared.store()).read(read))

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Delete an artifact with all its versions; nothing where there is none."""
        parts = _parts(app_name, user_id, session_id, filename)
        within = self._within()

        def write(tx: Tx) -> None:
            transcripts.delete(tx, documents.joined(PREFIX, *parts), **within)
            for each in list(documents.every(tx, documents.joined(BYTES, *parts, ""), **within)):
                transcripts.delete(tx, each.name, **within)

        await shield_until_done((await self._shared.store()).write(write))

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """Return the numbers of all versions of an artifact."""
        versions = await self.list_artifact_versions(
            app_name=app_name, user_id=user_id, filename=filename, session_id=session_id
        )
        return [each.version for each in versions]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """Return what is known of all versions of an artifact."""
        parts = _parts(app_name, user_id, session_id, filename)
        name = documents.joined(PREFIX, *parts)
        within = self._within()
        store = await self._shared.store()
        items = await store.read(lambda tx: transcripts.read_items(tx, name, **within))
        return [_version(parts, int(item.key or 0), item.value) for item in items]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """Return what is known of a version of an artifact, the latest without one; None where there is none."""
        parts = _parts(app_name, user_id, session_id, filename)
        within = self._within()
        store = await self._shared.store()
        facts = await store.read(lambda tx: _facts(tx, parts, version, within))
        return None if facts is None else _version(parts, *facts)


# --- names -------------------------------------------------------------------------------------------------------


def _parts(app_name: str, user_id: str, session_id: str | None, filename: str) -> tuple[str, str, str, str]:
    """Return app, user, scope and name of an artifact; a user's has its `user:` always."""
    if not filename.removeprefix(_USER):
        raise InputValidationError("an artifact needs a filename")
    if session_id is None or filename.startswith(_USER):
        return app_name, user_id, _USER, _USER + filename.removeprefix(_USER)
    return app_name, user_id, _session_scope(session_id), filename


def _session_scope(session_id: str) -> str:
    # The services of ADK strip ids of sessions, and so do ours.
    return f"s:{session_id.strip()}"


def _version(parts: tuple[str, str, str, str], version: int, facts: Mapping[str, Any]) -> ArtifactVersion:
    app_name, user_id, scope, filename = parts
    session = "" if scope == _USER else f"/sessions/{scope.removeprefix('s:')}"
    return ArtifactVersion(
        version=version,
        canonical_uri=f"holdproof://apps/{app_name}/users/{user_id}{session}/artifacts/{filename}/versions/{version}",
        custom_metadata=facts["custom_metadata"],
        create_time=to_micros(facts["created_at"]) / 1e6,
        mime_type=facts["mime_type"],
    )


# --- parts -------------------------------------------------------------------------------------------------------


def _check_kind(part: types.Part) -> None:
    if part.inline_data is None and part.text is None and part.file_data is None:
        raise InputValidationError("an artifact is a part with inline_data, text or file_data")


def _check_reference(part: types.Part, app_name: str, user_id: str, session_id: str | None) -> Any:
    """Return where a reference leads, None for other parts; InputValidationError where it may not lead."""
    if not is_artifact_ref(part):
        return None
    assert part.file_data is not None
    target = parse_artifact_uri(str(part.file_data.file_uri))
    if target is None:
        raise InputValidationError(f"Invalid artifact reference URI: {part.file_data.file_uri}")
    own = None if session_id is None else session_id.strip()
    validate_artifact_reference_scope(app_name=app_name, user_id=user_id, session_id=own, parsed_uri=target)
    return target


def _mime_type(part: types.Part) -> str | None:
    if part.inline_data is None and part.text is not None:
        return "text/plain"
    # What a reference leads to has a type of its own, which may change.
    typed = part.inline_data or (None if is_artifact_ref(part) else part.file_data)
    mime_type: str | None = None if typed is None else typed.mime_type
    return mime_type


def _split(part: types.Part) -> tuple[dict[str, Any], bytes]:
    """Return a part without its bytes or its text, and those."""
    if part.inline_data is not None:
        data = part.inline_data.data or b""
        bare = part.model_copy(update={"inline_data": part.inline_data.model_copy(update={"data": b""})})
    else:
        data = (part.text or "").encode()
        bare = part if part.text is None else part.model_copy(update={"text": ""})
    return bare.model_dump(mode="json", exclude_none=True), data


def _joined(body: dict[str, Any], data: bytes) -> types.Part:
    part = types.Part.model_validate(body)
    if part.inline_data is not None:
        part.inline_data.data = data
    elif part.text is not None:
        part.text = data.decode()
    return part


# --- reading -----------------------------------------------------------------------------------------------------


def _facts(
    tx: Tx, parts: tuple[str, str, str, str], version: int | None, within: dict[str, Any]
) -> tuple[int, dict[str, Any]] | None:
    """Return number and facts of a version, the latest for None; None where there is none."""
    name = documents.joined(PREFIX, *parts)
    if version is None:
        for item in transcripts.read_items(tx, name, last=1, **within):
            return int(item.key or 0), item.value
        return None
    try:
        return version, transcripts.get_item(tx, name, str(version), **within).value
    except NotFoundError:
        return None


def _load(tx: Tx, parts: tuple[str, str, str, str], version: int | None, within: dict[str, Any]) -> types.Part | None:
    saved = _facts(tx, parts, version, within)
    if saved is None:
        return None
    number, facts = saved
    pieces = transcripts.read_items(tx, documents.joined(BYTES, *parts, str(number)), **within)
    return _joined(facts["part"], b"".join(b64decode(piece.value) for piece in pieces))
