"""Zips from strangers: the directory is bounded before anything is built of it."""

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable

import pytest

from holdproof import errors
from holdproof.upkeep.verification import container, documents, offline, person_check

ENTRY = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
END = struct.Struct("<4s4H2LH")


def hostile(entries: int, *, counted: int | None = None, length: int | None = None) -> bytes:
    """A file that is a directory and nothing else, and says of itself what it likes."""
    directory = ENTRY * entries
    count = (entries if counted is None else counted) & 0xFFFF
    return directory + END.pack(b"PK\x05\x06", 0, 0, count, count, len(directory) if length is None else length, 0, 0)


def zip64(entries: int) -> bytes:
    """A small directory by the usual record of the end, and a large one by the second (zip64)."""
    directory = ENTRY * entries
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, entries, entries, len(directory), 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(directory), 1)
    return directory + record + locator + END.pack(b"PK\x05\x06", 0, 0, 1, 1, 47, len(directory) - 47, 0)


MANY = 1_300_000
"""As many entries as 64 MiB hold, nearly."""
HOSTILE: dict[str, Callable[[], bytes]] = {
    "many members": lambda: hostile(MANY),
    "many members, counted as one": lambda: hostile(MANY, counted=1),
    "many members, counted as those of a bundle": lambda: hostile(MANY, counted=offline.MOST_MEMBERS),
    "a second record of the end": lambda: zip64(MANY),
    "a directory that begins before the file": lambda: hostile(3, length=1 << 31),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("check", [documents.check, documents.examine, offline.check, person_check.check])
def test_a_hostile_directory_is_refused_before_it_costs_memory(name: str, check: Callable[[bytes], object]) -> None:
    data = HOSTILE[name]()
    assert len(data) <= container.MOST_BYTES
    tracemalloc.start()
    try:
        with pytest.raises(errors.FormatError):
            check(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20, f"{peak:,} bytes for a file of {len(data):,}"


@pytest.mark.parametrize("check", [documents.check, documents.examine, offline.check, person_check.check])
def test_an_entry_that_no_library_reads_is_refused_like_any_other_damage(check: Callable[[bytes], object]) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name in person_check.MEMBERS:
            archive.writestr(name, b"{}")
    data = target.getvalue()
    entry = data.index(b"PK\x01\x02")
    for at, byte in ((6, 255), (9, 8)):  # the version that it needs; a name that says that it is UTF-8, and is not
        damaged = bytearray(data)
        damaged[entry + at] = byte
        damaged[entry + 46] = 0xFF if at == 9 else damaged[entry + 46]
        with pytest.raises(errors.FormatError):
            check(bytes(damaged))


def test_a_library_would_build_an_object_for_each_member() -> None:
    """What the bound is for: were this cheap, there would be no need of it."""
    data = hostile(20_000)
    tracemalloc.start()
    try:
        zipfile.ZipFile(io.BytesIO(data)).close()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak > 5 * len(data)


def test_a_zip_as_any_program_makes_it_is_opened() -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"part-{number}", b"x" * 1_000)
    with container.opened(target.getvalue(), "file", most_members=3) as archive:
        assert archive.namelist() == ["part-0", "part-1", "part-2"]
    with (
        pytest.raises(errors.FormatError, match="too many"),
        container.opened(target.getvalue(), "file", most_members=2),
    ):
        pass
