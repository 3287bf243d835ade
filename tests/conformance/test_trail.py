"""The trail: one timeline of everything in the log, filtered, and entries of the log as they stand."""

import csv
import io
import json
from dataclasses import asdict, fields
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from harness.filling import settled
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.crypto import merkle
from holdproof.model.times import to_micros
from holdproof.model.trail import TrailEntry
from holdproof.testing import FrozenClock
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.trail import describe, reading
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.conformance.store_backends import StoreOnSqlite


def _approved(store: sync.Holdproof, clock: FrozenClock, *, agent: str = "trader", by: str = "ann") -> str:
    """Play a flow with a step, and a question that a person answered with changes."""
    store.agents.register(agent, version="1")
    with store.flows.run(agent, flow_type="trade") as flow:
        flow.step("quote", lambda: 7)
        clock.advance(1)
        asked = store.escalations.request(flow.flow_id, reason="over limit", proposal={"buy": 9})
        clock.advance(1)
        store.escalations.resolve(asked.id, "approve", by=by, proposal={"buy": 4}, comment="go")
    settled(store)
    return str(flow.flow_id)


def _whats(entries: list[TrailEntry]) -> list[tuple[str, str]]:
    return [(each.kind, each.what) for each in reversed(entries)]


class Trails(OnStore):
    def test_the_trail_tells_of_a_flow_newest_first_with_who_answered_what_was_shown(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        flow_id = _approved(store, clock)
        page = store.audit.trail(flow_id=flow_id)
        assert _whats(page.items) == [
            ("decision", "opened trade 1.0"),
            ("transition", "CREATED to RUNNING"),
            ("step", "step quote started"),
            ("step", "step quote DONE"),
            ("escalation", "asked: over limit"),
            ("transition", "RUNNING to WAITING_ESCALATION"),
            ("answer", "answered: approve"),
            ("escalation", "approved with changes"),
            ("transition", "WAITING_ESCALATION to RUNNING"),
            ("transition", "RUNNING to COMPLETED"),
        ]
        [answer] = [each for each in page.items if each.what == "approved with changes"]
        assert (answer.person, answer.proposal, answer.note) == ("ann", '{"buy":9}', 'with {"buy":4}; go')
        assert {each.agent_id for each in page.items} == {"trader"}

    def test_every_entry_of_the_log_is_in_the_trail_once_in_the_order_of_the_log(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        _approved(store, clock)
        store.keys.rotate("judge")
        store.objects.put("facts", type="fact", content={"a": 1})
        settled(store)
        indexes: list[int] = []
        cursor = None
        while True:
            page = store.audit.trail(cursor=cursor, limit=7)
            indexes += [each.index for each in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert indexes == [*reversed(range(store.log.head().checkpoint.size))]
        assert {"key", "schema", "agent", "state"} <= {each.kind for each in store.audit.trail(limit=1000).items}

    def test_filters_by_agent_person_kind_and_time_leave_out_the_rest(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        first = _approved(store, clock)
        clock.advance(3600)
        second = _approved(store, clock, agent="buyer", by="bob")
        flows = {each.flow_id for each in store.audit.trail(agent_id="buyer").items}
        assert flows == {second, None}  # its registration is of no flow
        assert {each.flow_id for each in store.audit.trail(person="ann").items} == {first}
        assert {each.kind for each in store.audit.trail(kind="escalation").items} == {"escalation"}
        assert first not in {each.flow_id for each in store.audit.trail(since="30m").items}
        assert second not in {each.flow_id for each in store.audit.trail(until="30m").items}
        assert store.audit.trail(person="nobody").items == []

    def test_a_kind_or_a_time_that_does_not_exist_is_refused(self, store: sync.Holdproof) -> None:
        with pytest.raises(errors.InvalidInputError, match="kind"):
            store.audit.trail(kind="escalations")
        with pytest.raises(errors.InvalidInputError, match="7d"):
            store.audit.trail(since="yesterday")

    def test_a_page_that_a_filter_leaves_short_names_where_the_next_begins(
        self, store: sync.Holdproof, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _approved(store, clock)
        monkeypatch.setattr(reading, "_MOST_READ", 2)
        monkeypatch.setattr(reading, "_CHUNK", 2)
        seen: list[str] = []
        cursor = None
        for _ in range(1000):
            page = store.audit.trail(person="ann", cursor=cursor)
            seen += [each.what for each in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == ["approved with changes", "answered: approve"]

    def test_what_was_erased_stays_in_the_trail_and_sealed_content_is_not_opened(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.agents.register("trader", version="1")
        with store.flows.run("trader", subject="Ada Lovelace") as flow:
            asked = store.escalations.request(flow.flow_id, reason="canary-7f3a", proposal={"buy": "canary-7f3a"})
            store.escalations.resolve(asked.id, "approve", by="ann", comment="canary-7f3a")
        settled(store)
        page = store.audit.trail(flow_id=flow.flow_id)
        assert "canary-7f3a" not in json.dumps(page.to_dict())
        answers = [each for each in page.items if each.person == "ann"]
        assert [(each.proposal, each.note) for each in answers] == [(None, describe.SEALED)] * 2
        size = len(store.audit.trail(limit=1000).items)
        store.erase.subject("Ada Lovelace", who="dpo")
        settled(store)
        after = store.audit.trail(limit=1000).items
        assert len(after) > size
        assert [each.person for each in after if each.table == "erasures"] == ["dpo"]

    def test_an_entry_is_shown_by_its_index_and_by_its_handle_with_the_hash_of_its_text(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        _approved(store, clock)
        listed = store.log.list(kind="escalation").items
        assert [each.version for each in listed] == [2, 1]
        newest = listed[0]
        assert store.log.get(str(newest.index)) == store.log.get(newest.entry) == newest
        assert newest.leaf_hash == merkle.leaf_hash(newest.text.encode()).hex()
        assert json.loads(newest.text)["t"] == "escalation"
        with pytest.raises(errors.NotFoundError, match="log list"):
            store.log.get("999999")

    def test_a_store_of_one_namespace_sees_no_entry_of_another(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        flow_id = _approved(store, clock)
        assert store.audit.trail(ns="other").items == []
        assert store.audit.trail(ns="other", flow_id=flow_id).items == []


class TestTrailsOnSqlite(OnSqlite, Trails):
    pass


class TestTrailsInMemory(InMemory, Trails):
    pass


class TestTrailsOnPostgres(OnPostgres, Trails):
    pass


class TestAuditCommand(StoreOnSqlite):
    def test_the_command_prints_json_and_csv_and_marks_formulas_as_text(self) -> None:
        with self.open() as store:
            store.agents.register("trader", version="1")
            flow = store.flows.start("trader", flow_type="trade")
            store.audit.record(flow.flow_id, "=cmd|' /C calc'!A0", detail={"n": 1}, by="-ann")
        plain = CliRunner().invoke(app, ["--home", str(self.home), "audit", "--since", "1h", "--json"])
        items = json.loads(plain.stdout)["items"]
        assert items[0]["person"] == "-ann"
        assert plain.exit_code == 0
        table = CliRunner().invoke(app, ["--home", str(self.home), "audit", "--flow", flow.flow_id, "--csv"])
        rows = [*csv.DictReader(io.StringIO(table.stdout))]
        assert [row["kind"] for row in rows] == ["audit", "decision"]
        assert (rows[0]["what"][:2], rows[0]["person"]) == ("'=", "'-ann")

    def test_a_mistyped_flow_or_agent_is_an_error_and_the_end_of_an_id_is_enough(self) -> None:
        with self.open() as store:
            store.agents.register("trader", version="1")
            flow = store.flows.start("trader", flow_type="trade")
        audit = ["--home", str(self.home), "audit"]
        for words, cure in ((["--flow", "nosuch"], "flows list"), (["--agent", "tradr"], "agents list")):
            refused = CliRunner().invoke(app, [*audit, *words])
            assert (refused.exit_code, f"`holdproof {cure}`" in refused.stderr) == (3, True)
        # What only the other filters leave out is none, and no mistake.
        none = CliRunner().invoke(app, [*audit, "--flow", flow.flow_id, "--kind", "erasure"])
        assert (none.exit_code, none.stdout.strip()) == (0, "none")
        short = CliRunner().invoke(app, [*audit, "--flow", flow.flow_id[-8:], "--json"])
        assert [each["flow_id"] for each in json.loads(short.stdout)["items"]] == [flow.flow_id]

    def test_csv_goes_to_a_file_that_is_whole(self, tmp_path: Path) -> None:
        with self.open() as store:
            store.agents.register("trader", version="1")
            size = len(store.audit.trail(limit=1000).items)
        out = tmp_path / "trail.csv"
        answer = CliRunner().invoke(app, ["--home", str(self.home), "audit", "--csv", "--out", str(out)])
        assert answer.exit_code == 0, answer.output
        assert len(out.read_text().splitlines()) == size + 1

    def test_duckdb_reads_the_trail_as_parquet(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("holdproof.cli.trail._GROUP", 2)
        with self.open() as store:
            store.agents.register("trader", version="1")
            for number in range(5):
                store.flows.start("trader", flow_type=f"trade {number} \u20ac")
            entries = store.audit.trail(limit=1000).items
        out = tmp_path / "trail.parquet"
        answer = CliRunner().invoke(app, ["--home", str(self.home), "audit", "--parquet", "--out", str(out)])
        assert answer.exit_code == 0, answer.output
        names = [each.name for each in fields(TrailEntry)]
        rows = duckdb.connect().execute(f'SELECT * REPLACE (epoch_us("at") AS "at") FROM \'{out}\'').fetchall()
        wanted = [{**asdict(each), "at": to_micros(each.at)} for each in entries]
        assert [dict(zip(names, row, strict=True)) for row in rows] == wanted
        both = ["--home", str(self.home), "audit", "--parquet", "--csv"]
        assert CliRunner().invoke(app, both).exit_code == errors.InvalidInputError.exit_code

    def test_every_table_under_the_log_has_words_of_its_own(self) -> None:
        assert {*describe.WORDS} == {*kernel_tables.LOGGED}

    def test_policies_and_people_are_told_in_words(self) -> None:
        with self.open() as store:
            store.policies.create("stop", "forbid(principal, action, resource);", by="ada")
            store.policies.activate("stop", by="ada")
            store.agents.register("trader", version="1")
            with pytest.raises(errors.PolicyDeniedError):
                store.flows.start("trader", flow_type="trade")
            store.people.put("ann", groups=["finance"])
            store.people.put("bob", groups=["finance"])
            store.people.delegate("ann", "bob", until="2099-01-01T00:00:00Z", by="ann")
            whats = [(each.what, each.person) for each in reversed(store.audit.trail(limit=1000).items)]
        assert [
            *[("policy stop 1 created", "ada"), ("policy stop 1 active", "ada")],
            *[("policy denied flow.start trade", None), ("person ann named", "operator")],
            ("delegated from ann to bob", "ann"),
        ] == [each for each in whats if each[0].startswith(("policy s", "policy d", "person ann", "delegated"))]
