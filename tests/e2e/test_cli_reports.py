"""What people are shown of reports that would be long: counted, with the words that show all of it."""

import json
from pathlib import Path

from click.testing import CliRunner

from holdproof import sync
from holdproof.cli.app import app
from holdproof.db import migrate
from holdproof.upkeep import kernel_tables

MIGRATIONS = len(migrate.shipped("kernel"))


def run(home: Path, *words: str) -> str:
    result = CliRunner().invoke(app, ["--home", str(home), *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_timeline_of_a_new_store_has_one_line_for_its_migrations(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("trader", version="1.0.0")
    shown = run(tmp_path, "audit")
    assert shown.count("migration") == 1
    assert f"{MIGRATIONS} migrations applied" in shown
    assert "each: --kind schema" in shown
    assert "agent registered" in shown
    assert run(tmp_path, "audit", "--kind", "schema").count(" applied") == MIGRATIONS
    items = json.loads(run(tmp_path, "audit", "--json"))["items"]
    assert sum(each["kind"] == "schema" for each in items) == MIGRATIONS, "data is not put together"
    assert run(tmp_path, "audit", "--csv").count("migration ") == MIGRATIONS


def test_a_report_counts_what_is_not_covered_and_names_it_when_asked(tmp_path: Path) -> None:
    sync.open(tmp_path).close()
    short = run(tmp_path, "verify")
    assert "--verbose" in short
    assert "`telemetry.db`" in short, "where applications keep things is named always"
    assert "flow_leases" not in short
    whole = " ".join(run(tmp_path, "verify", "--verbose").split())
    for line in kernel_tables.NOT_COVERED:
        assert " ".join(line.split()) in whole
    count = short.partition("not covered")[2].split()[0]
    tables = {name for line in kernel_tables.NOT_COVERED[:-1] for name in line.partition(": ")[0].split("`")[::2]}
    named = {each.strip(" (),") for text in tables for each in text.split(", ")} - {""}
    assert int(count) == len(named)
    assert json.loads(run(tmp_path, "verify", "--json"))["not_covered"] == [*kernel_tables.NOT_COVERED]
