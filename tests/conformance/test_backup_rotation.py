"""Backups by the clock: checked before an older one goes, only this store's, and as often as somebody said."""

import threading
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.content import disk
from holdproof.evidence.key_files import KeyFolder
from holdproof.model.backup import Backup
from holdproof.store.context import Context
from holdproof.testing import FrozenClock
from holdproof.upkeep.backups import backup
from tests.store_locations import StoreLocation, submit


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    location = StoreLocation(tmp_path / "home", url)
    with location.open() as store:
        submit(store, "first")
    return location


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_stay_and_each_can_be_restored(place: StoreLocation, tmp_path: Path) -> None:
    top = tmp_path / "backups"
    with place.open() as store:
        made = []
        for number in range(4):
            submit(store, f"number-{number}")
            rotation = store.backup.rotate(top, keep=2)
            assert rotation.backup is not None
            made.append(rotation.backup)
        assert rotation.removed == [made[1].path]
        assert rotation.backups == 2
        assert _names(top) == [Path(each.path).name for each in made[2:]]
    restored = place.restore(top, to_index=made[2].size)
    assert restored.source == made[2].path
    assert {name for name, _ in place.state()["battles"]} == {"first", "number-0", "number-1", "number-2"}
    place.sound()


def test_nothing_but_backups_of_this_store_is_removed(place: StoreLocation, tmp_path: Path) -> None:
    top = tmp_path / "backups"
    top.mkdir()
    (top / "notes.txt").write_text("mine")
    (top / "folder").mkdir()
    StoreLocation(tmp_path / "other").backup(top / "2020-of-another-store")
    with place.open() as store:
        store.backup.rotate(top)
        (damaged,) = [path for path in top.iterdir() if path.name.startswith("20") and "another" not in path.name]
        (damaged / "manifest.json").write_text("{")
        store.backup.rotate(top, keep=1)
        assert store.backup.rotate(top, keep=1).backups == 1
    assert {"notes.txt", "folder", "2020-of-another-store", damaged.name} < set(_names(top))


def test_a_backup_that_fails_removes_none(
    place: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "backups"
    with place.open() as store:
        store.backup.rotate(top)
        before = _names(top)

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as broken:
            broken.setattr(disk, "sync_tree", full)
            with pytest.raises(errors.HoldproofError):
                store.backup.rotate(top, keep=1)
        assert _names(top) == before


def test_one_that_does_not_check_out_takes_no_place(
    place: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "backups"
    with place.open() as store:
        first = store.backup.rotate(top).backup
        assert first is not None
        rename = Path.rename

        def damage(path: Path, target: Path) -> Path:
            arrived = rename(path, target)
            next(target.glob("dboms/*.json")).write_text("rotten")
            return arrived

        with monkeypatch.context() as broken:
            broken.setattr(Path, "rename", damage)
            with pytest.raises(errors.HoldproofError):
                store.backup.rotate(top, keep=1)
        assert store.backup.check(first.path).root == first.root, "the older one is still there"


def test_what_a_killed_removal_left_is_removed_by_the_next(place: StoreLocation, tmp_path: Path) -> None:
    top = tmp_path / "backups"
    with place.open() as store:
        first = store.backup.rotate(top).backup
        assert first is not None
        Path(first.path).rename(f"{first.path}.removing")
        assert store.backup.list(top).items == [], "half a backup is none"
        assert store.backup.rotate(top).backups == 1
        assert len(_names(top)) == 1


def test_nothing_is_done_while_the_newest_is_young(place: StoreLocation, tmp_path: Path) -> None:
    top = tmp_path / "backups"
    with place.open() as store:
        first = store.backup.rotate(top, every_s=3600)
        again = store.backup.rotate(top, every_s=3600)
        assert first.backup is not None
        assert (again.backup, again.backups) == (None, 1)
        assert again.next_at is not None
        assert again.next_at > first.backup.created_at
        assert store.backup.rotate(top, every_s=0).backups == 2


def test_arguments_that_mean_nothing_are_refused(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        with pytest.raises(errors.InvalidInputError, match="keep"):
            store.backup.rotate(tmp_path / "backups", keep=0)
        with pytest.raises(errors.InvalidInputError, match="every_s"):
            store.backup.rotate(tmp_path / "backups", every_s=-1)
        made = store.backup.create(tmp_path / "one")
        with pytest.raises(errors.InvalidInputError, match="is a backup"):
            store.backup.rotate(made.path)
        assert not (tmp_path / "backups").exists()


def test_the_settings_say_where_and_how_often_and_the_doctor_says_when_one_is_late(
    place: StoreLocation, tmp_path: Path
) -> None:
    with place.open() as store:
        assert store.backup.beat() is None, "nobody asked for backups"
    (place.home / "config").mkdir(exist_ok=True)
    top = tmp_path / "backups"
    (place.home / "config" / "config.yaml").write_text(f"backups: {{folder: {top}, every_s: 3600, keep: 3}}\n")
    assert _backup_health(place) == ["error"]
    with place.open() as store:
        first, again = store.backup.beat(), store.backup.beat()
        assert first is not None
        assert first.backup is not None
        assert again is not None
        assert again.backup is None
    assert _backup_health(place) == ["ok"]


def _backup_health(place: StoreLocation) -> list[str]:
    report = sync.doctor(place.home, place.url)
    return [check.level for check in report.checks if check.about == "backups"]


def test_a_store_whose_key_is_not_its_own_makes_no_backup_in_the_place_of_a_good_one(
    place: StoreLocation, tmp_path: Path
) -> None:
    top = tmp_path / "backups"
    with place.open() as store:
        store.backup.rotate(top)
        before = _names(top)
        folder = KeyFolder(place.home / "config" / "keys")
        for path in (place.home / "config" / "keys").glob("log*"):
            path.unlink()
        folder.ensure("log")
        with pytest.raises(errors.UnknownKeyError):
            store.backup.rotate(top, keep=1)
        assert _names(top) == before


def test_a_new_backup_stays_where_all_others_are_from_the_future_and_those_go_first(
    place: StoreLocation, tmp_path: Path
) -> None:
    top = tmp_path / "backups"
    made = []
    for moment in ("2031-01-01T00:00:00.000000Z", "2031-01-02T00:00:00.000000Z", "2030-01-01T00:00:00.000000Z"):
        with place.open(clock=FrozenClock(moment)) as store:
            rotation = store.backup.rotate(top, keep=2)
            assert rotation.backup is not None
            made.append(rotation.backup.path)
    assert rotation.removed == made[:1]
    assert _names(top) == sorted(Path(each).name for each in made[1:])


def test_a_backup_that_somebody_makes_by_hand_meanwhile_is_not_removed(
    place: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "backups"
    real = backup.make
    with place.open() as store:
        first = store.backup.rotate(top).backup
        assert first is not None

        def make(context: Context, dest: Path, **options: Any) -> Backup:
            new = real(context, dest, **options)
            real(context, top / "by-hand", **options)
            return new

        monkeypatch.setattr(backup, "make", make)
        rotation = store.backup.rotate(top, keep=1)
        assert rotation.removed == [first.path]
        assert rotation.backup is not None
        assert set(_names(top)) == {"by-hand", Path(rotation.backup.path).name}


def test_folders_that_only_have_the_name_of_a_removal_or_of_a_killed_backup_stay(
    place: StoreLocation, tmp_path: Path
) -> None:
    top = tmp_path / "backups"
    StoreLocation(tmp_path / "other").backup(top / "other")
    (top / "other").rename(top / "other.removing")
    (top / "mine.removing").mkdir()
    (top / "mine.removing" / "thesis.txt").write_text("years of work")
    (top / "mine.partial").mkdir()
    with place.open() as store:
        store.backup.rotate(top, keep=1)
        store.backup.rotate(top, keep=1)
    assert (top / "mine.removing" / "thesis.txt").read_text() == "years of work"
    assert {"mine.partial", "other.removing"} < set(_names(top))


def test_what_a_killed_rotation_left_is_removed_by_the_next(place: StoreLocation, tmp_path: Path) -> None:
    top = tmp_path / "backups"
    killed = top / "2026-01-02T03-04-05-678901Z.partial"
    (killed / "dboms").mkdir(parents=True)
    (killed / "kernel.db").write_bytes(b"half")
    with place.open() as store:
        assert store.backup.rotate(top).backups == 1
    assert not killed.exists()
    assert len(_names(top)) == 1


def test_a_link_to_the_newest_backup_counts_for_none_and_stays(place: StoreLocation, tmp_path: Path) -> None:
    top = tmp_path / "backups"
    elsewhere = place.backup(tmp_path / "elsewhere").path
    with place.open() as store:
        first = store.backup.rotate(top).backup
        assert first is not None
        (top / "latest").symlink_to(first.path)
        (top / "archive").symlink_to(elsewhere)
        assert store.backup.rotate(top, keep=2).removed == []
        assert store.backup.rotate(top, keep=2).removed == [first.path]
        assert store.backup.check(elsewhere).path == elsewhere
    assert {"latest", "archive"} < set(_names(top))


def test_two_rotations_at_once_make_one_backup_where_one_is_due_and_none_fails(
    place: StoreLocation, tmp_path: Path
) -> None:
    top = tmp_path / "backups"
    made: list[bool] = []
    removed: list[str] = []

    def rotate(store: sync.Holdproof, every_s: float) -> None:
        rotation = store.backup.rotate(top, every_s=every_s, keep=1)
        made.append(rotation.backup is not None)
        removed.extend(rotation.removed)

    with place.open() as store:
        for every_s in (3600.0, 0.0):
            threads = [threading.Thread(target=rotate, args=(store, every_s)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
    assert made.count(True) == 1 + 4
    assert len(removed) == len(set(removed)) == 4
    assert len(_names(top)) == 1


def test_a_folder_that_cannot_be_made_is_a_typed_error(place: StoreLocation, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with place.open() as store, pytest.raises(errors.UnavailableError, match="file"):
        store.backup.rotate(tmp_path / "file" / "backups")
