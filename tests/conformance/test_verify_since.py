"""Verification of what was written since the last one: nothing that is new is missed, and what is believed is said."""

import json
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from harness.filling import fill, populate, settled, submit
from harness.raw_access import Past, attack, behind, copy
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.crypto import canonical
from holdproof.db import Work, call
from holdproof.evidence import audit, log, prunings, tree, verifications
from holdproof.model.log import Audited
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Report
from holdproof.store.context import Context
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.verification import recent_check, verify
from tests.store_locations import StoreLocation

TABLES = tuple(kernel_tables.LOGGED.values())
# Migrations are older than any verification; no row of the others comes from filling a store.
ATTACKED = tuple(each for each in TABLES if each.table not in {"schema_migrations", "restores", "witness_disputes"})
NAMES = {table.table for table in ATTACKED}
WIDEST = max(len(table.columns) for table in ATTACKED)


def named(report: Report) -> set[str]:
    """The tables that findings grave enough to lock speak of."""
    return {finding.table for finding in report.findings if finding.verdict.locks}


def since_last(home: Path, url: str | None = None) -> Report:
    report = sync.verify(home, url, since_last=True, lock=False)
    assert report.mode == "since last"
    return report


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was verified when it was empty; every table has rows since."""
    home = tmp_path_factory.mktemp("everything") / "home"
    with sync.open(home) as store:
        assert store.verify.run(full=True).ok
        fill(store)
    report = since_last(home)
    assert report.findings == [], report.to_dict()
    assert all(report.checked[table.table] >= 1 for table in ATTACKED), report.checked
    return home


@pytest.mark.parametrize("number", range(WIDEST))
def test_an_edit_of_any_column_of_any_new_row_is_found(template: Path, tmp_path: Path, number: int) -> None:
    home = copy(template, tmp_path / "home")
    # An edited report is one to continue no longer, which is a test of its own.
    attacked = [each for each in ATTACKED if number < len(each.columns) and each.table != "verifications"]
    with behind(home) as connection:
        for table in attacked:
            name, column = table.table, table.columns[number]
            other = (
                f"CASE typeof({column}) WHEN 'text' THEN {column} || 'x' WHEN 'null' THEN 'x' ELSE {column} + 1000 END"
            )
            connection.execute(f"UPDATE {name} SET {column} = {other} WHERE rowid = (SELECT max(rowid) FROM {name})")
    assert {table.table for table in attacked} <= named(since_last(home))


def test_a_deleted_new_row_of_any_table_is_found(template: Path, tmp_path: Path) -> None:
    home = copy(template, tmp_path / "home")
    attacked = NAMES - {"verifications"}
    attack(home, *(f"DELETE FROM {name} WHERE rowid = (SELECT max(rowid) FROM {name})" for name in attacked))
    assert named(since_last(home)) >= attacked


def test_a_row_of_any_table_without_an_entry_is_found_whenever_it_was_added(template: Path, tmp_path: Path) -> None:
    home = copy(template, tmp_path / "home")
    with behind(home) as connection:
        free = []
        for name in NAMES - {"verifications"}:
            columns = connection.execute(f"SELECT name FROM pragma_table_info('{name}') WHERE NOT \"notnull\"")
            if ("leaf_id",) in columns:
                connection.execute(f"UPDATE {name} SET leaf_id = NULL WHERE rowid = (SELECT max(rowid) FROM {name})")
                free.append(name)
    assert free
    unlogged = {each.table for each in since_last(home).findings if each.verdict is Verdict.UNLOGGED}
    assert unlogged >= set(free)


@pytest.mark.parametrize("what", ["edited", "deleted"])
def test_a_new_row_on_a_server_is_found(tmp_path: Path, postgres_url: str, what: str) -> None:
    home = tmp_path / "home"
    with sync.open(home, postgres_url) as store:
        assert store.verify.run(full=True).ok
        settled(store)
        fill(store)
    assert since_last(home, postgres_url).findings == []
    attacked = {"battles", "decision_flows", "flow_transitions", "flow_steps", "escalation_requests", "subjects"}
    with psycopg.connect(postgres_url, autocommit=True, options="-c search_path=kernel") as connection:
        connection.execute("SET session_replication_role = replica")  # no foreign key stands in the way
        for name in attacked:
            change = "DELETE FROM" if what == "deleted" else "UPDATE"
            value = "" if what == "deleted" else "SET leaf_salt = CAST('x' AS BYTEA)"
            chosen = f"WHERE ctid = (SELECT max(ctid) FROM {name})"
            connection.execute(f"{change} {name} {value} {chosen}".encode())
    assert attacked <= named(since_last(home, postgres_url))


# --- what it continues -----------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    made = StoreLocation(tmp_path / "home", url)
    with made.open() as store:
        populate(store, 4)
    return made


def test_each_run_reads_what_the_one_before_did_not(place: StoreLocation) -> None:
    with place.open() as store:
        modes = []
        for _ in range(3):
            report = store.verify.run(since_last=True)
            settled(store)
            modes.append((report.mode, report.verdict, report.checked["leaves"]))
        size = store.log.head().checkpoint.size
    # The report of the run before is the one new entry.
    assert modes == [
        ("full", Verdict.VALID, size - 3),
        ("since last", Verdict.VALID, 1),
        ("since last", Verdict.VALID, 1),
    ]
    assert f"before entry {size - 2}" in report.not_checked[0]


def test_after_one_that_found_something_everything_is_read_again(place: StoreLocation) -> None:
    with place.open() as store:
        assert store.verify.run(full=True).ok
        settled(store)
    past = Past(place.home, place.url)
    past.ask("UPDATE battles SET leaf_salt = NULL WHERE id = (SELECT min(id) FROM battles)")
    with place.open() as store:
        # What is older is not read, and the report says so.
        quick = store.verify.run(since_last=True)
        assert (quick.mode, quick.verdict) == ("since last", Verdict.VALID)
        assert "found nothing wrong" in quick.not_checked[0]
        assert store.verify.run().verdict is Verdict.TAMPERED
        settled(store)
        again = store.verify.run(since_last=True)
        assert (again.mode, again.verdict) == ("full", Verdict.TAMPERED)


def test_a_report_that_somebody_edited_is_not_continued(place: StoreLocation) -> None:
    with place.open() as store:
        assert store.verify.run(full=True).ok
        settled(store)
        submit(store, "new", 0.5)
        settled(store)
        size = store.log.head().checkpoint.size
    Past(place.home, place.url).ask(f"UPDATE verifications SET log_size = {size}")
    with place.open() as store:
        report = store.verify.run(since_last=True)
    assert (report.mode, report.verdict) == ("full", Verdict.TAMPERED)
    assert "verifications" in named(report)


def test_what_is_written_behind_the_audit_of_the_log_is_left_to_the_next_one(
    place: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report names the head that its audit saw: entries that came after it were not recomputed."""
    whole = audit.audit

    def and_then_somebody_writes(context: Context, **options: Any) -> Work[Audited]:
        audited = yield from whole(context, **options)
        yield from call(partial(submit, store, "late", 0.5))
        yield from call(partial(settled, store))
        return audited

    with place.open() as store:
        settled(store)
        before = store.log.head().checkpoint
        monkeypatch.setattr(audit, "audit", and_then_somebody_writes)
        report = store.verify.run(full=True)
        monkeypatch.undo()
        assert report.ok
        assert (report.head["size"], report.head["root"]) == (before.size, before.root.hex())
        settled(store)
        now = store.log.head().checkpoint.size
        again = store.verify.run(since_last=True)
    assert (again.mode, again.verdict) == ("since last", Verdict.VALID)
    assert again.checked["leaves"] == now - before.size
    assert again.checked["battles"] == 1


def test_entries_from_before_that_were_replaced_are_found(place: StoreLocation) -> None:
    """The new entries stand on another tree than the one that was verified."""
    with place.open() as store:
        assert store.verify.run(full=True).ok
        settled(store)
        submit(store, "new", 0.5)
        settled(store)
    past = Past(place.home, place.url)
    past.ask("""UPDATE log_leaves SET leaf = replace(leaf, '"v":1', '"v":2') WHERE idx = 3""")
    with place.open() as store:
        audited = store.run(audit.audit(store.context, since=store.read(verifications.to_continue)))
        report = store.verify.run(since_last=True)
    # Entry 3 stands in the tile that is still open, which is read again from its first entry on.
    assert any("are not those that were verified at" in each.what for each in audited.findings)
    # The opening has locked the store, so everything is read.
    assert (report.mode, report.verdict.locks) == ("full", True)


def test_an_erasure_and_a_change_of_what_is_older_hold(place: StoreLocation) -> None:
    with place.open() as store:
        assert store.verify.run(full=True).ok
        settled(store)
        store.erase.subject("Ada", who="dpo")
        settled(store)
        report = store.verify.run(since_last=True)
        assert (report.mode, report.findings) == ("since last", [])
        assert report.checked["erasures"] == 1
    place.sound()


def test_an_erasure_that_none_of_the_store_names_is_found(place: StoreLocation) -> None:
    with place.open() as store:
        assert store.verify.run(full=True).ok
        settled(store)
        store.erase.subject("Ada", who="dpo")
        settled(store)
    past = Past(place.home, place.url)
    past.ask("UPDATE erasures SET leaf_ids = '[]'")
    with place.open() as store:
        assert any("none of the store's names" in each.what for each in store.verify.run(since_last=True).findings)


def test_more_than_one_range_is_read_to_its_end(place: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_check, "_RANGE", 7)
    with place.open() as store:
        assert store.verify.run(full=True).ok
        settled(store)
        for number in range(20):
            submit(store, f"more{number}", 0.5)
        settled(store)
        report = store.verify.run(since_last=True)
    assert (report.mode, report.findings, report.checked["battles"]) == ("since last", [], 20)


def test_everything_and_only_what_is_new_is_a_contradiction(place: StoreLocation) -> None:
    with place.open() as store, pytest.raises(errors.InvalidInputError, match="one of the two"):
        store.verify.run(full=True, since_last=True)


def test_an_empty_store_and_one_without_news_hold(tmp_path: Path) -> None:
    with sync.open(tmp_path / "home") as store:
        assert store.verify.run(since_last=True).mode == "full"
        assert store.verify.run(since_last=True).ok
        size = store.read(tree.state).size
        report = store.verify.run(since_last=True)
        assert (report.mode, report.checked["log size"]) == ("since last", size)


def test_the_command_line_continues_what_left_a_report(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with sync.open(home) as store:
        submit(store, "one", 0.5)

    def modes(*words: str) -> list[str]:
        ended = [CliRunner().invoke(app, ["--home", str(home), "verify", *words, "--json"]) for _ in range(2)]
        assert [each.exit_code for each in ended] == [0, 0], [each.output for each in ended]
        return [json.loads(each.stdout)["mode"] for each in ended]

    # A check that may not lock changes nothing, so it leaves no report to continue.
    assert modes("--since-last") == ["full", "full"]
    assert modes("--since-last", "--lock") == ["full", "since last"]
    assert modes("--since-last") == ["since last", "since last"]
    both = CliRunner().invoke(app, ["--home", str(home), "verify", "--since-last", "--full"])
    assert (both.exit_code, "one of the two" in both.output) == (2, True)


# --- what is filed or forged among the entries that are not read again ------------------------------------------------


def edit(past: Past, table: str, where: str, changes: dict[str, Any], *, filed: int | None = None) -> str:
    """Change a row and let its entry commit to that, or the one `filed` there as its next; return the handle."""
    logged = kernel_tables.LOGGED[table]
    [row] = past.ask(f"SELECT leaf_id, leaf_ver, leaf_salt, {', '.join(logged.columns)} FROM {table} WHERE {where}")
    handle, version, salt, *values = row
    [(leaf,)] = past.ask("SELECT leaf FROM log_leaves WHERE id = ? AND ver = ?", handle, version)
    fields = json.loads(leaf)
    texts = [f"{each:%Y-%m-%dT%H:%M:%S.%fZ}" if isinstance(each, datetime) else each for each in values]
    content = dict(zip(logged.columns, texts, strict=True)) | changes
    fields["h"] = logged.projections[fields["p"]].commit(bytes(salt), content)
    fields["ver"] += filed is not None
    text = canonical.dump_text(fields)
    if filed is None:
        past.ask("UPDATE log_leaves SET leaf = ? WHERE id = ? AND ver = ?", text, handle, version)
    else:
        past.ask("UPDATE log_leaves SET id = ?, ver = ?, leaf = ? WHERE idx = ?", handle, version + 1, text, filed)
    sets = ", ".join(f"{name} = ?" for name in changes)
    past.ask(f"UPDATE {table} SET leaf_ver = ?, {sets} WHERE leaf_id = ?", fields["ver"], *changes.values(), handle)
    return str(handle)


def grown(store: sync.Holdproof, count: int = 300) -> None:
    """More entries than a tile has, so that those before are in tiles that are not read again."""
    for number in range(count):
        submit(store, f"grown{number}", 0.5)
    settled(store)


def test_a_report_that_was_moved_forward_with_its_entry_is_not_continued(place: StoreLocation) -> None:
    """What it claims to have seen must be older than its own entry, which is read again only then."""
    with place.open() as store:
        assert store.verify.run(full=True).ok
        settled(store)
        grown(store)
        head = store.log.head().checkpoint
    past = Past(place.home, place.url)
    edit(past, "verifications", "1 = 1", {"log_size": head.size, "log_root": head.root.hex()})
    past.ask("UPDATE battles SET leaf_salt = NULL WHERE id = (SELECT max(id) FROM battles)")
    with place.open() as store:
        report = store.verify.run(since_last=True)
    assert (report.mode, report.verdict) == ("full", Verdict.TAMPERED)


def test_an_old_entry_that_was_filed_as_the_newest_of_a_new_record_is_found(place: StoreLocation) -> None:
    with place.open() as store:
        grown(store)
        assert store.verify.run(full=True).ok
        settled(store)
        store.agents.register("trader", version="1.0.0", contract={"limit": 7})
        settled(store)
    past = Past(place.home, place.url)
    edit(past, "agent_registry", "agent_id = 'trader'", {"agent_version": "9.9.9"}, filed=20)
    with place.open() as store:
        report = store.verify.run(since_last=True)
    assert report.mode == "since last"
    assert "agent_registry" in named(report), report.findings


def test_a_new_record_that_an_old_pruning_was_made_to_name_is_found(place: StoreLocation) -> None:
    with place.open() as store:
        store.write(lambda tx: prunings.record(tx, "flows", {"battles": ["x"]}, rule="{}", who="a", count=1, ns="main"))
        settled(store)
        assert store.verify.run(full=True).ok
        settled(store)
        submit(store, "new", 0.5)
        settled(store)
    past = Past(place.home, place.url)
    [(handle,)] = past.ask("SELECT leaf_id FROM battles ORDER BY id DESC LIMIT 1")
    past.ask("UPDATE prunings SET handles = ?", json.dumps({"battles": [handle]}))
    past.ask("DELETE FROM battles WHERE leaf_id = ?", handle)
    with place.open() as store:
        report = store.verify.run(since_last=True)
    assert report.mode == "since last"
    assert named(report), report.findings


def test_a_row_that_names_an_entry_that_never_was_is_found_whenever_it_was_added(place: StoreLocation) -> None:
    with place.open() as store:
        store.agents.register("trader", version="1.0.0", contract={"limit": 7})
        settled(store)
        assert store.verify.run(full=True).ok
        settled(store)
    past = Past(place.home, place.url)
    past.ask("UPDATE agent_registry SET leaf_id = 'nothing'")
    with place.open() as store:
        report = store.verify.run(since_last=True)
    assert report.mode == "since last"
    assert "agent_registry" in named(report), report.findings


def test_a_record_whose_newest_entry_waits_is_no_finding(tmp_path: Path, postgres_url: str) -> None:
    with sync.open(tmp_path / "home", postgres_url) as store:
        assert store.verify.run(full=True).ok
        settled(store)
        store.agents.register("trader", version="1.0.0", contract={"limit": 7})
        settled(store)
        store.context.log.stop()
        store.agents.register("trader", version="1.0.1", contract={"limit": 8})
        report = store.verify.run(since_last=True)
        assert store.read(log.pending) > 0
    assert report.mode == "since last"
    assert report.verdict is Verdict.PENDING, report.findings


def test_while_a_store_is_locked_everything_is_read(place: StoreLocation) -> None:
    """Where the log itself is in doubt, what was found stands in no report."""
    with place.open() as store:
        grown(store)
        assert store.verify.run(full=True).ok
        settled(store)
    past = Past(place.home, place.url)
    past.ask("""UPDATE log_leaves SET leaf = replace(leaf, '"v":1', '"v":2') WHERE idx = 3""")
    with place.open() as store:
        assert store.verify.run(full=True, lock=True).verdict is Verdict.TAMPERED
        report = store.verify.run(since_last=True)
    assert (report.mode, report.verdict) == ("full", Verdict.TAMPERED)


def test_a_run_that_ended_after_another_found_something_is_not_continued(place: StoreLocation) -> None:
    with place.open() as store:
        assert store.verify.run(full=True).ok
        settled(store)
        overlapping = store.run(verify.check(store.context, since_last=True))
        found = replace(overlapping, mode="full", verdict=Verdict.UNLOGGED)
        for report in (found, overlapping):
            store.write(partial(verifications.record, report=report, who="clock", logged=()))
            settled(store)
        assert store.verify.run(since_last=True).mode == "full"
        settled(store)
        assert store.verify.run(since_last=True).mode == "since last"
