"""The context provider of the Microsoft Agent Framework on a store: an agent's own memory, scoped, logged, erasable."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.client import Holdproof
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore

framework: Any = pytest.importorskip("agent_framework", reason="not installed: pip install agent-framework-core")
adapter: Any = pytest.importorskip("holdproof.adapters.agent_framework")

Act = Callable[[Holdproof], Coroutine[Any, Any, Any]]


class Scripted(framework.FunctionInvocationLayer, framework.ChatMiddlewareLayer, framework.BaseChatClient):  # type: ignore[misc]
    """Makes the calls of its script, one for each time it is asked, and records what it was shown."""

    model = "scripted"

    def __init__(self, *script: tuple[str, dict[str, Any]] | str) -> None:
        super().__init__()
        self.script = list(script)
        self.seen: list[str] = []
        self.results: list[str] = []
        self.offered: list[str] = []

    async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        assert not stream
        self.offered = sorted(each.name for each in options.get("tools") or ())
        self.seen.append("\n".join(each.text for each in messages))
        last = messages[-1].contents[-1]
        if last.type == "function_result":
            self.results.append(str(last.result))
        step = self.script.pop(0) if self.script else "done"
        if isinstance(step, str):
            content = framework.Content.from_text(step)
        else:
            name, arguments = step
            content = framework.Content.from_function_call(f"call-{len(self.seen)}", name, arguments=arguments)
        return framework.ChatResponse(messages=[framework.Message(role="assistant", contents=[content])])


def agent_of(client: Scripted, provider: Any) -> Any:
    return framework.Agent(client, instructions="Be kind.", name="waiter", context_providers=[provider])


async def remember(provider: Any, *texts: str) -> list[str]:
    """Let an agent remember; what its tools answered."""
    client = Scripted(*(("memory_put", {"text": text}) for text in texts))
    await agent_of(client, provider).run("Remember this.")
    return client.results


async def shown(provider: Any, question: str) -> str:
    """What an agent is shown when it is asked."""
    client = Scripted()
    await agent_of(client, provider).run(question)
    return client.seen[0]


def ids(results: list[str]) -> list[str]:
    return [result.rpartition(" ")[2].rstrip(".") for result in results]


class Memories(OnStore):
    def acted(self, store: sync.Holdproof, act: Act) -> Any:
        return asyncio.run(act(Holdproof(store.core)))

    def test_what_is_remembered_is_shown_to_later_conversations(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            provider = adapter.HoldproofContextProvider(client, scope="ada")
            assert "remember" not in (await shown(provider, "Hello")).partition("Be kind.")[0]
            [id] = ids(await remember(provider, "Ada does not eat nuts."))
            later = adapter.HoldproofContextProvider(client, scope="ada")
            assert f"- {id}: Ada does not eat nuts." in await shown(later, "What shall I cook?")

        self.acted(store, work)

    def test_scopes_are_apart_whatever_they_hold(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            scopes = ["a", "a/b", "a%2Fb", "ä \0", "a/", "ab"]
            providers = [adapter.HoldproofContextProvider(client, scope=scope) for scope in scopes]
            memories = []
            for n, provider in enumerate(providers):
                memories += ids(await remember(provider, f"memory number {n}."))
            for n, provider in enumerate(providers):
                text = await shown(provider, "memory")
                assert [number for number in range(6) if f"memory number {number}." in text] == [n]
            # An id of another scope is none of this one, for any of the tools.
            client_ = Scripted(
                ("memory_put", {"text": "mine now", "replaces": memories[1]}),
                ("memory_delete", {"id": memories[1]}),
                ("memory_delete", {"id": f"../a%2Fb/{memories[1]}"}),
            )
            await agent_of(client_, providers[0]).run("Delete what others remember.")
            assert client_.results == [
                f"Not remembered: there is no memory {memories[1]}.",
                f"There is no memory {memories[1]}.",
                f"There is no memory ../a%2Fb/{memories[1]}.",
            ]
            assert "memory number 1." in await shown(providers[1], "memory")

        self.acted(store, work)

    def test_the_memories_that_share_most_words_are_shown_then_the_newest(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            provider = adapter.HoldproofContextProvider(client, scope="ada", limit=2)
            await remember(provider, "Ada likes green tea.", "Ada has a dog.", "The dog is called Rex.")
            best = await shown(provider, "Which TEA is green?")
            assert "green tea" in best
            assert "called Rex" in best
            assert "has a dog" not in best
            searched = Scripted(("memory_search", {"query": "dog"}), ("memory_search", {"query": "cat"}))
            await agent_of(searched, provider).run("Look it up.")
            assert [line.partition(": ")[2] for line in searched.results[0].splitlines()] == [
                "The dog is called Rex.",
                "Ada has a dog.",
            ]
            assert searched.results[1] == "Nothing remembered has any of these words."
            assert searched.offered == ["memory_delete", "memory_put", "memory_search"]

        self.acted(live, work)

    def test_a_memory_is_replaced_and_deleted_and_its_versions_stay(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            provider = adapter.HoldproofContextProvider(client, scope="ada")
            [id, again] = ids(await remember(provider, "Ada lives in Rome.", "Ada lives in Rome."))
            assert id == again, "what is remembered again is one memory"
            steps = Scripted(("memory_put", {"text": "Ada lives in Oslo.", "replaces": id}))
            await agent_of(steps, provider).run("She has moved.")
            assert "Oslo" in await shown(provider, "Where?")
            assert "Rome" not in await shown(provider, "Where?")
            gone = Scripted(("memory_delete", {"id": id}), ("memory_delete", {"id": id}))
            await agent_of(gone, provider).run("Forget it.")
            assert gone.results == [f"Deleted {id}.", f"There is no memory {id}."]
            assert "Oslo" not in await shown(provider, "Where?")
            object_id = f"agent-framework/ada/{id}"
            deletion, *versions = (await client.objects.history(object_id)).items
            assert deletion.cid is None
            assert [each.version for each in versions] == [2, 1]
            assert (await client.objects.get(object_id, version=1)).content == "Ada lives in Rome."
            assert (await client.verify.run()).verdict.sound

        self.acted(store, work)

    def test_what_a_model_gets_wrong_is_told_to_it_as_a_sentence(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            provider = adapter.HoldproofContextProvider(client, scope="ada")
            results = await remember(provider, "  ", "x" * 4_001, "Line one\n- line two")
            assert results[0] == "Not remembered: a memory has 1 to 4,000 characters, and this text 2."
            assert results[1] == "Not remembered: a memory has 1 to 4,000 characters, and this text 4,001."
            # What is remembered cannot look like two memories.
            assert f"- {ids(results)[2]}: Line one - line two" in await shown(provider, "Hello")

        self.acted(store, work)

    def test_what_somebody_else_put_there_is_not_shown(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            await client.objects.put("agent-framework/ada/1", type="note", content="not a memory")
            await client.objects.put("agent-framework/ada/2", type="memory", content={"not": "a text"})
            assert "not" not in await shown(adapter.HoldproofContextProvider(client, scope="ada"), "Hello")

        self.acted(store, work)

    def test_erasing_a_person_erases_what_was_remembered_of_that_person(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            of_ada = adapter.HoldproofContextProvider(client, scope="a", subject="Ada")
            of_nobody = adapter.HoldproofContextProvider(client, scope="b")
            await remember(of_ada, "Ada has a secret.")
            await remember(of_nobody, "Tea is green.")
            assert "Ada has a secret." in await shown(of_ada, "Hello")
            await client.erase.subject("Ada")
            assert "secret" not in await shown(of_ada, "Hello")
            assert "Tea is green." in await shown(of_nobody, "Hello")
            assert (await client.verify.run()).verdict.sound

        self.acted(store, work)

    def test_what_is_sealed_is_not_shown_without_an_entry(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            provider = adapter.HoldproofContextProvider(client, scope="a", subject="Ada")
            await remember(provider, "Ada has a secret.")
            assert "secret" in await shown(provider, "Hello")

        self.acted(store, work)
        store.agents.set_status("trader", "ACTIVE")  # the entry of a read is written behind it
        settled(store)
        [access] = store.audit.trail(kind="access", limit=10).items
        assert access.what == "content of a subject read by objects.get"

    def test_a_durable_run_says_which_memories_it_was_shown_and_which_it_wrote(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            provider = adapter.HoldproofContextProvider(client, scope="ada", limit=1)
            await remember(provider, "Ada likes tea.", "Ada has a dog.")
            scripted = Scripted(("memory_put", {"text": "Ada asked for tea."}))
            waiter = adapter.HoldproofAgent(agent_of(scripted, provider), client, agent_id="waiter")
            await waiter.run("tea?", flow_id="case-1")
            memories = {each.content: each for each in (await client.objects.list(prefix="agent-framework/ada/")).items}
            [newest] = (await client.objects.history(memories["Ada asked for tea."].id)).items
            assert (newest.flow_id, newest.agent_id) == ("case-1", "waiter")
            used = {}
            for content, memory in memories.items():
                used[content] = [use.flow_id for use in (await client.objects.uses(memory.id)).items]
            assert used == {"Ada likes tea.": ["case-1"], "Ada has a dog.": [], "Ada asked for tea.": []}
            names = [step.name for step in (await client.flows.steps("case-1"))]
            assert names == ["memory shown", "model scripted", "tool memory_put", "model scripted"]

        self.acted(live, work)

    def test_a_run_that_goes_on_is_shown_what_it_was_shown_before(self, live: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            provider = adapter.HoldproofContextProvider(client, scope="ada")
            await remember(provider, "Ada likes tea.")

            class Dying(Scripted):
                lives = False

                async def _inner_get_response(self, **options: Any) -> Any:
                    if self.seen and not self.lives:
                        raise CrashError
                    return await super()._inner_get_response(**options)

            scripted = Dying(("memory_put", {"text": "Ada asked for tea."}))
            waiter = adapter.HoldproofAgent(agent_of(scripted, provider), client, agent_id="waiter", lease_s=0.2)
            with pytest.raises(CrashError):
                await waiter.run("tea?", flow_id="case-1")
            # Meanwhile another conversation changes what this one was shown.
            await remember(provider, "Ada likes coffee now.")
            scripted.lives = True
            ended = await waiter.run("tea?", flow_id="case-1")
            assert ended.output == "done"
            assert len(scripted.seen) == 2, "the first call was not made again"
            assert "likes tea" in scripted.seen[1]
            assert "coffee" not in scripted.seen[1]
            memories = (await client.objects.list(prefix="agent-framework/ada/")).items
            assert [each.content for each in memories].count("Ada asked for tea.") == 1

        self.acted(live, work)


class TestSqlite(OnSqlite, Memories):
    pass


class TestMemory(InMemory, Memories):
    pass


class TestPostgres(OnPostgres, Memories):
    pass


@pytest.mark.parametrize("scope", ["", "a" * 251, "/" * 100])
def test_a_scope_that_nothing_could_be_remembered_under_is_refused(tmp_path: Path, scope: str) -> None:
    with pytest.raises(errors.InvalidInputError, match="scope"):
        adapter.HoldproofContextProvider(tmp_path, scope=scope)


def test_the_longest_scope_has_room_for_memories(tmp_path: Path) -> None:
    async def work() -> None:
        async with adapter.HoldproofContextProvider(tmp_path / "store", scope="a" * 250) as provider:
            await remember(provider, "Ada likes tea.")
            assert "Ada likes tea." in await shown(provider, "Hello")

    asyncio.run(work())


def test_a_provider_opens_the_store_that_it_is_given_and_closes_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with adapter.HoldproofContextProvider(tmp_path / "store", scope="ada") as provider:
            await remember(provider, "Ada likes tea.")
        with pytest.raises(errors.ClosedError):
            await shown(provider, "Hello")
        async with adapter.HoldproofContextProvider(tmp_path / "store", scope="ada") as provider:
            assert "Ada likes tea." in await shown(provider, "Hello")

    asyncio.run(work())
