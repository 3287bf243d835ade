"""Green Agent's data: every database of the fixtures, older schemas, and everything that goes wrong with such files."""

import json
import shutil
from collections import Counter
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

from harness.filling import settled
from harness.legacy_dboms import legacy_sigma
from holdproof import errors, sync
from holdproof.model.imports import Imported
from holdproof.model.verdicts import Verdict
from tests.fixtures import fixture

REAL = {
    "battles_tier1_100rows.db": {"VERIFIED": 100},
    "battles_75rows_22dup.db": {"VERIFIED": 28, "DBOM_MISSING": 47},
    "battles_old_schema_no_id.db": {"SCHEMA_OLD": 393},
}
CURRENT = (
    "CREATE TABLE battles (id INTEGER PRIMARY KEY AUTOINCREMENT, battle_id TEXT NOT NULL, timestamp TEXT NOT NULL,"
    " score REAL NOT NULL, breakdown TEXT, raw_result TEXT, dbom_hash TEXT)"
)


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    url = _server(request) if request.param == "postgres" else {"sqlite": None, "memory": ":memory:"}[request.param]
    with sync.open(tmp_path / "home", url) as opened:
        yield opened


def _server(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("postgres_url"))


def make(path: Path, *statements: str | tuple[str, tuple[Any, ...]]) -> Path:
    with closing(apsw.Connection(str(path))) as connection:
        for each in statements:
            connection.execute(*((each,) if isinstance(each, str) else each))
    return path


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def add(battle_id: str, raw: str, hashed: str | None = None, score: float = 0.5) -> tuple[str, tuple[Any, ...]]:
    values = (battle_id, "2026-01-15T00:26:36", score, "why", raw, digest(raw) if hashed is None else hashed)
    return (
        "INSERT INTO battles (battle_id, timestamp, score, breakdown, raw_result, dbom_hash) VALUES (?,?,?,?,?,?)",
        values,
    )


def write_dbom(folder: Path, battle_id: str, raw: str, *, score: float = 0.5, name: str | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    fields = {
        "dbom_version": "1.0",
        "battle_id": battle_id,
        "h_delta": digest(raw),
        "v_intent": [0.1, 0.2],
        "score_cis": score,
        "sigma_judge": legacy_sigma(battle_id, digest(raw)),
        "timestamp": "2026-01-15T00:26:36.233194",
    }
    path = folder / (name or f"dbom_{battle_id}.json")
    path.write_text(json.dumps(fields, indent=2))
    return path


def verdicts(found: Imported) -> list[str]:
    return [row.verdict for row in found.rows]


# --- the real files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
def test_every_row_of_every_database_has_a_verdict_and_none_is_dropped(store: sync.Holdproof, name: str) -> None:
    source, dboms = fixture(f"green-agent/{name}"), fixture("green-agent/dboms")
    with closing(apsw.Connection(f"file:{source}?immutable=1", flags=apsw.SQLITE_OPEN_URI | 1)) as connection:
        cursor = connection.execute("SELECT * FROM battles ORDER BY rowid")
        columns = [each[0] for each in cursor.getdescription()]
        rows = [dict(zip(columns, row, strict=True)) for row in cursor]
    found = store.imports.green_agent(source, dboms=dboms)
    assert (found.verdicts, len(found.rows)) == (REAL[name], len(rows))
    stored = store.evaluations.list(limit=1000).items[::-1]
    assert len(stored) == len(rows)
    for original, battle in zip(rows, stored, strict=True):
        beside = battle.facts["row"]
        assert {
            name: beside[name] if name in beside else getattr(battle, {"battle_id": "evaluation_id"}.get(name, name))
            for name in columns
        } == original


def test_all_hundred_of_tier_one_are_verified_and_every_signature_is_unsigned(store: sync.Holdproof) -> None:
    dboms = fixture("green-agent/dboms")
    for name in REAL:
        found = store.imports.green_agent(fixture(f"green-agent/{name}"), dboms=dboms)
        assert set(found.signatures) <= {"UNSIGNED"}
    settled(store)
    checked = Counter(store.dbom.verify(path).verdict for path in sorted(dboms.glob("*.json")))
    assert checked == {Verdict.UNSIGNED: 128}
    report = store.verify.run(full=True, lock=False)
    assert report.verdict is Verdict.UNSIGNED
    assert {each.verdict for each in report.findings} == {Verdict.UNSIGNED}
    rows = sum(count for verdicts in REAL.values() for count in verdicts.values())
    assert len(report.findings) + report.left_off == report.checked["unsigned"] == rows


@pytest.mark.parametrize("settle", [True, False], ids=["settled", "at once"])
def test_imported_rows_without_a_dbom_are_unsigned_and_never_valid_or_tampered(
    store: sync.Holdproof, tmp_path: Path, settle: bool
) -> None:
    source = make(tmp_path / "battles.db", CURRENT, add("with", '{"run": 1}'), add("without", '{"run": 2}'))
    write_dbom(tmp_path / "given", "with", '{"run": 1}')
    store.evaluations.submit({}, evaluation_id="ours", score=1)
    store.imports.green_agent(source, dboms=tmp_path / "given")
    if settle:
        settled(store)
    report = store.verify.run()
    unsigned = [each for each in report.findings if each.verdict is Verdict.UNSIGNED]
    assert (report.verdict, report.checked["unsigned"], report.locked) == (Verdict.UNSIGNED, 2, None)
    assert {(each.table, each.row, each.what.split(":")[0]) for each in unsigned} == {
        ("battles", "2", "imported with a simulated signature"),
        ("battles", "3", "imported without a DBOM"),
    }
    assert report.verdict.exit_code == 10
    assert store.dbom.verify(tmp_path / "given" / "dbom_with.json").verdict is Verdict.UNSIGNED


def test_dbom_files_are_taken_over_byte_for_byte(tmp_path: Path) -> None:
    dboms = fixture("green-agent/dboms")
    with sync.open(tmp_path) as store:
        store.imports.green_agent(fixture("green-agent/battles_tier1_100rows.db"), dboms=dboms)
    mine = {path.name: path.read_bytes() for path in (tmp_path / "dboms").glob("*.json")}
    assert len(mine) == 100
    assert all((dboms / name).read_bytes() == data for name, data in mine.items())


def test_a_second_import_changes_nothing(store: sync.Holdproof) -> None:
    source, dboms = fixture("green-agent/battles_75rows_22dup.db"), fixture("green-agent/dboms")
    assert store.imports.green_agent(source, dboms=dboms).done == {"imported": 75}
    before = store.evaluations.list(limit=1000)
    again = store.imports.green_agent(source, dboms=dboms)
    assert (again.done, again.verdicts) == ({"known": 75}, REAL["battles_75rows_22dup.db"])
    assert store.evaluations.list(limit=1000) == before


def test_dboms_that_come_later_complete_their_rows(store: sync.Holdproof) -> None:
    source, dboms = fixture("green-agent/battles_tier1_100rows.db"), fixture("green-agent/dboms")
    assert store.imports.green_agent(source).verdicts == {"DBOM_MISSING": 100}
    assert store.imports.green_agent(source, dboms=dboms).done == {"completed": 100}
    settled(store)
    assert store.dbom.verify(next(iter(dboms.glob("dbom_auto_*.json")))).verdict is Verdict.UNSIGNED
    assert {each.verdict for each in store.verify.run(full=True, lock=False).findings} == {Verdict.UNSIGNED}


def test_a_dry_run_says_everything_and_writes_nothing(store: sync.Holdproof) -> None:
    found = store.imports.green_agent(
        fixture("green-agent/battles_tier1_100rows.db"), dboms=fixture("green-agent/dboms"), dry_run=True
    )
    assert (found.verdicts, found.done) == ({"VERIFIED": 100}, {})
    assert store.evaluations.list().items == []


def test_progress_is_told_to_the_end(store: sync.Holdproof) -> None:
    told: list[tuple[int, int]] = []
    store.imports.green_agent(
        fixture("green-agent/battles_old_schema_no_id.db"), progress=lambda done, total: told.append((done, total))
    )
    assert told == [(200, 393), (393, 393)]


# --- what else goes wrong ----------------------------------------------------------------------------------------


def test_duplicates_overwritten_dboms_and_empty_hashes_are_told_apart(store: sync.Holdproof, tmp_path: Path) -> None:
    source = make(
        tmp_path / "battles.db",
        CURRENT,
        add("twice", '{"run": 1}'),
        add("twice", '{"run": 2}'),
        add("alone", '{"run": 3}'),
        add("empty", '{"run": 4}', hashed=""),
        add("forged", '{"run": 5}', hashed="00" * 32),
        add("rescored", '{"run": 6}', score=0.9),
        add("lost", '{"run": 7}'),
    )
    dboms = tmp_path / "dboms"
    for name, raw in (("twice", '{"run": 2}'), ("empty", '{"run": 4}'), ("rescored", '{"run": 6}')):
        write_dbom(dboms, name, raw)
    write_dbom(dboms, "lost", '{"run": "overwritten, and its row is gone"}')
    write_dbom(dboms, "nobody", "{}")
    (dboms / "dbom_broken.json").write_bytes(b"\xff{")
    found = store.imports.green_agent(source, dboms=dboms)
    assert verdicts(found) == [
        "DBOM_SUPERSEDED",
        "VERIFIED",
        "DBOM_MISSING",
        "UNLINKED",
        "UNLINKED",
        "UNLINKED",
        "DBOM_SUPERSEDED",
    ]
    assert [Path(path).name for path in found.dboms_unmatched] == ["dbom_broken.json", "dbom_nobody.json"]
    lost = store.evaluations.get("lost")
    [stray] = lost.facts["dboms"]
    assert (lost.dbom, bytes.fromhex(stray["hex"])) == (None, (dboms / "dbom_lost.json").read_bytes())
    assert store.evaluations.get("twice").dbom == (dboms / "dbom_twice.json").read_text()


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE battles (battle_id TEXT PRIMARY KEY, task_title TEXT, timestamp TEXT, score TEXT,"
        " raw_result JSON)",
        "CREATE TABLE battles (id TEXT PRIMARY KEY, battle_id TEXT, timestamp TEXT, score REAL, breakdown TEXT,"
        " raw_result TEXT, dbom_hash TEXT)",
        "CREATE TABLE battles (battle_id TEXT PRIMARY KEY, task_title TEXT, timestamp DATETIME) WITHOUT ROWID",
    ],
)
def test_older_schemas_keep_what_has_no_column_here(store: sync.Holdproof, tmp_path: Path, schema: str) -> None:
    source = make(tmp_path / "old.db", schema)
    columns = [row[1] for row in apsw.Connection(str(source)).execute("PRAGMA table_info(battles)")]
    values = {"id": "u-1", "battle_id": "b", "task_title": "Limiter", "timestamp": "2026-01-13", "score": "0.75"}
    given = [values.get(name, "{}") for name in columns]
    make(source, (f"INSERT INTO battles VALUES ({','.join('?' * len(given))})", tuple(given)))
    found = store.imports.green_agent(source)
    assert (found.schema, verdicts(found)) == ("old", ["SCHEMA_OLD"])
    facts = store.evaluations.get("b").facts["row"]
    for name in set(columns) & {"id", "task_title"}:
        assert facts[name] == values[name]
    if "score TEXT" in schema:
        assert (facts["score"], store.evaluations.get("b").score) == ("0.75", None)


def test_hostile_values_are_kept_and_leave_the_folder_alone(store: sync.Holdproof, tmp_path: Path) -> None:
    raw = '{"x": 1}'
    source = make(
        tmp_path / "battles.db",
        CURRENT,
        add("../../outside", raw),
        add("nul\0inside", "a\0b"),
        ("INSERT INTO battles VALUES (9, 'blob', 't', 1, NULL, x'ff00', NULL)", ()),
        ("INSERT INTO battles VALUES (10, CAST(x'ff' AS TEXT), 't', 1e999, NULL, CAST(x'ff' AS TEXT), NULL)", ()),
    )
    dboms = tmp_path / "dboms"
    write_dbom(dboms, "../../outside", raw, name="dbom_outside.json")
    found = store.imports.green_agent(source, dboms=dboms)
    assert verdicts(found) == ["VERIFIED", "DBOM_MISSING", "UNLINKED", "UNLINKED"]
    rows = store.evaluations.list().items[::-1]
    assert rows[1].facts["row"]["battle_id"] == "nul\0inside"
    assert rows[2].facts["row"]["raw_result"] == {"hex": "ff00"}
    assert rows[3].facts["row"]["score"] == {"float": "inf"}
    assert not list((tmp_path / "home").rglob("*outside*"))
    assert {path.name for path in tmp_path.iterdir()} <= {"battles.db", "dboms", "home"}


def test_an_imported_dbom_never_displaces_a_signed_one(tmp_path: Path) -> None:
    raw = '{"x": 1}'
    source = make(tmp_path / "battles.db", CURRENT, add("b", raw))
    old = write_dbom(tmp_path / "dboms", "b", raw)
    with sync.open(tmp_path / "home") as store:
        signed = store.evaluations.submit({}, evaluation_id="b", score=1)
        store.imports.green_agent(source, dboms=tmp_path / "dboms")
        folder = tmp_path / "home" / "dboms"
        assert (folder / "dbom_b.json").read_text() == signed.dbom
        assert (folder / "dbom_b.2.json").read_bytes() == old.read_bytes()
        assert store.dbom.verify(old).verdict is Verdict.UNSIGNED
        assert {each.verdict for each in store.verify.run(lock=False).findings} == {Verdict.UNSIGNED}


def test_the_source_is_never_touched_even_with_a_log_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    writer = apsw.Connection(str(folder / "battles.db"))
    writer.execute("PRAGMA journal_mode=wal")
    writer.execute(CURRENT)
    writer.execute(*add("in the log", "{}"))
    shutil.copytree(folder, tmp_path / "crashed")
    writer.close()
    crashed = tmp_path / "crashed"
    (crashed / "battles.db-shm").unlink()
    before = {path.name: path.read_bytes() for path in crashed.iterdir()}
    with sync.open(tmp_path / "home") as store:
        found = store.imports.green_agent(crashed / "battles.db")
    assert verdicts(found) == ["DBOM_MISSING"]
    assert {path.name: path.read_bytes() for path in crashed.iterdir()} == before


def test_what_is_no_database_of_a_green_agent_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, but long enough to have a header of some kind " * 9)
    make(tmp_path / "other.db", "CREATE TABLE something (x)")
    with sync.open(tmp_path / "home") as store:
        for name, kind in (
            ("none.db", errors.NotFoundError),
            ("text.db", errors.ForeignFileError),
            ("other.db", errors.FormatError),
        ):
            with pytest.raises(kind):
                store.imports.green_agent(tmp_path / name)
        with pytest.raises(errors.NotFoundError):
            store.imports.green_agent(make(tmp_path / "battles.db", CURRENT), dboms=tmp_path / "nowhere")


def test_a_dbom_that_cannot_be_read_or_is_far_too_large_stops_nobody(store: sync.Holdproof, tmp_path: Path) -> None:
    source = make(tmp_path / "battles.db", CURRENT, add("gone", "{}"), add("huge", "[]"), add("alone", "[1]"))
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "dbom_gone.json").symlink_to(tmp_path / "nowhere")
    (folder / "dbom_huge.json").write_bytes(b" " * (5 << 20))
    found = store.imports.green_agent(source, dboms=folder)
    assert {row.evaluation_id: (row.verdict, "a link, not followed" in row.note) for row in found.rows} == {
        "gone": ("DBOM_MISSING", True),
        "huge": ("UNLINKED", False),
        "alone": ("DBOM_MISSING", False),
    }
    assert (found.done, found.dboms_unmatched) == ({"imported": 3}, [])
    kept = {name: json.loads(store.evaluations.get(name).legacy or "{}")["dboms"] for name in ("gone", "huge")}
    assert kept["gone"] == [{"file": "dbom_gone.json", "trouble": "it is a link, not followed"}]
    assert [len(each["hex"]) for each in kept["huge"]] == [10 << 20]
    settled(store)
    assert store.verify.run(lock=False).verdict is Verdict.UNSIGNED
