"""Every version of every object is kept, proven by the log, and carried by images and archives byte for byte."""

from pathlib import Path
from typing import Any

import pytest

from harness.raw_access import attack, attack_server, copy
from holdproof import errors, sync
from holdproof.crypto import car
from holdproof.memory.objects import object_history, objects
from holdproof.model.memory import ObjectVersion
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory


def fill(store: sync.Holdproof) -> None:
    """Versions that are in no snapshot, one that is long, and an object that was deleted."""
    for content in ("one", "two", "x" * 600_000, "three"):
        store.objects.put("x", type="t", content=content)
    store.objects.put("gone", type="t", content="for a while")
    store.objects.delete("gone")


def histories(store: sync.Holdproof) -> dict[str, list[ObjectVersion]]:
    return {id: list(store.objects.history(id).items) for id in ("x", "gone", "y")}


def contents(store: sync.Holdproof, id: str = "x") -> list[Any]:
    entries = store.objects.history(id).items
    return [store.objects.get(id, version=each.n).content for each in reversed(entries) if each.cid]


class History(OnMemory):
    def test_the_last_write_of_each_object_is_that_of_its_newest_version(self, store: sync.Holdproof) -> None:
        fill(store)
        written = store.read(lambda tx: objects.last_writes(tx, ["x", "gone", "never"]))
        assert written == {id: store.objects.history(id)[0].at for id in ("x", "gone")}

    @pytest.mark.parametrize("how", ["image", "archive"])
    def test_every_version_comes_back_byte_for_byte(
        self, store: sync.Holdproof, other: sync.Holdproof, tmp_path: Path, how: str
    ) -> None:
        fill(store)
        if how == "archive":
            store.snapshots.create()
            store.archive.export_car(tmp_path / "a.car")
            other.archive.import_car(tmp_path / "a.car", did=store.snapshots.get().did)
        else:
            store.image.dump(tmp_path)
            other.image.load(tmp_path, did=store.snapshots.get().did)
        assert histories(other) == histories(store)
        assert contents(other) == ["one", "two", "x" * 600_000, "three"]
        chains = [each.read(lambda tx: object_history.page(tx, "main", 0, 100)) for each in (store, other)]
        assert chains[0] == chains[1] != []

    def test_a_delta_carries_the_versions_since_the_last_image(
        self, store: sync.Holdproof, other: sync.Holdproof, tmp_path: Path
    ) -> None:
        fill(store)
        store.image.dump(tmp_path)
        did = store.snapshots.get().did
        other.image.load(tmp_path, did=did)
        store.objects.put("x", type="t", content="four")
        store.objects.put("x", type="t", content="five")
        assert store.image.dump(tmp_path).kind == "delta"
        other.image.load(tmp_path, did=did)
        assert histories(other) == histories(store)
        assert contents(other)[-2:] == ["four", "five"]

    def test_an_object_that_was_changed_and_put_back_is_a_reason_to_dump(
        self, store: sync.Holdproof, tmp_path: Path
    ) -> None:
        store.objects.put("x", type="t", content="one", version=1)
        store.image.dump(tmp_path)
        store.objects.put("x", type="t", content="two", version=2)
        store.objects.put("x", type="t", content="one", version=1)
        assert store.image.dump(tmp_path).kind == "delta"
        assert store.image.dump(tmp_path).kind == "nothing"

    def test_a_forced_import_loses_no_version_of_either_side(
        self, store: sync.Holdproof, other: sync.Holdproof, tmp_path: Path
    ) -> None:
        fill(store)
        store.image.dump(tmp_path)
        for content in ("here 1", "here 2"):
            other.objects.put("x", type="t", content=content)
        other.objects.put("y", type="t", content="only here")
        did = store.snapshots.get().did
        with pytest.raises(errors.OlderStateError):
            other.image.load(tmp_path, did=did)
        other.image.load(tmp_path, did=did, force=True)
        assert contents(other) == ["here 1", "here 2", "one", "two", "x" * 600_000, "three"]
        assert contents(other, "y") == ["only here"]
        with pytest.raises(errors.NotFoundError):
            other.objects.get("y")

    def test_an_older_image_by_force_repeats_no_version(self, store: sync.Holdproof, tmp_path: Path) -> None:
        fill(store)
        store.image.dump(tmp_path)
        store.objects.put("x", type="t", content="four")
        store.snapshots.create()
        store.image.load(tmp_path, force=True)
        assert contents(store)[3:] == ["three", "four", "three"]

    def test_a_pruned_version_is_pruned_wherever_it_goes(
        self, store: sync.Holdproof, other: sync.Holdproof, tmp_path: Path
    ) -> None:
        fill(store)
        store.retention.prune("versions", keep=2)
        store.retention.gc()
        store.image.dump(tmp_path)
        other.image.load(tmp_path, did=store.snapshots.get().did)
        assert histories(other) == histories(store)
        with pytest.raises(errors.PrunedError):
            other.objects.get("x", version=1)
        assert other.objects.get("x", version=4).content == "three"

    def test_an_archive_without_one_of_its_versions_is_refused(
        self, store: sync.Holdproof, other: sync.Holdproof, tmp_path: Path
    ) -> None:
        fill(store)
        store.snapshots.create()
        store.archive.export_car(tmp_path / "a.car")
        whole = car.load((tmp_path / "a.car").read_bytes())
        second = store.objects.history("x").items[-2].cid
        rest = [(cid, data) for cid, data in whole.blocks.items() if str(cid) != second]
        (tmp_path / "b.car").write_bytes(car.dump(whole.roots, rest))
        with pytest.raises(errors.ProofError, match="missing"):
            other.archive.import_car(tmp_path / "b.car", did=store.snapshots.get().did)
        assert other.objects.list().items == []

    def test_many_versions_at_once_are_several_entries(self, store: sync.Holdproof) -> None:
        store.objects.apply({f"o{number}": {"type": "t"} for number in range(1_100)})
        numbers = [row[0] for row in store.read(lambda tx: object_history.page(tx, "main", 0, 100))]
        assert numbers == [1, 2, 3]


class TestOnSqlite(OnSqlite, History):
    pass


class TestInMemory(InMemory, History):
    pass


class TestOnPostgres(OnPostgres, History):
    pass


# --- behind the store's back ---------------------------------------------------------------------------------------

ATTACKS = {
    "older versions deleted": "DELETE FROM object_versions WHERE key = 'x' AND n < 3",
    "one version deleted": "DELETE FROM object_versions WHERE key = 'x' AND n = 2",
    "two versions swapped": "UPDATE object_versions SET cid = (SELECT o.cid FROM object_versions o WHERE o.key = 'x'"
    " AND o.n = 3 - object_versions.n) WHERE key = 'x' AND n IN (1, 2)",
    "all times changed": "UPDATE object_versions SET at = '2020-01-01T00:00:00.000000Z'",
    "all version numbers changed": "UPDATE object_versions SET version = version + 5",
    "the history of a deleted object removed": "DELETE FROM object_versions WHERE key = 'gone'",
    "the history of a deleted object changed": "UPDATE object_versions SET version = 9 WHERE key = 'gone'",
    "an older version made another object": "UPDATE object_versions SET cid = (SELECT o.cid FROM object_versions o"
    " WHERE o.key = 'gone' AND o.n = 1) WHERE key = 'x' AND n = 1",
    "a version added": "INSERT INTO object_versions (ns, key, n, cid, version, at)"
    " SELECT ns, key, n + 100, cid, version, at FROM object_versions WHERE key = 'x' AND n = 1",
    "a version called pruned": "UPDATE object_versions SET pruned_at = at WHERE key = 'x' AND n = 1",
    "a namespace of nobody's": "INSERT INTO object_versions (ns, key, n, cid, version, at)"
    " SELECT 'nobody', key, n, cid, version, at FROM object_versions WHERE key = 'x' AND n = 1",
    "entries deleted from the end": "DELETE FROM object_history WHERE entry > 2",
    "an entry deleted": "DELETE FROM object_history WHERE entry = 2",
    "an entry named otherwise": "UPDATE object_history SET cid = 'x' WHERE entry = 2",
    "the ref names another entry": "UPDATE refs SET entries = 2, history ="
    " (SELECT cid FROM object_history WHERE entry = 2) WHERE name = 'work/main'",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("history") / "home"
    with sync.open(home) as store:
        fill(store)
        store.snapshots.create()
    assert sync.verify(home, lock=False).findings == []
    return home


@pytest.mark.parametrize("name", ATTACKS)
def test_a_history_that_was_edited_is_found(written: Path, tmp_path: Path, name: str) -> None:
    home = copy(written, tmp_path / "home")
    attack(home, ATTACKS[name])
    assert [each for each in sync.verify(home, lock=False).findings if each.verdict.locks]


def test_a_history_that_was_edited_on_a_server_is_found(tmp_path: Path, postgres_url: str) -> None:
    home = tmp_path / "home"
    with sync.open(home, postgres_url) as store:
        fill(store)
        store.snapshots.create()
    assert sync.verify(home, postgres_url, lock=False).findings == []
    attack_server(postgres_url, ATTACKS["one version deleted"])
    assert {each.table for each in sync.verify(home, postgres_url, lock=False).findings} >= {"object_versions"}
