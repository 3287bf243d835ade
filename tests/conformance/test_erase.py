"""Erasure: the person is gone from every file, every proof holds, and no restore brings anybody back."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import holdproof
from holdproof import errors, sql, sync
from holdproof.config import Paths
from holdproof.content import disk, encryption
from holdproof.crypto import merkle, tlog_proof
from holdproof.db import Call, Work, Write
from holdproof.evidence import erasable, erasures, evaluations, log
from holdproof.model.erasure import Erasure
from holdproof.model.evaluations import Evaluation
from holdproof.model.verdicts import Verdict
from holdproof.upkeep import erase
from tests.store_locations import StoreLocation, everything, submit

SECRET = "the-very-secret-answer-17"
NAME = "Ada Lovelace"
_KEYS = sql("SELECT key FROM subjects WHERE key IS NOT NULL")
_SALTS = sql("SELECT leaf_salt, dbom FROM battles WHERE battle_id = :battle_id")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    made = StoreLocation(tmp_path / "home", url)
    with made.open() as store:
        submit(store, "mine", subject=NAME, secret=SECRET)
        submit(store, "yours", subject="Bob")
        submit(store, "nobodys")
    return made


def holding(folder: Path, *needles: bytes) -> list[str]:
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and any(needle in path.read_bytes() for needle in needles)
    )


def test_a_subject_goes_with_row_salt_dbom_and_file_and_a_leaf_stays(place: StoreLocation) -> None:
    with place.open() as store:
        [evaluation] = [each for each in _battles(store) if each.evaluation_id == "mine"]
        made = store.erase.subject(NAME, who="dpo")
        assert (made.kind, made.who, made.count, made.leaf_ids) == ("subject", "dpo", 1, (evaluation.leaf_id,))
        assert [evaluation_id for evaluation_id, _ in everything(store)] == ["yours", "nobodys"]
        assert store.erase.list().items == [made]
        assert store.read(lambda tx: erasures.among(tx, {evaluation.leaf_id, "another"})) == {evaluation.leaf_id}
        assert evaluation.leaf_id not in encryption.subject_of(store.write(lambda tx: encryption.seal(tx, NAME, b"x")))
    assert not (place.home / "dboms" / "dbom_mine.json").exists()
    assert (place.home / "dboms" / "dbom_yours.json").exists()
    place.sound()


def _battles(store: sync.Holdproof) -> list[Evaluation]:
    return store.read(lambda tx: evaluations.walk(tx, limit=1000))


def test_content_key_salt_and_name_are_gone_from_every_file(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    with place.open() as store:
        submit(store, "mine-battle", subject=NAME, secret=SECRET)
        sealed = store.write(lambda tx: encryption.seal(tx, NAME, SECRET.encode()))
        [(key,)] = store.read(lambda tx: tx.all(_KEYS))
        [(salt, dbom)] = store.read(lambda tx: tx.all(_SALTS, battle_id="mine-battle"))
        signature = json.loads(dbom)["sigma_judge"].encode()
        needles = [key, salt, signature, b"mine-battle", sealed]
        assert len(holding(place.home, key)) == 1, "the key is somewhere before"
        store.erase.subject(NAME)
        assert holding(place.home, *needles, SECRET.encode(), NAME.encode()) == [], "while the store is open"
        with pytest.raises(errors.ErasedError):
            store.read(lambda tx: encryption.open(tx, sealed))
    assert holding(place.home, *needles, SECRET.encode(), NAME.encode()) == []
    place.sound()


def test_every_proof_still_holds(place: StoreLocation) -> None:
    with place.open() as store:
        found = _battles(store)
        before = [store.read(partial(log.prove, leaf_id=each.leaf_id)) for each in found]
        store.erase.subject(NAME)
        for each, proof in zip(found, before, strict=True):
            again = store.read(partial(log.prove, leaf_id=each.leaf_id, version=1))
            assert (again.index, again.extra) == (proof.index, proof.extra)
            keys = store.read(log.verifiers)
            tlog_proof.verify(
                again, merkle.leaf_hash(again.extra or b""), origin=again.head.checkpoint.origin, log_keys=keys
            )
    place.sound()


def test_one_record_goes_alone(place: StoreLocation) -> None:
    with place.open() as store:
        rows = store.read(lambda tx: tx.all(sql("SELECT id FROM battles WHERE battle_id = 'nobodys'")))
        made = store.erase.record("battles", str(rows[0][0]))
        assert (made.kind, made.target, made.count) == ("record", "battles", 1)
        assert [evaluation_id for evaluation_id, _ in everything(store)] == ["mine", "yours"]
    place.sound()


@pytest.mark.parametrize(
    ("table", "key", "kind"),
    [
        ("battles", "999", errors.NotFoundError),
        ("battles", "x", errors.InvalidInputError),
        ("keyring", "1", errors.InvalidInputError),
        ("log_leaves; DROP TABLE battles", "1", errors.InvalidInputError),
    ],
)
def test_what_is_not_there_or_cannot_go_is_a_typed_error(
    place: StoreLocation, table: str, key: str, kind: type[Exception]
) -> None:
    with place.open() as store:
        with pytest.raises(kind):
            store.erase.record(table, key)
        with pytest.raises(errors.NotFoundError):
            store.erase.subject("nobody at all")
        assert len(everything(store)) == 3
        assert store.erase.list().items == []


def test_erasing_twice_says_that_there_is_nobody(place: StoreLocation) -> None:
    with place.open() as store:
        store.erase.subject(NAME)
        with pytest.raises(errors.NotFoundError):
            store.erase.subject(NAME)


def test_an_earlier_dbom_of_a_battle_takes_the_name_of_the_erased_one(place: StoreLocation) -> None:
    with place.open() as store:
        submit(store, "shared", secret="old")
        submit(store, "shared", subject=NAME, secret=SECRET)
        store.erase.subject(NAME)
        assert dbom_files(place, "shared") == {"dbom_shared.json": store.dbom.get("shared").text}
        assert store.verify.run(lock=False).verdict.sound
    place.sound()


def test_the_name_is_taken_over_though_another_process_repaired_meanwhile(
    place: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one finds every file in its place, and notes that there is nothing left to look at."""
    with place.open() as store, place.open() as other:
        submit(store, "shared", secret="old")
        erased = submit(store, "shared", secret="new")
        shred = disk.shred

        def meanwhile(path: Path) -> None:
            other.dbom.repair()
            shred(path)

        monkeypatch.setattr("holdproof.content.disk.shred", meanwhile)
        store.erase.record("battles", str(erased.id))
        assert dbom_files(place, "shared") == {"dbom_shared.json": store.dbom.get("shared").text}
    place.sound()


def test_the_name_is_taken_over_at_the_opening_after_a_crash(place: StoreLocation) -> None:
    with place.open() as store:
        submit(store, "shared", secret="old")
        submit(store, "shared", subject=NAME, secret=SECRET)
        store.write(lambda tx: erase._by_name(tx, NAME, who="dpo", ns="main"))  # the commit, and no more
    with place.open() as store:
        assert dbom_files(place, "shared") == {"dbom_shared.json": store.dbom.get("shared").text}
    place.sound()


def dbom_files(place: StoreLocation, evaluation_id: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in (place.home / "dboms").glob(f"dbom_{evaluation_id}*")}


def test_files_that_a_crash_left_are_removed_at_the_next_opening(place: StoreLocation) -> None:
    with place.open() as store:
        store.write(lambda tx: erase._by_name(tx, NAME, who="dpo", ns="main"))  # the commit, and no more
        assert (place.home / "dboms" / "dbom_mine.json").exists()
    with place.open() as store:
        assert not (place.home / "dboms" / "dbom_mine.json").exists()
        assert store.read(erasures.due) == []
    place.sound()


def test_nothing_is_recorded_of_a_subject_erased_since_it_was_sealed(place: StoreLocation) -> None:
    with place.open() as store:
        work = evaluations.submit(store.context, {"a": 1}, evaluation_id="late", score=0.5, subject=NAME)
        with pytest.raises(errors.ErasedError):
            store.run(_after_first_write(work, lambda: store.erase.subject(NAME)))
        assert "late" not in [evaluation.evaluation_id for evaluation in _battles(store)]
    place.sound()


def _after_first_write(work: Work[Evaluation], act: Callable[[], object]) -> Work[Evaluation]:
    """The same work, with something else happening after its first write."""
    effect, written = next(work), False
    try:
        while True:
            answer = yield effect
            if isinstance(effect, Write) and not written:
                written = True
                yield Call(act)
            effect = work.send(answer)
    except StopIteration as stop:
        evaluation: Evaluation = stop.value
        return evaluation


def test_a_flipped_bit_never_makes_a_remembered_erasure_another(tmp_path: Path) -> None:
    """A restore would erase somebody else, or let the erased come back."""
    paths = Paths.find(tmp_path)
    made = Erasure("e1", "subject", "00ff" * 8, "dpo", 1, ("h1",), "2026")
    erase.record_outside(paths, [made])
    file = paths.state / "erasures.jsonl"
    whole = file.read_bytes()
    for at in range(len(whole) - 1):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            assert erase.recorded_outside(paths) == [made], at
        except errors.FormatError:
            continue


def test_a_remembered_erasure_without_a_digest_counts_as_it_did(tmp_path: Path) -> None:
    paths = Paths.find(tmp_path)
    made = Erasure("e1", "record", "battles", "dpo", 0, (), "2026")
    paths.state.mkdir()
    (paths.state / "erasures.jsonl").write_text(json.dumps(made.to_dict()) + "\n")
    assert erase.recorded_outside(paths) == [made]


def test_erasures_that_end_at_once_are_all_remembered(tmp_path: Path) -> None:
    paths = Paths.find(tmp_path)
    made = [Erasure(f"e{number}", "record", "battles", "dpo", 0, (), "2026") for number in range(64)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda each: erase.record_outside(paths, [each]), made))
    assert sorted(each.id for each in erase.recorded_outside(paths)) == sorted(each.id for each in made)


@pytest.mark.parametrize("name", ["{}", "../{0.name}", "dboms/../../{0.name}", "dboms", "state/heads.jsonl", 7])
def test_no_file_but_the_stores_own_is_ever_removed(place: StoreLocation, tmp_path: Path, name: str | int) -> None:
    """Whoever writes to the database could name any file to be removed: the row must be the one the log covers."""
    precious = tmp_path / "precious"
    precious.write_text("of somebody else")
    with place.open() as store:
        store.erase.subject(NAME)
        listed = json.dumps([name.format(precious) if isinstance(name, str) else name])
        store.write(lambda tx: tx.execute(sql("UPDATE erasures SET files = :listed"), listed=listed))
    with place.open() as store:
        assert precious.read_text() == "of somebody else"
        assert (place.home / "state" / "heads.jsonl").exists()
        report = store.verify.run(lock=False)
        assert (report.verdict, report.findings[0].table) == (Verdict.TAMPERED, "erasures")


def test_an_edited_list_of_files_never_makes_the_store_destroy_its_own(place: StoreLocation) -> None:
    with place.open() as store:
        store.write(lambda tx: erase._by_name(tx, NAME, who="dpo", ns="main"))  # the commit, and no more
        theirs = next(path.name for path in (place.home / "dboms").glob("dbom_*.json") if "mine" not in path.name)
        listed = json.dumps([f"dboms/{theirs}"])
        store.write(lambda tx: tx.execute(sql("UPDATE erasures SET files = :listed"), listed=listed))
    with place.open() as store:
        assert (place.home / "dboms" / theirs).exists()
        assert store.read(erasures.due) == []
        report = store.verify.run(lock=False)
        assert {each.table for each in report.findings if each.verdict == Verdict.TAMPERED} == {"erasures"}


def test_a_key_put_back_on_an_erased_subject_is_found(place: StoreLocation) -> None:
    with place.open() as store:
        store.erase.subject(NAME)
        store.write(lambda tx: tx.execute(sql("UPDATE subjects SET key = :key"), key=bytes(32)))
    with place.open() as store:
        report = store.verify.run(lock=False)
        assert {each.table for each in report.findings if each.verdict == Verdict.TAMPERED} == {"subjects"}


def test_a_locked_store_keeps_its_files_as_they_are_found(place: StoreLocation) -> None:
    with place.open() as store:
        store.write(lambda tx: erase._by_name(tx, NAME, who="dpo", ns="main"))  # the commit, and no more
        store.lockdown.lock(reason="somebody was here")
    with place.open() as store:
        assert (place.home / "dboms" / "dbom_mine.json").exists()
        assert len(store.read(erasures.due)) == 1


# --- backups -----------------------------------------------------------------------------------------------------


def test_a_backup_without_keys_is_erased_with_its_subject(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        sealed = store.write(lambda tx: encryption.seal(tx, NAME, SECRET.encode()))
        store.backup.create(tmp_path / "backup")
        [key, *_] = [key for (key,) in store.read(lambda tx: tx.all(_KEYS))]
        store.erase.subject(NAME)
    assert holding(tmp_path / "backup", key, key.hex().encode(), SECRET.encode(), NAME.encode()) == []
    fresh = StoreLocation(tmp_path / "fresh", place.url)
    fresh.restore(tmp_path / "backup", other=True, root_recovery=place.home / "config" / "keys" / "root-recovery.txt")
    with fresh.open() as store, pytest.raises(errors.NotFoundError):
        store.read(lambda tx: encryption.open(tx, sealed))


def test_a_restore_of_an_older_backup_erases_again(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        sealed = store.write(lambda tx: encryption.seal(tx, NAME, SECRET.encode()))
        yours = store.write(lambda tx: encryption.seal(tx, "Bob", b"bob"))
        record = store.read(lambda tx: tx.all(sql("SELECT id FROM battles WHERE battle_id = 'nobodys'")))[0][0]
        store.backup.create(tmp_path / "backup", keys=True)
        store.erase.subject(NAME)
        store.erase.record("battles", str(record))
    assert place.restore(tmp_path / "backup").erasures == 2
    with place.open() as store:
        assert [evaluation_id for evaluation_id, _ in everything(store)] == ["yours"]
        with pytest.raises(errors.ErasedError):
            store.read(lambda tx: encryption.open(tx, sealed))
        assert store.read(lambda tx: encryption.open(tx, yours)) == b"bob"
        assert len(store.erase.list().items) == 2
    assert not (place.home / "dboms" / "dbom_mine.json").exists()
    place.sound()


def test_a_restored_file_holds_nothing_of_whom_was_erased_since(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    with place.open() as store:
        submit(store, "mine-battle", subject=NAME, secret=SECRET)
        [(key,)] = store.read(lambda tx: tx.all(_KEYS))
        store.backup.create(tmp_path / "backup", keys=True)
        store.erase.subject(NAME)
    place.restore(tmp_path / "backup")
    with place.open():
        assert holding(place.home, key, b"mine-battle") == []
    assert holding(place.home, key, b"mine-battle") == []


def test_erasures_are_made_again_even_where_the_database_is_lost(tmp_path: Path) -> None:
    """They are remembered in the state folder, by handles only."""
    place = StoreLocation(tmp_path / "home")
    with place.open() as store:
        submit(store, "mine", subject=NAME)
        store.backup.create(tmp_path / "backup", keys=True)
        store.erase.subject(NAME)
    (place.home / "kernel.db").write_bytes(b"lost")
    done = place.restore(tmp_path / "backup")
    assert done.erasures == 1
    with place.open() as store:
        assert everything(store) == []
    place.sound()


def test_erasures_of_a_file_are_made_again_on_another_machine(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    with place.open() as store:
        submit(store, "mine", subject=NAME)
        store.backup.create(tmp_path / "backup", keys=True)
        store.erase.subject(NAME)
    fresh = StoreLocation(tmp_path / "fresh")
    done = fresh.restore(tmp_path / "backup", erasures=place.home / "state" / "erasures.jsonl")
    assert done.erasures == 1
    with fresh.open() as store:
        assert everything(store) == []
    with pytest.raises(errors.NotFoundError):
        fresh.restore(tmp_path / "backup", erasures=tmp_path / "none")


def test_what_a_restore_kept_aside_is_named_because_no_erasure_reaches_it(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    with place.open() as store:
        submit(store, "mine", subject=NAME)
        store.backup.create(tmp_path / "backup")
    aside = place.restore(tmp_path / "backup").aside
    with place.open() as store:
        made = store.erase.subject(NAME)
    assert made.remains == (aside,)
    assert made.to_dict()["remains"] == [aside]


def test_the_async_face_erases_too(place: StoreLocation) -> None:
    async def run() -> int:
        async with holdproof.open(place.home, place.url) as store:
            await store.erase.subject(NAME)
            return len((await store.erase.list()).items)

    assert asyncio.run(run()) == 1


def test_every_covered_table_with_a_subject_is_erasable() -> None:
    assert "battles" in {each.table for each in erasable.domains()}
