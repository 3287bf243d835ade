"""Backup and restore through kill -9 and a full disk: the old state or the new one, never a mix."""

import contextlib
import errno
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdproof import errors, folders
from holdproof.content import disk
from holdproof.upkeep.backups import backup_list as backups
from holdproof.upkeep.backups import swap
from tests.store_locations import StoreLocation, submit

KILLS = int(os.environ.get("HOLDPROOF_KILLS", "40")) // 10


@pytest.fixture
def place(tmp_path: Path) -> StoreLocation:
    """A store, its backup, and what came after: battles, DBOM files and blobs that differ between the two."""
    made = StoreLocation(tmp_path / "home")
    with made.open() as store:
        for number in range(20):
            submit(store, f"old{number}")
            (made.home / "blobs" / f"old{number}").write_bytes(os.urandom(1000))
        store.backup.create(tmp_path / "backup")
        for number in range(20):
            submit(store, f"new{number}")
            (made.home / "blobs" / f"new{number}").write_bytes(os.urandom(1000))
        submit(store, "old0", secret="again")
    return made


def _run(what: str, home: Path, place: Path, delay_s: float) -> bool:
    """Start it, kill it after that long; whether it was done before."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.restorer", what, str(home), str(place)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begin\n"
        time.sleep(delay_s)
        process.kill()
        return process.stdout.read() == b"done\n"


def _length(what: str, home: Path, place: Path) -> float:
    """How long it takes from its beginning to its end."""
    words = [sys.executable, "-m", "tests.faults.restorer", what, str(home), str(place)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begin\n"
        began = time.monotonic()
        assert process.stdout.readline() == b"done\n"
        return time.monotonic() - began


def test_a_restore_killed_at_any_moment_leaves_the_old_state_or_the_new_one(
    place: StoreLocation, tmp_path: Path
) -> None:
    old = place.state()
    template = tmp_path / "template"
    shutil.copytree(place.home, template)
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "tests.faults.restorer", "restore", str(place.home), str(tmp_path / "backup")]
    )
    whole_s = time.monotonic() - began
    new = place.state()
    assert old != new
    chance, seen = random.Random(7), {"old": 0, "new": 0}
    for _ in range(KILLS):
        shutil.rmtree(place.home)
        shutil.copytree(template, place.home)
        _run("restore", place.home, tmp_path / "backup", chance.uniform(0, whole_s))
        found = place.state()
        assert found in (old, new), "a mix"
        seen["new" if found == new else "old"] += 1
        place.sound()
    assert min(seen.values()) > 0 or KILLS < 20, f"the kills all came too early or too late: {seen}"
    place.restore(tmp_path / "backup")
    assert place.state() == new
    place.sound()


class _DiedError(Exception):
    pass


def test_an_exchange_that_dies_at_any_step_is_finished_by_whoever_opens_the_store(
    place: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by chance but in turn: before each single rename, sync and removal of the exchange."""
    old = place.state()
    template = tmp_path / "template"
    shutil.copytree(place.home, template)
    place.restore(tmp_path / "backup")
    new = place.state()
    step = outcomes = 0
    while True:
        shutil.rmtree(place.home)
        shutil.copytree(template, place.home)
        with monkeypatch.context() as patch:
            countdown = _bomb(patch, step)
            with contextlib.suppress(_DiedError):
                place.restore(tmp_path / "backup")
        if countdown[0] > 0:
            break  # that many steps there are not
        found = place.state()
        assert found in (old, new), f"a mix after step {step}"
        outcomes |= 2 if found == new else 1
        assert not (place.home / swap.JOURNAL).exists()
        place.sound()
        step += 1
    assert step > 15
    assert outcomes == 3, "both outcomes occur"


def _bomb(patch: pytest.MonkeyPatch, after: int) -> list[int]:
    """Die at the n-th change of the disk from the moment the exchange begins."""
    countdown, armed = [after + 1], [False]

    def tick() -> None:
        if armed[0]:
            countdown[0] -= 1
            if countdown[0] == 0:
                raise _DiedError

    def ticking(place: object, name: str) -> None:
        real = getattr(place, name)

        def call(*args: object, **options: object) -> object:
            tick()
            return real(*args, **options)

        patch.setattr(place, name, call)

    ticking(Path, "rename")
    ticking(Path, "unlink")
    ticking(folders, "sync")
    ticking(disk, "write")
    real = swap.commit

    def commit(*args: object, **options: object) -> None:
        armed[0] = True
        real(*args, **options)  # type: ignore[arg-type]

    patch.setattr(swap, "commit", commit)
    return countdown


def test_a_backup_killed_at_any_moment_leaves_none_and_the_next_one_is_whole(
    place: StoreLocation, tmp_path: Path
) -> None:
    chance = random.Random(8)
    whole_s = _length("backup", place.home, tmp_path / "whole")
    for number in range(max(5, KILLS // 4)):
        dest = tmp_path / f"b{number}"
        _run("backup", place.home, dest, chance.uniform(0, whole_s))
        if not dest.exists():
            place.backup(dest)
        backups.inspect(dest)
        assert not dest.with_name(f"{dest.name}.partial").exists()
    place.sound()


_SMALL_DISK = """
import resource, sys
from holdproof import errors, sync
what, home, place, limit = sys.argv[1:]
store = sync.open(home) if what == "backup" else None
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    store.backup.create(place) if store else sync.restore(place, home)
except errors.HoldproofError as error:
    print(type(error).__name__)
else:
    print("done")
"""


@pytest.mark.parametrize("limit", [0, 512, 8192, 65536, 130_000])
def test_a_full_disk_during_a_backup_is_a_typed_error_and_leaves_nothing(
    place: StoreLocation, tmp_path: Path, limit: int
) -> None:
    words = [sys.executable, "-c", _SMALL_DISK, "backup", str(place.home), str(tmp_path / "new"), str(limit)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout.strip() == "DiskFullError", done.stderr
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "new.partial").exists()
    place.sound()


@pytest.mark.parametrize("limit", [0, 512, 8192, 65536, 130_000])
def test_a_full_disk_during_a_restore_is_a_typed_error_and_changes_nothing(
    place: StoreLocation, tmp_path: Path, limit: int
) -> None:
    old = place.state()
    words = [sys.executable, "-c", _SMALL_DISK, "restore", str(place.home), str(tmp_path / "backup"), str(limit)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout.strip().endswith("Error"), done.stderr
    assert done.stdout.strip() in {kind.__name__ for kind in vars(errors).values() if isinstance(kind, type)}
    assert place.state() == old
    place.sound()


@pytest.mark.parametrize("call", ["write", "sync_tree"])
def test_a_disk_that_fails_when_an_exchange_is_written_down_is_a_typed_error(
    place: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    old = place.state()

    def fail(path: Path, *_: object) -> None:
        raise OSError(errno.EIO, "failing", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(disk, call, fail)
        with pytest.raises(errors.UnavailableError, match="failing"):
            place.restore(tmp_path / "backup")
    assert place.state() == old
    place.sound()
