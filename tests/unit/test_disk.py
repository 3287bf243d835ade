"""Files, written with care: what fails leaves nothing behind, and says so in our words."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdproof import errors
from holdproof.cli.storage import filed
from holdproof.content import disk
from holdproof.evidence import trust
from holdproof.evidence.lockdown import write_flag
from holdproof.model.verify import Locked

LOCKED = Locked("id", "TAMPERED", "a reason", "2026-01-01T00:00:00Z")


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A disk on which nothing more can be kept."""

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    return monkeypatch


def _translated(path: Path) -> None:
    with disk.translated(path):
        disk.write(path, b"new")


@pytest.mark.parametrize(
    "write",
    [_translated, lambda path: trust._write_new(path, "secret"), lambda path: write_flag(path, LOCKED)],
    ids=["a file", "a secret", "a flag"],
)
def test_a_full_disk_leaves_no_half_file_and_the_next_try_works(
    tmp_path: Path, full: pytest.MonkeyPatch, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "file"
    with pytest.raises(errors.DiskFullError):
        write(path)
    assert list(tmp_path.iterdir()) == []
    full.undo()
    write(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", [_translated, lambda path: write_flag(path, LOCKED)], ids=["a file", "a flag"])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, full: pytest.MonkeyPatch, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(errors.DiskFullError):
        write(path)
    assert [(each, each.read_bytes()) for each in tmp_path.iterdir()] == [(path, b"old")]


def test_what_a_command_writes_is_whole_or_not_there(tmp_path: Path) -> None:
    def half() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(errors.DiskFullError):
        filed(half(), path)
    assert [(each, each.read_bytes()) for each in tmp_path.iterdir()] == [(path, b"old")]
    assert filed([b"new"], path) == 3
    assert path.read_bytes() == b"new"


def test_a_command_can_write_to_what_is_no_file() -> None:
    assert filed([b"to nobody"], Path("/dev/null")) == 9
