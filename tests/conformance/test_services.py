"""What services store, as nouns of the open store: the same on both faces, opened when first used."""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdproof
from holdproof import errors, sync
from holdproof.executors import Method
from holdproof.folders import project_hash
from holdproof.storage import BlobStore, RelationalStore, TelemetryEvent, TelemetryStore
from holdproof.storage.blobs import Blobs
from holdproof.storage.relational import Relational
from holdproof.storage.telemetry import Telemetry

EVENT = TelemetryEvent("x", "2026-01-01T00:00:00Z", {}, span_id="s")
ADD = "INSERT INTO agent_state (agent_id) VALUES (:id)"
IDS = "SELECT agent_id FROM agent_state ORDER BY agent_id"
LARGE = b"x" * 100_000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in [each for each in os.environ if each.startswith(("HOLDPROOF_", "XDG_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    settings(tmp_path / "home", "providers: {vector: {dimensions: 2}}\n")
    return tmp_path / "home"


def settings(home: Path, text: str) -> None:
    (home / "config").mkdir(parents=True, exist_ok=True)
    (home / "config" / "config.yaml").write_text(text)


class Nouns:
    """The suite; `url` says which database the store has."""

    url: str | None = None
    keeps = True

    def test_both_faces_have_the_same_nouns_and_see_the_same_data(self) -> None:
        async def write() -> None:
            async with holdproof.open(url=self.url) as store:
                await store.blobs.put("a", LARGE)
                assert b"".join([piece async for piece in store.blobs.open_read("a")]) == LARGE
                await store.telemetry.append([EVENT])
                await store.vectors.add("v", [1.0, 0.0], {"k": 1})
                await store.relational.execute(ADD, {"id": "soul"})
                async with store.relational.transaction() as tx:
                    await tx.execute(ADD, {"id": "ghost"})
                assert await store.relational.fetch_all(IDS) == [{"agent_id": "ghost"}, {"agent_id": "soul"}]

        asyncio.run(write())
        with sync.open(url=self.url) as store:
            if self.keeps:
                assert b"".join(store.blobs.open_read("a")) == store.blobs.get("a") == LARGE
                assert store.telemetry.query("s") == [EVENT]
                assert [found.metadata for found in store.vectors.search([1.0, 0.0])] == [{"k": 1}]
                assert (store.vectors.count(), store.vectors.dimensions) == (1, 2)
            with store.relational.transaction() as tx:
                tx.execute(ADD, {"id": "third"})
            assert {"agent_id": "third"} in store.relational.fetch_all(IDS)

    def test_sessions_are_kept_on_both_faces(self) -> None:
        async def write() -> str:
            async with holdproof.open(url=self.url) as store:
                session = await store.sessions.start_session("script", "nightly")
                await store.sessions.log_event(session.id, "command", "repl", "ran check")
                [row] = await store.relational.fetch_all("SELECT id, project_hash FROM cli_sessions")
                assert row == {"id": session.id, "project_hash": project_hash(Path.cwd())}
                return session.id

        id = asyncio.run(write())
        with sync.open(url=self.url) as store:
            if not self.keeps:
                id = store.sessions.start_session("script", "nightly").id
            assert store.sessions.end_session(id).state == "completed"
            with pytest.raises(errors.SessionEndedError):
                store.sessions.log_event(id, "command", "repl", "too late")
            assert [each.id for each in store.sessions.list_sessions()] == [id]

    def test_shapes_dreams_growth_and_instances_are_resources_of_both_clients(self) -> None:
        async def write() -> None:
            async with holdproof.open(url=self.url) as store:
                shape = await store.shapes.observe("rhythm", vector=[1.0, 0.0])
                dream = await store.dreams.consolidate("bursts", source_shapes=[shape.id], vector=[0.0, 1.0])
                assert [each.shape.id for each in await store.shapes.search([1.0, 0.0], 1)] == [shape.id]
                assert [each.dream.id for each in await store.dreams.search([0.0, 1.0], 1)] == [dream.id]
                assert (await store.instances.list()).items == []

        asyncio.run(write())
        with sync.open(url=self.url) as store:
            shape = store.shapes.observe("drift", vector=[1.0, 0.0])
            assert shape.id in [each.shape.id for each in store.shapes.search([1.0, 0.0])]
            assert len(store.shapes.list()) == 1 + self.keeps
            assert store.shapes.forget(shape.id)
            proposal = store.selfgrow.propose({"prompt": "Be brief."}, context="self", entity="soul", by="k-gent")
            assert store.selfgrow.validate(proposal.id).status == "validated"

    def test_a_block_that_fails_leaves_nothing(self) -> None:
        with sync.open(url=self.url) as store:
            with pytest.raises(ZeroDivisionError), store.relational.transaction() as tx:  # noqa: PT012
                tx.execute(ADD, {"id": "soul"})
                raise ZeroDivisionError
            assert store.relational.fetch_all(IDS) == []

    def test_a_child_without_its_session_is_refused_and_children_go_with_theirs(self) -> None:
        event = "INSERT INTO cli_session_events (id, session_id) VALUES ('e', 's')"
        with sync.open(url=self.url) as store:
            with pytest.raises(errors.ConstraintError):
                store.relational.execute(event)
            store.relational.execute("INSERT INTO cli_sessions (id, name, started_at) VALUES ('s', 'x', 'y')")
            store.relational.execute(event)
            store.relational.execute("DELETE FROM cli_sessions")
            assert store.relational.fetch_all("SELECT id FROM cli_session_events") == []

    def test_many_first_callers_open_a_store_once(self) -> None:
        async def race() -> None:
            async with holdproof.open(url=self.url) as store:
                await asyncio.gather(*(store.blobs.put(f"k{n}", b"x") for n in range(60)))
                assert len((await store.blobs.list()).items) == 60

        asyncio.run(race())
        with sync.open(url=self.url) as store:
            threads = [threading.Thread(target=store.blobs.put, args=(f"t{n}", b"x")) for n in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert len(store.blobs.list("t").items) == 20

    def test_every_vector_is_exported_once_and_in_order(self) -> None:
        items = [(f"v{n:05}", [1.0, float(n)], {"n": n}) for n in range(2_300)]
        with sync.open(url=self.url) as store:
            store.vectors.add_many(items)
            assert [(each.id, each.vector, each.metadata) for each in store.vectors.export()] == items

    def test_status_tells_what_each_store_holds(self) -> None:
        with sync.open(url=self.url) as store:
            store.blobs.put("a", b"12345")
            seen = store.storage.status()
        assert seen.stores["blob"].holds == {"blobs": 1, "bytes": 5}
        assert (seen.degraded, seen.under_way) == ([], {})

    def test_the_kernel_goes_on_beside_it_and_still_verifies(self) -> None:
        with sync.open(url=self.url) as store:
            store.blobs.put("a", LARGE)
            store.agents.register("trader", version="1.0.0")
            assert store.verify.run(full=True, lock=False).verdict.sound


class TestOnSqlite(Nouns):
    pass


class TestInMemory(Nouns):
    url, keeps = ":memory:", False

    def test_a_store_in_memory_touches_no_disk(self, home: Path) -> None:
        with sync.open(url=":memory:") as store:
            store.blobs.put("a", LARGE)
            store.telemetry.append([EVENT])
            store.vectors.add("v", [1.0, 0.0])
        assert sorted(os.listdir(home)) == ["config"]


class TestOnPostgres(Nouns):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_url: str) -> None:
        self.url = postgres_url


# --- lateness ----------------------------------------------------------------------------------------------------


def test_nothing_is_opened_before_the_first_verb(home: Path) -> None:
    with sync.open() as store:
        assert isinstance(store.blobs, BlobStore)
        assert isinstance(store.relational, RelationalStore)
        assert isinstance(store.telemetry, TelemetryStore)
        assert not (home / "membrane.db").exists()
        store.telemetry.count()
        assert (home / "telemetry.db").exists()
        assert not (home / "membrane.db").exists()


def test_verbs_tell_their_signature_and_words_before_and_after_opening() -> None:
    with sync.open() as store:
        for _ in range(2):
            assert list(inspect.signature(store.blobs.put).parameters) == ["key", "data", "content_type", "subject"]
            assert next(iter(inspect.signature(store.telemetry.query).parameters)) == "span_id"
            assert str(store.blobs.get.__doc__).startswith("get(key: str)\n\n    Return the verified bytes of a key")
            store.blobs.exists("x")
            store.telemetry.count()


def test_what_is_no_verb_is_an_attribute_error() -> None:
    with sync.open() as store:
        assert not hasattr(store.blobs, "colour")
        with pytest.raises(AttributeError, match="exist after the first call"):
            _ = store.vectors.dimensions
        store.vectors.count()
        assert store.vectors.dimensions == 2


def test_the_nouns_have_every_verb_of_the_stores() -> None:
    with sync.open() as store:
        pairs: list[tuple[Any, type]] = [
            (store.blobs, Blobs),
            (store.telemetry, Telemetry),
            (store.relational, Relational),
        ]
        for noun, kind in pairs:
            methods = [name for name, each in vars(kind).items() if isinstance(each, Method)]
            for name in methods:
                assert callable(getattr(noun, name)), name
        assert callable(store.relational.transaction)


def test_a_store_open_for_a_namespace_has_no_services() -> None:
    with sync.open(ns="one") as store:
        for call in (lambda: store.blobs.list(), lambda: store.relational.transaction().__enter__()):
            with pytest.raises(errors.NamespaceError):
                call()
        with pytest.raises(errors.NamespaceError):
            store.storage.status()


def test_after_closing_every_verb_says_so() -> None:
    for used in (True, False):
        store = sync.open()
        if used:
            store.blobs.put("a", b"x")
        store.close()
        calls: list[Callable[[], Any]] = [lambda: store.blobs.get("a"), lambda: store.telemetry.count()]  # noqa: B023
        for call in calls:
            with pytest.raises(errors.ClosedError):
                call()


def test_the_sync_resources_work_inside_a_running_loop() -> None:
    with sync.open() as store:

        async def inside() -> bytes | None:
            store.blobs.put("a", b"x")
            with store.relational.transaction() as tables:
                tables.execute("CREATE TABLE t (a INTEGER)")
            assert store.relational.fetch_all("SELECT a FROM t") == []
            return store.blobs.get("a")

        assert asyncio.run(inside()) == b"x"


# --- no silent fallback --------------------------------------------------------------------------------------------


@pytest.fixture
def blocked(home: Path) -> Path:
    """Something that is no database lies where telemetry should."""
    (home / "telemetry.db").mkdir(parents=True)
    return home / "telemetry.db"


def test_what_cannot_be_opened_is_an_error_and_never_memory(blocked: Path) -> None:
    with sync.open() as store:
        for _ in range(2):
            with pytest.raises(errors.HoldproofError):
                store.telemetry.append([EVENT])
        store.blobs.put("a", b"x")
        [degraded] = store.storage.status().degraded
        assert "the telemetry store: cannot be opened" in degraded


def test_an_opening_that_failed_is_tried_anew(blocked: Path) -> None:
    with sync.open() as store:
        with pytest.raises(errors.HoldproofError):
            store.telemetry.append([EVENT])
        blocked.rmdir()
        store.telemetry.append([EVENT])
        assert store.telemetry.count() == 1


@pytest.mark.usefixtures("blocked")
def test_a_chain_that_is_named_is_followed_and_told(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings(home, "providers: {telemetry: {type: sqlite, fallback: [memory]}}\n")
    with sync.open() as store:
        store.telemetry.append([EVENT])
        assert store.telemetry.count() == 1
        assert "runs on memory" in caplog.text
        assert len(store.storage.status().degraded) == 1
