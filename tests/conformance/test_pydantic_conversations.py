"""Conversations of Pydantic AI on a store: as its own store keeps them, none overwritten, none left behind."""

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdproof import sync
from holdproof.client import Holdproof
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

ai: Any = pytest.importorskip("pydantic_ai", reason="not installed: pip install pydantic-ai-slim")
theirs: Any = pytest.importorskip("pydantic_ai.conversation_store", reason="pydantic-ai-slim before 2.66")
messages: Any = pytest.importorskip("pydantic_ai.messages")
models: Any = pytest.importorskip("pydantic_ai.models.test")
conversation: Any = pytest.importorskip("pydantic_ai.conversation")
adapter: Any = pytest.importorskip("holdproof.adapters.pydantic_ai")

Act = Callable[[Holdproof], Coroutine[Any, Any, Any]]


def turn(text: str) -> list[Any]:
    file = messages.BinaryContent(data=b"\0\xff", media_type="application/pdf")
    request = messages.ModelRequest(parts=[messages.UserPromptPart(content=[text, file])])
    return [request, messages.ModelResponse(parts=[messages.TextPart(content=f"re: {text}")])]


def started(id: str, *texts: str) -> Any:
    return conversation.Conversation(conversation_id=id, messages=[each for text in texts for each in turn(text)])


def said(found: Any) -> list[str]:
    """What was said in a conversation, in a line each."""
    parts = [each.parts[0] for each in found.messages]
    return [part.content if isinstance(part.content, str) else part.content[0] for part in parts]


class Conversations(OnStore):
    def acted(self, store: sync.Holdproof, act: Act) -> Any:
        return asyncio.run(act(Holdproof(store.core)))

    def test_it_answers_as_their_own_store_does(self, live: sync.Holdproof) -> None:
        async def script(store: Any) -> list[Any]:
            answers: list[Any] = []
            for id, scope in (("a/1 %", "ada"), ("b", "bob"), ("c", None)):
                answers.append(len(await store.save(started(id, "one", "two"), scope=scope)))
            loaded = await store.load("a/1 %")
            loaded.messages += turn("three")
            answers.append(len(await store.save(loaded)))
            window = await store.load("a/1 %", limit=2, scope="ada")
            answers.append(said(window))
            window.messages += turn("four")
            await store.save(window)
            answers.append(await store.load("a/1 %", scope="bob"))
            answers.append(said(await store.load("a/1 %")))
            fork = await store.fork("a/1 %", at=2, new_conversation_id="f")
            fork.messages += turn("else")
            await store.save(fork)
            entries = await store.load_entries("a/1 %")
            branched = await store.branch("a/1 %", at=4, expected_revision=(await store.load("a/1 %")).revision)
            branched.messages += turn("other")
            await store.save(branched)
            answers.append([said(await store.load(id)) for id in ("a/1 %", "f")])
            left = (await store.read_record("a/1 %")).branches
            answers.append(left == [entries[-1].id])
            back = await store.branch(
                "a/1 %", from_entry=left[0], expected_revision=(await store.load("a/1 %")).revision
            )
            answers.append(said(back))
            rewritten = conversation.Conversation(conversation_id="b", messages=turn("one") + turn("new"))
            rewritten.revision = (await store.load("b")).revision
            await store.save(rewritten)
            answers.append(said(await store.load("b")))
            for scope, limit in ((None, None), ("ada", None), (None, 2)):
                listed = await store.list_conversations(scope=scope, limit=limit)
                answers.append([(each.conversation_id, each.scope, each.forked_from) for each in listed])
            await store.delete("a/1 %", scope="bob")
            await store.delete("a/1 %")
            await store.delete("none")
            answers.append(await store.load("a/1 %"))
            answers.append(said(await store.load("f")))
            answers.append(len(await store.save(started("a/1 %", "anew"))))
            for wrong in ({"at": 9}, {"from_entry": "none"}):
                with pytest.raises(ai.UserError):
                    await store.fork("f", **wrong)
            with pytest.raises(LookupError):
                await store.read_entry("none")
            return answers

        async def work(client: Holdproof) -> None:
            ours = await script(adapter.HoldproofConversationStore(client))
            assert ours == await script(theirs.InMemoryConversationStore())

        self.acted(live, work)

    def test_messages_come_back_as_they_were_and_a_run_goes_on(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            store = adapter.HoldproofConversationStore(client)
            agent = ai.Agent(models.TestModel(custom_output_text="done"))
            begun = conversation.Conversation(conversation_id="s", messages=turn("image"))
            result = await agent.run("go on", conversation=begun)
            await store.save(result)
            loaded = await store.load("s")
            assert loaded.messages == result.conversation.messages
            assert loaded.usage == result.conversation.usage
            second = await agent.run("again", conversation=loaded)
            assert len(await store.save(second)) == 2
            assert len((await store.load("s")).messages) == 6

        self.acted(live, work)

    def test_of_racing_saves_one_is_taken_and_the_others_leave_nothing(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            store = adapter.HoldproofConversationStore(client)
            made = await asyncio.gather(*(store.save(started("s", str(n))) for n in range(6)), return_exceptions=True)
            assert sum(isinstance(each, theirs.ConversationConflict) for each in made) == 5
            copies = [await store.load("s") for _ in range(6)]
            for n, each in enumerate(copies):
                each.messages += turn(f"more {n}")
            made = await asyncio.gather(*(store.save(each) for each in copies), return_exceptions=True)
            assert sum(isinstance(each, theirs.ConversationConflict) for each in made) == 5
            assert len((await store.load("s")).messages) == 4
            assert await self.stored(client) == (4, 4, 2)

        self.acted(live, work)

    def test_deleting_the_last_conversation_of_a_tree_leaves_nothing(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            store = adapter.HoldproofConversationStore(client)
            await store.save(started("a", "one", "two", "three"))
            await store.fork("a", at=2, new_conversation_id="f")
            await store.delete("a")
            assert await self.stored(client) == (2, 2, 2)
            assert said(await store.load("f")) == ["one", "re: one"]
            await store.delete("f")
            assert await self.stored(client) == (0, 0, 0)

        self.acted(live, work)

    def test_forks_beside_a_deletion_are_whole_or_refused(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            store = adapter.HoldproofConversationStore(client)
            for n in range(8):
                await store.save(started(f"a{n}", "one", "two"))
            acts = [
                act
                for n in range(8)
                for act in (store.fork(f"a{n}", new_conversation_id=f"f{n}"), store.delete(f"a{n}"))
            ]
            ended = await asyncio.gather(*acts, return_exceptions=True)
            for n, fork in enumerate(ended[::2]):
                assert not isinstance(fork, BaseException) or isinstance(fork, ai.UserError)
                loaded = await store.load(f"f{n}")
                assert (loaded is None) == isinstance(fork, BaseException)
                assert loaded is None or len(loaded.messages) == 4
                assert await store.load(f"a{n}") is None

        self.acted(live, work)

    def test_a_fork_of_what_is_gone_is_refused(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            store = adapter.HoldproofConversationStore(client)
            await store.save(started("a", "one"))
            record = await store.read_record("a")
            await store.delete("a")
            late = dataclasses.replace(record, conversation_id="late", forked_from="a")
            with pytest.raises(theirs.ConversationConflict):
                await store.write_record(late, expected_revision=None)
            assert await self.stored(client) == (0, 0, 0)

        self.acted(live, work)

    def test_erasing_a_person_removes_their_conversations(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            store = adapter.HoldproofConversationStore(client, subject="ada")
            await store.save(started("a", "one"))
            await adapter.HoldproofConversationStore(client).save(started("b", "two"))
            await client.erase.subject("ada")
            assert await store.load("a") is None
            assert said(await store.load("b")) == ["two", "re: two"]
            assert await self.stored(client) == (2, 2, 2)

        self.acted(live, work)

    async def stored(self, client: Holdproof) -> tuple[int, int, int]:
        """How many messages, places of messages and transcripts there are."""
        listed = (await client.transcripts.list()).items
        items = [item for one in listed for item in (await client.transcripts.list_items(one.name)).items]
        places = (await client.notes.search(["pydantic-ai", "entries"], limit=1000)).items
        return len(items), len(places), len(listed)


class TestSqlite(OnSqlite, Conversations):
    pass


class TestMemory(InMemory, Conversations):
    pass


class TestPostgres(OnPostgres, Conversations):
    pass
