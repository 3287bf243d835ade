"""What must be detected: every row of the specification's table, as a real attack on a real store.

The attacker writes through SQLite itself with page checksums made anew, or as the owner of the PostgreSQL schema.
"""

import random
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.attacks import (
    FILE_VERDICTS,
    FILES,
    ONLY_FULL,
    ROWS,
    SCHEMA,
    SERVER,
    legacy,
    lie_by_index,
    regrow,
    rewrite,
    signed_by,
    thief,
)
from harness.filling import populate, settled, submit
from harness.raw_access import Past, asking, attack, attack_server, behind, copy
from harness.servers import Postgres
from holdproof import errors, sync
from holdproof.crypto import keys
from holdproof.evidence import key_use, trust
from holdproof.evidence import keys as ring
from holdproof.evidence.evaluations import EVALUATIONS
from holdproof.evidence.key_files import KeyFolder
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Report


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("template") / "home"
    with sync.open(home) as store:
        populate(store)
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return copy(template, tmp_path / "home")


def verify(home: Path, *, full: bool = False) -> Report:
    return sync.verify(home, full=full, lock=False)


def forget_heads(home: Path) -> None:
    """As if nobody had kept a head elsewhere."""
    (home / "state" / "heads.jsonl").unlink()


def test_an_honest_store_is_valid_in_both_modes(home: Path) -> None:
    assert [verify(home, full=full).findings for full in (False, True)] == [[], []]
    assert verify(home).verdict is Verdict.VALID


# --- rows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_was_tampered_with_is_named(home: Path, name: str) -> None:
    attack(home, *ROWS[name])
    for full in (True,) if name in ONLY_FULL else (False, True):
        report = verify(home, full=full)
        assert report.verdict.locks if "leaf" in name or "log" in name else report.verdict is Verdict.TAMPERED
        assert all(finding.place and finding.what and finding.remedy for finding in report.findings)


ODD = {
    "battles": ("battle_id", "raw_result", "dbom_hash", "ns", "dbom", "timestamp", "leaf_id"),
    "keyring": ("keyid", "public", "statement", "leaf_id"),
    "log_leaves": ("id", "leaf"),
    "log_state": ("origin", "head"),
    "subjects": ("handle", "ns"),
}


@pytest.mark.parametrize(("table", "column"), [(table, column) for table in ODD for column in ODD[table]])
def test_a_text_that_was_made_bytes_is_tampering_and_no_defect(home: Path, table: str, column: str) -> None:
    """SQLite keeps a value of any type in any column, and its own integrity check does not mind."""
    attack(home, f"UPDATE {table} SET {column} = CAST({column} AS BLOB)")
    for full in (False, True):
        assert verify(home, full=full).verdict.locks


def test_a_row_added_with_the_bytes_that_a_key_spells_is_found(home: Path) -> None:
    """A handle of a subject is hex: the bytes it stands for are another key, and must not be the same leaf."""
    attack(
        home,
        "INSERT INTO subjects SELECT unhex(handle), ns, name_hash || 'x', key, created_at, erased_at, leaf_id,"
        " leaf_ver, leaf_salt FROM subjects",
    )
    report = verify(home)
    assert (report.verdict, report.findings[0].table) == (Verdict.TAMPERED, "subjects")


@pytest.mark.parametrize(
    "change",
    [
        *("frontier = 'text'", "size = 'text'", "size = -1", "size = 1 << 62", "frontier = x'00'", "head = 7"),
        *("origin = 'two words'", "origin = ''", "origin = origin || char(10) || 'x'", "origin = x'00ff'", "id = 2"),
    ],
)
def test_a_state_of_the_log_that_cannot_be_is_tampering_and_no_defect(home: Path, change: str) -> None:
    attack(home, f"UPDATE log_state SET {change}")
    for full in (False, True):
        assert verify(home, full=full).verdict.locks


def test_a_key_whose_id_is_bytes_is_named_and_locks(home: Path) -> None:
    """Whatever stands in a row, the lockdown has to write it down."""
    attack(home, "UPDATE keyring SET keyid = x'00ff' WHERE role = 'root'")
    assert sync.verify(home, lock=True).locked


def test_a_salt_of_another_type_is_named_with_its_row(home: Path) -> None:
    attack(home, "UPDATE battles SET leaf_salt = 'text' WHERE id = 3")
    finding = verify(home).findings[0]
    assert (finding.table, finding.row) == ("battles", "3")


@pytest.mark.parametrize("change", ["role = 'judge'", "public = 'nobody'"])
def test_a_keyring_without_the_key_that_signed_the_log_is_named(home: Path, change: str) -> None:
    attack(home, f"UPDATE keyring SET {change} WHERE role = 'log'")
    report = verify(home)
    assert report.verdict is Verdict.TAMPERED
    assert "keyring" in {finding.table for finding in report.findings}


def test_a_row_written_past_holdproof_without_a_leaf_is_unlogged(home: Path) -> None:
    attack(home, "INSERT INTO subjects (handle, ns, created_at) VALUES ('ab', 'main', '2026-01-01T00:00:00.000000Z')")
    report = verify(home)
    assert (report.verdict, report.findings[0].row) == (Verdict.UNLOGGED, "ab")


def test_an_old_version_of_a_row_that_is_put_back_is_found(home: Path, tmp_path: Path) -> None:
    """The judge's key before its revocation, with its old salt: row and leaf agree, but a newer leaf exists."""
    with sync.open(tmp_path / "new") as store:
        submit(store, "b", 0.1)
    before = asking(tmp_path / "new")("SELECT keyid, revoked_from, statement, leaf_ver, leaf_salt FROM keyring")
    with sync.open(tmp_path / "new") as store:
        store.run(trust.export_root(store.context))
        judge = store.run(key_use.use(store.context, "judge"))
        store.run(ring.revoke(store.context, judge.keyid))
    old = next(row for row in before if row[0] == judge.keyid)
    with behind(tmp_path / "new") as connection:
        connection.execute(
            "UPDATE keyring SET revoked_from = ?2, statement = ?3, leaf_ver = ?4, leaf_salt = ?5 WHERE keyid = ?1", old
        )
    report = verify(tmp_path / "new")
    assert report.verdict is Verdict.TAMPERED
    assert "version 1 of the row was put back" in report.findings[0].what


def test_nor_does_it_help_to_file_the_newer_leaf_elsewhere(home: Path) -> None:
    """The revocation of the first judge is taken back, and its leaf kept, word for word, where nobody looks it up."""
    with behind(home) as connection:
        [keyid, statement, leaf_id] = next(
            connection.execute("SELECT keyid, statement, leaf_id FROM keyring WHERE revoked_from IS NOT NULL")
        )
        connection.execute("UPDATE log_leaves SET id = 'x' WHERE id = ? AND ver = 2", (leaf_id,))
        connection.execute(
            "UPDATE keyring SET revoked_from = NULL, statement = ?, leaf_ver = 1 WHERE keyid = ?",
            (statement.split("\n")[0], keyid),
        )
    for full in (False, True):
        found = [finding.what for finding in verify(home, full=full).findings if finding.table == "log"]
        assert any("filed under another record" in what for what in found)


@pytest.mark.parametrize("index", [-1, 10_000])
def test_a_row_added_with_a_fitting_leaf_outside_the_log_is_found(home: Path, index: int) -> None:
    handle, columns = "019a0000-0000-7000-8000-000000000000", ", ".join(EVALUATIONS.projection.columns)
    with behind(home) as connection:
        row = dict(
            zip(EVALUATIONS.projection.columns, next(connection.execute(f"SELECT {columns} FROM battles")), strict=True)
        )
        row |= {"id": 999, "battle_id": "forged", "dbom": None, "legacy": "{}"}
        digest = EVALUATIONS.projection.commit(bytes(16), row)
        leaf = (
            f'{{"h":"{digest}","id":"{handle}","ns":"main","p":"battles/1","t":"legacy_import","ts":"","v":1,"ver":1}}'
        )
        connection.execute("INSERT INTO log_leaves VALUES (?, ?, 1, ?)", (index, handle, leaf))
        marks = ", ".join("?" * len(row))
        connection.execute(
            f"INSERT INTO battles ({columns}, leaf_id, leaf_ver, leaf_salt) VALUES ({marks}, ?, 1, ?)",
            (*row.values(), handle, bytes(16)),
        )
    for full in (False, True):
        report = verify(home, full=full)
        assert (report.verdict, report.findings[0].row) == (Verdict.TAMPERED, str(index))


# --- row and leaf, and the tree with them ------------------------------------------------------------------------


def test_a_row_edited_together_with_its_leaf_is_found_by_a_full_run(home: Path) -> None:
    rewrite(Past(home))
    report = verify(home, full=True)
    assert report.verdict.locks
    assert "the tree was not recomputed" in verify(home).not_checked[0]


def test_a_row_edited_with_leaf_and_tree_is_found_without_the_log_key(home: Path) -> None:
    rewrite(Past(home))
    regrow(Past(home), None)
    assert verify(home).verdict.locks
    forget_heads(home)
    assert verify(home).verdict.locks


def test_a_head_re_signed_with_another_key_is_found(home: Path) -> None:
    regrow(Past(home), signed_by(keys.generate("ed25519")))
    report = verify(home)
    assert report.verdict is Verdict.TAMPERED
    assert any("head" in finding.what for finding in report.findings)


def test_a_head_re_signed_with_a_revoked_key_is_found_and_proves_no_dbom(home: Path) -> None:
    with sync.open(home) as store:
        old = KeyFolder(home / "config" / "keys").load("log")
        store.keys.rotate("log")
        store.keys.revoke(old.keyid)
        submit(store, "later", 0.9)
        assert store.dbom.verify(home / "dboms" / "dbom_later.json").verdict is Verdict.VALID
    regrow(Past(home), signed_by(old))
    assert verify(home).verdict is Verdict.TAMPERED
    with sync.open(home) as store:
        assert store.dbom.verify(home / "dboms" / "dbom_later.json").verdict is Verdict.TAMPERED


def test_a_key_put_into_the_keyring_for_it_is_found_too(home: Path) -> None:
    stranger = keys.generate("ed25519")
    with behind(home) as connection:
        connection.execute(
            "UPDATE keyring SET keyid = ?, public = ? WHERE role = 'log'",
            (stranger.keyid, stranger.public.to_pem().decode()),
        )
    regrow(Past(home), signed_by(stranger))
    assert any(finding.table == "keyring" for finding in verify(home).findings)


def test_a_rewriting_thief_of_the_log_key_is_found_only_by_a_head_kept_elsewhere(home: Path) -> None:
    rewrite(Past(home))
    regrow(Past(home), thief(home))
    assert verify(home, full=True).verdict is Verdict.FORKED
    forget_heads(home)
    found = [finding for finding in verify(home, full=True).findings if finding.table in ("log", "log_leaves")]
    assert found == []  # said plainly in docs/threat-model.md: this cannot be seen from the store alone
    assert verify(home).verdict is Verdict.TAMPERED  # but the judge's signature is not the log's to forge


def test_a_thief_of_the_log_key_who_takes_the_dbom_away_is_found_without_a_kept_head(home: Path) -> None:
    """A row without a DBOM is one that was imported, and its leaf says whether it was."""
    rewrite(Past(home), "dbom = NULL, score = 0.99")
    regrow(Past(home), thief(home))
    forget_heads(home)
    (home / "dboms" / "dbom_b2.json").unlink()
    report = verify(home, full=True)
    assert report.verdict is Verdict.TAMPERED
    assert [(each.row, each.what) for each in report.findings] == [("3", "the DBOM of a signed decision is gone")]


def test_a_forged_tree_is_not_signed_by_the_next_commit(home: Path) -> None:
    """Otherwise the store's own key would vouch for the forgery; the opening looks before anything is appended."""
    rewrite(Past(home), "breakdown = 'another explanation'")
    regrow(Past(home), None)
    forget_heads(home)
    with sync.open(home) as store, pytest.raises(errors.LockedError):
        submit(store, "next", 0.5)
    assert verify(home, full=True).verdict.locks


def test_nor_by_a_store_that_was_open_all_the_while(home: Path) -> None:
    """A right edge and a head that fit each other are not enough to go on from: a log key must have signed."""
    with sync.open(home) as store:
        submit(store, "before", 0.5)
        rewrite(Past(home), "breakdown = 'another explanation'")
        regrow(Past(home), signed_by(keys.generate("ed25519")))
        vars(store.context.log)["_seen"] = ""  # what it remembers of its own heads would refuse it before
        with pytest.raises(errors.ProofError, match="newest head does not hold"):
            submit(store, "next", 0.5)
    forget_heads(home)
    assert verify(home).verdict is Verdict.TAMPERED


def test_a_thief_of_the_log_key_who_keeps_to_what_no_judge_signed_is_not_found_without_a_kept_head(home: Path) -> None:
    """The limit of what can be proven: everything that one key signs, by whoever holds it, and no head elsewhere."""
    rewrite(Past(home), "breakdown = 'another explanation'")
    regrow(Past(home), thief(home))
    assert verify(home, full=True).verdict is Verdict.FORKED
    forget_heads(home)
    (home / "state" / "lockdown.json").unlink()
    assert verify(home, full=True).verdict is Verdict.VALID


# --- the past ----------------------------------------------------------------------------------------------------


def grow(home: Path) -> None:
    """Another day's work."""
    with sync.open(home) as store:
        for number in range(3):
            submit(store, f"later{number}", 0.9)


def test_yesterdays_file_is_found_by_a_head_kept_elsewhere_and_only_so(home: Path) -> None:
    shutil.copy(home / "kernel.db", home / "yesterday.db")
    grow(home)
    shutil.move(home / "yesterday.db", home / "kernel.db")
    assert verify(home).verdict is Verdict.ROLLED_BACK
    assert verify(home, full=True).verdict is Verdict.ROLLED_BACK
    hide_the_future(home)
    assert verify(home, full=True).verdict is Verdict.VALID  # nothing left knows of the lost day


def hide_the_future(home: Path) -> None:
    """What an attacker must remove so that nothing outside the database speaks of what was cut off."""
    forget_heads(home)
    for path in (home / "dboms").glob("dbom_later*"):
        path.unlink()
    (home / "state" / "lockdown.json").unlink()


def test_a_cut_tail_is_found_by_a_head_kept_elsewhere_and_only_so(home: Path) -> None:
    """The attacker kept the signed head of the shorter log: what is left is a consistent store."""
    [state] = asking(home)("SELECT size, frontier, head FROM log_state")
    counts = asking(home)("SELECT n, stream FROM log_streams")
    with behind(home) as connection:
        stems = connection.execute("SELECT count(*) FROM log_tiles").get
        assert stems == 0, "short enough to have no full tile"
    grow(home)
    with behind(home) as connection:
        connection.executemany("UPDATE log_streams SET n = ? WHERE stream = ?", counts)
        connection.execute("DELETE FROM battles WHERE battle_id LIKE 'later%'")
        connection.execute("DELETE FROM log_leaves WHERE idx >= ?", state[:1])
        connection.execute("UPDATE log_state SET size = ?, frontier = ?, head = ?", state)
    assert verify(home).verdict is Verdict.ROLLED_BACK
    hide_the_future(home)
    assert verify(home, full=True).verdict is Verdict.VALID


def test_a_crudely_cut_tail_is_found_from_the_file_alone(home: Path) -> None:
    attack(home, "DELETE FROM battles WHERE id > 5", "DELETE FROM log_leaves WHERE idx > 12")
    forget_heads(home)
    assert verify(home).verdict is Verdict.TAMPERED


EVERYTHING = ("log_state", "log_leaves", "keyring", "battles", "subjects")


@pytest.mark.parametrize("tables", [EVERYTHING[:1], EVERYTHING], ids=["state", "everything"])
def test_a_log_that_is_gone_is_not_begun_anew_under_its_name(home: Path, tables: tuple[str, ...]) -> None:
    kept = (home / "state" / "heads.jsonl").read_text()
    forget = "UPDATE schema_migrations SET leaf_id = NULL, leaf_ver = NULL, leaf_salt = NULL"
    attack(home, *(f"DELETE FROM {table}" for table in tables), forget)
    with pytest.raises(errors.CorruptError, match="the log of this store is gone"):
        sync.open(home)
    assert verify(home).verdict is Verdict.TAMPERED
    assert (home / "state" / "heads.jsonl").read_text() == kept


def test_heads_that_were_kept_and_cannot_be_read_are_told(home: Path) -> None:
    with (home / "state" / "heads.jsonl").open("a") as file:
        file.write('{"head": "scratched"}\n')
    with sync.open(home) as store:
        [told] = [each for each in store.verify.run().not_checked if "torn or damaged" in each]
    assert "1 of its lines" in told


def test_no_store_takes_the_place_of_another_by_itself(home: Path) -> None:
    (home / "kernel.db").unlink()
    with pytest.raises(errors.StoreGoneError):
        sync.open(home)
    assert not (home / "kernel.db").exists()


def test_a_store_under_another_name_than_its_log_is_found(home: Path) -> None:
    attack(home, "UPDATE store_facts SET value = 'other' WHERE key = 'store_id'")
    report = verify(home)
    assert report.verdict is Verdict.TAMPERED
    assert "store_facts" in {finding.table for finding in report.findings}


def test_a_store_that_forgot_its_name_is_not_taken_for_a_new_one(home: Path) -> None:
    attack(home, "DELETE FROM store_facts")
    report = verify(home)
    assert report.verdict is Verdict.TAMPERED
    assert "the database is gone" in report.findings[0].what


# --- answers that lie --------------------------------------------------------------------------------------------


def test_a_covering_index_that_lies_while_rows_are_intact_is_found(home: Path) -> None:
    """The index's own b-tree is edited, as a table WITHOUT ROWID laid over its root page."""
    lie = "SELECT count(*) FROM battles INDEXED BY idx_battles_battle_id WHERE ns = 'main' AND battle_id = 'b3'"
    truth = "SELECT count(*) FROM battles NOT INDEXED WHERE battle_id = 'b3'"
    lie_by_index(home)
    ask = asking(home)
    assert (ask(lie), ask(truth)) == ([(0,)], [(1,)])
    report = verify(home)
    assert report.verdict is Verdict.TAMPERED
    assert "integrity check" in report.findings[0].what
    assert "idx_battles_battle_id" in " ".join(finding.what for finding in report.findings)


@pytest.mark.parametrize("name", SCHEMA)
def test_a_changed_schema_is_found_and_the_object_named(home: Path, name: str) -> None:
    attack(home, SCHEMA[name])
    report = verify(home)
    assert report.verdict is Verdict.TAMPERED
    assert any(finding.table == "schema" for finding in report.findings)


# --- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_dbom_file_that_was_tampered_with_is_named(home: Path, name: str) -> None:
    path = home / "dboms" / "dbom_b3.json"
    FILES[name](path)
    report = verify(home)
    assert (report.verdict, report.findings[0].file) == (FILE_VERDICTS.get(name, Verdict.TAMPERED), str(path))
    assert ("downgrade" in report.findings[0].what) == ("legacy" in name)


def test_a_dbom_replaced_by_a_legacy_one_in_row_and_file_is_a_downgrade(home: Path) -> None:
    path = home / "dboms" / "dbom_b3.json"
    path.write_bytes(legacy(path))
    with behind(home) as connection:
        connection.execute("UPDATE battles SET dbom = ? WHERE battle_id = 'b3'", (path.read_text(),))
    report = verify(home)
    assert report.verdict is Verdict.TAMPERED
    assert any("downgrade" in finding.what for finding in report.findings)


def test_a_dbom_file_of_nobody_is_unlogged(home: Path) -> None:
    path = home / "dboms" / "dbom_invented.json"
    shutil.copy(home / "dboms" / "dbom_b3.json", path)
    report = verify(home)
    assert (report.verdict, report.findings[0].file) == (Verdict.UNLOGGED, str(path))


@pytest.mark.parametrize("seed", range(24))
def test_a_flipped_byte_anywhere_in_the_database_file_is_found(home: Path, seed: int) -> None:
    path, dice = home / "kernel.db", random.Random(seed)
    data = bytearray(path.read_bytes())
    at = dice.randrange(len(data)) if seed else 20
    data[at] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    report = verify(home)
    # A page whose checksum is wrong may also be another program's: what is under the log tells.
    assert report.verdict in (Verdict.FOREIGN_WRITER, Verdict.TAMPERED), at
    assert str(path) in [each.file for each in report.findings]
    assert not [each.what for each in report.findings if "SELECT" in each.what]


def test_a_damaged_page_is_told_by_its_table_and_not_by_a_query(home: Path) -> None:
    ask = asking(home)
    offset, page = ask("SELECT pgoffset, pageno FROM dbstat WHERE name = 'battles' AND pagetype = 'leaf'")[0]
    data = bytearray((home / "kernel.db").read_bytes())
    data[offset + 2000] ^= 1
    (home / "kernel.db").write_bytes(data)
    told = verify(home).findings
    pages = [each.what for each in told if each.verdict is Verdict.FOREIGN_WRITER]
    assert pages == [f"page {page} is damaged or was written by another program (table battles)"]
    rows = [each for each in told if each.verdict is Verdict.TAMPERED]
    assert rows
    assert all("battles" in each.table for each in rows)


def test_a_missing_table_is_named_and_ends_one_check_only(home: Path) -> None:
    attack(home, "DROP TABLE decision_feedback_trajectory")
    told = verify(home).findings
    assert [each.what for each in told if each.table == "decision_feedback_trajectory"] == [
        "rows: cannot be read to the end (a table or column is missing)"
    ]
    assert not [each.what for each in told if "SELECT" in each.what]


def test_a_missing_table_without_which_nothing_opens_is_named_too(home: Path) -> None:
    attack(home, "DROP TABLE erasures")
    [told] = verify(home).findings
    assert (told.verdict, told.table) == (Verdict.TAMPERED, "erasures")
    assert told.what == "the store cannot be opened: a table or column is missing"


# --- PostgreSQL --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SERVER)
def test_tampering_on_a_server_is_found(tmp_path: Path, postgres_url: str, name: str) -> None:
    home = tmp_path / "home"
    with sync.open(home, postgres_url) as store:
        populate(store, 6)
    honest = sync.verify(home, postgres_url, full=True, lock=False)
    assert (honest.verdict, honest.findings) == (Verdict.VALID, [])
    attack_server(postgres_url, *SERVER[name])
    assert sync.verify(home, postgres_url, lock=False).verdict.locks


def test_leaves_swapped_in_the_log_of_a_server_are_found_by_a_full_run(tmp_path: Path, postgres_url: str) -> None:
    with sync.open(tmp_path / "home", postgres_url) as store:
        populate(store, 6)
    attack_server(postgres_url, *ROWS["leaves swapped in the log"])
    assert sync.verify(tmp_path / "home", postgres_url, full=True, lock=False).verdict.locks


def test_a_head_re_signed_with_another_key_on_a_server_is_found(tmp_path: Path, postgres_url: str) -> None:
    with sync.open(tmp_path / "home", postgres_url) as store:
        submit(store, "b", 0.5)
        settled(store)
        said = store.log.head().checkpoint
    head = signed_by(keys.generate("ed25519"))(said)
    attack_server(postgres_url, f"UPDATE log_state SET head = '{head}'")
    report = sync.verify(tmp_path / "home", postgres_url, lock=False)
    assert report.verdict is Verdict.TAMPERED
    assert any("head" in finding.what for finding in report.findings)


@pytest.mark.parametrize("name", FILES)
def test_a_dbom_file_beside_a_server_that_was_tampered_with_is_named(
    tmp_path: Path, postgres_url: str, name: str
) -> None:
    home = tmp_path / "home"
    with sync.open(home, postgres_url) as store:
        for evaluation_id in ("b3", "b4"):
            submit(store, evaluation_id, 0.03)
    path = home / "dboms" / "dbom_b3.json"
    FILES[name](path)
    report = sync.verify(home, postgres_url, lock=False)
    assert (report.verdict, report.findings[0].file) == (FILE_VERDICTS.get(name, Verdict.TAMPERED), str(path))


def test_yesterdays_database_on_a_server_is_found_by_a_head_kept_elsewhere(
    tmp_path: Path, postgres: Postgres, empty_postgres_url: str
) -> None:
    home, name = tmp_path / "home", urlsplit(empty_postgres_url).path.strip("/")
    with sync.open(home, empty_postgres_url) as store:
        submit(store, "b", 0.5)
    postgres.sql(f"CREATE DATABASE {name}_old TEMPLATE {name}")
    with sync.open(home, empty_postgres_url) as store:
        submit(store, "later", 0.9)
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")
    postgres.sql(f"ALTER DATABASE {name}_old RENAME TO {name}")
    assert sync.verify(home, empty_postgres_url, lock=False).verdict is Verdict.ROLLED_BACK


def test_a_cut_tail_on_a_server_is_found_by_a_head_kept_elsewhere(tmp_path: Path, postgres_url: str) -> None:
    home = tmp_path / "home"
    with sync.open(home, postgres_url) as store:
        populate(store, 3)
    attack_server(postgres_url, "CREATE TABLE public.kept AS SELECT size, frontier, head FROM log_state")
    with sync.open(home, postgres_url) as store:
        submit(store, "later", 0.9)
    attack_server(
        postgres_url,
        "DELETE FROM battles WHERE battle_id = 'later'",
        "DELETE FROM log_leaves WHERE idx >= (SELECT size FROM public.kept)",
        "UPDATE log_state SET size = k.size, frontier = k.frontier, head = k.head FROM public.kept k",
    )
    assert sync.verify(home, postgres_url, lock=False).verdict is Verdict.ROLLED_BACK
