"""The high-water file: whole lines, the largest head of every log, thinned, shared."""

import errno
import os
import threading
from pathlib import Path

import pytest

from holdproof.crypto import checkpoint, keys, note
from holdproof.crypto.checkpoint import LogCheckpoint
from holdproof.errors import BadKeyError, UnavailableError
from holdproof.evidence import heads
from holdproof.evidence.heads import HeadFile
from holdproof.evidence.log import Log

KEY = keys.from_seed(b"\x01" * 32)
SECOND = keys.generate("ml-dsa-44")


def head(size: int, origin: str = "log/a") -> str:
    return checkpoint.sign(LogCheckpoint(origin, size, size.to_bytes(32, "big")), KEY).encode().decode()


def sizes(marks: HeadFile) -> list[int]:
    return [each.checkpoint.size for each in marks.kept()]


def test_a_missing_file_holds_nothing(tmp_path: Path) -> None:
    marks = HeadFile(tmp_path / "state" / "heads.jsonl")
    assert (marks.kept(), marks.largest()) == ([], {})


def test_heads_are_written_at_most_once_a_second_and_the_last_one_at_close(tmp_path: Path) -> None:
    marks = HeadFile(tmp_path / "heads.jsonl")
    for size in range(1, 50):
        marks.publish(head(size))
    assert sizes(marks) == [1]
    marks.flush()
    assert sizes(marks) == [1, 49]
    marks.flush()
    assert sizes(marks) == [1, 49]


def test_a_smaller_head_never_takes_the_place_of_a_larger_one_that_waits(tmp_path: Path) -> None:
    marks = HeadFile(tmp_path / "heads.jsonl")
    for size in (1, 9, 5, 10, 7):
        marks.publish(head(size))
    marks.flush()
    assert sizes(marks) == [1, 10]
    marks.publish(head(20))
    marks.publish(head(2, "log/a/1"))
    marks.flush()
    assert sizes(marks)[-1] == 2


def test_the_largest_head_of_every_log_is_known(tmp_path: Path) -> None:
    marks = HeadFile(tmp_path / "heads.jsonl")
    for size, origin in ((5, "log/a"), (9, "log/b"), (7, "log/a"), (6, "log/a"), (3, "log/b")):
        marks.publish(head(size, origin))
        marks.flush()
    assert {origin: each.checkpoint.size for origin, each in marks.largest().items()} == {"log/a": 7, "log/b": 9}


def test_a_torn_line_is_not_counted_and_swallows_nothing(tmp_path: Path) -> None:
    marks = HeadFile(tmp_path / "heads.jsonl")
    marks.publish(head(5))
    with marks.path.open("ab") as file:
        file.write(b'{"head": "log/a\\n99\\nAAAA')
    assert (sizes(marks), marks.largest()["log/a"].checkpoint.size, marks.unreadable()) == ([5], 5, 1)
    marks.publish(head(6))
    marks.flush()
    assert (sizes(marks), marks.unreadable()) == ([5, 6], 1)


def test_a_flipped_bit_makes_a_line_count_for_nothing_and_never_for_another_head(tmp_path: Path) -> None:
    marks = HeadFile(tmp_path / "heads.jsonl")
    marks.publish(head(5))
    whole = marks.path.read_bytes()
    for at in range(len(whole)):
        marks.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert [each.encode().decode() for each in marks.kept()] in ([], [head(5)])
        assert marks.kept() or marks.unreadable() == 1, "a head that is gone is said to be"
        assert [each.encode().decode() for each in marks.largest().values()] in ([], [head(5)])


def test_a_disk_that_takes_only_a_part_at_a_time_gets_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole(file, data[:7]))
    marks = HeadFile(tmp_path / "heads.jsonl")
    marks.publish(head(5))
    assert sizes(marks) == [5]


def test_a_thinning_that_fails_loses_no_head_and_fills_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(heads, "_MOST_BYTES", 100)
    marks = HeadFile(tmp_path / "heads.jsonl")
    marks.publish(head(1))
    monkeypatch.setattr(os, "replace", full)
    for size in (2, 3, 4):
        marks._waiting = head(size)
        with pytest.raises(UnavailableError):
            marks.flush()
    assert sizes(marks) == [1, 2, 3, 4]
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_no_head_is_not_counted(tmp_path: Path) -> None:
    marks = HeadFile(tmp_path / "heads.jsonl")
    marks.path.write_bytes(b'\xff\xfe\n{}\n[]\n"x"\n{"head": 5}\n{"head": "a\\nb\\nc"}\n{"head": "log/a\\n8\\nx"}\n')
    assert (marks.kept(), marks.largest()) == ([], {})


def test_a_file_that_has_grown_is_thinned_and_keeps_the_largest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "_MOST_BYTES", 200_000)
    marks = HeadFile(tmp_path / "heads.jsonl")
    marks.publish(head(10**9))
    marks.publish(head(10**9, "log/b"))
    for size in range(1, 2500):
        marks._waiting = head(size)
        marks.flush()
    found = sizes(marks)
    assert len(found) < 1300
    assert found[-256:] == list(range(2500 - 256, 2500))
    assert {each.checkpoint.size for each in marks.largest().values()} == {10**9}
    assert marks.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["heads.jsonl"]


def signed_twice(size: int) -> str:
    one = head(size)
    text = checkpoint.parse(one.encode()).note.text
    return one + note.cosign(text, "log/a", SECOND, seconds=7).line()


def test_the_first_head_with_a_second_signature_is_written_at_once_and_outlives_a_thinning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = HeadFile(tmp_path / "heads.jsonl")
    for size in (1, 2, 3):
        marks.publish(head(size))
    for size in (4, 5, 6):
        marks.publish(signed_twice(size))
    assert sizes(marks) == [1, 4]
    marks.publish(head(7))
    assert sizes(marks) == [1, 4, 7]
    monkeypatch.setattr(heads, "_MOST_BYTES", 0)
    monkeypatch.setattr(heads, "_RECENT", 8)
    monkeypatch.setattr(heads, "_OLDER", 8)
    for size in range(8, 200):
        marks._waiting = head(size)
        marks.flush()
    assert {1, 4, 7, 199} <= set(sizes(marks))
    assert len(sizes(marks)) < 40


def test_any_number_of_writers_may_append_and_thin_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "_MOST_BYTES", 20_000)
    monkeypatch.setattr(heads, "_RECENT", 10_000)

    def write(number: int) -> None:
        mine = HeadFile(tmp_path / "heads.jsonl")
        for size in range(60):
            mine._waiting = head(number * 1000 + size + 1)
            mine.flush()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    expected = sorted(number * 1000 + size + 1 for number in range(4) for size in range(60))
    assert sorted(sizes(HeadFile(tmp_path / "heads.jsonl"))) == expected


def test_a_head_that_cannot_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError):
        HeadFile(tmp_path / "file" / "heads.jsonl").publish(head(1))


AT = "2026-01-31T12:00:00.000000Z"


def test_a_head_is_signed_as_checkpoints_are() -> None:
    log, said = Log(KEY, ()), LogCheckpoint("log/a", 7, b"\3" * 32)
    for origin in ("log/a", "log/b", "log/a"):
        head_of = LogCheckpoint(origin, said.size, said.root)
        assert log.sign(head_of, AT).encode() == checkpoint.sign(head_of, KEY).encode()
    other = keys.from_seed(b"\2" * 32)
    log.use(other)
    assert log.sign(said, AT).encode() == checkpoint.sign(said, other).encode()
    log.use(None)
    with pytest.raises(BadKeyError):
        log.sign(said, AT)
