"""Backups: made while writers run, whole or not at all, signed, and checked byte by byte."""

import asyncio
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import holdproof
from holdproof import errors, sql
from holdproof.cli.app import app
from holdproof.content import encryption
from holdproof.upkeep.backups import backup_list as backups
from holdproof.upkeep.backups import manifest
from tests.store_locations import StoreLocation, everything, files, submit

_THEN = "2026-01-01T00:00:00Z"
_KEYS = sql("SELECT key, name_hash FROM subjects")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    """A store with a blob, an image and a battle."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    made = StoreLocation(tmp_path / "home", url)
    with made.open() as store:
        submit(store, "first")
    (tmp_path / "home" / "blobs" / "ab").mkdir()
    (tmp_path / "home" / "blobs" / "ab" / "abcd").write_bytes(b"blob" * 1000)
    (tmp_path / "home" / "images" / "one.img").write_bytes(b"image")
    (tmp_path / "home" / "config").mkdir(exist_ok=True)
    (tmp_path / "home" / "config" / "config.yaml").write_text("profile: mine\n")
    return made


def test_a_backup_holds_every_file_and_checks_out(place: StoreLocation, tmp_path: Path) -> None:
    made = place.backup(tmp_path / "backup")
    found = manifest.read(tmp_path / "backup")[0]
    assert {"dboms/dbom_first.json", "blobs/ab/abcd", "images/one.img"} < set(found.files)
    assert not any(name.startswith(("keys/", "config/")) for name in found.files), "either may hold secrets"
    assert (made.size, made.root) == (found.size, found.root)
    assert backups.inspect(tmp_path / "backup", key=made.signer).trust == "the key given"
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (tmp_path / "backup").rglob("*")}
    assert modes == {0}, "for the owner only"
    assert not (tmp_path / "backup.partial").exists()


def test_everything_acknowledged_before_it_began_is_in_it_while_16_writers_run(
    place: StoreLocation, tmp_path: Path
) -> None:
    acknowledged: list[str] = []
    stop, counting = threading.Event(), threading.Lock()
    with place.open() as store:

        def write(writer: int) -> None:
            number = 0
            while not stop.is_set():
                submit(store, f"b{writer}-{number}")
                with counting:
                    acknowledged.append(f"b{writer}-{number}")
                number += 1

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(16)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 100:
            assert all(thread.is_alive() for thread in threads)
        with counting:
            before = set(acknowledged)
        store.backup.create(tmp_path / "backup")
        after = len(acknowledged)
        stop.set()
        for thread in threads:
            thread.join()
        assert after >= len(before), "writers went on"
    backups.inspect(tmp_path / "backup")
    place.restore(tmp_path / "backup")
    with place.open() as store:
        kept = {evaluation_id for evaluation_id, _ in everything(store)}
    assert before <= kept
    place.sound()


def test_a_place_that_is_taken_is_left_alone(place: StoreLocation, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    with pytest.raises(errors.AlreadyExistsError):
        place.backup(tmp_path / "backup")
    assert list((tmp_path / "backup").iterdir()) == []


def test_what_a_killed_backup_left_is_removed_by_the_next(place: StoreLocation, tmp_path: Path) -> None:
    (tmp_path / "backup.partial" / "blobs").mkdir(parents=True)
    (tmp_path / "backup.partial" / "blobs" / "half").write_text("half")
    (tmp_path / "backup.partial" / "kernel.db").write_text("half")
    place.backup(tmp_path / "backup")
    assert not (tmp_path / "backup" / "blobs" / "half").exists()
    backups.inspect(tmp_path / "backup")


def test_two_backups_into_one_place_at_once_are_refused(place: StoreLocation, tmp_path: Path) -> None:
    (tmp_path / "backup.partial").mkdir()
    hold = "import fcntl,os,sys; f=os.open(sys.argv[1],0); fcntl.flock(f,2); print('held',flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / "backup.partial")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(errors.BusyError):
            place.backup(tmp_path / "backup")
        other.kill()
    place.backup(tmp_path / "backup")


def test_a_flipped_byte_in_any_file_is_refused(place: StoreLocation, tmp_path: Path) -> None:
    place.backup(tmp_path / "backup", keys=True)
    found = [path for path in sorted((tmp_path / "backup").rglob("*")) if path.is_file()]
    for path in found:
        whole = path.read_bytes()
        for at in {0, len(whole) // 2, len(whole) - 1} if whole else ():
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(errors.FormatError):
                backups.inspect(tmp_path / "backup")
        path.write_bytes(whole)
    backups.inspect(tmp_path / "backup")


def test_a_file_too_many_or_too_few_is_refused(place: StoreLocation, tmp_path: Path) -> None:
    place.backup(tmp_path / "backup")
    (tmp_path / "backup" / "blobs" / "added").write_text("x")
    with pytest.raises(errors.FormatError, match="not in the backup's manifest"):
        backups.inspect(tmp_path / "backup")
    (tmp_path / "backup" / "blobs" / "added").unlink()
    (tmp_path / "backup" / "images" / "one.img").unlink()
    with pytest.raises(errors.FormatError, match="is missing"):
        backups.inspect(tmp_path / "backup")


def test_a_backup_with_a_broken_manifest_is_listed_as_such_and_in_nobodys_way(
    place: StoreLocation, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    for name in ("good", "broken", "torn", "undated"):
        place.backup(folder / name)
    (folder / "broken" / manifest.MANIFEST).write_text("{}")
    (folder / "torn" / manifest.SIGNATURE).unlink()
    text = (folder / "undated" / manifest.MANIFEST).read_text()
    said = json.loads(text)["created_at"]
    (folder / "undated" / manifest.MANIFEST).write_text(text.replace(said, "yesterday"))
    listed = {Path(each.path).name: each.trust.partition(":")[0] for each in backups.list_backups(folder)}
    assert listed == {"good": "not checked", **dict.fromkeys(("broken", "torn", "undated"), "damaged")}
    assert backups.choose(folder, time="2999-01-01T00:00:00Z") == folder / "good"
    with pytest.raises(errors.FormatError):
        backups.choose(folder / "broken")


def test_dboms_are_written_battle_by_battle(
    place: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.open() as store:
        for name in ("second", "first", "second"):
            submit(store, name)
    monkeypatch.setattr("holdproof.upkeep.backups.contents._PAGE", 1)
    place.backup(tmp_path / "backup")
    assert files(tmp_path / "backup" / "dboms") == files(place.home / "dboms")
    assert len(files(place.home / "dboms")) == 4


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "blobs/../../evil", "evil", "blobs//x", "."])
def test_a_manifest_cannot_name_files_outside(name: str) -> None:
    entry = {"sha256": "0" * 64, "size": 1}
    texts = dict.fromkeys(
        ["store_id", "created_at", "backend", "holdproof", "origin", "root", "head"], "2026-01-01T00:00:00Z"
    )
    tree = {"v": 1, "t": "holdproof-backup", **texts, "size": 0, "migrations": {}, "keys": False, "sealed": 0}
    with pytest.raises(errors.FormatError, match="outside"):
        manifest.parse(json.dumps({**tree, "tables": {}, "files": {name: entry}}).encode())


@pytest.mark.parametrize("name", ["tables", "sequences", "migrations"])
@pytest.mark.parametrize("value", ["x", [1], {"log_state": "x"}, {"log_state": [7]}, None])
def test_a_manifest_of_another_shape_is_refused_before_anything_in_it_is_used(name: str, value: object) -> None:
    if name != "tables" and isinstance(value, dict):
        pytest.skip("numbers and hashes are compared, never called")
    texts = dict.fromkeys(
        ("store_id", "created_at", "backend", "holdproof", "origin", "root", "head"), "2026-01-01T00:00:00Z"
    )
    rest = {"size": 1, "sealed": 0, "keys": False, "tables": {}, "sequences": {}, "migrations": {}, "files": {}}
    tree = {"v": 1, "t": "holdproof-backup", **texts, **rest}
    assert manifest.parse(json.dumps(tree).encode()).tables == {}
    with pytest.raises(errors.FormatError):
        manifest.parse(json.dumps({**tree, name: value}).encode())


def test_another_key_than_the_one_named_is_refused(place: StoreLocation, tmp_path: Path) -> None:
    place.backup(tmp_path / "backup")
    with pytest.raises(errors.ProofError):
        backups.inspect(tmp_path / "backup", key="0" * 64)


def test_keys_of_every_kind_are_left_out_unless_asked_for(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        store.write(lambda tx: encryption.seal(tx, "Ada", b"hello"))
        [(key, digest)] = store.read(lambda tx: tx.all(_KEYS))
        without = store.backup.create(tmp_path / "without")
        with_keys = store.backup.create(tmp_path / "with", keys=True)
    assert (without.keys, without.sealed, with_keys.keys, with_keys.sealed) == (False, 1, True, 1)
    pem = (place.home / "config" / "keys" / "log.pem").read_bytes()
    for secret in (key, key.hex().encode(), digest.encode(), pem):
        assert not any(secret in path.read_bytes() for path in (tmp_path / "without").rglob("*") if path.is_file())
    assert (tmp_path / "with" / "keys" / "log.pem").read_bytes() == pem


def test_a_battle_judged_again_meanwhile_makes_no_difference(place: StoreLocation, tmp_path: Path) -> None:
    """DBOM files follow from the copied rows: an odd file on disk is not carried along."""
    (place.home / "dboms" / "dbom_later.json").write_text("{}")
    place.backup(tmp_path / "backup")
    assert set(files(tmp_path / "backup" / "dboms")) == {"dboms/dbom_first.json"}


def test_progress_is_told_and_ends_at_the_total(place: StoreLocation, tmp_path: Path) -> None:
    told: dict[str, tuple[int, int]] = {}
    place.backup(tmp_path / "backup", progress=lambda what, done, total: told.update({what: (done, total)}))
    assert told
    assert all(done == total for done, total in told.values())


def test_the_async_face_makes_and_lists_them_too(place: StoreLocation, tmp_path: Path) -> None:
    async def make() -> list[str]:
        async with holdproof.open(place.home, place.url) as store:
            await store.backup.create(tmp_path / "all" / "one")
            await store.backup.create(tmp_path / "all" / "two")
            await store.backup.check(tmp_path / "all" / "two")
            return [Path(each.path).name for each in (await store.backup.list(tmp_path / "all")).items]

    assert asyncio.run(make()) == ["two", "one"]


def test_a_store_in_memory_has_no_backup(tmp_path: Path) -> None:
    with StoreLocation(tmp_path, ":memory:").open() as store, pytest.raises(errors.InvalidInputError):
        store.backup.create(tmp_path / "backup")


def test_a_folder_that_cannot_be_written_is_a_typed_error(place: StoreLocation) -> None:
    with pytest.raises(errors.UnavailableError):
        place.backup(Path("/proc/no/backup"))
    assert os.path.exists("/proc")


# --- the command line --------------------------------------------------------------------------------------------


def holdproof_cli(place: StoreLocation, *words: str, code: int = 0) -> dict[str, Any]:
    where = ["--home", str(place.home), *(["--url", place.url] if place.url else [])]
    done = CliRunner().invoke(app, [*where, "--json", *words])
    assert done.exit_code == code, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_command_line_backs_up_lists_checks_and_restores(place: StoreLocation, tmp_path: Path) -> None:
    one, two = str(tmp_path / "all" / "one"), str(tmp_path / "all" / "two")
    made = holdproof_cli(place, "backup", one)
    assert holdproof_cli(place, "backup", "--keys", two)["keys"] is True
    backups = holdproof_cli(place, "backup", "list", str(tmp_path / "all"))["items"]
    assert {Path(each["path"]).name for each in backups} == {"one", "two"}
    assert holdproof_cli(place, "backup", "check", one, "--key", made["signer"])["root"] == made["root"]
    assert holdproof_cli(place, "restore", one, "--dry-run")["dry_run"] is True
    done = holdproof_cli(place, "restore", str(tmp_path / "all"), "--to-index", str(made["size"]))
    assert "/1-" in done["origin"]
    assert holdproof_cli(place, "backup", one, code=4)["error"]["code"] == "conflict.exists"
    place.sound()


def test_the_command_line_erases_only_when_told_yes(place: StoreLocation) -> None:
    with place.open() as store:
        submit(store, "mine", subject="Ada")
    assert holdproof_cli(place, "erase", "subject", "Ada", code=2)["error"]["code"] == "input.invalid"
    assert holdproof_cli(place, "erase", "subject", "Ada", "--yes", "--who", "dpo")["count"] == 1
    assert [each["who"] for each in holdproof_cli(place, "erase", "list")["items"]] == ["dpo"]
    assert holdproof_cli(place, "erase", "record", "battles", "1", "--yes")["kind"] == "record"
    assert holdproof_cli(place, "erase", "subject", "Ada", "--yes", code=3)["error"]["code"] == "not_found"
    place.sound()


def test_the_command_line_says_that_keys_were_left_out(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        store.write(lambda tx: encryption.seal(tx, "Ada", b"hello"))
    where = ["--home", str(place.home), *(["--url", place.url] if place.url else [])]
    done = CliRunner().invoke(app, [*where, "backup", str(tmp_path / "backup")])
    assert done.exit_code == 0
    assert "keys of 1 subjects are not in it" in done.stderr
