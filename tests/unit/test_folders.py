"""Folders that are still there after a power cut."""

import os
from pathlib import Path

import pytest

from holdproof import config, folders


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every folder that was synced."""
    found, real = list[str](), os.fsync

    def fsync(handle: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{handle}") if Path("/proc/self/fd").exists() else "")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_the_folder_that_a_new_one_lies_in_is_synced(tmp_path: Path, synced: list[str]) -> None:
    folders.make(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert synced == [str(tmp_path), str(tmp_path / "a")]


def test_a_folder_that_is_there_costs_nothing(tmp_path: Path, synced: list[str]) -> None:
    folders.make(tmp_path)
    assert synced == []


def test_every_folder_of_a_new_home_is_durable(tmp_path: Path, synced: list[str]) -> None:
    paths = config.Paths.find(tmp_path / "far" / "home")
    paths.create()
    assert {str(tmp_path), str(tmp_path / "far"), str(paths.data)} <= set(synced)


def test_a_folder_that_may_be_written_but_not_listed_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, *_: object, **__: object) -> int:
        raise PermissionError(13, "no", str(path))

    monkeypatch.setattr(os, "open", refuse)
    folders.make(tmp_path / "new")
    assert (tmp_path / "new").is_dir()


def test_a_sync_that_fails_is_told_and_leaves_no_folder_that_may_not_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int) -> None:
        raise OSError(5, "no", handle)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no"):
        folders.make(tmp_path / "new")
    assert not (tmp_path / "new").exists()
