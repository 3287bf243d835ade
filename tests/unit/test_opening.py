"""Opening a store: what is left behind when it fails, and what was left behind by others."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import holdproof
from holdproof import errors, sync
from holdproof.config import Paths
from holdproof.db import open_database
from holdproof.db.migrate import shipped
from holdproof.db.sqlite import snapshot
from holdproof.upkeep.backups import swap
from tests.store_locations import submit


def test_an_opening_that_fails_at_its_last_step_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise errors.UnavailableError("no disk")

    monkeypatch.setattr("holdproof.upkeep.erase.at_opening", fail)
    before = set(threading.enumerate())
    with pytest.raises(errors.UnavailableError):
        sync.open(tmp_path)
    assert set(threading.enumerate()) <= before
    assert not snapshot.in_use(tmp_path / "kernel.db")


def test_an_exchange_that_dies_while_an_opening_waits_is_finished_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the opening would find no database, make a new one, and lose whatever is written to it."""
    with sync.open(tmp_path) as store:
        submit(store, "mine")
    paths, presence = Paths.find(tmp_path), swap.StoreLock

    def left_in_the_middle(paths: Paths, **options: Any) -> swap.StoreLock:
        monkeypatch.setattr(swap, "StoreLock", presence)
        staged, aside = paths.data / ".restoring", paths.data / "before-restore-x"
        staged.mkdir()
        aside.mkdir()
        (staged / "kernel.db").write_bytes((paths.data / "kernel.db").read_bytes())
        (paths.data / "restore.json").write_text(json.dumps({"v": 1, "aside": aside.name, "out": ["kernel.db"]}))
        (paths.data / "kernel.db").rename(aside / "kernel.db")
        return presence(paths, **options)

    monkeypatch.setattr(swap, "StoreLock", left_in_the_middle)
    with sync.open(tmp_path) as store:
        assert [evaluation.evaluation_id for evaluation in store.evaluations.list().items] == ["mine"]
    assert not swap.under_way(paths)


def test_an_opening_waits_only_as_long_as_an_exchange_takes(tmp_path: Path) -> None:
    """Who settles the files of a server's restore has the store open, and keeps it open."""
    sync.open(tmp_path).close()
    paths = Paths.find(tmp_path)
    journal = paths.data / "restore.json"
    journal.write_text("{}")
    other = swap.StoreLock(paths, exclusive=False)
    threading.Timer(0.2, journal.unlink).start()
    with sync.open(tmp_path) as store:
        assert store.status().first_run is False
    other.release()


def test_a_home_that_means_memory_is_refused_and_no_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.InvalidInputError, match="url="):
        sync.open(home=":memory:")
    assert list(tmp_path.iterdir()) == []


def test_a_call_on_a_store_that_nobody_awaited_says_how_to_open_it(tmp_path: Path) -> None:
    unopened: Any = holdproof.open(tmp_path)
    with pytest.raises(AttributeError, match=r"`async with`.*holdproof\.sync\.open"):
        unopened.flows.list()
    with pytest.raises(TypeError, match=r"`async with`.*holdproof\.sync\.open"), unopened:
        pass
    assert not hasattr(unopened, "flows")
    assert list(tmp_path.iterdir()) == [], "neither mistake makes a store"


def test_a_store_of_an_older_version_that_is_only_read_names_the_command_that_migrates_it(tmp_path: Path) -> None:
    migrations = shipped("kernel")
    open_database(tmp_path / "kernel.db", migrations=migrations[:-1]).close()
    with pytest.raises(errors.MigrationError, match=migrations[-1].name) as refused:
        sync.open(tmp_path, readonly=True)
    assert "`holdproof db migrate`" in refused.value.remedy
    assert "rolled back" not in refused.value.remedy, "nothing was tried"
