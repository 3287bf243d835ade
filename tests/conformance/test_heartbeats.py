"""Heartbeats of a store: an image of what changed, in its time, and nothing where nothing changed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdproof
from holdproof import errors, sync
from holdproof.config import Paths
from holdproof.memory.images import image_files
from holdproof.storage import StorageProvider, bootstrap, heartbeat_jobs
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory


def images(store: sync.Holdproof, ns: str = "main") -> list[Path]:
    return image_files.manifests(store.core.paths.images / ns)


class Heartbeats(OnMemory):
    def test_a_beat_writes_what_changed_when_it_is_time(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        assert store.image.beat() == ()
        store.objects.put("a", type="t", content=1)
        [made] = store.image.beat()
        assert (made.kind, len(images(store))) == ("base", 1)
        store.objects.put("a", type="t", content=2)
        clock.advance(299)
        assert store.image.beat() == (), "not yet"
        clock.advance(1)
        [made] = store.image.beat()
        assert (made.kind, made.blocks < 8) == ("delta", True)
        with store.image.open() as seen:
            assert seen.get("a").content == 2

    def test_where_nothing_changed_nothing_is_written(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        store.objects.put("a", type="t")
        store.image.beat()
        taken = store.snapshots.list().items
        for _ in range(3):
            clock.advance(1000)
            assert store.image.beat() == ()
        assert store.snapshots.list().items == taken
        assert store.image.dump().kind == "nothing"

    def test_to_persist_by_hand_asks_for_no_time(self, store: sync.Holdproof) -> None:
        for content in range(3):
            store.objects.put("a", type="t", content=content)
            assert store.image.dump().kind in ("base", "delta")
        store.objects.put("a", type="t", content="after")
        assert store.image.beat() == (), "the newest image is new enough"

    def test_every_namespace_has_its_image(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t")
        store.objects.put("a", type="t", ns="theirs")
        assert len(store.image.beat()) == 2
        assert (len(images(store)), len(images(store, "theirs"))) == (1, 1)

    def test_one_that_fails_keeps_no_other_back(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", ns="bad")
        store.objects.put("a", type="t", ns="good")
        store.core.paths.images.mkdir(parents=True, exist_ok=True)
        (store.core.paths.images / "bad").write_text("no folder")
        with pytest.raises(errors.HoldproofError):
            store.image.beat()
        assert len(images(store, "good")) == 1

    def test_an_image_from_the_future_holds_nobody_back(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        clock.advance(10**6)
        store.objects.put("a", type="t", content=1)
        store.image.beat()
        clock.advance(-(10**6))
        store.objects.put("a", type="t", content=2)
        assert len(store.image.beat()) == 1

    def test_a_store_for_one_namespace_beats_for_none(self, store: sync.Holdproof) -> None:
        with pytest.raises(errors.NamespaceError):
            sync.Holdproof(store.core, ns="tenant").image.beat()


class TestOnSqlite(OnSqlite, Heartbeats):
    def say(self, text: str) -> None:
        """Let this be the settings."""
        file = Paths.find(self.home).config_file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def test_the_settings_say_how_often_and_how_many(self, clock: FrozenClock) -> None:
        self.say("images: {every_s: 10, keep: 1}")
        with self.open(clock=clock) as store:
            for content in range(3):
                store.objects.put("a", type="t", content=content)
                assert len(store.image.beat()) == 1
                clock.advance(10)
            assert len(images(store)) == 1
        self.say("images: {every_s: 0}")
        with self.open(clock=clock) as store:
            store.objects.put("a", type="t", content="more")
            assert store.image.beat() == ()

    @pytest.mark.parametrize("text", ["images: 3", "images: {every_s: -1}", "images: {keep: 0}", "images: {often: 1}"])
    def test_settings_that_say_nothing_sensible_are_refused(self, text: str) -> None:
        self.say(text)
        with pytest.raises(errors.ConfigError):
            self.open()

    def test_the_heartbeat_of_a_process_writes_images(self, tmp_path: Path) -> None:
        async def test() -> None:
            storage = await StorageProvider.from_config(home=tmp_path / "services")
            async with holdproof.open(home=self.home) as store:
                await store.objects.put("a", type="t", content="kept")
                seen, ended = asyncio.Event(), 0

                async def beat() -> Any:
                    if await store.image.beat():
                        seen.set()

                async def broken() -> None:
                    nonlocal ended
                    ended += 1
                    raise OSError("no disk")

                life = await bootstrap(storage, heartbeat_s=0.005, also={"broken": broken, "images": beat})
                async with life:
                    await asyncio.wait_for(seen.wait(), 30)
                async with asyncio.timeout(5):
                    with await store.image.open() as image:
                        assert image.get("a").content == "kept"
                assert ended > 0, "what fails is tried again, and ends nothing"
            await storage.close()

        asyncio.run(test())

    def test_bootstrap_over_the_same_home_writes_images_by_itself(self) -> None:
        async def test() -> None:
            storage = await StorageProvider.from_config(home=self.home)
            async with holdproof.open(home=self.home) as store:
                await store.objects.put("a", type="t", content="kept")
                async with await bootstrap(storage, heartbeat_s=0.005), asyncio.timeout(30):
                    while not (await store.image.list()).items:
                        await asyncio.sleep(0.005)
                    with await store.image.open() as image:
                        assert image.get("a").content == "kept"
            assert heartbeat_jobs.of(self.home) == [], "a closed store asks for nothing"
            await storage.close()

        asyncio.run(test())


class TestInMemory(InMemory):
    def test_a_store_in_memory_has_no_place_for_images(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t")
        assert store.image.beat() == ()


class TestOnPostgres(OnPostgres, Heartbeats):
    pass
