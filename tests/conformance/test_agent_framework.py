"""The Microsoft Agent Framework on a store: its contract as its own storage keeps it; nothing decoded that may not."""

import asyncio
import base64
import pickle
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from holdproof import sync
from holdproof.client import Holdproof
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

framework: Any = pytest.importorskip("agent_framework", reason="not installed: pip install agent-framework-core")
adapter: Any = pytest.importorskip("holdproof.adapters.agent_framework")

_CALLED: list[str] = []


@dataclass
class Mine:
    """A type of the user."""

    value: int


class Hostile:
    """What calls something when it is unpickled."""

    def __reduce__(self) -> Any:
        return (_CALLED.append, ("called",))


def checkpoint(workflow: str = "press", **given: Any) -> Any:
    return framework.WorkflowCheckpoint(workflow_name=workflow, graph_signature_hash="hash", **given)


Act = Callable[[Holdproof, Any], Coroutine[Any, Any, Any]]


class AgentFramework(OnStore):
    def acted(self, store: sync.Holdproof, act: Act, **options: Any) -> Any:
        face = Holdproof(store.core)
        return asyncio.run(act(face, adapter.HoldproofCheckpointStorage(face, **options)))

    def test_it_has_all_that_the_protocol_has(self, store: sync.Holdproof) -> None:
        storage = adapter.HoldproofCheckpointStorage(store)
        for name in ("save", "load", "list_checkpoints", "delete", "get_latest", "list_checkpoint_ids"):
            assert hasattr(framework.CheckpointStorage, name)
            assert asyncio.iscoroutinefunction(getattr(storage, name))

    def test_it_answers_as_their_own_storage_does(self, store: sync.Holdproof) -> None:
        async def work(face: Holdproof, ours: Any) -> None:
            theirs = framework.InMemoryCheckpointStorage()
            made = [
                checkpoint("press" if n % 3 else "other", iteration_count=n, state={"n": n, "at": datetime.now(UTC)})
                for n in range(6)
            ]
            for each in made:
                assert await ours.save(each) == await theirs.save(each) == each.checkpoint_id
            for name in ("press", "other", "none"):
                for ask in ("list_checkpoints", "list_checkpoint_ids", "get_latest"):
                    assert await getattr(ours, ask)(workflow_name=name) == await getattr(theirs, ask)(
                        workflow_name=name
                    ), ask
            for id in (made[1].checkpoint_id, made[1].checkpoint_id, "none"):
                assert await ours.delete(id) == await theirs.delete(id)
            assert await ours.load(made[0].checkpoint_id) == made[0]
            for id in (made[1].checkpoint_id, "none"):
                with pytest.raises(framework.WorkflowCheckpointException):
                    await ours.load(id)

        self.acted(store, work)

    def test_saved_again_the_later_one_counts(self, store: sync.Holdproof) -> None:
        async def work(face: Holdproof, storage: Any) -> None:
            first = checkpoint(state={"n": 1})
            await storage.save(first)
            await storage.save(checkpoint())
            await storage.save(checkpoint(checkpoint_id=first.checkpoint_id, state={"n": 2}))
            latest = await storage.get_latest(workflow_name="press")
            assert (latest.checkpoint_id, latest.state) == (first.checkpoint_id, {"n": 2})
            assert len(await storage.list_checkpoint_ids(workflow_name="press")) == 2

        self.acted(store, work)

    def test_a_type_that_nobody_allowed_is_refused_when_it_is_saved(self, store: sync.Holdproof) -> None:
        async def work(face: Holdproof, storage: Any) -> None:
            with pytest.raises(framework.WorkflowCheckpointException):
                await storage.save(checkpoint(state={"mine": Mine(1)}))
            assert await storage.list_checkpoint_ids(workflow_name="press") == []
            allowed = adapter.HoldproofCheckpointStorage(face, allowed_checkpoint_types=[f"{__name__}:Mine"])
            id = await allowed.save(checkpoint(state={"mine": Mine(1)}))
            assert (await allowed.load(id)).state == {"mine": Mine(1)}
            with pytest.raises(framework.WorkflowCheckpointException):
                await storage.load(id)

        self.acted(store, work)

    def test_hostile_bytes_in_a_row_call_nothing(self, store: sync.Holdproof) -> None:
        async def work(face: Holdproof, storage: Any) -> None:
            forged = {"__pickled__": base64.b64encode(pickle.dumps(Hostile())).decode(), "__type__": "builtins:dict"}
            await face.transcripts.put_item("agent-framework/checkpoints", "forged", {"state": forged}, tag="press")
            for ask in (storage.load("forged"), storage.list_checkpoints(workflow_name="press")):
                with pytest.raises(framework.WorkflowCheckpointException):
                    await ask
            assert _CALLED == []

        self.acted(store, work)

    def test_a_checkpoint_in_the_place_of_another_is_an_error(self, store: sync.Holdproof) -> None:
        async def work(face: Holdproof, storage: Any) -> None:
            id = await storage.save(checkpoint())
            moved = await face.transcripts.get_item("agent-framework/checkpoints", id)
            assert moved is not None
            await face.transcripts.put_item("agent-framework/checkpoints", "another", moved.value, tag="press")
            with pytest.raises(framework.WorkflowCheckpointException):
                await storage.load("another")

        self.acted(store, work)

    def test_racing_saves_are_all_kept(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, storage: Any) -> None:
            made = [checkpoint(iteration_count=n) for n in range(16)]
            await asyncio.gather(*(storage.save(each) for each in made))
            found = await storage.list_checkpoint_ids(workflow_name="press")
            assert sorted(found) == sorted(each.checkpoint_id for each in made)

        self.acted(live, work)


class TestSqlite(OnSqlite, AgentFramework):
    pass


class TestMemory(InMemory, AgentFramework):
    pass


class TestPostgres(OnPostgres, AgentFramework):
    pass
