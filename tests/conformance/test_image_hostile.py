"""Images in a folder that somebody else writes to, too: what is swapped, planted, renamed or taken away meanwhile."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.memory.images import image, image_files
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory
from tests.conformance.test_image import everything, fill

LAST = "zzzzzzzzzzzz2"
"""A rev after all that any clock will give."""


class Hostile(OnMemory):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path / "images"

    @pytest.fixture
    def stranger(self, tmp_path: Path) -> Path:
        """An image of another store."""
        with sync.open(url=":memory:", clock=FrozenClock("2026-06-01T00:00:00Z")) as store:
            fill(store, 1)
            store.image.dump(tmp_path / "stranger")
        return tmp_path / "stranger"

    def plant(self, stranger: Path, place: Path) -> Path:
        """Put a stranger's manifest among ours, as if it were the newest of all."""
        [path] = image_files.manifests(stranger)
        return Path(shutil.copy(path, place / f"{LAST}{image_files.MANIFEST}"))

    def test_an_older_image_under_the_name_of_a_newer_one_is_not_taken_for_it(
        self, store: sync.Holdproof, place: Path
    ) -> None:
        fill(store, 1)
        store.image.dump(place)
        store.objects.put("o1", type="t", content="newer")
        store.image.dump(place)
        newest, older = image_files.manifests(place)
        shutil.copy(older, place / f"{LAST}{image_files.MANIFEST}")
        with store.image.open(place) as found:
            assert found.manifest.name == newest.name
            assert found.get("o1").content == "newer"
        done = store.image.load(place)
        assert (done.how, done.path) == ("same", str(newest))
        assert LAST in done.degraded[0]

    def test_what_a_stranger_signed_does_not_stand_in_the_way_of_ours(
        self, store: sync.Holdproof, place: Path, stranger: Path
    ) -> None:
        fill(store, 1)
        made = store.image.dump(place)
        planted = self.plant(stranger, place)
        assert store.image.load(place).path == made.path
        with store.image.open(place) as found:
            assert str(place / found.manifest.name) == made.path
        assert not planted.exists(), "it was put aside: a name that is not its own"

    def test_an_image_of_another_store_beside_ours_is_left_alone(
        self, store: sync.Holdproof, place: Path, stranger: Path
    ) -> None:
        fill(store, 1)
        made = store.image.dump(place)
        shutil.copytree(stranger, place, dirs_exist_ok=True)
        theirs = {path.name for path in stranger.iterdir() if not path.name.startswith(".")}
        assert store.image.load(place).path == made.path
        for number in range(4):
            store.objects.put("o1", type="t", content=number)
            assert Path(store.image.dump(place, keep=1).path).is_file()
        assert theirs <= {path.name for path in place.iterdir()}

    def test_an_image_that_was_just_written_is_never_tidied_away(self, store: sync.Holdproof, place: Path) -> None:
        """Names that come after it, whatever they are, take no place from it."""
        fill(store, 1)
        store.image.dump(place)
        for number in range(3):
            (place / f"zzzzzzzzzzzz{number + 2}{image_files.MANIFEST}").write_bytes(b"{}")
        for number in range(3):
            store.objects.put("o1", type="t", content=number)
            done = store.image.dump(place, keep=1)
            assert Path(done.path).is_file()
            assert everything(store) == self.loaded(store, Path(done.path))

    def loaded(self, store: sync.Holdproof, path: Path) -> Any:
        with store.image.open(path, verify="full") as found:
            return found.list(limit=1000).items

    def test_an_image_of_another_namespace_is_not_taken_over(self, store: sync.Holdproof, place: Path) -> None:
        fill(store, 1)
        store.image.dump(place)
        with pytest.raises(errors.InvalidInputError, match="main"):
            store.image.load(place, ns="tenant")
        with pytest.raises(errors.InvalidInputError, match="main"):
            store.image.open(place, ns="tenant")
        assert store.objects.list(ns="tenant").items == []
        assert store.image.load(place, ns="tenant", force=True).how == "forward"

    def test_a_file_of_any_size_is_refused_before_it_is_read(self, store: sync.Holdproof, place: Path) -> None:
        fill(store, 1)
        store.image.dump(place)
        [base] = place.glob("*.base.car")
        with base.open("r+b") as file:
            file.truncate(1 << 40)
        with pytest.raises(errors.ImageCorruptError, match="length"):
            store.image.load(place)

    @pytest.mark.parametrize("what", ["*.base.car", "*.image.json", "*.idx"])
    @pytest.mark.timeout(20)
    def test_a_pipe_in_the_place_of_a_file_makes_nobody_wait(
        self, store: sync.Holdproof, place: Path, what: str
    ) -> None:
        fill(store, 1)
        store.image.dump(place)
        [path] = place.glob(what)
        path.unlink()
        os.mkfifo(path)
        if what == "*.idx":
            with store.image.open(place) as found:
                assert len(found.list(limit=1000).items) == 60
            return
        with pytest.raises(errors.ImageCorruptError):
            store.image.open(place)
        with pytest.raises(errors.ImageCorruptError):
            store.image.load(place)

    def test_who_reads_while_old_images_are_tidied_away_finds_the_new_one(
        self, store: sync.Holdproof, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(store, 1)
        store.image.dump(place)
        read = image_files.read_manifest

        def late(path: Path) -> Any:
            """A dump comes between the list of images and the reading of the first."""
            monkeypatch.setattr(image_files, "read_manifest", read)
            store.objects.put("o1", type="t", content="newer")
            (place / path.name).unlink()
            store.image.dump(place, keep=1)
            return read(path)

        for look in (lambda: store.image.load(place), lambda: store.image.open(place).close()):
            monkeypatch.setattr(image_files, "read_manifest", late)
            look()
        assert [path for path in place.iterdir() if "corrupt" in path.name] == []

    def test_a_dump_that_was_overtaken_writes_nothing(
        self, store: sync.Holdproof, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(store, 1)
        store.image.dump(place)
        dump = image._dump

        def overtaken(wanted: Any) -> Any:
            monkeypatch.setattr(image, "_dump", dump)
            store.objects.put("o1", type="t", content="newer still")
            newer.append(store.image.dump(place))
            return dump(wanted)

        newer: list[Any] = []
        store.objects.put("o1", type="t", content="newer")
        monkeypatch.setattr(image, "_dump", overtaken)
        done = store.image.dump(place)
        assert (done.kind, done.head, done.path) == ("nothing", newer[0].head, newer[0].path)
        assert len([*place.glob("*.base.car")]) == 1


class TestOnSqlite(OnSqlite, Hostile):
    pass


class TestInMemory(InMemory, Hostile):
    pass


class TestOnPostgres(OnPostgres, Hostile):
    pass
