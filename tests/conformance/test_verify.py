"""Verify as a whole: both faces, the command line, progress, writers that go on, bounds, imports, erasures."""

import asyncio
import json
import os
import shutil
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import holdproof
from harness.filling import populate, settled, submit
from harness.raw_access import attack, copy
from holdproof import sync
from holdproof.cli.app import app
from holdproof.model.verdicts import Verdict
from holdproof.upkeep import erase, kernel_tables
from holdproof.upkeep.verification import row_check, verify


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("template") / "home"
    with sync.open(home) as store:
        populate(store)
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return copy(template, tmp_path / "home")


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("HOLDPROOF", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_the_report_says_what_was_looked_at(home: Path) -> None:
    told: list[tuple[str, int, int]] = []
    report = sync.verify(home, full=True, progress=lambda *step: told.append(step))
    assert (report.verdict, report.mode, report.findings, report.not_checked) == (Verdict.VALID, "full", [], [])
    assert report.checked["battles"] == report.checked["DBOMs"] == 15
    assert report.checked["leaves"] == report.checked["log size"] == report.head["size"]
    assert report.level == "KEPT"
    assert {"database", "schema", "log", "rows of battles", "leaves", "DBOMs"} <= {step for step, _, _ in told}


def test_every_registered_table_is_walked(home: Path) -> None:
    report = sync.verify(home)
    assert set(kernel_tables.LOGGED) <= set(report.checked)
    assert {"battles", "erasures", "keyring", "lockdowns", "restores", "schema_migrations", "subjects"} <= set(
        kernel_tables.LOGGED
    )


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_large_rows_make_small_pages_and_none_is_missed(
    tmp_path: Path, backend: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(request.getfixturevalue("postgres_url")) if backend == "postgres" else None
    with sync.open(tmp_path / "home", url) as store:
        for number in range(5):
            submit(store, f"b{number}", number / 10)
        settled(store)
        table = kernel_tables.LOGGED["battles"]
        assert store.read(lambda tx: row_check.page_size(tx, table, table.start, 500)) == 500
        whole = store.run(verify.check(store.context))
        [size, *_] = [row[0] for row in store.read(lambda tx: tx.all(table.sizes, after=-1, limit=9))]
        monkeypatch.setattr(row_check, "_PAGE_BYTES", 2 * size + 100)
        assert store.read(lambda tx: row_check.page_size(tx, table, table.start, 500)) == 2
        monkeypatch.setattr(row_check, "_PAGE_BYTES", 1)
        assert store.read(lambda tx: row_check.page_size(tx, table, table.start, 500)) == 1
        again = store.run(verify.check(store.context))
        assert (again.verdict, again.checked) == (Verdict.VALID, whole.checked)


def test_both_faces_and_a_store_in_memory_give_the_same_answer(home: Path) -> None:
    async def play() -> Any:
        async with holdproof.open(home) as store:
            return await store.verify.run(full=True)

    with sync.open(home) as store:
        # Without an entry of its own: the other one is to see the same log.
        assert store.run(verify.check(store.context, full=True)).to_dict() == asyncio.run(play()).to_dict()
    with sync.open(url=":memory:") as store:
        submit(store, "b", 0.5)
        report = store.verify.run(full=True)
        assert (report.verdict, report.findings) == (Verdict.VALID, [])


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_verification_holds_while_writers_go_on(tmp_path: Path, backend: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if backend == "postgres" else None
    with sync.open(tmp_path / "home", url) as store:
        populate(store, 3)
        done = threading.Event()

        def write() -> None:
            number = 0
            while not done.is_set():
                submit(store, f"w{number}", 0.5, subject="Ada" if number % 3 else None)
                if number % 5 == 4:
                    store.run(erase.record(store.context, "battles", str(store.evaluations.get(f"w{number - 1}").id)))
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            reports = [store.verify.run(full=full) for full in (False, True) * 4]
        finally:
            done.set()
            writer.join()
        assert [report.findings for report in reports if not report.verdict.sound] == []
    assert sync.verify(tmp_path / "home", url, full=True).verdict.sound


def test_erased_records_are_counted_and_nothing_is_wrong(home: Path) -> None:
    with sync.open(home) as store:
        store.run(erase.subject(store.context, "Ada"))
        store.run(erase.record(store.context, "battles", str(store.evaluations.get("b3").id)))
        report = store.verify.run(full=True)
    assert (report.verdict, report.findings, report.checked["erased"]) == (Verdict.VALID, [], 2)


def test_a_deleted_row_is_told_from_an_erased_one(home: Path) -> None:
    with sync.open(home) as store:
        store.run(erase.record(store.context, "battles", str(store.evaluations.get("b3").id)))
    attack(home, "DELETE FROM battles WHERE battle_id = 'b4'")
    report = sync.verify(home, lock=False)
    assert report.verdict is Verdict.TAMPERED
    assert any(finding.what.endswith("was deleted") for finding in report.findings if finding.table == "battles")


def test_an_erased_row_that_is_put_back_is_found(home: Path, tmp_path: Path) -> None:
    attack(home, f"ATTACH '{tmp_path}/aside.db' AS aside", "CREATE TABLE aside.kept AS SELECT * FROM battles")
    with sync.open(home) as store:
        store.run(erase.record(store.context, "battles", str(store.evaluations.get("b3").id)))
    attack(
        home,
        f"ATTACH '{tmp_path}/aside.db' AS aside",
        "INSERT INTO battles SELECT * FROM aside.kept WHERE battle_id = 'b3'",
    )
    report = sync.verify(home, lock=False)
    assert report.verdict is Verdict.TAMPERED
    assert any("was put back" in finding.what for finding in report.findings)


# --- the command line --------------------------------------------------------------------------------------------


def test_the_command_prints_the_report_and_exits_with_the_verdict(home: Path) -> None:
    assert run("verify", "--home", str(home)).exit_code == 0
    attack(home, "UPDATE battles SET score = 0.9 WHERE id = 2")
    told = run("verify", "--home", str(home), "--json")
    report = json.loads(told.stdout)
    assert (told.exit_code, report["verdict"], report["locked"]) == (20, "TAMPERED", None)
    assert report["findings"][0] == {
        "verdict": "TAMPERED",
        "what": "the row does not match its leaf: row, salt or leaf was edited",
        "remedy": "keep a copy of the store as it is, then restore a backup that verifies",
        "file": "",
        "table": "battles",
        "row": "2",
        "outside": False,
    }
    people = run("verify", "--home", str(home))
    assert people.exit_code == 20
    lines = people.stdout.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["checked", "verdict", "since", "trusted"]
    assert str(home / "kernel.db") in lines[0]
    assert lines[1].split() == ["verdict", "TAMPERED", "(fast)"]
    assert "log key " in lines[3]
    at = next(number for number, line in enumerate(lines) if line.startswith("findings"))
    assert "table battles row 2: the row does not match its leaf" in lines[at]
    assert lines[at + 1].strip() == "cure: keep a copy of the store as it is, then restore a backup that verifies"
    assert lines[-1] == "TAMPERED (fast)"
    assert "not covered" in people.stdout
    assert "--verbose" in people.stdout
    named = run("verify", "--home", str(home), "--verbose")
    assert named.exit_code == 20
    assert " idempotency_cache: " in named.stdout


def _files(folder: Path) -> dict[str, tuple[int, bytes]]:
    # In a folder that can be written (root can write any) SQLite's readers make these two beside the file.
    files = [each for each in folder.rglob("*") if each.is_file() and not each.name.endswith(("-shm", "-wal"))]
    return {str(each): (each.stat().st_mtime_ns, each.read_bytes()) for each in files}


def test_a_copy_on_a_medium_of_its_own_is_verified_by_its_path_and_nothing_in_it_changes(
    home: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    for each in (copy, *copy.rglob("*")):
        each.chmod(0o500 if each.is_dir() else 0o400)
    before = _files(copy)
    assert run("verify", str(copy), "--home", "/nowhere").exit_code == 0
    assert _files(copy) == before
    assert run("verify", str(copy / "nothing")).exit_code == 3
    assert not (copy / "nothing").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("verify", str(empty)).exit_code == 3
    assert [*empty.iterdir()] == []


def test_a_tampered_copy_is_told_by_its_path_and_is_not_locked(home: Path) -> None:
    attack(home, "UPDATE battles SET score = 0.9 WHERE id = 2")
    before = _files(home)
    assert run("verify", str(home)).exit_code == 20
    assert _files(home) == before


def test_the_commands_lead_from_tampering_to_unlock(home: Path, tmp_path: Path) -> None:
    place = ("--home", str(home))
    attack(home, "UPDATE battles SET score = 0.9 WHERE id = 2")
    assert run("verify", *place).exit_code == 20
    assert json.loads(run("lockdown", "status", *place, "--json").stdout) is None, "only reported"
    assert run("verify", "--lock", *place).exit_code == 20
    assert json.loads(run("lockdown", "status", *place, "--json").stdout)["reason"]
    assert run("keys", "rotate", "judge", *place).exit_code == 5
    attack(home, "UPDATE battles SET score = 0.01 WHERE id = 2")
    draft, signed = str(tmp_path / "draft.json"), str(tmp_path / "unlock.json")
    assert run("lockdown", "statement", "--reason", "mended", "--out", draft, *place).exit_code == 0
    assert run("unlock", draft, *place).exit_code == 2
    key = str(home / "config" / "keys" / "root.pem")
    assert run("lockdown", "sign", draft, "--key", key, "--out", signed).exit_code == 0
    assert run("unlock", signed, *place).exit_code == 0
    assert run("verify", "--full", *place).exit_code == 0
    assert json.loads(run("lockdown", "status", *place, "--json").stdout) is None
    assert run("unlock", signed, *place).exit_code == 3


def test_a_bundle_goes_out_and_is_checked_by_command(home: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "b3.zip")
    assert run("export", "bundle", "b3", "--out", file, "--home", str(home)).exit_code == 0
    told = run("verify", file, "--json", "--home", "/nowhere")
    assert (told.exit_code, json.loads(told.stdout)["verdict"]) == (0, "VALID")
    pem = tmp_path / "root.pem"
    with sync.open(home) as store:
        pem.write_bytes(store.context.keys.load("root").public.to_pem())
    told = run("verify", file, "--root", str(pem), "--json")
    assert json.loads(told.stdout)["trusted"] is True
    data = bytearray(Path(file).read_bytes())
    with zipfile.ZipFile(file) as archive:
        data[archive.getinfo("bundle.json").header_offset + 80] ^= 1  # behind its header, which nobody checks
    Path(file).write_bytes(data)
    assert run("verify", file).exit_code in (2, 20)
    assert run("verify", str(tmp_path / "none.zip")).exit_code == 3
