"""Restores: verified before anything is replaced, the old state kept, the ceremony in the log."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from harness.raw_access import attack
from holdproof import errors, sql, sync
from holdproof.config import Paths
from holdproof.content import encryption
from holdproof.crypto import checkpoint
from holdproof.evidence import key_admission, keys, restores, sequencer, tree, trust
from holdproof.model.times import later
from holdproof.upkeep.backups import backup_list as backups
from holdproof.upkeep.backups import server_restore, swap
from tests.store_locations import StoreLocation, everything, files, submit

_AFTER = sql("SELECT leaf FROM log_leaves WHERE idx >= :idx ORDER BY idx")
_LEAF = sql("SELECT leaf FROM log_leaves WHERE idx = :idx")


def furnished(made: StoreLocation, backup: Path) -> StoreLocation:
    """A store with a backup and something that came after it."""
    with made.open() as store:
        submit(store, "first")
        (made.home / "blobs" / "one").write_bytes(b"one")
        store.backup.create(backup)
        submit(store, "second")
        (made.home / "blobs" / "two").write_bytes(b"two")
    return made


@pytest.fixture
def place(tmp_path: Path) -> StoreLocation:
    """A store with a backup (`backup`), in files."""
    return furnished(StoreLocation(tmp_path / "home"), tmp_path / "backup")


def names(place: StoreLocation) -> list[str]:
    with place.open() as store:
        return [evaluation_id for evaluation_id, _ in everything(store)]


def test_the_store_of_the_backup_takes_the_place_of_the_other_which_is_kept(
    place: StoreLocation, tmp_path: Path
) -> None:
    done = place.restore(tmp_path / "backup")
    assert names(place) == ["first"]
    assert set(files(place.home / "blobs")) == {"blobs/one"}
    assert set(files(place.home / "dboms")) == {"dboms/dbom_first.json"}
    assert done.aside is not None
    aside = Path(done.aside)
    assert aside.parent == place.home
    assert aside.name.startswith("before-restore-")
    assert set(files(aside / "blobs")) == {"blobs/one", "blobs/two"}
    place.sound()


def test_what_was_kept_aside_can_be_restored_in_turn(place: StoreLocation, tmp_path: Path) -> None:
    done = place.restore(tmp_path / "backup")
    assert done.aside is not None
    again = place.restore(Path(done.aside))
    assert names(place) == ["first", "second"]
    assert set(files(place.home / "blobs")) == {"blobs/one", "blobs/two"}
    assert "/2-" in again.origin, "no origin is ever used twice"
    place.sound()


def test_the_log_goes_on_under_a_new_origin_whose_first_leaf_cites_the_last_trusted_head(
    place: StoreLocation, tmp_path: Path
) -> None:
    with place.open() as store:
        abandoned = store.read(lambda tx: tree.state(tx))
    done = place.restore(tmp_path / "backup")
    with place.open() as store:
        submit(store, "third")
        state, [ceremony] = store.read(lambda tx: (tree.state(tx), restores.history(tx)))
        [(leaf,)] = store.read(lambda tx: tx.all(_LEAF, idx=ceremony.size))
        reach = store.read(restores.reach)
    assert state.origin == done.origin
    assert re.fullmatch(f"holdproof/{done.store_id}/1-[0-9a-f]{{8}}", done.origin)
    assert checkpoint.parse(state.head.encode()).checkpoint.origin == done.origin
    assert json.loads(leaf)["t"] == "restore"
    trusted = checkpoint.parse(ceremony.trusted.encode()).checkpoint
    assert (trusted.size, trusted.origin) == (ceremony.size, ceremony.previous)
    assert ceremony.abandoned == abandoned.head
    assert reach.sizes == {ceremony.previous: ceremony.size, done.origin: None}
    place.sound()


def test_a_dry_run_verifies_all_and_changes_nothing(place: StoreLocation, tmp_path: Path) -> None:
    before = files(place.home)
    done = place.restore(tmp_path / "backup", dry_run=True)
    assert (done.dry_run, done.aside) == (True, None)
    assert files(place.home) == before
    assert names(place) == ["first", "second"]


def test_a_flipped_byte_in_any_file_is_refused_and_nothing_is_changed(place: StoreLocation, tmp_path: Path) -> None:
    before = files(place.home)
    for path in sorted(path for path in (tmp_path / "backup").rglob("*") if path.is_file()):
        whole = path.read_bytes()
        for at in {0, len(whole) // 2, len(whole) - 1}:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises((errors.FormatError, errors.CorruptError)):
                place.restore(tmp_path / "backup")
        path.write_bytes(whole)
    assert files(place.home) == before
    assert not list(place.home.glob("before-restore-*"))
    assert not (place.home / ".restoring").exists()


def test_a_store_that_is_open_here_is_not_replaced(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        with pytest.raises(errors.BusyError):
            place.restore(tmp_path / "backup")
        assert [evaluation_id for evaluation_id, _ in everything(store)] == ["first", "second"]
    place.restore(tmp_path / "backup")


@pytest.mark.parametrize(
    "holder",
    [
        "from holdproof import sync; s = sync.open(sys.argv[1])",
        "import apsw; s = apsw.Connection(sys.argv[1] + '/kernel.db'); s.execute('PRAGMA schema_version').fetchall()",
    ],
    ids=["a store", "another program"],
)
def test_a_store_that_another_process_has_open_is_not_replaced(
    place: StoreLocation, tmp_path: Path, holder: str
) -> None:
    script = f"import sys; {holder}; print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(place.home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(errors.BusyError):
            place.restore(tmp_path / "backup")
        other.kill()
    assert names(place) == ["first", "second"]
    place.restore(tmp_path / "backup")
    assert names(place) == ["first"]


def test_a_backup_restores_on_a_machine_that_knows_nothing(place: StoreLocation, tmp_path: Path) -> None:
    fresh = StoreLocation(tmp_path / "fresh")
    done = fresh.restore(tmp_path / "backup", root_recovery=place.recovery)
    assert done.trust == "itself"
    assert names(fresh) == ["first"]
    fresh.sound()


def test_the_key_that_must_have_signed_can_be_named(place: StoreLocation, tmp_path: Path) -> None:
    signer = backups.inspect(tmp_path / "backup").signer
    fresh = StoreLocation(tmp_path / "fresh")
    with pytest.raises(errors.ProofError):
        fresh.restore(tmp_path / "backup", key="0" * 64)
    assert fresh.restore(tmp_path / "backup", key=signer, root_recovery=place.recovery).trust == "the key given"


def test_keys_and_configuration_are_put_where_there_are_none_and_replace_none(
    place: StoreLocation, tmp_path: Path
) -> None:
    (place.home / "config" / "config.yaml").write_text("profile: mine\n")
    place.backup(tmp_path / "whole", keys=True)
    pem = (place.home / "config" / "keys" / "log.pem").read_bytes()
    fresh = StoreLocation(tmp_path / "fresh")
    fresh.restore(tmp_path / "whole")
    assert (fresh.home / "config" / "keys" / "log.pem").read_bytes() == pem
    assert (fresh.home / "config" / "config.yaml").read_text() == "profile: mine\n"
    fresh.sound()
    (place.home / "config" / "config.yaml").write_text("profile: other\n")
    place.restore(tmp_path / "whole")
    assert (place.home / "config" / "config.yaml").read_text() == "profile: other\n"


def test_a_backup_of_another_store_is_refused_unless_that_is_meant(place: StoreLocation, tmp_path: Path) -> None:
    other = StoreLocation(tmp_path / "other")
    other.open().close()
    with pytest.raises(errors.ConflictError):
        other.restore(tmp_path / "backup")
    assert other.restore(tmp_path / "backup", other=True, root_recovery=place.recovery).trust == "itself"
    assert names(other) == ["first"]
    other.sound()


def test_a_backup_that_a_stranger_signed_is_refused(tmp_path: Path) -> None:
    """A stranger who copied a store without root can back the copy up, but this store does not trust that backup."""
    place = StoreLocation(tmp_path / "home")
    with place.open_without_root() as store:
        submit(store, "first")
        submit(store, "second")
    copy = StoreLocation(tmp_path / "copy")
    shutil.copytree(place.home, copy.home, ignore=shutil.ignore_patterns("config", "state"))
    fake = StoreLocation(tmp_path / "fake")
    fake.restore(copy.home / "kernel.db")
    with fake.open() as store:
        store.keys.join()
        submit(store, "forged")
        store.backup.create(tmp_path / "forged")
    with pytest.raises(errors.ProofError):
        place.restore(tmp_path / "forged")
    assert names(place) == ["first", "second"]


# --- raw copies --------------------------------------------------------------------------------------------------

_KILLED = """
import os, sys
from holdproof import sync
from tests.store_locations import submit
store = sync.open(sys.argv[1])
for number in range(5):
    submit(store, f"b{number}")
os._exit(9)  # as in a crash: the last rows are in the -wal only
"""


@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_closed_store_copied_with_its_wal_restores(tmp_path: Path, what: str) -> None:
    crashed = StoreLocation(tmp_path / "crashed")
    subprocess.run([sys.executable, "-c", _KILLED, str(crashed.home)], check=False, cwd=Path(__file__).parents[2])
    (tmp_path / "copy").mkdir()
    for name in ("kernel.db", "kernel.db-wal"):
        shutil.copy(crashed.home / name, tmp_path / "copy" / name)
    assert (tmp_path / "copy" / "kernel.db-wal").stat().st_size > 0
    before = files(tmp_path / "copy")
    fresh = StoreLocation(tmp_path / "fresh")
    source = tmp_path / "copy" if what == "folder" else tmp_path / "copy" / "kernel.db"
    done = fresh.restore(source, root_recovery=crashed.recovery)
    assert names(fresh) == [f"b{number}" for number in range(5)]
    assert (done.as_of, done.trust) == (None, "itself")
    assert files(tmp_path / "copy") == before
    fresh.sound()


def test_a_raw_copy_with_a_changed_leaf_is_refused(place: StoreLocation, tmp_path: Path) -> None:
    shutil.copytree(place.home, tmp_path / "copy")
    edit = (
        "import apsw, sys; from holdproof.db.sqlite.files import connect; from pathlib import Path;"
        "c = connect(Path(sys.argv[1]), busy_s=1);"
        "c.execute(\"UPDATE log_leaves SET leaf = replace(leaf, 'key', 'kez') WHERE idx = 0\").fetchall()"
    )
    subprocess.run([sys.executable, "-c", edit, str(tmp_path / "copy" / "kernel.db")], check=True)
    with pytest.raises(errors.CorruptError, match="root"):
        place.restore(tmp_path / "copy")
    assert names(place) == ["first", "second"]


@pytest.mark.parametrize("edit", ["UPDATE battles SET score = 0.9 WHERE id = 2", "DELETE FROM battles WHERE id = 2"])
def test_a_raw_copy_with_rows_that_are_not_those_of_its_leaves_is_refused(
    place: StoreLocation, tmp_path: Path, edit: str
) -> None:
    shutil.copytree(place.home, tmp_path / "copy")
    attack(tmp_path / "copy", edit)
    with pytest.raises(errors.CorruptError, match="battles"):
        place.restore(tmp_path / "copy")
    assert names(place) == ["first", "second"]


@pytest.mark.parametrize("name", ["kernel.db", "manifest.json", "manifest.sig", "blobs/one"])
@pytest.mark.parametrize("what", ["pipe", "endless"])
def test_a_backup_with_a_pipe_or_an_endless_file_in_it_is_refused_at_once(
    place: StoreLocation, tmp_path: Path, name: str, what: str
) -> None:
    path = tmp_path / "backup" / name
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(1 << 42)  # as long as no disk, and takes none
    with pytest.raises(errors.HoldproofError):
        place.restore(tmp_path / "backup")
    with pytest.raises(errors.HoldproofError):
        backups.inspect(tmp_path / "backup")
    assert names(place) == ["first", "second"]


def test_a_raw_copy_with_a_pipe_in_it_is_no_longer_waited_for(place: StoreLocation, tmp_path: Path) -> None:
    shutil.copytree(place.home, tmp_path / "copy", ignore=shutil.ignore_patterns("config", "state", "*-wal", "*-shm"))
    (tmp_path / "copy" / "telemetry.db").unlink(missing_ok=True)
    for pipe in ("telemetry.db", "kernel.db-wal", "blobs/pipe"):
        os.mkfifo(tmp_path / "copy" / pipe)
    assert place.restore(tmp_path / "copy").trust == "the store here"


def test_a_store_is_not_restored_from_itself(place: StoreLocation) -> None:
    for src in (place.home, place.home / "kernel.db"):
        with pytest.raises(errors.InvalidInputError):
            place.restore(src)


def test_a_database_of_another_program_is_refused(place: StoreLocation, tmp_path: Path) -> None:
    (tmp_path / "alien").write_bytes(b"not a database" * 500)
    with pytest.raises(errors.HoldproofError):
        place.restore(tmp_path / "alien")
    assert names(place) == ["first", "second"]


# --- points in time ----------------------------------------------------------------------------------------------


@pytest.fixture
def series(tmp_path: Path) -> tuple[StoreLocation, dict[str, Any]]:
    """Four backups in one folder, each one battle later."""
    place, made = StoreLocation(tmp_path / "home"), {}
    with place.open() as store:
        for number in range(4):
            submit(store, f"b{number}")
            made[f"n{number}"] = store.backup.create(tmp_path / "all" / f"n{number}")
    return place, made


def test_the_newest_backup_not_after_a_log_index_is_taken(
    series: tuple[StoreLocation, dict[str, Any]], tmp_path: Path
) -> None:
    place, made = series
    for name in ("n3", "n1", "n2"):
        done = place.restore(tmp_path / "all", to_index=made[name].size)
        assert (done.size, Path(done.source).name) == (made[name].size, name)
    done = place.restore(tmp_path / "all", to_index=made["n2"].size - 1)
    assert Path(done.source).name == "n1"
    assert names(place) == ["b0", "b1"]
    place.sound()


def test_the_newest_backup_not_after_a_moment_is_taken(
    series: tuple[StoreLocation, dict[str, Any]], tmp_path: Path
) -> None:
    place, made = series
    done = place.restore(tmp_path / "all", to_time=made["n2"].created_at)
    assert (Path(done.source).name, done.as_of) == ("n2", made["n2"].created_at)
    done = place.restore(tmp_path / "all", to_time=later(made["n2"].created_at, -0.000001))
    assert Path(done.source).name == "n1"


def test_without_a_point_the_newest_is_taken(series: tuple[StoreLocation, dict[str, Any]], tmp_path: Path) -> None:
    place, _ = series
    assert Path(place.restore(tmp_path / "all").source).name == "n3"


@pytest.mark.parametrize("point", [{"to_index": 1}, {"to_time": "2020-01-01T00:00:00Z"}])
def test_a_point_before_every_backup_is_not_found(
    series: tuple[StoreLocation, dict[str, Any]], tmp_path: Path, point: dict[str, Any]
) -> None:
    place, _ = series
    with pytest.raises(errors.NotFoundError):
        place.restore(tmp_path / "all", **point)
    with pytest.raises(errors.NotFoundError):
        place.restore(tmp_path / "all" / "n0", **point)
    assert names(place) == ["b0", "b1", "b2", "b3"]


def test_a_time_without_a_zone_is_refused(series: tuple[StoreLocation, dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInputError):
        series[0].restore(tmp_path / "all", to_time="2026-01-01T00:00:00")


# --- what goes wrong ---------------------------------------------------------------------------------------------


def test_a_damaged_store_is_replaced_all_the_same(place: StoreLocation, tmp_path: Path) -> None:
    (place.home / "kernel.db").write_bytes(b"garbage" * 1000)
    done = place.restore(tmp_path / "backup")
    assert done.notes, "it says that the old store could not be read"
    assert names(place) == ["first"]
    assert "/1-" in done.origin
    place.sound()


def test_a_store_that_is_gone_comes_back(place: StoreLocation, tmp_path: Path) -> None:
    stored = tmp_path / "stored-elsewhere.txt"
    shutil.move(place.recovery, stored)
    shutil.rmtree(place.home)
    place.restore(tmp_path / "backup", root_recovery=stored)
    assert names(place) == ["first"]
    place.sound()


def test_sealed_content_opens_after_a_restore_over_the_store_it_is_from(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        sealed = store.write(lambda tx: encryption.seal(tx, "Ada", b"hello"))
        store.backup.create(tmp_path / "sealed")
        store.backup.create(tmp_path / "whole", keys=True)
    assert place.restore(tmp_path / "sealed").keyless == 0
    with place.open() as store:
        assert store.read(lambda tx: encryption.open(tx, sealed)) == b"hello"
    fresh = StoreLocation(tmp_path / "fresh")
    assert fresh.restore(tmp_path / "sealed", root_recovery=place.recovery).keyless == 1
    with fresh.open() as store, pytest.raises(errors.NotFoundError):
        store.read(lambda tx: encryption.open(tx, sealed))
    whole = StoreLocation(tmp_path / "fresh-too")
    assert whole.restore(tmp_path / "whole").keyless == 0
    with whole.open() as store:
        assert store.read(lambda tx: encryption.open(tx, sealed)) == b"hello"
    place.sound()


def test_a_lock_that_a_dead_process_held_is_free(place: StoreLocation, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, str(place.home)], check=False, cwd=Path(__file__).parents[2])
    place.restore(tmp_path / "backup")
    assert names(place) == ["first"]


def test_both_clients_restore_inside_a_running_loop(place: StoreLocation, tmp_path: Path) -> None:
    import asyncio  # noqa: PLC0415 (only this test)

    from holdproof import client  # noqa: PLC0415

    async def both() -> None:
        recovery = place.home / "config" / "keys" / "root-recovery.txt"
        sync.restore(tmp_path / "backup", tmp_path / "first", root_recovery=recovery)
        await client.restore(tmp_path / "backup", place.home)

    asyncio.run(both())
    assert names(place) == ["first"]
    assert os.path.exists(tmp_path / "first" / "kernel.db")


# --- on a server -------------------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path, postgres_url: str) -> StoreLocation:
    """The same on PostgreSQL."""
    return furnished(StoreLocation(tmp_path / "home", postgres_url), tmp_path / "backup")


def test_a_server_s_schema_is_exchanged_and_the_old_one_kept(served: StoreLocation, tmp_path: Path) -> None:
    done = served.restore(tmp_path / "backup")
    assert names(served) == ["first"]
    assert set(files(served.home / "blobs")) == {"blobs/one"}
    assert done.aside is not None
    schema = done.aside.removeprefix("schema ")
    with psycopg.connect(str(served.url)) as connection:
        kept = connection.execute(f"SELECT battle_id FROM {schema}.battles ORDER BY id".encode()).fetchall()
        left = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE '%restoring%'").fetchall()
    assert (kept, left) == ([("first",), ("second",)], [])
    with served.open() as store:
        [ceremony] = store.read(restores.history)
        [(leaf,)] = store.read(lambda tx: tx.all(_LEAF, idx=ceremony.size))
        submit(store, "third")
    assert json.loads(leaf)["t"] == "restore"
    assert names(served) == ["first", "third"]
    served.sound()


def test_on_a_server_too_a_flipped_byte_is_refused_and_a_dry_run_changes_nothing(
    served: StoreLocation, tmp_path: Path
) -> None:
    served.restore(tmp_path / "backup", dry_run=True)
    for name in ("kernel/battles.copy", "kernel/log_leaves.copy", "dboms/dbom_first.json", "manifest.json"):
        path = tmp_path / "backup" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:])
        with pytest.raises(errors.HoldproofError):
            served.restore(tmp_path / "backup")
        path.write_bytes(whole)
    assert names(served) == ["first", "second"]
    served.sound()


def test_a_server_s_store_that_is_open_is_not_replaced(served: StoreLocation, tmp_path: Path) -> None:
    elsewhere = StoreLocation(tmp_path / "elsewhere", served.url)
    with elsewhere.open(), pytest.raises(errors.BusyError):
        served.restore(tmp_path / "backup")
    assert names(served) == ["first", "second"]


def dies_at(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, act: Callable[[], object]) -> None:
    """Let the act die where it would call that function."""

    class DiedError(Exception):
        pass

    def die(*_: Any) -> None:
        raise DiedError

    with monkeypatch.context() as patch:
        patch.setattr(module, name, die)
        with pytest.raises(DiedError):
            act()


def test_a_restore_into_a_server_that_dies_before_its_files_are_exchanged_is_finished_at_the_next_opening(
    served: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies_at(monkeypatch, swap, "settle", lambda: served.restore(tmp_path / "backup"))
    assert (served.home / "blobs" / "two").exists()
    assert names(served) == ["first"]
    assert set(files(served.home / "blobs")) == {"blobs/one"}
    served.sound()


def test_a_restore_into_a_server_that_dies_before_the_exchange_changes_nothing(
    served: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies_at(monkeypatch, server_restore, "exchange", lambda: served.restore(tmp_path / "backup"))
    assert names(served) == ["first", "second"]
    assert set(files(served.home / "blobs")) == {"blobs/one", "blobs/two"}
    served.restore(tmp_path / "backup")
    assert names(served) == ["first"]
    served.sound()


def test_leaves_that_were_pending_come_after_the_restore_s_own(
    served: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sequencer.Sequencer, "_look", lambda *_: None)
        patch.setattr(sequencer.Sequencer, "close", lambda *_: None)
        with served.open() as store:
            submit(store, "pending")
            made = store.backup.create(tmp_path / "pending")
    served.restore(tmp_path / "pending")
    with served.open() as store:
        [ceremony] = store.read(restores.history)
        kinds = [json.loads(leaf)["t"] for (leaf,) in store.read(lambda tx: tx.all(_AFTER, idx=made.size))]
    assert ceremony.size == made.size
    assert kinds[0] == "restore"
    assert "dbom" in kinds
    assert "pending" in names(served)
    served.sound()


# --- keys --------------------------------------------------------------------------------------------------------


def test_a_backup_from_before_a_rotation_is_still_trusted(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        store.run(key_admission.rotate(store.context, "log"))
        submit(store, "third")
    assert place.restore(tmp_path / "backup").trust == "the store here"
    place.sound()


def test_a_backup_signed_by_a_key_revoked_before_it_is_refused(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        store.run(trust.export_root(store.context))
        old = store.context.keys.load("log").keyid
        late = store.backup.create(tmp_path / "late")
        store.run(key_admission.rotate(store.context, "log"))
        store.run(keys.revoke(store.context, old, from_index=late.size - 1, successors="readmit"))
    with pytest.raises(errors.ProofError):
        place.restore(tmp_path / "late")
    place.restore(tmp_path / "backup")
    assert names(place) == ["first"]


def test_where_root_is_in_charge_a_new_machine_needs_a_key_of_the_store(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        store.run(trust.export_root(store.context))
        store.backup.create(tmp_path / "rooted")
        store.backup.create(tmp_path / "whole", keys=True)
    fresh = StoreLocation(tmp_path / "fresh")
    with pytest.raises(errors.UnknownKeyError):
        fresh.restore(tmp_path / "rooted")
    assert not (fresh.home / "kernel.db").exists()
    new = StoreLocation(tmp_path / "new")
    new.restore(tmp_path / "whole")
    new.sound()


# --- exchanges left in the middle --------------------------------------------------------------------------------


def _staged(place: StoreLocation) -> tuple[Paths, Path]:
    """The paths of a closed store, and a folder of DBOMs staged for it."""
    with place.open() as store:
        paths = store.context.paths
    staged = swap.staging(paths)
    (staged / "dboms").mkdir()
    (staged / "dboms" / "new").write_text("new")
    return paths, staged


def test_what_took_a_place_while_an_exchange_stood_in_the_middle_is_kept_aside(place: StoreLocation) -> None:
    paths, _ = _staged(place)
    aside = paths.data / "before"
    aside.mkdir()
    (paths.data / "dboms").rename(aside / "dboms")
    (paths.data / "dboms").mkdir()
    (paths.data / "dboms" / "late").write_text("late")
    (paths.data / swap.JOURNAL).write_text(json.dumps({"v": 1, "aside": "before", "out": ["dboms"]}))
    assert swap.finish(paths)
    assert [path.name for path in (paths.data / "dboms").iterdir()] == ["new"]
    assert (aside / "dboms.2" / "late").read_text() == "late"
    assert (aside / "dboms" / "dbom_first.json").exists()


def test_what_is_staged_for_one_database_is_not_thrown_away_by_whoever_opens_another(place: StoreLocation) -> None:
    paths, staged = _staged(place)
    url = "postgresql://ada:secret@db.example/main"
    swap.prepare(paths, aside="before", out=["dboms"], origin="holdproof/new/1", url=url)
    assert "secret" not in "".join(path.read_text() for path in paths.data.glob("*.json"))
    place.open().close()
    swap.settle(paths, "holdproof/other", "postgresql://ada@db.example/other")
    assert (staged / "dboms" / "new").exists()
    swap.settle(paths, "holdproof/old", "postgresql://eve:word@db.example/main")
    assert not staged.exists()
    assert not swap.under_way(paths)


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sig"])
def test_a_backup_that_has_lost_a_word_of_its_own_is_not_taken_for_a_raw_copy(
    place: StoreLocation, tmp_path: Path, name: str
) -> None:
    """Nothing but the kernel would be checked then: blobs and what services store could be anything."""
    (tmp_path / "backup" / name).unlink()
    with pytest.raises(errors.NotFoundError):
        place.restore(tmp_path / "backup")
    assert names(place) == ["first", "second"]
