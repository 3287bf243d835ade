"""Strands on a store: nothing of a conversation is overwritten, and what was redacted is gone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors, sync
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

types: Any = pytest.importorskip("strands.types.session", reason="not installed: pip install strands-agents")
problems: Any = pytest.importorskip("strands.types.exceptions")
manager: Any = pytest.importorskip("strands.session.file_session_manager")
storages: Any = pytest.importorskip("strands.storage")
adapter: Any = pytest.importorskip("holdproof.adapters.strands")


def session(id: str = "s") -> Any:
    return types.Session(session_id=id, session_type=types.SessionType.AGENT)


def agent(id: str = "a", **state: Any) -> Any:
    return types.SessionAgent(agent_id=id, state=state, conversation_manager_state={})


def message(n: int, text: str = "hello") -> Any:
    return types.SessionMessage.from_message({"role": "user", "content": [{"text": text}]}, n)


class Group:
    """A group of agents, as far as a repository looks at it."""

    def __init__(self, id: str, **state: Any) -> None:
        self.id = id
        self.state = state

    def serialize_state(self) -> dict[str, Any]:
        return self.state


class Strands(OnStore):
    def repository(self, store: sync.Holdproof, **options: Any) -> Any:
        repository = adapter.HoldproofSessionRepository(store, **options)
        repository.create_session(session())
        repository.create_agent("s", agent())
        return repository

    def test_it_answers_as_their_own_files_do(self, store: sync.Holdproof, tmp_path: Path) -> None:
        ours = adapter.HoldproofSessionRepository(store)
        theirs = manager.FileSessionManager("other", storage_dir=str(tmp_path))
        whole, person, texts = session(), agent(mood="good"), [message(n, f"text {n}") for n in range(12)]
        for each in (ours, theirs):
            each.create_session(whole)
            with pytest.raises(problems.SessionException):
                each.create_session(whole)
            each.create_agent("s", person)
            for text in texts:
                each.create_message("s", "a", text)
            texts[3].redact_message = {"role": "user", "content": [{"text": "[redacted]"}]}
            each.update_message("s", "a", texts[3])
            each.create_multi_agent("s", Group("g", n=1))
            each.update_multi_agent("s", Group("g", n=2))
        assert ours.read_session("s") == theirs.read_session("s") == whole
        assert ours.read_agent("s", "a") == theirs.read_agent("s", "a") == person
        assert ours.read_multi_agent("s", "g") == theirs.read_multi_agent("s", "g") == {"n": 2}
        for limit, offset in ((None, 0), (5, 0), (5, 9), (None, 11), (0, 0), (3, 50)):
            assert ours.list_messages("s", "a", limit, offset) == theirs.list_messages("s", "a", limit, offset)
        for id in (0, 3, 11, 99):
            assert ours.read_message("s", "a", id) == theirs.read_message("s", "a", id)
        for each in (ours, theirs):
            assert (each.read_session("none"), each.read_agent("s", "none")) == (None, None)
            calls: list[tuple[str, Any]] = [
                ("update_agent", ("s", agent("none"))),
                ("update_message", ("s", "a", message(99))),
                ("update_multi_agent", ("s", Group("none"))),
                ("list_messages", ("s", "none")),
                ("delete_session", ("none",)),
            ]
            for name, arguments in calls:
                with pytest.raises(problems.SessionException):
                    getattr(each, name)(*arguments)
            each.delete_session("s")
            assert each.read_session("s") is None
            assert each.read_agent("s", "a") is None
        assert store.verify.run().verdict.sound

    def test_of_two_processes_that_continue_a_session_the_second_is_refused(self, store: sync.Holdproof) -> None:
        repository = self.repository(store)
        repository.create_message("s", "a", message(0, "first"))
        with pytest.raises(problems.SessionException, match="already exists"):
            adapter.HoldproofSessionRepository(store).create_message("s", "a", message(0, "second"))
        [only] = repository.list_messages("s", "a")
        assert only.message["content"] == [{"text": "first"}]

    def test_bytes_and_huge_messages_come_back_and_what_json_would_change_is_refused(
        self, store: sync.Holdproof
    ) -> None:
        repository = self.repository(store)
        picture = {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": b"\0\xff" * 500_000}}}]}
        repository.create_message("s", "a", types.SessionMessage.from_message(picture, 0))
        assert repository.read_message("s", "a", 0).message == picture
        for wrong in (agent(of=(1, 2)), agent(at={1: 2}), agent(what={1}), agent(nan=float("nan"))):
            with pytest.raises(errors.InvalidInputError):
                repository.update_agent("s", wrong)
        with pytest.raises(errors.InvalidInputError, match="integer"):
            repository.read_message("s", "a", "0")
        assert repository.read_agent("s", "a").state == {}

    def test_erasing_a_person_removes_that_persons_sessions_and_bytes(self, store: sync.Holdproof) -> None:
        async def stored(subject: str, key: str) -> Any:
            await adapter.HoldproofStorage(store, subject=subject).write(key, b"x")

        self.repository(store, subject="Ada").create_message("s", "a", message(0))
        other = adapter.HoldproofSessionRepository(store, subject="Grace")
        other.create_session(session("t"))
        asyncio.run(stored("Ada", "ada/1"))
        asyncio.run(stored("Grace", "grace/1"))
        store.erase.subject("Ada")
        assert other.read_session("s") is None
        assert other.read_message("s", "a", 0) is None
        assert other.read_session("t") is not None
        assert asyncio.run(adapter.HoldproofStorage(store).list()) == ["grace/1"]
        assert store.verify.run().verdict.sound

    def test_storage_answers_as_their_own_does(self, store: sync.Holdproof) -> None:
        async def work() -> None:
            both = (adapter.HoldproofStorage(store), storages.InMemoryStorage())
            for each in both:
                for n, key in enumerate(("a/b", "/a//c/", "ä/%2F", "a-b", "A", "x" * 200)):
                    await each.write(key, bytes([n]) * 1_000)
                await each.write("a/b", b"again")
                await each.delete("a-b")
                await each.delete("none")
            for prefix in ("", "a", "a/", "/a", "ä", "none"):
                assert await both[0].list(prefix) == await both[1].list(prefix), prefix
            for key in await both[1].list(""):
                assert await both[0].read(key) == await both[1].read(key)
            if hasattr(storages.InMemoryStorage, "search"):  # not in the oldest version
                assert [hit.key for hit in await both[0].search("again")] == [
                    hit.key for hit in await both[1].search("again")
                ]
            for wrong in ("", "/", "a/../b", "a\\b"):
                for each in both if hasattr(storages.InMemoryStorage, "search") else both[:1]:
                    with pytest.raises(problems.StorageError):
                        await each.read(wrong)
            with pytest.raises(errors.InvalidInputError):
                await both[0].write("k", "text")

        asyncio.run(work())
        assert store.verify.run().verdict.sound


class TestSqlite(OnSqlite, Strands):
    pass


class TestMemory(InMemory, Strands):
    pass


class TestPostgres(OnPostgres, Strands):
    pass
