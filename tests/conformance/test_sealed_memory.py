"""Objects and values of a person: sealed where they lie, gone with the person, and every CID and proof holds."""

from pathlib import Path
from typing import Any

import pytest

from holdproof import errors, sql, sync
from holdproof.content import encryption
from holdproof.memory.objects import records
from holdproof.memory.objects.records import ObjectRecord, Sealed
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory

SECRET = "marzipan-potatoes-17"
NAME = "Ada Lovelace"
_BLOCKS = sql("SELECT data FROM objects")
_TEXTS = sql("SELECT body FROM object_text")


def fill(store: sync.Holdproof) -> str:
    """Objects and values of two people and of nobody; the CID of a list of Ada's."""
    store.objects.put("folder", type="folder", content="in the open")
    store.objects.put(
        "ada", type="note", content=SECRET, attributes={"likes": SECRET}, meta={"seen": SECRET}, subject=NAME
    )
    store.objects.put("bob", type="note", content="of bob", parent="folder", subject="Bob")
    return store.values.put([SECRET, {"n": 1}], subject=NAME)


class SealedMemory(OnMemory):
    def clear(self, store: sync.Holdproof) -> bytes:
        """Every block and every word that is kept, as one."""
        rows = [row[0] for row in store.read(lambda tx: tx.all(_BLOCKS))]
        return b"\n".join([*rows, *(row[0].encode() for row in store.read(lambda tx: tx.all(_TEXTS)))])

    def test_what_is_a_subjects_is_read_as_it_was_put_and_never_stored_so(self, store: sync.Holdproof) -> None:
        listed = fill(store)
        ada = store.objects.get("ada")
        assert (ada.content, ada.attributes, ada.meta) == (SECRET, {"likes": SECRET}, {"seen": SECRET})
        assert (ada.hidden, ada.subject) == (None, store.read(lambda tx: encryption.find(tx, NAME)))
        assert ada in store.objects.list().items
        assert store.values.get(listed) == [SECRET, {"n": 1}]
        assert SECRET.encode() not in self.clear(store)

    def test_after_erasure_reading_is_an_error_and_lists_go_on(self, store: sync.Holdproof) -> None:
        listed = fill(store)
        first = store.snapshots.create().cid
        before = store.objects.get("ada")
        store.objects.put("ada", type="note", content=SECRET + "!")
        made = store.erase.subject(NAME, who="dpo")
        assert made.sealed == {"objects": 2, "values": 1}
        assert store.erase.list().items == [made]
        assert made.to_dict()["sealed"] == made.sealed
        for read in (
            lambda: store.objects.get("ada"),
            lambda: store.objects.get("ada", at=first),
            lambda: store.objects.get("ada", version=1),
            lambda: store.values.get(listed),
            lambda: store.values.slice(listed, 0, 1),
            lambda: store.values.append(listed, ["more"]),
        ):
            with pytest.raises(errors.ErasedError):
                read()
        [gone] = [each for each in store.objects.list(at=first).items if each.id == "ada"]
        assert (gone.cid, gone.hidden, gone.content, gone.attributes, gone.meta) == (before.cid, "erased", None, {}, {})
        assert store.objects.get("bob").content == "of bob"
        assert [each.version for each in store.objects.history("ada").items] == [2, 1]
        assert store.snapshots.diff(first).differences[0].id == "ada"

    def test_every_root_and_signature_is_what_it_was(self, store: sync.Holdproof) -> None:
        fill(store)
        taken = store.snapshots.create()
        store.erase.subject(NAME)
        assert store.snapshots.get() == taken
        again = store.snapshots.create()
        assert again.root == taken.root
        assert store.verify.run(lock=False).verdict.sound

    def test_an_object_stays_its_subjects_though_a_put_names_nobody(self, store: sync.Holdproof) -> None:
        fill(store)
        handle = store.objects.get("ada").subject
        changed = store.objects.put("ada", type="note", content="other " + SECRET)
        assert (changed.subject, changed.version, changed.meta) == (handle, 2, {"seen": SECRET})
        store.objects.annotate("ada", {"vector": SECRET})
        store.objects.apply({"ada": {"type": "note", "content": SECRET * 2}})
        assert store.objects.get("ada").subject == handle
        assert SECRET.encode() not in self.clear(store)

    def test_the_same_again_changes_nothing_though_it_is_sealed(self, store: sync.Holdproof) -> None:
        fill(store)
        one = store.objects.get("ada")
        two = store.objects.put("ada", type="note", content=SECRET, attributes={"likes": SECRET}, subject=NAME)
        assert two == one

    def test_an_erased_object_can_be_deleted_or_given_to_another_not_changed(self, store: sync.Holdproof) -> None:
        fill(store)
        store.erase.subject(NAME)
        with pytest.raises(errors.ErasedError):
            store.objects.put("ada", type="note", content="x")
        with pytest.raises(errors.ErasedError):
            store.objects.annotate("ada", {"x": 1})
        assert store.objects.put("ada", type="note", content="b", subject="Bob").meta == {}
        assert store.objects.put("ada", type="note", content="a", subject=NAME).content == "a", "a new Ada"
        store.erase.subject(NAME)
        store.objects.delete("ada")
        assert store.objects.put("ada", type="note", content="open").subject is None

    def test_what_was_in_the_open_is_sealed_once_it_is_somebodys(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="note", content="open", meta={"where": SECRET})
        store.objects.put("a", type="note", content="open", subject=NAME)
        found = store.objects.get("a")
        assert (found.version, found.meta) == (2, {"where": SECRET})
        store.erase.subject(NAME)
        with pytest.raises(errors.ErasedError):
            store.objects.get("a")
        assert store.objects.get("a", version=1).content == "open", "history is what it was"

    def test_a_search_finds_no_word_of_it(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="note", content="marzipan")
        assert len(store.objects.search("marzipan")) == 1
        store.objects.put("a", type="note", content="marzipan", subject=NAME)
        assert store.objects.search("marzipan") == ()
        assert store.objects.reindex() == 1
        assert store.objects.search("marzipan") == ()

    @pytest.mark.parametrize("content", ["x" * 700_000, b"\x00" * 700_000, {"deep": [1.5, None, 2**60]}, None, ""])
    def test_content_of_any_length_comes_back(self, store: sync.Holdproof, content: Any) -> None:
        store.objects.put("a", type="note", content=content, subject=NAME)
        assert store.objects.get("a").content == content
        cid = store.values.put(content if not isinstance(content, dict) else [content], subject=NAME)
        assert store.values.get(cid) == (content if not isinstance(content, dict) else [content])
        store.erase.subject(NAME)
        for read in (lambda: store.objects.get("a"), lambda: store.values.get(cid)):
            with pytest.raises(errors.ErasedError):
                read()

    def test_a_sealed_list_grows_and_is_cut_like_any_other(self, store: sync.Holdproof) -> None:
        cid = store.values.put([], subject=NAME)
        assert (store.values.get(cid), store.values.length(cid)) == ([], 0)
        for number in range(30):
            cid = store.values.append(cid, [number, str(number)])
        plain = [each for number in range(30) for each in (number, str(number))]
        assert (store.values.get(cid), store.values.length(cid)) == (plain, 60)
        for start, end in ((0, None), (0, 1), (7, 20), (59, 99), (60, None)):
            assert store.values.slice(cid, start, end) == plain[start:end]
        with pytest.raises(errors.InvalidInputError):
            store.values.slice(cid, -1)

    def test_a_merge_sees_that_the_same_was_sealed_twice(self, store: sync.Holdproof) -> None:
        store.objects.put("ada", type="note", content="base", subject=NAME)
        base = store.snapshots.create().cid
        store.objects.put("ada", type="note", content=SECRET)
        theirs = store.snapshots.create().cid
        store.snapshots.rollback(base)
        store.objects.put("ada", type="note", content=SECRET)
        store.snapshots.merge(theirs, base=base)
        assert store.objects.get("ada").content == SECRET

    def test_an_archive_carries_what_is_sealed_without_its_key(self, store: sync.Holdproof, tmp_path: Path) -> None:
        fill(store)
        did = store.snapshots.create().did
        store.archive.export_car(tmp_path / "all.car")
        assert SECRET.encode() not in (tmp_path / "all.car").read_bytes()
        with sync.open(url=":memory:") as other:
            other.archive.import_car(tmp_path / "all.car", did=did)
            [found] = [each for each in other.objects.list().items if each.id == "ada"]
            assert (found.hidden, found.cid) == ("locked", store.objects.get("ada").cid)
            with pytest.raises(errors.NotFoundError):
                other.objects.get("ada")
            with pytest.raises(errors.NotFoundError, match="not known here"):  # nor can anybody there seal for Ada
                other.objects.put("ada", type="note", content="x")
            assert other.verify.run(lock=False).verdict.sound
        store.archive.import_car(tmp_path / "all.car", ns="copy", did=did)
        assert store.objects.get("ada", ns="copy").content == SECRET

    def test_what_is_no_subject_is_refused(self, store: sync.Holdproof) -> None:
        for wrong in ("", "  ", 7, "x" * 1025):
            with pytest.raises(errors.InvalidInputError):
                store.objects.put("a", type="t", subject=wrong)  # type: ignore[arg-type]
        assert store.objects.list().items == []

    def test_namespaces_have_people_of_their_own(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", content=1, subject=NAME)
        store.objects.put("a", type="t", content=2, subject=NAME, ns="other")
        store.erase.subject(NAME)
        assert store.objects.get("a", ns="other").content == 2


class TestOnSqlite(OnSqlite, SealedMemory):
    def test_no_file_has_a_word_of_it_before_or_after_but_for_its_key(
        self, store: sync.Holdproof, tmp_path: Path
    ) -> None:
        """Images, the database, its log and its free pages: all hold envelopes only."""
        fill(store)
        store.image.dump(tmp_path / "images")
        store.values.put(SECRET, subject=NAME)
        store.erase.subject(NAME)
        home = Path(store.status().database["path"]).parent
        store.image.dump(tmp_path / "images")
        sealed = [path for folder in (home, tmp_path / "images") for path in folder.rglob("*") if path.is_file()]
        assert len(sealed) > 3
        needles = (SECRET.encode(), b"marzipan potatoes", NAME.encode())
        assert [path.name for path in sealed if any(map(path.read_bytes().__contains__, needles))] == []
        with store.image.open(tmp_path / "images") as seen:
            with pytest.raises(errors.NotFoundError):
                seen.get("ada")
            assert {each.hidden for each in seen.list().items} == {None, "locked"}


class TestInMemory(InMemory, SealedMemory):
    pass


class TestOnPostgres(OnPostgres, SealedMemory):
    pass


def test_a_record_that_says_sealed_and_is_not_is_refused() -> None:
    envelope = b"HFS\x01" + bytes(60)
    good = ObjectRecord("a", "t", Sealed(envelope), {}, None, (), 1)
    [block] = records.encode(good).values()
    assert records.decode(block) == good
    for wrong in (good._replace(content=Sealed(b"HFS\x02" + bytes(60))), good._replace(attributes={"x": 1})):
        with pytest.raises(errors.FormatError):
            records.decode([*records.encode(wrong).values()][-1])
    with pytest.raises(errors.FormatError):
        records.decode_meta(records.encode_meta("a", Sealed(b"no"))[1])
