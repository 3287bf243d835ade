"""Images: what is loaded is what was dumped, to the byte; what is damaged is never believed; on every backend."""

import errno
import json
import os
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdproof import errors, folders, sync
from holdproof.content import blocks
from holdproof.crypto import b64, car, dsse
from holdproof.crypto import cid as cids
from holdproof.memory.images import image_files
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory

CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]


def fill(store: sync.Holdproof, rounds: int = 3) -> None:
    for turn in range(rounds):
        store.objects.apply(
            {
                f"o{number}": {"type": "t", "content": f"{turn} {number}", "meta": {"vector": [0.5, number + 0.25]}}
                for number in range(turn, 60, turn + 1)
            }
        )
        store.snapshots.create(f"turn {turn}", author="ada", reason="try")


def cars(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.car"))}


def everything(store: sync.Holdproof) -> Any:
    return store.objects.list(limit=1000).items


class Images(OnMemory):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path / "images"

    def did(self, store: sync.Holdproof) -> str:
        return store.snapshots.get().did

    def test_what_is_loaded_elsewhere_is_what_was_dumped_to_the_byte(
        self, store: sync.Holdproof, other: sync.Holdproof, place: Path, tmp_path: Path
    ) -> None:
        fill(store)
        store.objects.put("long", type="t", content="ä" * 400_000)
        list_cid = store.values.put([{"n": number} for number in range(100)])
        store.objects.put("linked", type="t", attributes={"messages": cids.parse_text(list_cid)})
        store.image.dump(place)
        done = other.image.load(place, did=self.did(store))
        assert (done.how, done.snapshots, done.degraded) == ("forward", 4, ())
        assert everything(other) == everything(store)
        assert other.values.length(list_cid) == 100
        mine, theirs = store.snapshots.list().items, other.snapshots.list().items
        assert [(each.cid, each.message, each.author, each.reason) for each in mine] == [
            (each.cid, each.message, each.author, each.reason) for each in theirs
        ]
        assert [each.content for each in (other.objects.get("o1", at=each.cid) for each in mine)][:1] == ["1 1"]
        other.image.dump(tmp_path / "again")
        assert cars(tmp_path / "again") == cars(place)
        assert [each.cid for each in other.objects.history("o5").items] == [
            each.cid for each in store.objects.history("o5").items
        ]

    def test_a_load_writes_each_block_it_brings_once(
        self, store: sync.Holdproof, other: sync.Holdproof, place: Path
    ) -> None:
        fill(store)
        store.image.dump(place)
        before = len(other.read(partial(blocks.page, limit=10_000)).blocks)
        done = other.image.load(place, did=self.did(store))
        assert len(other.read(partial(blocks.page, limit=10_000)).blocks) - before == done.blocks > 60

    def test_a_dump_writes_only_what_changed(self, store: sync.Holdproof, place: Path) -> None:
        fill(store)
        first = store.image.dump(place)
        assert first.kind == "base"
        assert store.image.dump(place).kind == "nothing"
        store.objects.put("o1", type="t", content="new")
        second = store.image.dump(place)
        assert (second.kind, second.files) == ("delta", 2)
        assert second.blocks < 15 < first.blocks
        assert store.snapshots.get().message == "image"

    def test_an_image_whose_name_could_not_be_made_durable_is_so_before_it_counts(
        self, store: sync.Holdproof, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced, real, failing = list[str](), folders.sync, True

        def sync_folder(folder: Path) -> None:
            if failing and Path(folder) == place and [*place.glob("*.image.json")]:
                raise OSError(errno.EIO, "Input/output error")
            synced.append(str(folder))
            real(folder)

        fill(store)
        monkeypatch.setattr(folders, "sync", sync_folder)
        with pytest.raises(errors.UnavailableError):
            store.image.dump(place)
        failing, synced = False, []
        assert store.image.dump(place).kind == "nothing"
        assert str(place) in synced

    def test_deltas_are_folded_into_a_base_that_is_what_a_new_one_would_be(
        self, store: sync.Holdproof, place: Path, tmp_path: Path
    ) -> None:
        fill(store, 1)
        kinds = []
        for number in range(20):
            store.objects.put("o1", type="t", content=number)
            kinds.append(store.image.dump(place, keep=2).kind)
        assert kinds[0] == "base"
        assert kinds.count("base") >= 2
        assert len(image_files.manifests(place)) == 2
        store.image.dump(tmp_path / "new")
        while store.image.dump(place).kind != "base":
            store.objects.put("o1", type="t", content=store.objects.get("o1").version)
        store.image.dump(tmp_path / "newer")
        assert cars(tmp_path / "newer").items() <= cars(place).items()

    def test_a_line_can_be_loaded_in_two_steps(self, store: sync.Holdproof, other: sync.Holdproof, place: Path) -> None:
        fill(store, 2)
        store.image.dump(place)
        other.image.load(place, did=self.did(store))
        store.objects.delete("o1")
        store.image.dump(place)
        done = other.image.load(place, did=self.did(store))
        assert (done.how, done.snapshots) == ("forward", 1)
        assert everything(other) == everything(store)
        assert other.objects.history("o1").items[0].cid is None

    def test_an_image_of_what_is_here_changes_nothing(self, store: sync.Holdproof, place: Path) -> None:
        fill(store)
        store.image.dump(place)
        for how in ("full", "lazy"):
            assert store.image.load(place, verify=how).how == "same"
        assert len(store.snapshots.list().items) == 3

    def test_an_older_image_is_refused_unless_forced_and_then_nothing_is_lost(
        self, store: sync.Holdproof, place: Path
    ) -> None:
        fill(store)
        then = everything(store)
        store.image.dump(place)
        store.objects.put("o1", type="t", content="newer")
        with pytest.raises(errors.OlderStateError):
            store.image.load(place)
        assert store.objects.get("o1").content == "newer"
        done = store.image.load(place, force=True)
        assert done.how == "forced"
        assert everything(store) == then
        forced, before, *_ = store.snapshots.list().items
        assert forced.merged == store.snapshots.list().items[2].cid
        assert store.objects.get("o1", at=before.cid).content == "newer"

    def test_an_image_of_an_unknown_key_is_refused_and_left_as_it_is(
        self, store: sync.Holdproof, other: sync.Holdproof, place: Path
    ) -> None:
        fill(store, 1)
        store.image.dump(place)
        names = sorted(os.listdir(place))
        with pytest.raises(errors.UnknownKeyError):
            other.image.load(place)
        with pytest.raises(errors.UnknownKeyError):
            other.image.open(place)
        assert sorted(os.listdir(place)) == names
        assert everything(other) == []

    def test_where_there_is_no_image_that_is_said(self, store: sync.Holdproof, place: Path) -> None:
        with pytest.raises(errors.NotFoundError):
            store.image.load(place)
        with pytest.raises(errors.NotFoundError):
            store.image.open(place)
        for wrong in ({"verify": "no"}, {"keep": 0}):
            with pytest.raises((errors.InvalidInputError, TypeError)):
                store.image.dump(place, **wrong) if "keep" in wrong else store.image.load(place, **wrong)

    # --- looking inside -------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("how", ["full", "lazy"])
    def test_an_image_can_be_read_where_it_lies(self, store: sync.Holdproof, place: Path, how: Any) -> None:
        fill(store)
        store.image.dump(place)
        store.objects.put("o1", type="t", content="after")
        store.image.dump(place)
        with store.image.open(place, verify=how) as image:
            assert image.get("o1").content == "after"
            assert image.list(limit=1000).items == everything(store)
            with pytest.raises(errors.NotFoundError):
                image.get("none")

    def test_a_wrong_index_is_never_believed(self, store: sync.Holdproof, place: Path) -> None:
        fill(store)
        store.image.dump(place)
        [index] = place.glob("*.idx")
        good = index.read_bytes()
        for wrong in (b"", b"x" * 100, good[:-7], good[:30]):
            index.write_bytes(wrong)
            with store.image.open(place) as image:
                assert len(image.list(limit=1000).items) == 60
        index.write_bytes(good[:25] + bytes(byte ^ 1 if at % 48 == 43 else byte for at, byte in enumerate(good[25:])))
        with store.image.open(place) as image:
            assert len(image.list(limit=1000).items) == 60
        index.unlink()
        assert store.image.load(place).how == "same"

    # --- damage ---------------------------------------------------------------------------------------------------

    def damage(self, path: Path, how: str) -> None:
        data = path.read_bytes()
        middle = len(data) // 2
        changed = {
            "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "cut": data[:middle],
            "empty": b"",
            "longer": data + b"\x00",
        }
        if how == "missing":
            path.unlink()
        else:
            path.write_bytes(changed[how])

    @pytest.mark.parametrize("how", ["flipped", "cut", "empty", "longer", "missing"])
    @pytest.mark.parametrize("what", ["*.delta.car", "*.image.json"])
    def test_the_newest_good_image_is_loaded_and_the_damaged_one_put_aside(
        self, store: sync.Holdproof, other: sync.Holdproof, place: Path, how: str, what: str
    ) -> None:
        fill(store)
        then = everything(store)
        store.image.dump(place)
        store.objects.put("o1", type="t", content="newer")
        store.image.dump(place)
        self.damage(sorted(place.glob(what))[-1], how)
        done = other.image.load(place, did=self.did(store))
        assert everything(other) == then
        if (how, what) != ("missing", "*.image.json"):
            assert "damaged" in done.degraded[0]
            assert [path for path in place.iterdir() if ".image.json.corrupt-20260101T" in path.name]

    def test_if_no_image_is_good_that_is_an_error_and_memory_is_what_it_was(
        self, store: sync.Holdproof, other: sync.Holdproof, place: Path
    ) -> None:
        fill(store)
        store.image.dump(place)
        [base] = place.glob("*.base.car")
        self.damage(base, "flipped")
        before = everything(store)
        with pytest.raises(errors.ImageCorruptError, match="untouched"):
            store.image.load(place)
        assert everything(store) == before
        store.image.dump(place)
        [base] = place.glob("*.base.car")
        self.damage(base, "cut")
        with pytest.raises(errors.ImageCorruptError, match="EMPTY"):
            other.image.load(place, did=self.did(store))
        assert store.image.dump(place).kind == "base", "a dump mends it"
        assert other.image.load(place, did=self.did(store)).how == "forward"

    def test_a_car_that_was_cut_between_two_blocks_is_found_out(
        self, store: sync.Holdproof, other: sync.Holdproof, place: Path
    ) -> None:
        """CARv1 has no end mark: even with a manifest that was signed anew, a block that is missing is missed."""
        fill(store, 1)
        store.image.dump(place)
        [path] = image_files.manifests(place)
        made, _ = image_files.read_manifest(path)
        [part] = made.parts
        whole = car.load((place / part.name).read_bytes())
        blocks = [*whole.blocks.items()]
        for gone in range(0, len(blocks), 7):
            data = car.dump(whole.roots, blocks[:gone] + blocks[gone + 1 :])
            (place / part.name).write_bytes(data)
            signed = image_files.Part(part.name, len(data), sha256(data).hexdigest(), part.head)
            forged = image_files.ImageManifest(**{**_fields(made), "parts": (signed,)})
            path.write_bytes(image_files.encode(forged, store.context.keys.load("memory")))
            with pytest.raises(errors.ImageCorruptError):
                other.image.load(place, did=self.did(store))
            assert everything(other) == []

    def test_a_manifest_that_was_edited_is_refused(self, store: sync.Holdproof, place: Path) -> None:
        fill(store, 1)
        store.image.dump(place)
        [path] = image_files.manifests(place)
        envelope = json.loads(path.read_text())
        payload = dsse.parse(path.read_bytes()).payload.replace(b'"ns":"main"', b'"ns":"mine"')
        envelope["payload"] = b64.encode(payload)
        path.write_text(json.dumps(envelope))
        with pytest.raises(errors.ImageCorruptError):
            store.image.load(place)

    # --- laws -----------------------------------------------------------------------------------------------------

    STEPS = st.lists(
        st.dictionaries(
            st.sampled_from([f"k{n}" for n in range(8)] + ["ä"]), st.none() | st.integers(0, 9) | st.floats()
        ),
        min_size=1,
        max_size=4,
    )

    @given(steps=STEPS)
    @settings(max_examples=8, deadline=None, suppress_health_check=CHECKS)
    def test_an_image_of_a_loaded_image_is_the_image(
        self, store: sync.Holdproof, tmp_path_factory: pytest.TempPathFactory, steps: list[dict[str, Any]]
    ) -> None:
        folder = tmp_path_factory.mktemp("law")
        ns = folder.name
        for step in steps:
            store.objects.apply(
                {id: None if value is None else {"type": "t", "content": value} for id, value in step.items()}, ns=ns
            )
            store.image.dump(folder / "steps", ns=ns)
        store.image.dump(folder / "one", ns=ns)
        with sync.open(url=":memory:") as other:
            other.image.load(folder / "steps", did=store.snapshots.get(ns=ns).did, ns=ns)
            other.image.dump(folder / "two", ns=ns)
        assert cars(folder / "one") == cars(folder / "two")


def _fields(made: image_files.ImageManifest) -> dict[str, Any]:
    return {name: getattr(made, name) for name in image_files.ImageManifest.__slots__}


class TestOnSqlite(OnSqlite, Images):
    pass


class TestInMemory(InMemory, Images):
    def test_a_store_in_memory_has_no_place_of_its_own(self, store: sync.Holdproof) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.image.dump()


class TestOnPostgres(OnPostgres, Images):
    pass


def test_the_command_line_says_aloud_what_is_degraded(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with sync.open(home) as store:
        fill(store, 1)
        store.image.dump()
        store.objects.put("o1", type="t")
        done = store.image.dump()
        Path(done.path).write_bytes(b"x")
        assert store.image.load(force=True).degraded
        [warning] = [each for each in store.status().degraded if "image" in each]
    assert "put aside" in warning
