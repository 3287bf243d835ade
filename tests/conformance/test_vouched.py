"""What a home believes of a store that somebody wrote to: its own key files and heads, and not that store's word."""

import json
import shutil
from pathlib import Path

import pytest

from harness.raw_access import Past, attack
from holdproof import errors, sync
from holdproof.crypto import checkpoint, keys
from holdproof.crypto.checkpoint import LogCheckpoint
from holdproof.evidence.key_files import KeyFolder
from holdproof.model.verdicts import Verdict
from tests.store_locations import StoreLocation, everything, submit


@pytest.fixture
def place(tmp_path: Path) -> StoreLocation:
    """A store with a backup, and something that came after it."""
    made = StoreLocation(tmp_path / "home")
    with made.open_without_root() as store:  # with a root key a stranger's copy cannot even be restored
        submit(store, "first")
        store.backup.create(tmp_path / "backup")
        submit(store, "second")
    return made


@pytest.fixture
def forged(place: StoreLocation, tmp_path: Path) -> Path:
    """A backup that a stranger made of a copy of the store, under a log key of their own."""
    shutil.copytree(place.home, tmp_path / "copy", ignore=shutil.ignore_patterns("config", "state"))
    fake = StoreLocation(tmp_path / "fake")
    fake.restore(tmp_path / "copy" / "kernel.db")
    with fake.open() as store:
        store.keys.join()
        submit(store, "forged")
        store.backup.create(tmp_path / "forged")
    return tmp_path / "forged"


def names(place: StoreLocation) -> list[str]:
    with place.open() as store:
        return [evaluation_id for evaluation_id, _ in everything(store)]


def admit(past: Past, key: keys.PublicKey) -> None:
    """Put a log key into the keyring, past Holdproof."""
    columns = "role, alg, statement, added_at, leaf_id, leaf_ver, leaf_salt"
    past.ask(
        f"INSERT INTO keyring (keyid, public, {columns}) SELECT ?, ?, {columns} FROM keyring WHERE role = 'log'",
        key.keyid,
        key.to_pem().decode(),
    )


def test_a_key_put_into_the_keyring_vouches_for_no_backup(place: StoreLocation, forged: Path) -> None:
    admit(Past(place.home), KeyFolder(forged.parent / "fake" / "config" / "keys").load("log").public)
    with pytest.raises(errors.ProofError, match="pass --key KEYID"):
        place.restore(forged)


@pytest.mark.parametrize("damage", ["torn", "nameless", "keyless"])
def test_a_store_that_cannot_say_whom_it_trusts_leaves_that_to_the_keys_of_its_home(
    place: StoreLocation, forged: Path, tmp_path: Path, damage: str
) -> None:
    if damage == "torn":
        (place.home / "kernel.db").write_bytes(b"torn" * 5000)
    else:
        attack(place.home, "DELETE FROM store_facts" if damage == "nameless" else "DELETE FROM keyring")
    with pytest.raises(errors.ProofError, match="the keys here"):
        place.restore(forged)
    assert place.restore(tmp_path / "backup").trust == "the keys here"
    assert names(place) == ["first"]
    place.sound()


def test_a_key_that_the_log_proves_vouches_though_its_file_is_gone(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        store.keys.rotate("log")
        submit(store, "third")
    [aside] = (place.home / "config" / "keys").glob("log.*.pem")
    aside.unlink()
    assert place.restore(tmp_path / "backup").trust == "the store here"


def test_a_plain_run_holds_a_restored_log_against_the_heads_that_still_count(
    place: StoreLocation, tmp_path: Path
) -> None:
    """The largest head of the former origin is of what the restore gave up: a smaller one that counts is looked at."""
    place.restore(tmp_path / "backup")
    [(origin, size)] = Past(place.home).ask("SELECT previous, size FROM restores")
    place.sound()
    [told] = [each for each in sync.verify(place.home).not_checked if "a restore gave up" in each]
    assert origin in told
    other = checkpoint.sign(LogCheckpoint(origin, size, bytes(32)), keys.generate("ed25519")).encode().decode()
    with (place.home / "state" / "heads.jsonl").open("a") as file:
        file.write(json.dumps({"head": other}) + "\n")
    assert sync.verify(place.home, lock=False).verdict is Verdict.FORKED


def test_a_memory_key_put_into_the_keyring_vouches_for_no_archive_and_no_image(tmp_path: Path) -> None:
    """Root is in charge, and did not admit it."""
    with sync.open(tmp_path / "stranger") as store:
        store.objects.put("o", type="t", content="forged")
        store.snapshots.create("forged", author="mallory")
        store.archive.export_car(tmp_path / "memory.car")
        store.image.dump(tmp_path / "image")
        key = store.context.keys.load("memory").public
    home = tmp_path / "home"
    with sync.open(home) as store:
        store.keys.export_root()
        store.objects.put("o", type="t", content="mine")
        store.snapshots.create("mine", author="ada")
    Past(home).ask("UPDATE keyring SET keyid = ?, public = ? WHERE role = 'memory'", key.keyid, key.to_pem().decode())
    with sync.open(home) as store:
        with pytest.raises(errors.UnknownKeyError):
            store.archive.import_car(tmp_path / "memory.car", force=True)
        with pytest.raises(errors.UnknownKeyError):
            store.image.load(tmp_path / "image", force=True)
