"""Reading a skill file: once, through no link, nothing but a regular file, never waiting."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdproof.errors import InvalidInputError, NotFoundError, UnavailableError
from holdproof.memory.skills import skill_files
from holdproof.memory.skills.skill_files import NotAFileError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = Path(os.path.realpath(tmp_path)) / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "skill.org").write_bytes(b"* Good\n")
    return folder


def test_a_plain_file_is_read_as_it_is(folder: Path) -> None:
    assert skill_files.read(str(folder / "skill.org")) == b"* Good\n"


def test_a_link_in_the_place_of_the_file_is_refused(folder: Path) -> None:
    (folder / "link.org").symlink_to(folder / "skill.org")
    with pytest.raises(NotAFileError, match="link"):
        skill_files.read(str(folder / "link.org"))


@pytest.mark.parametrize("depth", [0, 1])
def test_a_link_in_the_place_of_a_folder_is_refused(folder: Path, depth: int) -> None:
    replaced = (folder, folder.parent)[depth]
    moved = replaced.with_name("elsewhere")
    replaced.rename(moved)
    replaced.symlink_to(moved)
    assert (folder / "skill.org").read_bytes() == b"* Good\n"  # anybody else would follow
    with pytest.raises(NotAFileError, match="link"):
        skill_files.read(str(folder / "skill.org"))


def test_where_a_file_lies_is_found_out_through_links_but_the_file_itself_is_not_followed(folder: Path) -> None:
    (folder.parent / "by").symlink_to(folder)
    (folder / "link.org").symlink_to("skill.org")
    assert skill_files.place_of(str(folder.parent / "by" / "skill.org")) == str(folder / "skill.org")
    assert skill_files.place_of(str(folder.parent / "by" / "link.org")) == str(folder / "link.org")


def test_a_pipe_makes_nobody_wait(folder: Path) -> None:
    os.mkfifo(folder / "pipe.org")
    with pytest.raises(NotAFileError, match="regular"):
        skill_files.read(str(folder / "pipe.org"))


def test_a_pipe_that_takes_the_place_between_look_and_open_makes_nobody_wait(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, looked = folder / "skill.org", os.stat

    def swapped(*args: object, **kwargs: object) -> os.stat_result:
        found = looked(*args, **kwargs)  # type: ignore[arg-type]
        target.unlink()
        os.mkfifo(target)
        return found

    monkeypatch.setattr(os, "stat", swapped)
    with pytest.raises(NotAFileError, match="regular"):
        skill_files.read(str(target))


@pytest.mark.parametrize("odd", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_a_device_is_not_read(odd: str) -> None:
    with pytest.raises(NotAFileError):
        skill_files.read(odd)


def test_a_socket_and_a_folder_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.org")
        with pytest.raises(NotAFileError):
            skill_files.read(str(folder / "socket.org"))
    with pytest.raises(NotAFileError):
        skill_files.read(str(folder))
    with pytest.raises(NotAFileError):
        skill_files.read(str(folder / "skill.org" / "below"))
    with pytest.raises(NotAFileError):
        skill_files.read("/")


def test_a_giant_file_is_read_no_further_than_the_bound(folder: Path) -> None:
    with (folder / "giant.org").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(NotAFileError, match="more than"):
        skill_files.read(str(folder / "giant.org"))
    assert skill_files.read(str(folder / "skill.org"), most=7) == b"* Good\n"
    with pytest.raises(NotAFileError):
        skill_files.read(str(folder / "skill.org"), most=6)


def test_a_missing_file_is_not_found_and_a_closed_one_is_unavailable(folder: Path) -> None:
    with pytest.raises(NotFoundError):
        skill_files.read(str(folder / "no.org"))
    with pytest.raises(NotFoundError):
        skill_files.read(str(folder / "no" / "skill.org"))
    if os.geteuid() != 0:
        (folder / "skill.org").chmod(0)
        with pytest.raises(UnavailableError):
            skill_files.read(str(folder / "skill.org"))


def test_a_path_that_cannot_be_kept_is_refused(folder: Path) -> None:
    for odd in ("a\nb.org", "a\x00b", "x" * 1001, os.fsdecode(b"\xff.org")):
        with pytest.raises(InvalidInputError):
            skill_files.absolute(str(folder / odd))
    assert skill_files.absolute("/a/../b//c.org") == "/b/c.org"


def test_no_handle_is_left_open(folder: Path) -> None:
    def handles() -> list[str]:
        return sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else []

    before = handles()
    for path in ("skill.org", "no.org", "skill.org/x"):
        for _ in range(5):
            try:
                skill_files.read(str(folder / path))
            except (NotAFileError, NotFoundError):
                continue
    assert len(handles()) == len(before)


@pytest.fixture
def swapping(folder: Path) -> Iterator[Path]:
    """A folder whose file is swapped for a link and back, as fast as somebody can."""
    target, secret, done = folder / "skill.org", folder / "secret", threading.Event()
    secret.write_bytes(b"* Evil\n")
    (folder / "link").symlink_to(secret)
    (folder / "copy").write_bytes(b"* Good\n")

    def swap() -> None:
        while not done.is_set():
            for source in ("link", "copy"):
                aside = folder / "aside"
                os.link(folder / source, aside, follow_symlinks=False)
                os.replace(aside, target)

    thread = threading.Thread(target=swap)
    thread.start()
    yield target
    done.set()
    thread.join()


def test_however_fast_a_link_is_swapped_in_it_is_never_followed(swapping: Path) -> None:
    outcomes = set()
    for _ in range(2_000):
        try:
            outcomes.add(skill_files.read(str(swapping)))
        except NotAFileError:
            outcomes.add(b"refused")
    assert outcomes <= {b"* Good\n", b"refused"}
    assert b"refused" in outcomes
