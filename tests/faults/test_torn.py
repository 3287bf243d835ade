"""The power goes while the write-ahead log is moved into the database: torn pages there, whole ones in the log."""

import shutil
from pathlib import Path

from holdproof import sync
from holdproof.model.verdicts import Verdict

_PAGE = 4096


def _logged(wal: Path) -> set[int]:
    """The pages that a write-ahead log holds."""
    data = wal.read_bytes()
    return {int.from_bytes(data[at : at + 4], "big") for at in range(32, len(data) - _PAGE, _PAGE + 24)}


def _torn(home: Path, aside: Path, pages: int) -> Path:
    """A copy of a living home as a cut in the middle of a checkpoint leaves it."""
    shutil.copytree(home, aside)
    file = aside / "kernel.db"
    data = bytearray(file.read_bytes())
    wanted = sorted(page for page in _logged(aside / "kernel.db-wal") if 1 < page <= len(data) // _PAGE)[:pages]
    assert len(wanted) == pages
    for page in wanted:
        data[(page - 1) * _PAGE : (page - 1) * _PAGE + 512] = bytes(512)
    file.write_bytes(data)
    return aside


def test_a_page_torn_in_the_file_and_whole_in_the_log_is_no_damage(tmp_path: Path) -> None:
    with sync.open(tmp_path / "home") as store:
        store.objects.put("a", type="t", content="first")
    with sync.open(tmp_path / "home") as store:
        store.objects.put("a", type="t", content="second")
        left = _torn(tmp_path / "home", tmp_path / "left", 3)
    with sync.open(left) as store:
        assert store.verify.run(full=True).verdict is Verdict.VALID
        assert store.check().findings == []
        assert store.objects.get("a").content == "second"
        assert store.lockdown.status() is None


def test_a_page_torn_in_the_file_and_absent_from_the_log_is_damage(tmp_path: Path) -> None:
    with sync.open(tmp_path / "home") as store:
        store.objects.put("a", type="t", content="first")
    with sync.open(tmp_path / "home") as store:
        store.objects.put("a", type="t", content="second")
        left = _torn(tmp_path / "home", tmp_path / "left", 3)
    (left / "kernel.db-wal").unlink()
    assert any("is damaged" in each for each in sync.check(left).findings)
