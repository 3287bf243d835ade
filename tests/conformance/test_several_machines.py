"""Several machines on one PostgreSQL, each with a home of its own."""

import shutil
from pathlib import Path

from holdproof import sync
from holdproof.model.verdicts import Verdict


def share(first: Path, second: Path) -> None:
    """Give the second machine the keys of the first."""
    shutil.copytree(first / "config" / "keys", second / "config" / "keys")


def test_a_large_blob_put_on_one_machine_can_be_read_on_another(tmp_path: Path, postgres_url: str) -> None:
    first = tmp_path / "first"
    second = tmp_path / "second"
    with sync.open(first, postgres_url) as store:
        store.blobs.put("large", bytes(200_000))
    share(first, second)
    with sync.open(second, postgres_url) as store:
        assert store.blobs.get("large") == bytes(200_000)
    assert sync.verify(second, postgres_url, full=True).verdict is Verdict.VALID


def test_a_body_on_the_disk_of_another_machine_is_missing_here_and_does_not_lock(
    tmp_path: Path, postgres_url: str
) -> None:
    first = tmp_path / "first"
    second = tmp_path / "second"
    (first / "config").mkdir(parents=True)
    (first / "config" / "config.yaml").write_text(
        f"providers:\n  blob: {{type: filesystem, path: {first / 'files'}}}\n"
    )
    with sync.open(first, postgres_url) as store:
        store.blobs.put("large", bytes(200_000))
    share(first, second)
    report = sync.verify(second, postgres_url, full=True, lock=True)
    assert (report.verdict, report.locked) == (Verdict.MISSING_HERE, None), report.to_dict()
    assert [(each.table, each.row) for each in report.findings] == [("blobs", "large")]
    assert sync.verify(first, postgres_url, full=True).verdict is Verdict.VALID
