"""Backups in a bucket: as in a folder, on a real S3 server, and nothing half-sent is ever taken for one."""

import dataclasses
import json
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.servers import Seaweed
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.crypto import canonical
from holdproof.model.backup import Backup
from holdproof.model.times import later
from holdproof.store.context import Context
from holdproof.upkeep.backups import bucket_backups, bucket_places
from holdproof.upkeep.backups.bucket import Bucket
from tests.buckets import BackupBucket, place_in
from tests.store_locations import StoreLocation, submit


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    return _filled(StoreLocation(tmp_path / "home", url))


@pytest.fixture
def small(tmp_path: Path) -> StoreLocation:
    return _filled(StoreLocation(tmp_path / "home"))


@pytest.fixture
def bucket(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> BackupBucket:
    return place_in(seaweed, monkeypatch)


def _filled(location: StoreLocation) -> StoreLocation:
    with location.open() as store:
        submit(store, "first")
    (location.home / "blobs" / "large").write_bytes(os.urandom(9 << 20))
    return location


def test_the_newest_stay_and_each_can_be_restored(place: StoreLocation, bucket: BackupBucket) -> None:
    with place.open() as store:
        made = []
        for number in range(4):
            submit(store, f"number-{number}")
            rotation = store.backup.rotate(bucket.url, keep=2)
            assert rotation.backup is not None
            made.append(rotation.backup)
        assert rotation.removed == [made[1].path]
        assert rotation.backups == 2
        assert [each.path for each in store.backup.list(bucket.url).items] == [made[3].path, made[2].path]
        checked = store.backup.check(made[2].path)
        assert (checked.signer, checked.size, checked.bytes) == (made[2].signer, made[2].size, made[2].bytes)
    assert {name.partition("/")[0] for name in bucket.names()} == {each.path.rpartition("/")[2] for each in made[2:]}
    restored = place.restore(Path(bucket.url), to_index=made[2].size)
    assert restored.source == made[2].path
    assert {name for name, _ in place.state()["battles"]} == {"first", "number-0", "number-1", "number-2"}
    place.sound()
    assert _left(place) == set()


def _left(place: StoreLocation) -> set[str]:
    """What is left of the work on the disk of the machine."""
    return {each.name for each in (place.home / "cache" / "backups").iterdir() if each.is_dir()}


def test_a_machine_that_has_nothing_but_the_recovery_code_comes_back_from_a_bucket(
    place: StoreLocation, bucket: BackupBucket, tmp_path: Path
) -> None:
    with place.open() as store:
        made = store.backup.create(f"{bucket.url}/monday")
    new = StoreLocation(tmp_path / "new")
    restored = sync.restore(made.path, new.home, root_recovery=place.recovery)
    assert (restored.size, restored.trust, restored.source) == (made.size, "itself", made.path)
    assert (new.home / "blobs" / "large").read_bytes() == (place.home / "blobs" / "large").read_bytes()
    new.sound()


def test_nothing_but_backups_of_this_store_is_removed(
    small: StoreLocation, bucket: BackupBucket, tmp_path: Path
) -> None:
    other = _filled(StoreLocation(tmp_path / "other"))
    with other.open() as store:
        store.backup.create(f"{bucket.url}/2020-of-another-store")
    bucket.put("notes.txt", b"mine")
    bucket.put("folder/notes.txt", b"mine")
    bucket.put("strange.partial", b"mine")
    with small.open() as store:
        first = store.backup.rotate(bucket.url).backup
        assert first is not None
        damaged = first.path.rpartition("/")[2]
        bucket.put(f"{damaged}/manifest.json", b"{")
        store.backup.rotate(bucket.url, keep=1)
        assert store.backup.rotate(bucket.url, keep=1).backups == 1
        [listed] = [each for each in store.backup.list(bucket.url).items if each.trust.startswith("damaged")]
        assert listed.path == first.path
    tops = {name.partition("/")[0] for name in bucket.names()}
    assert {"notes.txt", "folder", "strange.partial", "2020-of-another-store", damaged} < tops


def test_nothing_is_done_while_the_newest_is_young(small: StoreLocation, bucket: BackupBucket) -> None:
    with small.open() as store:
        first = store.backup.rotate(bucket.url, every_s=3600)
        again = store.backup.rotate(bucket.url, every_s=3600)
    assert first.backup is not None
    assert (again.backup, again.removed, again.backups) == (None, [], 1)
    assert again.next_at == later(first.backup.created_at, 3600)


def test_a_manifest_is_read_once_however_often_somebody_looks_whether_a_backup_is_due(
    small: StoreLocation, bucket: BackupBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists every file of a store, and a server looks every minute."""
    reads: list[str] = []
    real = Bucket.read

    def read(self: Bucket, name: str, most: int) -> bytes:
        reads.append(name)
        return real(self, name, most)

    with small.open() as store:
        made = store.backup.rotate(bucket.url, every_s=3600).backup
        assert made is not None
        store.backup.list(bucket.url)
        monkeypatch.setattr(Bucket, "read", read)
        assert store.backup.rotate(bucket.url, every_s=3600).backup is None
        assert [each.path for each in store.backup.list(bucket.url).items] == [made.path]
        assert reads == []
        # One that was changed is another one.
        bucket.put(f"{made.path.rpartition('/')[2]}/manifest.json", b"{")
        [listed] = store.backup.list(bucket.url).items
        assert listed.trust.startswith("damaged")


@pytest.mark.parametrize("change", ["flip", "missing", "added"])
def test_a_backup_that_somebody_changed_is_refused_and_nothing_of_it_is_used(
    small: StoreLocation, bucket: BackupBucket, change: str
) -> None:
    with small.open() as store:
        made = store.backup.create(f"{bucket.url}/monday")
        if change == "flip":
            data = bytearray(bucket.read("monday/blobs/large"))
            data[len(data) // 2] ^= 1
            bucket.put("monday/blobs/large", bytes(data))
        elif change == "missing":
            bucket.remove("monday/blobs/large")
        else:
            bucket.put("monday/blobs/more", b"more")
        with pytest.raises(errors.FormatError, match="blobs/"):
            store.backup.check(made.path)
    before = small.state()
    with pytest.raises(errors.FormatError, match="blobs/"):
        small.restore(Path(made.path))
    assert small.state() == before
    assert _left(small) == set()


def test_the_settings_name_a_bucket_and_the_doctor_says_when_none_comes(
    small: StoreLocation, bucket: BackupBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"backups: {{folder: '{bucket.url}', every_s: 3600, keep: 2}}\n"
    (small.home / "config" / "config.yaml").write_text(text)

    def examined() -> tuple[str, str]:
        [check] = [each for each in sync.doctor(small.home).checks if each.about == "backups"]
        return check.level, check.what

    assert examined()[0] == "error"
    with small.open() as store:
        rotation = store.backup.beat()
        assert rotation is not None
        assert rotation.backup is not None
    status, what = examined()
    assert (status, rotation.backup.path in what) == ("ok", True)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    status, what = examined()
    assert (status, "SignatureDoesNotMatch" in what) == ("error", True)


def test_a_restore_of_a_backup_whose_manifest_is_damaged_says_so(small: StoreLocation, bucket: BackupBucket) -> None:
    with small.open() as store:
        made = store.backup.create(f"{bucket.url}/monday")
    bucket.put("monday/manifest.json", b"{")
    with pytest.raises(errors.FormatError):
        small.restore(Path(made.path))


# --- mistakes ----------------------------------------------------------------------------------------------------


def test_a_wrong_key_a_missing_right_and_a_missing_bucket_are_errors_of_their_own(
    small: StoreLocation, bucket: BackupBucket, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small.open() as store:
        store.backup.create(f"{bucket.url}/monday")
        with pytest.raises(errors.BucketMissingError, match="s3://no-such-bucket"):
            store.backup.list("s3://no-such-bucket/shop")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
        with pytest.raises(errors.BucketDeniedError, match="SignatureDoesNotMatch"):
            store.backup.create(f"{bucket.url}/tuesday")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        with pytest.raises(errors.BucketDeniedError, match="InvalidAccessKeyId"):
            store.backup.rotate(bucket.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweed.reader_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweed.reader_secret)
        with pytest.raises(errors.BucketDeniedError, match="AccessDenied"):
            store.backup.create(f"{bucket.url}/tuesday")
        # Whoever may only read can check and restore.
        assert store.backup.check(f"{bucket.url}/monday").files > 0
    with pytest.raises(errors.BucketMissingError):
        small.restore(Path("s3://no-such-bucket/shop"))
    assert small.restore(Path(f"{bucket.url}/monday"), dry_run=True).dry_run


def test_a_server_that_is_not_there_is_a_typed_error(
    small: StoreLocation, bucket: BackupBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with small.open() as store, pytest.raises(errors.UnreachableError, match="s3://backups"):
        store.backup.create(f"{bucket.url}/monday")


@pytest.mark.parametrize(
    ("where", "error", "text"),
    [
        ("gs://bucket/shop", errors.InvalidInputError, "s3://bucket/folder"),
        ("s3:///shop", errors.InvalidInputError, "s3://bucket/folder"),
        ("s3://bucket/../shop", errors.InvalidInputError, "s3://bucket/folder"),
        ("s3://backups", errors.InvalidInputError, "s3://backups/monday"),
    ],
)
def test_an_address_that_names_no_backup_is_refused(
    small: StoreLocation, bucket: BackupBucket, where: str, error: type[errors.HoldproofError], text: str
) -> None:
    del bucket
    with small.open() as store, pytest.raises(error, match=text):
        store.backup.create(where)


def test_what_is_there_is_never_written_over(small: StoreLocation, bucket: BackupBucket) -> None:
    bucket.put("notes/mine.txt", b"mine")
    with small.open() as store:
        store.backup.create(f"{bucket.url}/monday")
        bucket.put("tuesday.partial", b"mine")
        bucket.put("wednesday.removing", b"mine")
        before = bucket.names()
        for name in ("monday", "notes", "tuesday", "wednesday"):
            with pytest.raises(errors.AlreadyExistsError):
                store.backup.create(f"{bucket.url}/{name}")
        with pytest.raises(errors.InvalidInputError, match="is a backup"):
            store.backup.rotate(f"{bucket.url}/monday")
        assert bucket.names() == before
        with pytest.raises(errors.NotFoundError, match="no complete backup"):
            store.backup.check(f"{bucket.url}/notes")
        assert store.backup.list(f"{bucket.url}/empty").items == []
    with pytest.raises(errors.NotFoundError, match="there is no backup"):
        small.restore(Path(f"{bucket.url}/empty"))


class _InterruptError(BaseException):
    """Somebody presses Ctrl-C."""


@pytest.mark.parametrize("name", ["monday", "notes"])
def test_a_backup_that_is_interrupted_before_it_sends_leaves_what_is_there_alone(
    small: StoreLocation, bucket: BackupBucket, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real = Bucket._translated
    waits = -1

    def translated(self: Bucket, name: str = "") -> AbstractContextManager[None]:
        nonlocal waits
        waits -= 1
        if waits == -1:
            raise _InterruptError
        return real(self, name)

    with small.open() as store:
        bucket.put("notes/mine.txt", b"mine")
        store.backup.create(f"{bucket.url}/monday")
        before = {each for each in bucket.names() if "/" in each}
        monkeypatch.setattr(Bucket, "_translated", translated)
        interrupts = 0
        is_refused = False
        while not is_refused:
            waits = interrupts
            try:
                with suppress(_InterruptError):
                    store.backup.create(f"{bucket.url}/{name}")
                interrupts += 1
            except errors.AlreadyExistsError:
                is_refused = True
            waits = -1
            assert {each for each in bucket.names() if "/" in each} == before, interrupts
        assert interrupts > 1
        monkeypatch.setattr(Bucket, "_translated", real)
        store.backup.rotate(bucket.url)
        # Nor does the next rotation take what an interrupt left for its own.
        assert before < set(bucket.names())


def test_a_backup_that_another_home_made_meanwhile_is_not_removed(
    small: StoreLocation, bucket: BackupBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bucket_backups.make
    with small.open() as store:
        first = store.backup.rotate(bucket.url).backup
        assert first is not None

        def make(context: Context, place: bucket_places.BucketPlace, **options: Any) -> Backup:
            new = real(context, place, **options)
            real(context, dataclasses.replace(place, path=f"{bucket.path}/of-another-home"), **options)
            return new

        monkeypatch.setattr(bucket_backups, "make", make)
        rotation = store.backup.rotate(bucket.url, keep=1)
        assert rotation.backup is not None
        assert rotation.removed == [first.path]
        listed = {each.path for each in store.backup.list(bucket.url).items}
        assert listed == {rotation.backup.path, f"{bucket.url}/of-another-home"}
        # Of the two the next one of either home leaves none.
        monkeypatch.setattr(bucket_backups, "make", real)
        assert store.backup.rotate(bucket.url, keep=1).backups == 1


# --- what others left --------------------------------------------------------------------------------------------


def _mark(store: sync.Holdproof, **fields: Any) -> bytes:
    """A mark of another home, as it would put it there."""
    marks = bucket_places.Marks.of(store.context)
    return canonical.dumps({"store_id": marks.store_id, "home": "another", "since": marks.now, **fields})


def test_what_another_home_left_stays_for_a_day_and_goes_then(small: StoreLocation, bucket: BackupBucket) -> None:
    with small.open() as store:
        bucket.put("monday.partial", _mark(store))
        bucket.put("monday/kernel.db", b"half")
        store.backup.rotate(bucket.url)
        assert {"monday.partial", "monday/kernel.db"} <= set(bucket.names())
        with pytest.raises(errors.BusyError, match="choose another name"):
            store.backup.create(f"{bucket.url}/monday")
        bucket.put("monday.partial", _mark(store, since="2020-01-01T00:00:00.000000Z"))
        store.backup.rotate(bucket.url)
        assert not [name for name in bucket.names() if name.startswith("monday")]


def test_a_name_that_a_killed_backup_of_another_home_left_can_be_used_after_a_day(
    small: StoreLocation, bucket: BackupBucket
) -> None:
    with small.open() as store:
        bucket.put("monday.partial", _mark(store, since="2020-01-01T00:00:00.000000Z"))
        bucket.put("monday/half", b"half")
        store.backup.create(f"{bucket.url}/monday")
        store.backup.check(f"{bucket.url}/monday")


def test_a_backup_of_another_home_that_takes_longer_than_a_day_is_not_taken_for_dead(
    small: StoreLocation, bucket: BackupBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_places, "_BEAT_S", 0.01)
    opened = bucket_places.opened(f"{bucket.url}/monday")
    assert opened is not None
    with small.open() as store:
        began = bucket_places.Marks.of(store.context)
        days = [later(began.now, number * bucket_places.ANOTHERS_S) for number in range(4)]
        working = dataclasses.replace(began, clock=lambda: days[1])
        with working.at_work(opened):
            working.begin(opened)
            with working.beating(opened):
                while (mark := working.read(opened.bucket, f"{opened.path}.partial")) and mark.alive == began.now:
                    pass
            assert mark is not None
            assert (mark.since, mark.alive) == (began.now, days[1])
            working.check(opened)
            other = dataclasses.replace(began, home="another", now=later(days[1], 3600.0))
            assert not other.is_abandoned(mark, opened.bucket)
            with pytest.raises(errors.BusyError, match="choose another name"):
                other.begin(opened)
            assert dataclasses.replace(other, now=days[2]).is_abandoned(mark, opened.bucket), (
                "a day after the last beat"
            )


def test_who_lost_the_place_does_not_say_that_it_is_at_work_there(
    small: StoreLocation, bucket: BackupBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_places, "_BEAT_S", 0.0)
    opened = bucket_places.opened(f"{bucket.url}/monday")
    assert opened is not None
    looks = threading.Semaphore(0)
    real = bucket_places.Marks.check

    def check(marks: bucket_places.Marks, place: bucket_places.BucketPlace) -> None:
        looks.release()
        real(marks, place)

    monkeypatch.setattr(bucket_places.Marks, "check", check)
    with small.open() as store:
        marks = bucket_places.Marks.of(store.context)
        foreign = _mark(store)
        bucket.put("monday.partial", foreign)
        with marks.beating(opened):
            for _ in range(3):
                assert looks.acquire(timeout=60)
        assert bucket.read("monday.partial") == foreign


def test_a_removal_that_was_killed_is_finished_and_counts_for_no_backup_meanwhile(
    small: StoreLocation, bucket: BackupBucket
) -> None:
    with small.open() as store:
        store.backup.create(f"{bucket.url}/monday")
        bucket.put("monday.removing", _mark(store))
        assert store.backup.list(bucket.url).items == []
        store.backup.rotate(bucket.url)
        assert not [name for name in bucket.names() if name.startswith("monday")]
        bucket.put("tuesday.removing", _mark(store))
        bucket.put("tuesday/kernel.db", b"rest")
        store.backup.create(f"{bucket.url}/tuesday")
        store.backup.check(f"{bucket.url}/tuesday")
        assert "tuesday.removing" not in bucket.names()


def test_a_backup_whose_place_another_took_is_given_up_and_leaves_the_others_alone(
    small: StoreLocation, bucket: BackupBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small.open() as store:
        foreign = _mark(store)
        real = bucket_places.Marks.check

        def check(marks: bucket_places.Marks, place: bucket_places.BucketPlace) -> None:
            bucket.put("monday.partial", foreign)
            real(marks, place)

        monkeypatch.setattr(bucket_places.Marks, "check", check)
        with pytest.raises(errors.ConflictError, match="took the place"):
            store.backup.create(f"{bucket.url}/monday")
        assert bucket.read("monday.partial") == foreign
        assert "monday/kernel.db" in bucket.names()
        assert "monday/manifest.json" not in bucket.names()


def test_a_mark_beside_a_name_like_that_of_a_mark_is_about_no_other(small: StoreLocation, bucket: BackupBucket) -> None:
    with small.open() as store:
        bucket.put("monday/notes.txt", b"mine")
        old = _mark(store, since="2020-01-01T00:00:00.000000Z")
        bucket.put("monday.removing.partial", old)
        bucket.put("monday.removing/kernel.db", b"half")
        store.backup.rotate(bucket.url)
        assert bucket.read("monday/notes.txt") == b"mine"
        assert not [name for name in bucket.names() if name.startswith("monday.removing")]


def test_nothing_is_fetched_of_a_file_that_is_longer_than_the_manifest_says(
    small: StoreLocation, bucket: BackupBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small.open() as store:
        made = store.backup.create(f"{bucket.url}/monday")
        bucket.put("monday/kernel.db", bytes(20 << 20))
        asked: list[str] = []
        real = Bucket._ranges

        def ranges(self: Bucket, name: str, size: int) -> Iterator[bytes]:
            asked.append(name)
            return real(self, name, size)

        monkeypatch.setattr(Bucket, "_ranges", ranges)
        with pytest.raises(errors.FormatError, match=r"kernel\.db"):
            store.backup.check(made.path)
    with pytest.raises(errors.FormatError, match=r"kernel\.db"):
        small.restore(Path(made.path))
    assert not [name for name in asked if name.endswith("kernel.db")]


def test_a_key_in_an_address_is_not_repeated_in_the_error(small: StoreLocation, bucket: BackupBucket) -> None:
    del bucket
    with small.open() as store, pytest.raises(errors.InvalidInputError, match="AWS_") as refused:
        store.backup.create("s3://AKIA1234:s3cr3t@backups/monday")
    assert "s3cr3t" not in str(refused.value.to_dict())


# --- the command line --------------------------------------------------------------------------------------------


def test_the_command_line_makes_lists_checks_and_restores(small: StoreLocation, bucket: BackupBucket) -> None:
    def run(*words: str) -> Any:
        done = CliRunner().invoke(app, ["--home", str(small.home), *words, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    run("agents", "register", "trader", "--version", "1.0.0")
    made = run("backup", f"{bucket.url}/monday")
    assert made["path"] == f"{bucket.url}/monday"
    run("flows", "start", "trader")
    rotated = run("backup", "rotate", bucket.url, "--keep", "2")
    assert rotated["backup"]["path"].startswith(f"{bucket.url}/20")
    listed = {each["path"] for each in run("backup", "list", bucket.url)["items"]}
    assert listed == {made["path"], rotated["backup"]["path"]}
    assert run("backup", "check", made["path"])["size"] == made["size"]
    restored = run("restore", bucket.url, "--to-index", str(made["size"]))
    assert restored["source"] == made["path"]
    refused = CliRunner().invoke(app, ["--home", str(small.home), "backup", "s3://no-such-bucket"])
    assert refused.exit_code == 2
    small.sound()
