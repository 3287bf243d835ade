"""A2A on a store: tasks answer as the SDK's own store does, and a writer that missed a change is refused."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.client import Holdproof
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

types: Any = pytest.importorskip("a2a.types.a2a_pb2", reason="not installed: pip install a2a-sdk")
cluster: Any = pytest.importorskip("a2a.server.cluster.task_store", reason="a2a-sdk without versions of tasks")
version: Any = pytest.importorskip("a2a.server.cluster.version")
user: Any = pytest.importorskip("a2a.auth.user")
context: Any = pytest.importorskip("a2a.server.context")
tasks: Any = pytest.importorskip("a2a.server.tasks")
paging: Any = pytest.importorskip("a2a.utils.task")
utils: Any = pytest.importorskip("a2a.utils.errors")
adapter: Any = pytest.importorskip("holdproof.adapters.a2a")

RUNNING = types.TaskState.TASK_STATE_WORKING
DONE = types.TaskState.TASK_STATE_COMPLETED
CANCELED = types.TaskState.TASK_STATE_CANCELED


def caller(name: str) -> Any:
    class Named(user.User):  # type: ignore[misc]
        is_authenticated = True
        user_name = name

    return context.ServerCallContext(user=Named())


ADA, GRACE, NOBODY = caller("ada"), caller("grace/%"), context.ServerCallContext()


def task(id: str, *, at: int | None = None, state: int = RUNNING, chat: str = "c", text: str = "hello") -> Any:
    made = types.Task(id=id, context_id=chat, status=types.TaskStatus(state=state))
    if at is not None:
        made.status.timestamp.FromNanoseconds(at)
    made.history.add(message_id="m", role=types.Role.ROLE_USER).parts.add(text=text)
    made.metadata.update({"n": 1.5, "deep": {"list": [True, None, "ä"]}})
    return made


Act = Callable[[Holdproof], Coroutine[Any, Any, Any]]


class A2a(OnStore):
    def acted(self, store: sync.Holdproof, act: Act) -> Any:
        result = asyncio.run(act(Holdproof(store.core)))
        assert store.verify.run().verdict.sound
        return result

    # --- tasks -------------------------------------------------------------------------------------------------------

    def test_it_answers_as_their_own_store_does(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            ours, theirs = adapter.HoldproofTaskStore(client), tasks.InMemoryTaskStore()
            both = (ours, theirs)
            for n in range(12):
                # Some at the same nanosecond, some without a time: what is left decides the order.
                made = task(f"t/{n}", at=None if n % 4 == 3 else 10**18 + n // 3, state=DONE if n % 2 else RUNNING)
                made.context_id = f"c{n % 3}"
                for each in both:
                    await each.save(made, GRACE if n == 5 else ADA)
            for each in both:
                await each.delete("t/1", ADA)
                await each.delete("t/5", ADA)
                await each.save(task("t/2", at=10**18 + 9, state=DONE), ADA)
            for id in ("t/0", "t/1", "t/5", "none"):
                for who in (ADA, GRACE, NOBODY):
                    assert await ours.get(id, who) == await theirs.get(id, who)
            after = types.ListTasksRequest()
            after.status_timestamp_after.FromNanoseconds(10**18 + 2)
            requests = [types.ListTasksRequest(**each) for each in ({}, {"context_id": "c1"}, {"status": DONE})]
            for request in (*requests, after):
                for who in (ADA, GRACE, NOBODY):
                    request.page_token = ""
                    for size in (0, 3):
                        request.page_size = size
                        assert await self.pages(ours, request, who) == await self.pages(theirs, request, who)

        self.acted(store, work)

    async def pages(self, of: Any, request: Any, who: Any) -> list[Any]:
        """All pages of a listing: what each holds, and how many there are in all."""
        listed = []
        asked = types.ListTasksRequest()
        asked.CopyFrom(request)
        while True:
            page = await of.list(asked, who)
            listed.append(([each.id for each in page.tasks], page.total_size, page.page_size))
            if not page.next_page_token:
                return listed
            asked.page_token = page.next_page_token

    def test_a_token_of_an_older_version_and_one_that_is_none_are_told_apart(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            ours = adapter.HoldproofTaskStore(client)
            for n in range(4):
                await ours.save(task(f"t{n}", at=n), ADA)
            listed = await ours.list(types.ListTasksRequest(page_token=paging.encode_page_token("t1")), ADA)
            assert [each.id for each in listed.tasks] == ["t1", "t0"]
            for wrong in (paging.encode_page_token("none"), "%%%"):
                with pytest.raises(utils.InvalidParamsError):
                    await ours.list(types.ListTasksRequest(page_token=wrong), ADA)

        self.acted(store, work)

    def test_a_huge_task_comes_back_as_it_was_and_what_is_no_task_is_refused(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            ours = adapter.HoldproofTaskStore(client)
            huge = task("huge", text="x" * 3_000_000)
            huge.artifacts.add(artifact_id="a").parts.add(raw=b"\0\xff" * 1000)
            await ours.save(huge, ADA)
            assert await ours.get("huge", ADA) == huge
            for wrong in ({"id": "t"}, None, types.Message(message_id="m")):
                with pytest.raises(errors.InvalidInputError):
                    await ours.save(wrong, ADA)

        self.acted(store, work)

    # --- versions ----------------------------------------------------------------------------------------------------

    def test_a_writer_that_missed_a_change_is_refused(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            ours = adapter.HoldproofVersionedTaskStore(client)
            missing = version.TaskVersion.MISSING
            assert await ours.get("t", ADA) is None
            first = await ours.save(task("t"), prev_version=missing, context=ADA)
            second = await ours.save(task("t", text="two"), prev_version=first, context=ADA)
            assert second.is_after(first)
            for stale in (missing, first):
                with pytest.raises(cluster.ConcurrentTaskModificationError):
                    await ours.save(task("t", text="late"), prev_version=stale, context=ADA)
            stored = await ours.get("t", ADA)
            assert (stored.task, stored.version) == (task("t", text="two"), second)
            # The store without versions counts as a writer too.
            await adapter.HoldproofTaskStore(client).save(task("t", text="three"), ADA)
            with pytest.raises(cluster.ConcurrentTaskModificationError):
                await ours.save(task("t", text="late"), prev_version=second, context=ADA)

        self.acted(store, work)

    def test_a_cancellation_overwrites_what_runs_and_nothing_that_ended_or_is_not_there(
        self, store: sync.Holdproof
    ) -> None:
        async def work(client: Holdproof) -> None:
            ours = adapter.HoldproofVersionedTaskStore(client)
            missing = version.TaskVersion.MISSING
            with pytest.raises(cluster.ConcurrentTaskModificationError):
                await ours.save(task("t", state=CANCELED), prev_version=missing, context=ADA)
            assert await ours.get("t", ADA) is None
            first = await ours.save(task("t"), prev_version=missing, context=ADA)
            canceled = await ours.save(task("t", state=CANCELED), prev_version=missing, context=ADA)
            assert canceled.is_after(first)
            with pytest.raises(cluster.ConcurrentTaskModificationError):
                await ours.save(task("t", state=CANCELED), prev_version=canceled, context=ADA)

        self.acted(store, work)

    def test_of_racing_writers_one_goes_first_each_time(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> int:
            ours = [adapter.HoldproofVersionedTaskStore(client) for _ in range(4)]
            refused = 0

            async def add(each: Any) -> None:
                nonlocal refused
                for _ in range(5):
                    while True:
                        stored = await each.get("t", ADA)
                        before = version.TaskVersion.MISSING if stored is None else stored.version
                        number = 0 if stored is None else int(stored.task.metadata["n"])
                        made = task("t")
                        made.metadata.update({"n": number + 1})
                        try:
                            await each.save(made, prev_version=before, context=ADA)
                            break
                        except cluster.ConcurrentTaskModificationError:
                            refused += 1

            await asyncio.gather(*map(add, ours))
            stored = await ours[0].get("t", ADA)
            assert int(stored.task.metadata["n"]) == 20
            return refused

        assert self.acted(store, work) >= 1

    # --- where changes are pushed to ---------------------------------------------------------------------------------

    def test_configurations_answer_as_their_own_store_does(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            ours = adapter.HoldproofPushNotificationConfigStore(client)
            both = (ours, tasks.InMemoryPushNotificationConfigStore())
            configs = [
                ("t", {"id": "a", "url": "https://a"}, ADA),
                ("t", {"url": "https://default"}, ADA),
                ("t", {"id": "a/ä\n", "url": "https://b", "token": "secret"}, GRACE),
                ("t", {"id": "a", "url": "https://again"}, ADA),
                ("t/x", {"id": "a", "url": "https://other"}, ADA),
            ]
            for id, fields, who in configs:
                asked = types.TaskPushNotificationConfig(**fields)
                given = [await each.set_info(id, asked, who) for each in both]
                assert given[0] == given[1]
                assert asked == types.TaskPushNotificationConfig(**fields), "what was given stays as it was"

            async def alike() -> None:
                for id in ("t", "t/x", "none"):
                    for who in (ADA, GRACE, NOBODY):
                        listed = [await each.get_info(id, who) for each in both]
                        assert listed[0] == listed[1]
                    sent = [await each.get_info_for_dispatch(id) for each in both]
                    assert sorted(map(str, sent[0])) == sorted(map(str, sent[1]))

            await alike()
            for id, config, who in (("t", "none", ADA), ("t", "a", GRACE), ("t", "a", ADA), ("none", None, ADA)):
                for each in both:
                    await each.delete_info(id, who, config)
                await alike()
            for each in both:
                await each.delete_info("t", ADA)
            await alike()
            assert [config.id for config in await ours.get_info_for_dispatch("t")] == ["a/ä\n"]

        self.acted(store, work)

    def test_erasing_an_owner_removes_the_owners_tasks_and_configurations(self, store: sync.Holdproof) -> None:
        async def work(client: Holdproof) -> None:
            ours = adapter.HoldproofTaskStore(client)
            configs = adapter.HoldproofPushNotificationConfigStore(client)
            for who in (ADA, GRACE, NOBODY):
                await ours.save(task("t"), who)
                await configs.set_info("t", types.TaskPushNotificationConfig(id="a", url="https://a"), who)
            await client.erase.subject("ada")
            assert await ours.get("t", ADA) is None
            assert await configs.get_info("t", ADA) == []
            for who in (GRACE, NOBODY):
                assert await ours.get("t", who) == task("t")
                assert len(await configs.get_info("t", who)) == 1

        self.acted(store, work)


class TestSqlite(OnSqlite, A2a):
    pass


class TestMemory(InMemory, A2a):
    pass


class TestPostgres(OnPostgres, A2a):
    pass
