"""Backups in a bucket through kill -9 and a line that breaks: what is listed is whole, whatever happened before."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.http_proxy import Fault, Proxy
from harness.servers import Seaweed
from holdproof import errors, sync
from tests.buckets import BackupBucket, place_in
from tests.store_locations import StoreLocation, submit

KILLS = max(4, int(os.environ.get("HOLDPROOF_KILLS", "40")) // 10)


@pytest.fixture
def place(tmp_path: Path) -> StoreLocation:
    location = StoreLocation(tmp_path / "home")
    with location.open() as store:
        for number in range(5):
            submit(store, f"number-{number}")
    # Larger than a part, so that it is sent in several requests.
    (location.home / "blobs" / "large").write_bytes(os.urandom(9 << 20))
    return location


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[Proxy]:
    between = Proxy(int(urlsplit(seaweed.endpoint).port or 0))
    yield between
    between.close()


@pytest.fixture
def bucket(seaweed: Seaweed, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> BackupBucket:
    return place_in(seaweed, monkeypatch, proxy.url)


def _check_all(store: sync.Holdproof, bucket: BackupBucket) -> list[str]:
    """Check every backup that is listed; their addresses."""
    paths = [each.path for each in store.backup.list(bucket.url).items]
    for path in paths:
        store.backup.check(path)
    return paths


def _requests(place: StoreLocation, bucket: BackupBucket, proxy: Proxy) -> int:
    """How many requests a backup is."""
    proxy.arm(Fault("", times=0))
    with place.open() as store:
        store.backup.create(f"{bucket.url}/whole")
    return proxy.seen


@pytest.mark.parametrize("kind", ["cut request", "lost", "cut answer", "503"])
def test_a_line_that_breaks_at_any_request_leaves_whole_backups_only(
    place: StoreLocation, bucket: BackupBucket, proxy: Proxy, kind: str
) -> None:
    count = _requests(place, bucket, proxy)
    chance = random.Random(kind)
    with place.open() as store:
        for number, after in enumerate(sorted(chance.sample(range(count - 1), 3))):
            path = f"{bucket.url}/{number}"
            # From that request on, so that no retry helps.
            proxy.arm(Fault(kind, after=after, times=10_000))
            with pytest.raises(errors.UnreachableError):
                store.backup.create(path)
            proxy.heal()
            assert f"{bucket.url}/whole" in _check_all(store, bucket)
            # The same name can be used again, unless the manifest had arrived: what was sent of it is nobody's.
            if f"{number}/manifest.json" not in bucket.names():
                store.backup.create(path)
            store.backup.check(path)
    place.sound()


@pytest.mark.parametrize("kind", ["503", "lost", "cut request"])
def test_a_line_that_breaks_once_is_no_failure(
    place: StoreLocation, bucket: BackupBucket, proxy: Proxy, kind: str
) -> None:
    count = _requests(place, bucket, proxy)
    with place.open() as store:
        proxy.arm(Fault(kind, after=random.Random(kind).randrange(count)))
        made = store.backup.create(f"{bucket.url}/monday")
        assert proxy.heal() == 1
        store.backup.check(made.path)


def test_bytes_that_do_not_arrive_as_they_were_sent_make_no_backup_and_remove_none(
    place: StoreLocation, bucket: BackupBucket, proxy: Proxy
) -> None:
    with place.open() as store:
        first = store.backup.rotate(bucket.url, keep=1).backup
        assert first is not None
        count = proxy.seen
        proxy.arm(Fault("", times=0))
        store.backup.create(f"{bucket.url}/counted")
        # The last requests but those of manifest and mark read the files back; every answer from there on is wrong.
        proxy.arm(Fault("wrong bytes", after=proxy.seen // 2, times=10_000))
        with pytest.raises(errors.HoldproofError):
            store.backup.rotate(bucket.url, keep=1)
        assert proxy.heal() > 0, count
        assert first.path in _check_all(store, bucket)


def test_a_restore_whose_line_breaks_changes_nothing(place: StoreLocation, bucket: BackupBucket, proxy: Proxy) -> None:
    with place.open() as store:
        store.backup.create(f"{bucket.url}/monday")
        submit(store, "later")
    before = place.state()
    proxy.arm(Fault("", times=0))
    place.restore(Path(f"{bucket.url}/monday"), dry_run=True)
    count = proxy.seen
    for after in random.Random(3).sample(range(count), 3):
        proxy.arm(Fault("cut answer", after=after, times=10_000))
        with pytest.raises(errors.UnreachableError):
            place.restore(Path(f"{bucket.url}/monday"))
        proxy.heal()
        assert place.state() == before
    place.restore(Path(f"{bucket.url}/monday"))
    assert "later" not in {name for name, _ in place.state()["battles"]}
    place.sound()


def test_a_backup_killed_at_any_moment_is_no_backup_and_the_next_one_clears_it_away(
    place: StoreLocation, bucket: BackupBucket
) -> None:
    whole_s = _killed(place, f"{bucket.url}/whole", None)
    chance = random.Random(8)
    for number in range(KILLS):
        _killed(place, f"{bucket.url}/killed-{number}", chance.uniform(0, whole_s))
        with place.open() as store:
            assert f"{bucket.url}/whole" in _check_all(store, bucket)
    with place.open() as store:
        # One of them under its own name, the others by the clock.
        if "killed-0/manifest.json" not in bucket.names():
            store.backup.create(f"{bucket.url}/killed-0")
        store.backup.rotate(bucket.url, keep=100)
        paths = {path.rpartition("/")[2] for path in _check_all(store, bucket)}
    assert {name.partition("/")[0] for name in bucket.names()} == paths
    place.sound()


def test_a_rotation_killed_at_any_moment_removes_no_more_than_is_too_much(
    place: StoreLocation, bucket: BackupBucket
) -> None:
    with place.open() as store:
        for _ in range(2):
            store.backup.rotate(bucket.url, keep=2)
    whole_s = _killed(place, bucket.url, None, "rotate")
    chance = random.Random(9)
    for _ in range(KILLS):
        _killed(place, bucket.url, chance.uniform(0.5, 1) * whole_s, "rotate")
        with place.open() as store:
            assert len(_check_all(store, bucket)) >= 2
    with place.open() as store:
        rotation = store.backup.rotate(bucket.url, keep=2)
        assert rotation.backups == 2
        assert rotation.backup is not None
        paths = _check_all(store, bucket)
        assert rotation.backup.path in paths
    assert {name.partition("/")[0] for name in bucket.names()} == {path.rpartition("/")[2] for path in paths}


def _killed(place: StoreLocation, where: str, after_s: float | None, what: str = "backup") -> float:
    """Run it and kill it after that long, or let it end; how long it took."""
    words = [sys.executable, "-m", "tests.faults.restorer", what, str(place.home), where]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begin\n"
        start = time.monotonic()
        if after_s is None:
            assert process.stdout.readline() == b"done\n"
        else:
            time.sleep(after_s)
            process.kill()
        return time.monotonic() - start
