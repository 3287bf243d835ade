"""Shapes and dreams on every backend: observed, consolidated, found by a vector."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdproof import errors
from holdproof.storage import StorageProvider
from holdproof.storage.dreams import Dreams
from holdproof.storage.shapes import Shapes
from holdproof.testing import FrozenClock
from tests.conformance.storages import InMemory, OnPostgres, OnSqlite, OnStorage

EAST, NORTH, BETWEEN = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]


class _CrashError(BaseException):
    """A process that dies between two stores."""


class Suite(OnStorage):
    def test_a_shape_is_kept_as_it_was_observed(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            shapes = Shapes(storage)
            facts: dict[str, Any] = {"interpretation": "a\nrhythm", "project_hash": "0a1b2c3d", "instance_id": "i"}
            shape = await shapes.observe("rhythm", intensity=0.25, persistence=3, **facts)
            assert (shape.intensity, shape.persistence, shape.embedding_status) == (0.25, 3.0, "none")
            assert shape.observed_at == "2026-01-01T00:00:00.000000Z"
            assert await shapes.get(shape.id) == shape
            assert await shapes.search(EAST) == ()

        self.use(clock, test)

    def test_shapes_are_found_by_nearness_type_and_project(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            shapes = Shapes(storage)
            east = await shapes.observe("rhythm", vector=EAST, project_hash="p")
            north = await shapes.observe("drift", vector=NORTH)
            await storage.vector.add("foreign", EAST, {"kind": "note"})
            assert east.embedding_status == "embedded"
            near = await shapes.search([0.9, 0.1, 0.0])
            assert [each.shape for each in near] == [east, north]
            assert 0 <= near[0].distance < near[1].distance
            assert [each.shape.id for each in await shapes.search(NORTH, 1)] == [north.id]
            assert [each.shape.id for each in await shapes.search(NORTH, shape_type="rhythm")] == [east.id]
            assert [each.shape.id for each in await shapes.search(NORTH, project_hash="p")] == [east.id]

        self.use(clock, test)

    def test_shapes_come_newest_first_page_by_page(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            shapes, made = Shapes(storage), []
            for number in range(5):
                made.append(await shapes.observe("even" if number % 2 == 0 else "odd", project_hash=f"p{number % 2}"))
                clock.advance(number % 2)
            told = await shapes.list()
            assert list(told) == made[::-1]
            page = await shapes.list(limit=3)
            assert [*page, *await shapes.list(cursor=page.next_cursor)] == made[::-1]
            assert len(await shapes.list(shape_type="even", project_hash="p0")) == 3
            assert (await shapes.list(embedding_status="pending")).items == []

        self.use(clock, test)

    def test_a_shape_whose_vector_is_refused_is_not_kept(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            shapes, dreams = Shapes(storage), Dreams(storage)
            source = await shapes.observe("rhythm")
            for wrong in ([1.0], [0.0, 0.0, 0.0], [1.0, float("nan"), 0.0]):
                with pytest.raises(errors.InvalidInputError):
                    await shapes.observe("rhythm", vector=wrong)
                with pytest.raises(errors.InvalidInputError):
                    await dreams.consolidate("x", source_shapes=[source.id], vector=wrong)
            assert (await shapes.list()).items == [source]
            assert (await dreams.list()).items == []
            assert await storage.vector.count() == 0

        self.use(clock, test)

    def test_after_a_crash_between_the_stores_a_shape_is_pending_and_can_be_embedded(
        self, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def test(storage: StorageProvider) -> None:
            shapes = Shapes(storage)

            async def crash(id: str, vector: Sequence[float], metadata: Any = None) -> None:
                raise _CrashError

            with monkeypatch.context() as patch:
                patch.setattr(storage.vector, "add", crash)
                with pytest.raises(_CrashError):
                    await shapes.observe("rhythm", vector=EAST)
            [shape] = await shapes.list(embedding_status="pending")
            assert (await shapes.embed(shape.id, EAST)).embedding_status == "embedded"
            assert [each.shape.id for each in await shapes.search(EAST)] == [shape.id]

        self.use(clock, test)

    def test_a_forgotten_shape_is_found_no_more(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            shapes = Shapes(storage)
            gone, ghost = await shapes.observe("a", vector=EAST), await shapes.observe("a", vector=EAST)
            assert await shapes.forget(gone.id)
            assert not await shapes.forget(gone.id)
            await storage.relational.execute("DELETE FROM shapes WHERE id = :id", {"id": ghost.id})
            assert await shapes.search(EAST) == ()
            for call in (shapes.get(gone.id), shapes.embed(gone.id, EAST)):
                with pytest.raises(errors.NotFoundError):
                    await call

        self.use(clock, test)

    def test_a_dream_is_linked_to_the_shapes_it_comes_from(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            shapes, dreams = Shapes(storage), Dreams(storage)
            first, second = await shapes.observe("rhythm"), await shapes.observe("drift")
            dream = await dreams.consolidate(
                "Bursts.", source_shapes=[second.id, first.id, second.id], confidence=0.5, vector=BETWEEN
            )
            other = await dreams.consolidate("Calm.", source_shapes=[first.id], vector=NORTH)
            assert (dream.source_shapes, dream.confidence) == ((second.id, first.id), 0.5)
            assert await dreams.get(dream.id) == dream
            assert await dreams.sources(dream.id) == (second, first)
            assert (await dreams.list(shape_id=second.id)).items == [dream]
            assert (await dreams.list(shape_id=first.id)).items == [other, dream]
            newest = await dreams.list(limit=1)
            assert (await dreams.list(limit=1, cursor=newest.next_cursor)).items == [dream]
            near = await dreams.search(NORTH)
            assert [each.dream for each in near] == [other, dream]
            assert await shapes.search(NORTH) == ()
            await shapes.forget(second.id)
            assert await dreams.sources(dream.id) == (first,)
            assert await dreams.forget(dream.id)
            assert [each.dream.id for each in await dreams.search(NORTH)] == [other.id]
            with pytest.raises(errors.NotFoundError):
                await dreams.get(dream.id)

        self.use(clock, test)

    def test_a_page_begins_behind_its_cursor_also_where_that_item_is_gone(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            shape, dreams = await Shapes(storage).observe("rhythm"), Dreams(storage)
            texts = ("Bursts.", "Calm.", "Drift.")
            made = [await dreams.consolidate(text, source_shapes=[shape.id]) for text in texts]
            newest = await dreams.list(limit=1)
            assert (newest[0], len(newest)) == (made[2], 1)
            await dreams.forget(made[2].id)
            assert (await dreams.list(cursor=newest.next_cursor)).items == [made[1], made[0]]

        self.use(clock, test)

    def test_a_dream_without_its_shapes_is_refused(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            shapes, dreams = Shapes(storage), Dreams(storage)
            there = await shapes.observe("rhythm")
            with pytest.raises(errors.NotFoundError, match="nobody"):
                await dreams.consolidate("x", source_shapes=[there.id, "nobody"])
            for wrong in (
                dreams.consolidate("x", source_shapes=[]),
                dreams.consolidate("x", source_shapes="abc"),
                dreams.consolidate("x", source_shapes=[there.id], confidence=1.5),
                dreams.consolidate("\0", source_shapes=[there.id]),
                shapes.observe(""),
                shapes.observe("x", intensity=-1),
                shapes.observe("x", persistence=float("inf")),
            ):
                with pytest.raises(errors.InvalidInputError):
                    await wrong
            assert (await dreams.list()).items == []

        self.use(clock, test)

    def test_rows_of_other_programs_are_shown_as_they_are(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            await storage.relational.execute(
                "INSERT INTO shapes (id, shape_type, intensity, observed_at) VALUES ('s', 'x', NULL, '2020-01-01')"
            )
            await storage.relational.execute(
                "INSERT INTO dreams (id, content, source_shapes, dreamed_at) VALUES ('a', 'x', 's', '2020-01-01'),"
                " ('b', 'x', '{}', '2020-01-02')"
            )
            assert (await Shapes(storage).get("s")).intensity == 1.0
            assert [each.source_shapes for each in await Dreams(storage).list()] == [("{}",), ("s",)]

        self.use(clock, test)

    def test_many_observe_at_once(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            shapes = Shapes(storage)
            vectors = [[1.0, number / 10, 0.0] for number in range(20)]
            made = await asyncio.gather(*(shapes.observe("x", vector=vector) for vector in vectors))
            assert len({shape.id for shape in made}) == 20
            assert len(await shapes.search(EAST, 50)) == 20

        self.use(clock, test)


class TestSqlite(OnSqlite, Suite):
    pass


class TestMemory(InMemory, Suite):
    pass


class TestPostgres(OnPostgres, Suite):
    pass
