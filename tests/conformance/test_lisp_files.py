"""Lisp memories: what is imported is there with its history, and comes out as it was; on every backend."""

from pathlib import Path

import pytest

from holdproof import errors, sync
from holdproof.importers.lisp import sexpr
from holdproof.model.lisp import ForeignObject
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory
from tests.conformance.test_objects import leaves, root
from tests.fixtures import fixture


def version(id: str, content: str, number: int, **more: str) -> str:
    slots = "".join(f" :{name} {value}" for name, value in more.items())
    return (
        f'(SETF (GETHASH "{id}{number}" *HISTORY-STORE*) #S(ORG-OBJECT :ID "{id}" :TYPE :NOTE :CONTENT "{content}"'
        f' :VERSION {number} :LAST-SYNC {number}{slots} :HASH "{id}{number}"))\n'
    )


def current(id: str, number: int) -> str:
    return f'(SETF (GETHASH "{id}" *MEMORY*) (GETHASH "{id}{number}" *HISTORY-STORE*))\n'


HEAD = "(in-package :org-agent)\n"
HISTORY = version("a", "two", 2) + version("a", "one", 1, VECTOR="#(0.5)") + version("b", "gone", 1)


def exported(store: sync.Holdproof, folder: Path) -> dict[str, ForeignObject]:
    path = folder / "deep" / "out.sexp"
    made = store.archive.export_lisp(path)
    found = sexpr.read(path.read_bytes()).objects
    assert (made.objects, made.bytes) == (len(found), path.stat().st_size)
    return {each.id: each for each in found}


class LispFiles(OnMemory):
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "memory.lisp"
        path.write_text(HEAD + HISTORY + current("a", 2))
        return path

    def test_every_version_is_in_the_history_in_its_order(self, store: sync.Holdproof, file: Path) -> None:
        done = store.archive.import_lisp(file)
        assert (done.objects, done.versions, done.new, done.existing, done.changed) == (1, 3, 3, 0, 2)
        found = store.objects.get("a")
        assert (found.type, found.content, found.version) == (":NOTE", "two", 2)
        assert (found.meta["last_sync"], found.meta["foreign_hash"]) == (2, "a2")
        assert [each.version for each in store.objects.history("a").items] == [2, 1]
        assert store.objects.get("a", version=1).content == "one"

    def test_what_was_volatile_then_is_found_in_the_snapshot_of_then(self, store: sync.Holdproof, file: Path) -> None:
        done = store.archive.import_lisp(file)
        newest, first = store.snapshots.list().items
        assert (done.snapshots, done.head) == (2, newest.cid)
        assert store.objects.get("a", at=first.cid).meta["vector"] == [0.5]
        assert store.objects.get("a", at=first.cid).meta["foreign_hash"] == "a1"
        assert "vector" not in store.objects.get("a").meta

    def test_what_is_only_history_is_not_there_and_its_history_is(self, store: sync.Holdproof, file: Path) -> None:
        store.archive.import_lisp(file)
        with pytest.raises(errors.NotFoundError):
            store.objects.get("b")
        assert [each.cid is None for each in store.objects.history("b").items] == [True, False]

    def test_a_second_import_changes_nothing(self, store: sync.Holdproof, file: Path) -> None:
        store.archive.import_lisp(file)
        before = root(store), leaves(store), store.objects.history("a").items, store.snapshots.list().items
        done = store.archive.import_lisp(file)
        assert (done.new, done.existing, done.changed, done.snapshots) == (0, 3, 0, 0)
        assert before == (root(store), leaves(store), store.objects.history("a").items, store.snapshots.list().items)

    def test_a_file_that_has_grown_brings_only_what_is_new(self, store: sync.Holdproof, file: Path) -> None:
        store.archive.import_lisp(file)
        file.write_text(HEAD + HISTORY + version("a", "three", 3) + current("a", 3))
        done = store.archive.import_lisp(file)
        assert (done.new, done.existing, done.changed) == (1, 3, 1)
        assert [each.version for each in store.objects.history("a").items] == [3, 2, 1]

    def test_a_memory_that_went_back_goes_back_here(self, store: sync.Holdproof, file: Path) -> None:
        store.archive.import_lisp(file)
        file.write_text(HEAD + HISTORY + current("a", 1))
        assert store.archive.import_lisp(file).changed == 1
        assert store.objects.get("a").content == "one"
        file.write_text(HEAD + HISTORY)
        assert store.archive.import_lisp(file).changed == 1
        assert store.objects.list().items == []

    def test_what_was_changed_here_since_stays(self, store: sync.Holdproof, file: Path, tmp_path: Path) -> None:
        store.archive.import_lisp(file)
        store.objects.put("a", type=":NOTE", content="mine")
        assert store.archive.import_lisp(file).changed == 0
        assert store.objects.get("a").content == "mine"
        assert exported(store, tmp_path)["a"].hash is None, "it is another object than the one that had the hash"
        store.objects.delete("a")
        assert store.archive.import_lisp(file).changed == 0

    def test_a_heartbeat_there_is_one_here(self, store: sync.Holdproof, file: Path) -> None:
        store.archive.import_lisp(file)
        store.objects.annotate("a", {**store.objects.get("a").meta, "mine": 1})
        file.write_text((HEAD + HISTORY + current("a", 2)).replace(":LAST-SYNC 2", ":LAST-SYNC 9"))
        before = store.objects.get("a")
        done = store.archive.import_lisp(file)
        after = store.objects.get("a")
        assert (done.new, done.changed, after.cid) == (0, 1, before.cid)
        assert (after.meta["last_sync"], after.meta["mine"]) == (9, 1)

    def test_a_dry_run_says_the_same_and_does_nothing(self, store: sync.Holdproof, file: Path) -> None:
        before = root(store), leaves(store)
        said = store.archive.import_lisp(file, dry_run=True)
        assert before == (root(store), leaves(store))
        done = store.archive.import_lisp(file)
        assert (said.dry_run, done.dry_run) == (True, False)
        assert (said.new, said.changed, said.hashes) == (done.new, done.changed, done.hashes)

    def test_what_was_in_no_snapshot_is_kept_in_one_first(self, store: sync.Holdproof, file: Path) -> None:
        store.objects.put("a", type="t", content="before")
        store.archive.import_lisp(file)
        first = store.snapshots.list().items[-1]
        assert first.message == "before memory.lisp was imported"
        assert store.objects.get("a", at=first.cid).content == "before"

    def test_hashes_are_carried_checked_and_reported(self, store: sync.Holdproof) -> None:
        done = store.archive.import_lisp(fixture("org-agent/memory-image.small.lisp"))
        assert sum(done.hashes.values()) == done.versions == 7
        assert done.hashes["MATCHES"] == 7 - len(done.doubts)
        assert "DIFFERS" not in done.hashes
        assert store.objects.get("leaf-1").meta["foreign_hash"].startswith("08cb1c8518d9f09e")

    @pytest.mark.parametrize(
        "name", ["archival.small.sexp", "archival.types.sexp", "memory-image.small.lisp", "memory-image.types.lisp"]
    )
    def test_a_round_trip_of_every_sample_loses_nothing(self, store: sync.Holdproof, tmp_path: Path, name: str) -> None:
        path = fixture(f"org-agent/{name}")
        given = sexpr.read(path.read_bytes())
        store.archive.import_lisp(path)
        found = exported(store, tmp_path)
        assert found == {each.id: each for each in sexpr.current(given)}
        assert store.archive.import_lisp(tmp_path / "deep" / "out.sexp").changed == 0

    def test_an_older_state_is_exported_as_it_was(self, store: sync.Holdproof, file: Path, tmp_path: Path) -> None:
        store.archive.import_lisp(file)
        first = store.snapshots.list().items[-1]
        store.archive.export_lisp(tmp_path / "old.sexp", at=first.cid)
        found = {each.id: each for each in sexpr.read((tmp_path / "old.sexp").read_bytes()).objects}
        assert found == {each.id: each for each in sexpr.read(file.read_bytes()).objects if each.version == 1}

    def test_objects_of_here_are_exported_as_well(
        self, store: sync.Holdproof, other: sync.Holdproof, tmp_path: Path
    ) -> None:
        store.objects.put("ä / x", type="note", content={"n": [1.5, b"x"]}, attributes={"title": "T"}, children=["b"])
        found = exported(store, tmp_path)
        other.archive.import_lisp(tmp_path / "deep" / "out.sexp")
        assert exported(other, tmp_path) == found

    def test_what_is_refused_leaves_everything_as_it_was(self, store: sync.Holdproof, tmp_path: Path) -> None:
        before = root(store), leaves(store)
        with pytest.raises(errors.LispError) as refused:
            store.archive.import_lisp(fixture("org-agent/memory-image.hostile.lisp"))
        assert refused.value.fields["line"] > 0
        with pytest.raises(errors.NotFoundError):
            store.archive.import_lisp(tmp_path / "none")
        (tmp_path / "odd").write_text('((:ID "a" :TYPE :T) (:ID "" :TYPE :T))')
        with pytest.raises(errors.InvalidInputError):
            store.archive.import_lisp(tmp_path / "odd")
        assert before == (root(store), leaves(store))

    def test_a_namespace_is_kept_to(self, store: sync.Holdproof, file: Path, tmp_path: Path) -> None:
        store.archive.import_lisp(file, ns="theirs")
        assert store.objects.list().items == []
        assert exported(store, tmp_path) == {}
        assert store.objects.get("a", ns="theirs").content == "two"


class TestInMemory(InMemory, LispFiles):
    pass


class TestOnSqlite(OnSqlite, LispFiles):
    pass


class TestOnPostgres(OnPostgres, LispFiles):
    pass
