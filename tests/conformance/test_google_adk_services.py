"""Memories and artifacts of Google ADK on a store: its contract as its own services keep it, and who may read what."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.client import Holdproof
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

adk_memory: Any = pytest.importorskip("google.adk.memory", reason="not installed: pip install google-adk")
entries: Any = pytest.importorskip("google.adk.memory.memory_entry")
artifacts: Any = pytest.importorskip("google.adk.artifacts")
events: Any = pytest.importorskip("google.adk.events")
registry: Any = pytest.importorskip("google.adk.cli.service_registry")
sessions: Any = pytest.importorskip("google.adk.sessions")
invalid: Any = pytest.importorskip("google.adk.errors.input_validation_error")
types: Any = pytest.importorskip("google.genai.types")
adapter: Any = pytest.importorskip("holdproof.adapters.google_adk")

ADA = {"app_name": "shop", "user_id": "ada"}
BOB = {"app_name": "shop", "user_id": "bob/../x"}
CHAT = {**ADA, "session_id": "s1"}

TEXTS = (
    "The ADK is a great toolkit.",
    "I agree. The Agent Development Kit (ADK) rocks!",
    "\u79c1\u306fPython\u3067ADK\u3092\u4f7f\u3063\u3066\u3044\u307e\u3059",
    "\u041c\u0435\u043d\u044f \u0437\u043e\u0432\u0443\u0442 \u0410\u043b\u0435\u043a\u0441\u0435\u0439",
    "Meet at the Cafe\u0301",
    *(f"note {number} about work" for number in range(12)),
)
QUERIES = (
    "ADK",
    "agent kit",
    "thon",
    "Python toolkit",
    "\u4f7f\u3063\u3066",
    "\u0410\u043b\u0435\u043a\u0441\u0435\u0439",
    "Caf\u00e9",
    "note about 11",
    "nowhere",
    "",
    "? !",
)


def event(id: str, text: str, **options: Any) -> Any:
    content = types.Content(role="user", parts=[types.Part(text=text)]) if text else None
    options.setdefault("timestamp", 1000.0)
    return events.Event(id=id, author="user", content=content, **options)


def session(id: str, *said: Any, user: str = "ada") -> Any:
    return sessions.Session(id=id, app_name="shop", user_id=user, events=list(said))


def part(data: bytes, mime_type: str = "image/png") -> Any:
    return types.Part(inline_data=types.Blob(data=data, mime_type=mime_type, display_name="a.png"))


def reference(filename: str, version: int, session_id: str | None = "s1", user: str = "ada") -> Any:
    within = "" if session_id is None else f"/sessions/{session_id}"
    uri = f"artifact://apps/shop/users/{user}{within}/artifacts/{filename}/versions/{version}"
    return types.Part(file_data=types.FileData(file_uri=uri))


async def texts(service: Any, query: str, **who: str) -> list[str]:
    answer = await service.search_memory(**(who or ADA), query=query)
    return [memory.content.parts[0].text for memory in answer.memories]


Act = Callable[[Holdproof], Coroutine[Any, Any, Any]]


class Services(OnStore):
    def acted(self, store: sync.Holdproof, act: Act) -> Any:
        return asyncio.run(act(Holdproof(store.core)))

    # --- memory ------------------------------------------------------------------------------------------------------

    def test_memories_are_found_as_their_own_service_finds_them(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            both = (adapter.HoldproofMemoryService(client), adk_memory.InMemoryMemoryService())
            first = session("s1", *(event(f"e{n}", text) for n, text in enumerate(TEXTS[:6])), event("no", ""))
            second = session("s2", *(event(f"f{n}", text) for n, text in enumerate(TEXTS[6:])))
            lone = event("g", "A toolkit without session", timestamp=2000.0)
            for service in both:
                for each in (first, second, first):
                    await service.add_session_to_memory(each)
                await service.add_session_to_memory(session("s1", event("b", "The secret of Bob"), user=BOB["user_id"]))
                await service.add_events_to_memory(**ADA, session_id="s1", events=[event("e0", "again: toolkit")])
                await service.add_events_to_memory(**ADA, events=[lone])
                await service.delete_memory(**ADA, memory_id="e1")
                await service.delete_memory(**ADA, memory_id="none")
                await service.add_session_to_memory(first)
            for query in (*QUERIES, "secret", "toolkit"):
                ours, theirs = [await texts(service, query) for service in both]
                assert ours == theirs, query
            assert await texts(both[0], "secret", **BOB) == ["The secret of Bob"]

        self.acted(live, work)

    def test_a_deleted_memory_is_gone_and_does_not_return_with_its_session(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            service = adapter.HoldproofMemoryService(client)
            await service.add_session_to_memory(session("s", event("e", "My number is 4711"), event("f", "My dog")))
            await service.delete_memory(**ADA, memory_id="e")
            await service.add_session_to_memory(session("s", event("e", "My number is 4711"), event("f", "My dog")))
            assert await texts(service, "my number") == ["My dog"]
            names = [one.name for one in (await client.transcripts.list()).items]
            items = [item.value for name in names for item in (await client.transcripts.list_items(name)).items]
            assert "4711" not in repr(items)

        self.acted(live, work)

    def test_memories_by_themselves_keep_their_id_and_what_is_known_of_them(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            service = adapter.HoldproofMemoryService(client, limit=2)
            content = types.Content(parts=[types.Part(text="Ada likes tea")])
            memory = entries.MemoryEntry(id="m", content=content, author="crm", timestamp="yesterday")
            for _ in range(2):
                await service.add_memory(**ADA, memories=[memory], custom_metadata={"from": "crm"})
            await service.add_memory(**ADA, memories=[entries.MemoryEntry(content=content) for _ in range(3)])
            found = (await service.search_memory(**ADA, query="tea")).memories
            assert len(found) == 2
            assert found[0] == memory.model_copy(update={"custom_metadata": {"from": "crm"}})
            with pytest.raises(errors.InvalidInputError):
                await service.add_memory(**ADA, memories=[memory], custom_metadata={"at": object()})

        self.acted(live, work)

    def test_sessions_that_are_added_at_the_same_time_lose_nothing(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            service = adapter.HoldproofMemoryService(client, limit=100)
            said = [event(f"e{n}", f"word number{n}") for n in range(16)]
            await asyncio.gather(*(service.add_session_to_memory(session("s", *said[: n + 1])) for n in range(16)))
            assert sorted(await texts(service, "word")) == sorted(f"word number{n}" for n in range(16))

        self.acted(live, work)

    # --- artifacts ---------------------------------------------------------------------------------------------------

    def test_artifacts_answer_as_their_own_service_does(self, live: sync.Holdproof) -> None:
        async def script(service: Any) -> list[Any]:
            answers: list[Any] = []
            large = bytes(range(256)) * 2000
            saved = [
                ("a.png", part(b"\0\xff")),
                ("a.png", part(large)),
                ("folder/\u00e4 100%.txt", types.Part(text="first\0 line")),
                ("user:cv.pdf", part(b"pdf", "application/pdf")),
                ("link", types.Part(file_data=types.FileData(file_uri="gs://bucket/file", mime_type="text/csv"))),
                ("to-a", reference("a.png", 0)),
                ("to-cv", reference("user:cv.pdf", 0, None)),
                ("to-link", reference("to-a", 0)),
                ("gone", part(b"", "application/octet-stream")),
                ("empty", part(b"", "image/png")),
            ]
            for filename, artifact in saved:
                answers.append(await service.save_artifact(**CHAT, filename=filename, artifact=artifact))
            metadata = {"custom_metadata": {"by": "ada"}}
            as_json = {"inlineData": {"data": "aGk=", "mimeType": "text/plain"}}
            answers.append(await service.save_artifact(**CHAT, filename="a.png", artifact=as_json, **metadata))
            names = [*dict(saved), "none"]
            for filename in names:
                answers.append((filename, await service.load_artifact(**CHAT, filename=filename)))
                answers.append(await service.list_versions(**CHAT, filename=filename))
                for version in (0, 1, 7, -1):
                    wanted = {"filename": filename, "version": version}
                    answers.append(await service.load_artifact(**CHAT, **wanted))
                    answers.append(_facts(await service.get_artifact_version(**CHAT, **wanted)))
                answers.append(
                    [_facts(each) for each in await service.list_artifact_versions(**CHAT, filename=filename)]
                )
                answers.append(_facts(await service.get_artifact_version(**CHAT, filename=filename)))
            answers.append(await service.list_artifact_keys(**CHAT))
            answers.append(await service.list_artifact_keys(**ADA))
            answers.append(await service.list_artifact_keys(app_name="shop", user_id="bob", session_id="s1"))
            answers.append(await service.load_artifact(**ADA, session_id="s2", filename="user:cv.pdf"))
            answers.append(await service.load_artifact(**ADA, session_id="s2", filename="a.png"))
            for filename in ("a.png", "user:cv.pdf", "none"):
                await service.delete_artifact(**CHAT, filename=filename)
            answers.append(await service.list_artifact_keys(**CHAT))
            answers.append(await service.load_artifact(**CHAT, filename="to-a"))
            answers.append(await service.save_artifact(**CHAT, filename="a.png", artifact=part(b"new")))
            answers.append(await service.load_artifact(**CHAT, filename="a.png"))
            return answers

        async def work(client: Holdproof) -> None:
            ours = await script(adapter.HoldproofArtifactService(client))
            assert ours == await script(artifacts.InMemoryArtifactService())

        self.acted(live, work)

    def test_saves_at_the_same_time_have_a_version_each(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            service = adapter.HoldproofArtifactService(client)
            saves = [service.save_artifact(**CHAT, filename="f", artifact=part(bytes([n]))) for n in range(8)]
            versions = await asyncio.gather(*saves)
            assert sorted(versions) == list(range(8))
            for n, version in enumerate(versions):
                loaded = await service.load_artifact(**CHAT, filename="f", version=version)
                assert loaded.inline_data.data == bytes([n])

        self.acted(live, work)

    def test_without_a_session_an_artifact_is_the_users(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            service = adapter.HoldproofArtifactService(client)
            await service.save_artifact(**ADA, filename="cv", artifact=part(b"1"))
            await service.save_artifact(**ADA, session_id=" s1 ", filename="own", artifact=part(b"2"))
            assert await service.list_artifact_keys(**CHAT) == ["own", "user:cv"]
            assert await service.list_artifact_keys(**ADA) == ["user:cv"]
            assert (await service.load_artifact(**CHAT, filename="user:cv")).inline_data.data == b"1"
            for filename in ("", "user:"):
                with pytest.raises(invalid.InputValidationError):
                    await service.save_artifact(**CHAT, filename=filename, artifact=part(b"3"))

        self.acted(live, work)

    def test_references_lead_nowhere_else_and_not_in_circles(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            service = adapter.HoldproofArtifactService(client)
            await service.save_artifact(**BOB, session_id="s1", filename="secret", artifact=part(b"bob"))
            await service.save_artifact(**ADA, session_id="s2", filename="other", artifact=part(b"s2"))
            foreign = [reference("secret", 0, user="bob/../x"), reference("other", 0, "s2")]
            broken = types.Part(file_data=types.FileData(file_uri="artifact://nowhere"))
            for each in (*foreign, broken, types.Part()):
                with pytest.raises(invalid.InputValidationError):
                    await service.save_artifact(**CHAT, filename="ref", artifact=each)
            await service.save_artifact(**CHAT, filename="ring", artifact=reference("ring", 0))
            with pytest.raises(invalid.InputValidationError):
                await service.load_artifact(**CHAT, filename="ring")

        self.acted(live, work)

    # --- both --------------------------------------------------------------------------------------------------------

    def test_erasing_a_person_removes_memories_and_artifacts(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            owner = {"subject": lambda app, user: user.partition("/")[0]}
            memory = adapter.HoldproofMemoryService(client, **owner)
            files = adapter.HoldproofArtifactService(client, **owner)
            for who in (ADA, BOB):
                await memory.add_session_to_memory(session("s", event("e", "a canary"), user=who["user_id"]))
                await files.save_artifact(**who, session_id="s", filename="f", artifact=part(b"canary"))
                await files.save_artifact(**who, filename="g", artifact=part(b"canary"))
            await client.erase.subject("ada")
            left = [one.name for one in (await client.transcripts.list()).items]
            assert await texts(memory, "canary") == []
            assert await files.list_artifact_keys(**ADA, session_id="s") == []
            assert await texts(memory, "canary", **BOB) == ["a canary"]
            assert await files.list_artifact_keys(**BOB, session_id="s") == ["f", "user:g"]
            assert not [name for name in left if "/ada/" in name]

        self.acted(live, work)


def _facts(version: Any) -> Any:
    """What is known of a version, without what differs from service to service."""
    return None if version is None else version.model_dump(exclude={"create_time", "canonical_uri"})


class TestSqlite(OnSqlite, Services):
    pass


class TestMemory(InMemory, Services):
    pass


class TestPostgres(OnPostgres, Services):
    pass


KINDS = ("Session", "Memory", "Artifact")


def test_a_services_yaml_names_the_store_of_all_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = "holdproof.adapters.google_adk.Holdproof"
    named = [{"scheme": "holdproof", "type": kind.lower(), "class": f"{place}{kind}Service"} for kind in KINDS]
    (tmp_path / "services.yaml").write_text(json.dumps({"services": named}))  # JSON is YAML
    monkeypatch.setattr(registry, "_service_registry_instance", None)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    registry.load_services_module(str(tmp_path))
    made = registry.get_service_registry()
    uri = f"holdproof://{tmp_path / 'store'}"
    services = [
        create(uri, agents_dir=str(tmp_path))
        for create in (made.create_session_service, made.create_memory_service, made.create_artifact_service)
    ]

    async def work() -> None:
        await services[0].create_session(**CHAT)
        await services[1].add_session_to_memory(session("s1", event("e", "hello")))
        await services[2].save_artifact(**CHAT, filename="f", artifact=part(b"1"))
        for service in services:
            await service.close()

    asyncio.run(work())
    with sync.open(tmp_path / "store") as store:
        kinds = {each.name.partition("/")[0] for each in store.transcripts.list().items}
    assert kinds == {"adk", "adk-memory", "adk-artifact", "adk-artifact-bytes"}


@pytest.mark.parametrize(
    ("uri", "where"),
    [
        ("holdproof:///srv/store", "/srv/store"),
        ("holdproof://./store", "./store"),
        ("holdproof://:memory:", ":memory:"),
        ("holdproof://", None),
        ("holdproof+postgresql://host/db", "postgresql://host/db"),
        ("postgresql://host/db", "postgresql://host/db"),
    ],
)
def test_a_uri_names_a_folder_or_a_database(uri: str, where: str | None) -> None:
    places: Any = pytest.importorskip("holdproof.adapters.google_adk.places")
    assert places.located(uri) == where


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_has_one_store(kind: str) -> None:
    service = getattr(adapter, f"Holdproof{kind}Service")
    for options in ({"where": "./a", "uri": "holdproof://./b"}, {"uri": "./store"}):
        with pytest.raises(errors.InvalidInputError):
            service(**options)
