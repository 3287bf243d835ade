"""DIR's databases taken over: every row, legal or not; and everything that goes wrong with such files."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.adapters.dir import bundle
from holdproof.model.imports import Takeover
from holdproof.model.verdicts import Verdict
from tests.conformance import decisions
from tests.unit.test_runtime_schema import SEED

THEN, NOW = "2026-01-02 03:04:05", "CURRENT_TIMESTAMP"
NUMBERED = {table for table, columns in SEED.items() if columns.startswith("id ")}


def schema() -> Iterator[str]:
    """DIR's tables with the columns of its published schema."""
    for table, columns in SEED.items():
        first, *rest = columns.split()
        key = "INTEGER PRIMARY KEY AUTOINCREMENT" if table in NUMBERED else "TEXT PRIMARY KEY"
        yield f"CREATE TABLE {table} ({first} {key}, {', '.join(rest)})"


def make(path: Path, rows: dict[str, list[dict[str, Any]]], *, tables: bool = True) -> Path:
    with closing(apsw.Connection(str(path))) as connection:
        for statement in schema() if tables else ():
            connection.execute(statement)
        for table, given in rows.items():
            for row in given:
                marks = ", ".join("?" * len(row))
                connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
    return path


def agent(agent_id: str, **more: Any) -> dict[str, Any]:
    row = {"agent_id": agent_id, "contract": '{"b": 1,  "a":2}', "priority": 3, "status": "ACTIVE"}
    row |= {"agent_version": "1.2", "session_token": "opaque", "registered_at": THEN, "updated_at": THEN}
    return row | more


def flow(dfid: str, agent_id: str = "a", **more: Any) -> dict[str, Any]:
    row = {"dfid": dfid, "root_dfid": dfid, "agent_id": agent_id, "flow_type": "DEFAULT", "flow_version": "1.0"}
    return row | {"status": "CREATED", "priority": 0, "created_at": THEN, "updated_at": THEN} | more


def move(dfid: str, before: str | None, after: str, second: int = 6) -> dict[str, Any]:
    at = f"2026-01-02 03:04:{second:02}"
    return {"dfid": dfid, "root_dfid": dfid, "from_status": before, "to_status": after, "created_at": at}


def whole() -> dict[str, list[dict[str, Any]]]:
    """A row of everything that DIR has."""
    asked = {
        "dfid": "d",
        "root_dfid": "d",
        "agent_id": "a",
        "reason": "why",
        "context_json": "{}",
        "impact": "LOW_IMPACT",
    }
    asked |= {"proposal_json": '{"x":  1}', "status": "PENDING", "created_at": THEN}
    event = {"dfid": "d", "root_dfid": "d", "event_type": "E", "severity": "ERROR", "step_id": "s", "state": "t"}
    entry = {"dfid": "d", "root_dfid": "d", "agent_id": "a", "intent_payload": '{"p":  1}', "context_ref": "c"}
    return {
        "agent_registry": [agent("a"), agent("b", status="SUSPENDED", suspension_reason="bold")],
        "decision_flows": [flow("child", root_dfid="d", dfid_parent="d"), flow("d")],
        "flow_transitions": [move("d", "CREATED", "ACTIVE"), move("d", "ACTIVE", "EXECUTING", 7)],
        "flow_context": [{"dfid": "d", "data": '{"z": 1, "a":  2}', "version": 4, "updated_at": THEN}],
        "agent_state": [{"agent_id": "a", "data": '{"n":  1}', "version": 7, "updated_at": THEN}],
        "decision_feedback_trajectory": [
            {"agent_id": "a", "dfid": "d", "status": "Accepted", "score": 0.5, "source": "Human", "created_at": THEN}
        ],
        "idempotency_cache": [
            {"idempotency_key": "k", "request_hash": "h", "result": '{"r":  1}', "created_at": THEN}
            | {"expires_at": "2999-01-01T00:00:00.000000Z"}
        ],
        "saga_dirty_state": [
            {"dfid": "d", "failed_step": "s2", "partial_state_json": '{"sold": 1}', "created_at": THEN}
        ],
        "resource_locks": [{"resource_id": "usd", "dfid": "d", "amount": 600.0, "acquired_at": THEN}],
        "intent_retry": [
            {"dfid": "d", "rejection_count": 2, "max_retries": 5, "retry_policy": "LINEAR", "updated_at": THEN}
        ],
        "escalation_budget": [{"agent_id": "a", "created_at": THEN}],
        "escalation_requests": [
            asked,
            asked | {"status": "APPROVED", "human_decision": "OVERRIDE", "resolved_at": THEN},
        ],
        "decision_audit_events": [event | {"detail_json": '{"k":  "v"}', "created_at": THEN}],
        "decision_ledger_entries": [entry | {"evidence_hash": "e", "signature": "sig", "committed_at": THEN}],
    }


def outcomes(found: Takeover) -> dict[tuple[str, str], str]:
    return {(row.table, row.source_id): row.verdict for row in found.rows}


def sound(store: sync.Holdproof) -> None:
    settled(store)
    decisions.sound(store)
    report = store.verify.run(full=True, lock=False)
    assert report.verdict is Verdict.VALID, report.to_dict()


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Holdproof]:
    places = {"sqlite": None, "memory": ":memory:"}
    url = places[request.param] if request.param in places else request.getfixturevalue("postgres_url")
    with sync.open(tmp_path / "home", url) as opened:
        yield opened
        sound(opened)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[sync.Holdproof]:
    """A store on one backend, for what is the same on all."""
    with sync.open(tmp_path / "home") as opened:
        yield opened
        sound(opened)


def test_everything_is_taken_over_and_goes_on_under_the_adapter(store: sync.Holdproof, tmp_path: Path) -> None:
    found = store.imports.dir(make(tmp_path / "dir.db", whole()))
    assert (found.verdicts, found.done) == ({"TAKEN": 18}, {"imported": 18})
    stores = bundle(store)
    assert stores.agent_registry.get_agent("a") == {
        "agent_id": "a",
        "contract": {"a": 2, "b": 1},
        "priority": 3,
        "status": "ACTIVE",
        "agent_version": "1.2",
        "session_token": "opaque",
    }
    assert stores.agent_registry.get_status("b") == ("SUSPENDED", "bold")
    assert stores.context.get_session("d") == '{"z": 1, "a":  2}'
    assert stores.context.get_state("a") == '{"n":  1}'
    assert (store.contexts.get("d").version, store.state.get("a").version) == (4, 7)
    assert stores.idempotency.get("k") == {"r": 1}
    assert stores.saga.get_dirty_state("d") == {"failed_step": "s2", "partial_state": {"sold": 1}}
    assert stores.resource_lock.get_locked_amount("usd", exclude_dfid="") == 600
    assert stores.intent_retry.get_count("d") == 2
    assert stores.escalation.get_window_count("a", "2026-01-01 00:00:00") == 1
    assert [each["proposal"] for each in stores.escalation.get_pending_requests()] == [{"x": 1}]
    [event] = stores.decision_audit.events_for_dfid("d")
    assert (event["details"], event["created_at"]) == ({"k": "v"}, "2026-01-02T03:04:05.000000Z")
    assert [each["signature"] for each in stores.decision_ledger.all_entries_chronological()] == ["sig"]
    assert [each.score for each in store.feedback.list(agent_id="a").items] == [0.5]
    assert store.flows.tree("d").children[0].flow.flow_id == "child"
    stores.lifecycle.record_transition("d", "EXECUTING", "CLOSED")
    assert store.flows.get("d").status == "COMPLETED"


def test_a_second_import_changes_nothing_and_a_later_state_brings_what_is_new(
    store: sync.Holdproof, tmp_path: Path
) -> None:
    source = make(tmp_path / "dir.db", whole())
    store.imports.dir(source)
    before = store.log.head().checkpoint.size if store.database.dialect == "sqlite" else None
    again = store.imports.dir(source)
    assert again.done == {"known": 18}
    assert before is None or store.log.head().checkpoint.size == before
    news = {"flow_transitions": [move("d", "EXECUTING", "CLOSED", 9)], "agent_registry": [agent("c")]}
    later = store.imports.dir(make(source, news, tables=False))
    assert later.done == {"imported": 2, "known": 18}
    assert (store.flows.get("d").status, store.flows.get("d").completed_at) == (
        "COMPLETED",
        "2026-01-02T03:04:09.000000Z",
    )


def test_a_dry_run_says_the_same_and_writes_nothing(home: sync.Holdproof, tmp_path: Path) -> None:
    source = make(tmp_path / "dir.db", whole())
    told: list[tuple[int, int]] = []
    dry = home.imports.dir(source, dry_run=True, progress=lambda done, total: told.append((done, total)))
    assert (dry.verdicts, dry.done, dry.dry_run) == ({"TAKEN": 18}, {}, True)
    assert told[-1] == (18, 18)
    assert home.agents.list().items == []
    assert outcomes(home.imports.dir(source)) == outcomes(dry)


def test_what_a_row_here_does_not_hold_stands_beside_it(home: sync.Holdproof, tmp_path: Path) -> None:
    rows = {"agent_registry": [agent("a")], "decision_flows": [flow("d", priority=2)]}
    event = {"id": 77, "dfid": "d", "root_dfid": "d", "event_type": "E", "severity": "INFO", "step_id": "", "state": ""}
    rows["decision_audit_events"] = [event | {"detail_json": "{}", "created_at": THEN}]
    home.imports.dir(make(tmp_path / "dir.db", rows))
    [record] = home.imports.list(table="decision_audit_events").items
    assert (record.row_key, record.verdict, record.source) == ("1", "TAKEN", "dir.db")
    assert {name: record.beside[name] for name in ("id", "created_at")} == {"id": 77, "created_at": THEN}
    assert "event_type" not in record.beside
    [record] = home.imports.list(table="agent_registry").items
    assert record.beside == {"registered_at": THEN, "updated_at": THEN}


# --- flows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said", "status", "count"),
    [
        ([("CREATED", "ACTIVE"), ("ACTIVE", "CLOSED")], "CREATED", "COMPLETED", 2),
        ([("CLOSED", "ACTIVE"), ("CLOSED", "CREATED"), ("ACTIVE", "ABORTED")], "CREATED", "FAILED", 3),
        ([("POSITION_SPAWN", "agent-7"), (None, "RETIRED")], "CREATED", "CREATED", 2),
        ([("CREATED", "ACTIVE")], "COMPLETED", "COMPLETED", 2),
        ([], "COMPLETED", "COMPLETED", 2),
        ([], "RUNNING", "RUNNING", 1),
        ([], "CANCELLED", "CANCELLED", 1),
        ([], "CREATED", "CREATED", 0),
    ],
)
def test_a_flow_stands_where_its_transitions_or_its_row_have_it(
    store: sync.Holdproof, tmp_path: Path, words: list[tuple[str | None, str]], said: str, status: str, count: int
) -> None:
    moves = [move("d", *each, second=10 + number) for number, each in enumerate(words)]
    ended = {"started_at": THEN, "completed_at": "2026-01-02T03:05:00Z"} if said == "COMPLETED" else {}
    source = {"agent_registry": [agent("a")], "decision_flows": [flow("d", status=said, **ended)]}
    store.imports.dir(make(tmp_path / "dir.db", source | {"flow_transitions": moves}))
    found, recorded = store.flows.get("d"), store.flows.transitions("d")
    assert (found.status, len(recorded)) == (status, count)
    assert [(each.from_status, each.to_status) for each in recorded][: len(words)] == words
    if said == "COMPLETED":
        assert found.completed_at == "2026-01-02T03:05:00.000000Z"


def test_children_come_after_their_parents_and_rings_are_kept(home: sync.Holdproof, tmp_path: Path) -> None:
    flows = [
        flow("3", root_dfid="1", dfid_parent="2"),
        flow("2", root_dfid="", dfid_parent="1"),
        flow("1", root_dfid="odd"),
        flow("x", dfid_parent="y"),
        flow("y", dfid_parent="x"),
        flow("orphan", dfid_parent="nowhere"),
    ]
    found = home.imports.dir(make(tmp_path / "dir.db", {"agent_registry": [agent("a")], "decision_flows": flows}))
    assert outcomes(found) == {
        ("agent_registry", "a"): "TAKEN",
        **{("decision_flows", dfid): "TAKEN" for dfid in "123"},
        **{("decision_flows", dfid): "KEPT" for dfid in ("x", "y", "orphan")},
    }
    assert [home.flows.get(dfid).root_flow_id for dfid in "123"] == ["1", "1", "1"]
    [first] = [record for record in home.imports.list(verdict="KEPT").items if record.source_id == "orphan"]
    assert (first.note, first.beside["dfid_parent"]) == ("its parent is not here", "nowhere")


def test_transitions_of_a_flow_that_has_gone_on_here_are_kept(home: sync.Holdproof, tmp_path: Path) -> None:
    source = make(tmp_path / "dir.db", {"agent_registry": [agent("a")], "decision_flows": [flow("d")]})
    home.imports.dir(source)
    home.flows.transition("d", "RUNNING")
    found = home.imports.dir(make(source, {"flow_transitions": [move("d", "CREATED", "ABORTED")]}, tables=False))
    assert outcomes(found)["flow_transitions", "1"] == "KEPT"
    assert home.flows.get("d").status == "RUNNING"


# --- what does not fit -------------------------------------------------------------------------------------------


def test_nothing_here_is_written_over(store: sync.Holdproof, tmp_path: Path) -> None:
    store.agents.register("a", version="1.0.0", contract={"ours": True})
    store.flows.start("a", flow_id="d")
    store.contexts.put("d", {"ours": True})
    found = store.imports.dir(make(tmp_path / "dir.db", whole()))
    kept = {row.table for row in found.rows if row.verdict == "KEPT"}
    assert kept == {"agent_registry", "decision_flows", "flow_context"}
    assert all("not overwritten" in row.note for row in found.rows if row.verdict == "KEPT")
    assert store.agents.get("a").contract == {"ours": True}
    assert store.contexts.get("d").data == {"ours": True}
    assert len(store.audit.list(flow_id="d").items) == 1, "what is about them arrives all the same"


def test_values_that_do_not_fit_are_replaced_and_kept_beside(store: sync.Holdproof, tmp_path: Path) -> None:
    rows = whole()
    rows["agent_registry"] = [agent("a", status="PASSIVE", contract="no json", priority="high", registered_at="lately")]
    rows["agent_registry"].append(agent("b", contract=b"\xff", agent_version="nul\0"))
    rows["decision_feedback_trajectory"][0] |= {"source": "Somebody", "score": float("inf")}
    rows["intent_retry"][0] |= {"retry_policy": "ODD", "max_retries": 0, "rejection_count": -1}
    rows["decision_audit_events"][0] |= {"severity": "LOUD", "detail_json": None}
    found = store.imports.dir(make(tmp_path / "dir.db", rows))
    adapted = {row.table: row.note for row in found.rows if row.verdict == "ADAPTED"}
    assert set(adapted) == {
        "agent_registry",
        "decision_feedback_trajectory",
        "intent_retry",
        "decision_audit_events",
    }
    first = store.imports.list(table="agent_registry").items[-1]
    assert "contract" in first.note
    wanted = {"status": "PASSIVE", "contract": "no json", "priority": "high", "registered_at": "lately"}
    assert {name: first.beside[name] for name in wanted} == wanted
    assert (store.agents.get("a").status, store.agents.get("a").contract) == ("SUSPENDED", {})
    second = store.imports.list(table="agent_registry").items[-2]
    assert (second.beside["contract"], second.beside["agent_version"]) == ({"hex": "ff"}, "nul\0")
    [feedback] = store.imports.list(table="decision_feedback_trajectory").items
    assert feedback.beside["score"] == {"float": "inf"}
    assert store.audit.list(flow_id="d").items[0].severity == "INFO"


def test_rows_without_a_usable_key_are_kept_aside(home: sync.Holdproof, tmp_path: Path) -> None:
    rows = {"agent_registry": [agent(""), agent("a\nb"), agent("x" * 501)], "flow_transitions": [move("", "A", "B")]}
    found = home.imports.dir(make(tmp_path / "dir.db", rows))
    assert set(outcomes(found).values()) == {"KEPT"}
    kept = home.imports.list(verdict="KEPT").items[::-1]
    assert [record.beside["agent_id"] for record in kept[:3]] == ["", "a\nb", "x" * 501]
    assert all(record.note for record in kept)
    first = home.imports.list(limit=3)
    assert home.imports.list(cursor=first.next_cursor).items == kept[:-3][::-1]


def test_rows_about_unknown_flows_and_agents_make_them(home: sync.Holdproof, tmp_path: Path) -> None:
    rows = {name: given for name, given in whole().items() if name not in {"agent_registry", "decision_flows"}}
    found = home.imports.dir(make(tmp_path / "dir.db", rows))
    assert "KEPT" not in found.verdicts
    assert home.flows.get("d").status == "RUNNING"
    assert home.agents.get("a").contract == {}
    assert {row.note for row in found.rows if row.verdict == "ADAPTED"} == {
        "its flow was missing and was created",
        "its agent was missing and was created",
    }


def test_locks_of_ended_flows_and_of_nothing_are_kept(home: sync.Holdproof, tmp_path: Path) -> None:
    rows = whole()
    rows["flow_transitions"].append(move("d", "EXECUTING", "CLOSED"))
    rows["resource_locks"].append({"resource_id": "eur", "dfid": "child", "amount": 0.0, "acquired_at": THEN})
    rows["resource_locks"].append({"resource_id": "gbp", "dfid": "child", "amount": 1.0, "acquired_at": THEN})
    home.agents.register("ours", version="1.0.0")
    mine = home.flows.start("ours").flow_id
    home.locks.try_acquire(mine, {"gbp": 1})
    found = home.imports.dir(make(tmp_path / "dir.db", rows))
    notes = {row.source_id: row.note for row in found.rows if row.table == "resource_locks"}
    assert notes["usd"] == "its flow has ended, and holds nothing"
    assert notes["eur"] == "it holds nothing"
    assert mine in notes["gbp"]
    assert [lock.flow_id for lock in home.locks.list().items] == [mine]


def test_two_namespaces_each_import_the_same_ids(home: sync.Holdproof, tmp_path: Path) -> None:
    source = make(tmp_path / "dir.db", whole())
    theirs = home.imports.dir(source, ns="theirs")
    ours = home.imports.dir(source)
    assert ours.done == theirs.done == {"imported": 18}
    assert [row.verdict for row in ours.rows] == [row.verdict for row in theirs.rows]
    assert len(home.agents.list().items) == len(home.agents.list(ns="theirs").items) > 0
    assert home.verify.run().verdict is Verdict.VALID


def test_older_tables_are_understood(home: sync.Holdproof, tmp_path: Path) -> None:
    source = tmp_path / "old.db"
    with closing(apsw.Connection(str(source))) as connection:
        connection.execute("CREATE TABLE context_session (dfid TEXT PRIMARY KEY, data JSON, updated_at TIMESTAMP)")
        connection.execute("CREATE TABLE context_state (agent_id TEXT PRIMARY KEY, data JSON, version INTEGER)")
        connection.execute("CREATE TABLE idempotency_cache (key TEXT PRIMARY KEY, result JSON, created_at TIMESTAMP)")
        connection.execute(
            "CREATE TABLE escalation_requests (dfid TEXT PRIMARY KEY, agent_id TEXT, status, human_decision)"
        )
        connection.execute("CREATE TABLE positions (id INTEGER PRIMARY KEY, symbol TEXT)")
    rows: dict[str, list[dict[str, Any]]] = {
        "context_session": [{"dfid": "d", "data": "{}", "updated_at": THEN}],
        "context_state": [{"agent_id": "a", "data": "{}", "version": 3}],
        "idempotency_cache": [{"key": "k", "result": '{"r": 1}', "created_at": "2998-01-01"}],
        "escalation_requests": [{"dfid": "d", "agent_id": "a", "status": "RESOLVED", "human_decision": "ABORT"}],
        "positions": [{"symbol": "BTC"}],
    }
    found = home.imports.dir(make(source, rows, tables=False))
    assert (len(found.rows), found.tables_left) == (4, {"positions": 1})
    stores = bundle(home)
    assert (stores.context.get_session("d"), stores.context.get_state("a")) == ("{}", "{}")
    assert stores.idempotency.get("k") == {"r": 1}
    assert home.escalations.get(1).status == "REJECTED"


def test_many_rows_arrive_in_their_order(home: sync.Holdproof, tmp_path: Path) -> None:
    event = {"dfid": "d", "root_dfid": "d", "severity": "INFO", "step_id": "", "state": "", "detail_json": "{}"}
    rows = {"agent_registry": [agent("a")], "decision_flows": [flow("d")]}
    rows["decision_audit_events"] = [event | {"event_type": f"E{n}", "created_at": THEN} for n in range(450)]
    home.imports.dir(make(tmp_path / "dir.db", rows))
    events = home.audit.list(flow_id="d", limit=1000).items
    assert [each.event_type for each in events[::-1]] == [f"E{number}" for number in range(450)]


def test_the_source_is_never_touched_even_with_a_log_beside_it(home: sync.Holdproof, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    writer = apsw.Connection(str(folder / "dir.db"))
    writer.execute("PRAGMA journal_mode=wal")
    writer.execute("CREATE TABLE agent_registry (agent_id TEXT PRIMARY KEY)")
    writer.execute("INSERT INTO agent_registry VALUES ('in the log')")
    shutil.copytree(folder, tmp_path / "crashed")
    writer.close()
    crashed = tmp_path / "crashed"
    before = {path.name: path.read_bytes() for path in crashed.iterdir()}
    assert len(home.imports.dir(crashed / "dir.db").rows) == 1
    assert {path.name: path.read_bytes() for path in crashed.iterdir()} == before
    assert home.agents.get("in the log").contract == {}


def test_what_is_no_database_of_dirs_is_refused(home: sync.Holdproof, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, but long enough to have a header of some kind " * 9)
    with closing(apsw.Connection(str(tmp_path / "other.db"))) as connection:
        connection.execute("CREATE TABLE something (x)")
    for name, kind in (
        ("none.db", errors.NotFoundError),
        ("text.db", errors.ForeignFileError),
        ("other.db", errors.FormatError),
    ):
        with pytest.raises(kind):
            home.imports.dir(tmp_path / name)


def test_the_outcome_is_json(home: sync.Holdproof, tmp_path: Path) -> None:
    found = json.loads(json.dumps(home.imports.dir(make(tmp_path / "dir.db", whole())).to_dict()))
    assert (found["total"], found["verdicts"], found["done"]) == (18, {"TAKEN": 18}, {"imported": 18})
    assert set(found["rows"][0]) == {"table", "source_id", "verdict", "done", "note"}
