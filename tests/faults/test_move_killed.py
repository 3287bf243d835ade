"""A move through kill -9: the source whole and usable, or the target; never both, never a mix."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from holdproof import errors, sync
from tests.store_locations import StoreLocation, submit

KILLS = max(3, int(os.environ.get("HOLDPROOF_KILLS", "30")) // 10)


def counts(place: StoreLocation) -> bool:
    """Whether a store is usable there; what is unfinished or sealed says so."""
    try:
        with place.open() as store:
            submit(store, "again")
            assert store.verify.run(full=True, lock=False).verdict.sound
    except (errors.UnfinishedMoveError, errors.MovedError):
        return False
    return True


def ends(forth: bool, home: Path, url: str) -> tuple[StoreLocation, StoreLocation]:
    files, server = StoreLocation(home), StoreLocation(home, url)
    return (files, server) if forth else (server, files)


@pytest.mark.parametrize("forth", [True, False], ids=["to the server", "to files"])
def test_a_move_killed_at_any_moment_leaves_one_usable_store_and_the_next_move_ends_it(
    tmp_path: Path, empty_postgres_url: str, forth: bool
) -> None:
    source, target = ends(forth, tmp_path / "home", empty_postgres_url)
    with source.open() as store:
        for number in range(5):
            submit(store, f"b{number}")
        store.blobs.put("k", b"v")
    words = [source.url or "sqlite", target.url or "sqlite", str(source.home)]
    chance = random.Random(11)
    for moment in [0, *(chance.randrange(80) for _ in range(KILLS - 1))]:
        done = subprocess.run([sys.executable, "-m", "tests.faults.mover", *words, str(moment)], check=False)
        if done.returncode == 0:
            break
        assert counts(source), f"killed at {moment}, before the seal"
        assert not _there(target) or not counts(target)
    sync.move(words[0], words[1], words[2])
    assert counts(target)
    assert not counts(source)
    with target.open() as store:
        assert store.blobs.get("k") == b"v"


def _there(place: StoreLocation) -> bool:
    """An absent store is no store, and opening it would make one."""
    if place.url is None:
        return (place.home / "kernel.db").exists()
    try:
        sync.move(place.url, "sqlite", place.home, dry_run=True)
    except errors.NotFoundError:
        return False
    except errors.HoldproofError:
        return True
    return True
