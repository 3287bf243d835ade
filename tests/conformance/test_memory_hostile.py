"""What somebody may bring in, or do at the same time, without memory losing or refusing anything for it."""

import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.content import blocks
from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor
from holdproof.memory.images import image_files
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory, flaws
from tests.conformance.test_image import everything, fill


class Hostile(OnMemory):
    @pytest.mark.parametrize(
        "content", [{"e": 1, "l": 2}, {"e": [{}], "l": None}, {"content": 1, "sig": 2}, {"content": 1, "x": 1}, [1]]
    )
    def test_a_block_that_only_looks_like_one_of_ours_is_left_alone(self, store: sync.Holdproof, content: Any) -> None:
        """A record may link to anything: what is no node of a tree is nobody's garbage, and no damage."""
        data = dagcbor.encode(content)
        store.write(lambda tx: blocks.put(tx, {cids.of(data): data}))
        store.objects.put("linked", type="t", attributes={"see": cids.of(data)})
        fill(store, 2)
        assert flaws(store) == []
        store.retention.gc()
        assert store.read(lambda tx: blocks.get(tx, cids.of(data))) == data

    def test_writers_readers_and_collectors_in_each_others_way_lose_nothing(self, store: sync.Holdproof) -> None:
        fill(store, 1)
        failed: list[BaseException] = []

        def often(act: Callable[[int], Any]) -> threading.Thread:
            def run() -> None:
                try:
                    for number in range(8):
                        act(number)
                except BaseException as error:
                    failed.append(error)

            return threading.Thread(target=run)

        first = store.snapshots.list().items[-1].cid

        def merge(number: int) -> None:
            store.objects.put(f"m{number}", type="t", content=number)
            store.snapshots.merge(first)

        threads = [
            often(lambda number: store.objects.put(f"a{number}", type="t", content=number)),
            often(lambda number: store.objects.put("both", type="t", content=f"a{number}")),
            often(lambda number: store.objects.put("both", type="t", content=f"b{number}")),
            often(lambda number: store.snapshots.create(str(number))),
            often(lambda _: store.retention.gc()),
            often(merge),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert store.objects.get("both").version == 16
        assert len(store.objects.history("both", limit=100).items) == 16
        assert {f"{kind}{number}" for kind in "am" for number in range(8)} <= {each.id for each in everything(store)}

    def test_a_rollback_while_others_write_loses_no_version(self, store: sync.Holdproof) -> None:
        store.objects.put("one", type="t", content=0)
        first = store.snapshots.create("first")
        turns = 6

        def write() -> None:
            for number in range(turns):
                store.objects.put("one", type="t", content=number + 1)

        def back() -> None:
            for _ in range(turns):
                store.snapshots.rollback(first.cid)

        threads = [threading.Thread(target=work) for work in (write, back)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        said = {
            store.objects.get("one", version=each.n).content for each in store.objects.history("one", limit=100).items
        }
        assert said == set(range(turns + 1))

    def test_a_clock_that_goes_back_leaves_revs_and_images_in_their_order(
        self, store: sync.Holdproof, clock: Any, tmp_path: Path
    ) -> None:
        made = []
        for number in range(4):
            store.objects.put("one", type="t", content=number)
            made.append(store.image.dump(tmp_path / "images").rev)
            clock.advance(-86_400)
        assert made == sorted(made)
        with store.image.open(tmp_path / "images") as found:
            assert found.get("one").content == 3

    def test_ids_that_look_alike_are_not_one(self, store: sync.Holdproof) -> None:
        alike = ["\u00e9", "e\u0301", "A", "a", "~me", "~nvsq", "me", "a/b", "a\u2215b", "..", ".", "\u0131", "I", "i"]
        for number, id in enumerate(alike):
            store.objects.put(id, type="t", content=number)
        assert [store.objects.get(id).content for id in alike] == [*range(len(alike))]
        longest = "x" * 1_017
        assert store.objects.put(longest, type="t").id == longest
        for id in (longest + "x", "\u00e9" * 400, "", "\ud800"):
            with pytest.raises(errors.InvalidInputError):
                store.objects.put(id, type="t")


class TestOnSqlite(OnSqlite, Hostile):
    pass


class TestInMemory(InMemory, Hostile):
    pass


class TestOnPostgres(OnPostgres, Hostile):
    pass


def test_a_dump_on_a_full_disk_is_a_typed_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with sync.open(tmp_path / "home") as store:
        fill(store, 1)
        store.image.dump(tmp_path / "images")
        before = sorted(path.name for path in (tmp_path / "images").iterdir())
        store.objects.put("long", type="t", content="".join(map(str, range(400_000))))
        store.snapshots.create()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, hard))
        try:
            with pytest.raises(errors.DiskFullError):
                store.image.dump(tmp_path / "images")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert sorted(path.name for path in (tmp_path / "images").iterdir()) == before
        assert store.image.dump(tmp_path / "images").kind == "delta"


def test_an_open_image_outlives_its_files(tmp_path: Path) -> None:
    with sync.open(tmp_path / "home") as store:
        fill(store, 1)
        store.image.dump()
        with store.image.open() as found:
            for number in range(3):
                store.objects.put("o1", type="t", content=number)
                store.image.dump(keep=1)
            assert image_files.manifests(store.context.paths.images / "main")[0].name != found.manifest.name
            assert found.get("o1").content == "0 1"
            assert len(found.list(limit=1000).items) == 60
