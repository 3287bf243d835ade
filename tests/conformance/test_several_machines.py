"""Several machines on one PostgreSQL, each with a home of its own."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.filling import settled, submit
from holdproof import sync
from holdproof.cli.app import app
from holdproof.model.verdicts import Verdict

_GUIDE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "several-machines.md"


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


def test_two_machines_sign_and_verify_and_a_third_that_only_reads_enrols_nothing(
    tmp_path: Path, postgres_url: str
) -> None:
    first = tmp_path / "first"
    second = tmp_path / "second"
    third = tmp_path / "third"
    with sync.open(first, postgres_url) as store:
        submit(store, "first", 0.5)
        store.blobs.put("large", bytes(200_000))
    share(first, second)
    with sync.open(second, postgres_url) as store:
        submit(store, "second", 0.6)
        settled(store)
        keys = [key.keyid for key in store.keys.list().items]
    with sync.open(third, postgres_url, readonly=True) as store:
        assert {each.evaluation_id for each in store.evaluations.list().items} == {"first", "second"}
        assert [key.keyid for key in store.keys.list().items] == keys
    with sync.open(third, postgres_url) as store:
        assert store.blobs.get("large") == bytes(200_000)
        assert store.evaluations.list(evaluation_id="first").items
    with sync.open(first, postgres_url) as store:
        assert [key.keyid for key in store.keys.list().items] == keys, "reading admits no key"
    for home in (first, second):
        report = sync.verify(home, postgres_url, full=True)
        assert report.verdict is Verdict.VALID, report.to_dict()


def test_the_commands_of_the_guide_succeed(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDPROOF_DATABASE_URL", postgres_url)
    for line in re.findall(r"^\$ (.+)$", _GUIDE.read_text(encoding="utf-8"), re.MULTILINE):
        program, *words = shlex.split(line, comments=True)
        if program == "rm":
            Path(*words).unlink()
        elif program == "holdproof":
            done = CliRunner().invoke(app, words)
            expected = re.search(r"# exits with (\d+)", line)
            assert done.exit_code == int(expected[1] if expected else 0), f"{line}\n{done.output}"
