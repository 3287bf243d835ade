"""The tables of the Decision Intelligence Runtime: every column, key, check, cascade and index of the seed."""

import re
from contextlib import closing

import pytest

from holdproof import errors
from holdproof.crypto.canonical import dump_text as dump_json
from holdproof.db import MEMORY, Database, Tx, open_database, sql
from holdproof.db.migrate import shipped
from holdproof.evidence.leaves import TYPES
from holdproof.upkeep import kernel_tables

SEED = {
    "agent_registry": "agent_id contract priority status agent_version session_token suspension_reason registered_at"
    " updated_at",
    "decision_flows": "dfid root_dfid dfid_parent agent_id flow_type flow_version status created_by_type created_by_id"
    " priority started_at completed_at created_at updated_at",
    "flow_context": "dfid data version updated_at",
    "agent_state": "agent_id data version updated_at",
    "decision_feedback_trajectory": "id agent_id dfid status reason score source created_at",
    "idempotency_cache": "idempotency_key request_hash result created_at expires_at",
    "saga_dirty_state": "dfid failed_step partial_state_json created_at",
    "resource_locks": "resource_id dfid amount acquired_at expires_at",
    "intent_retry": "dfid rejection_count max_retries retry_policy next_retry_at backoff_until updated_at",
    "escalation_budget": "id agent_id created_at",
    "escalation_requests": "id dfid root_dfid agent_id reason context_json proposal_json impact status human_decision"
    " created_at resolved_at",
    "flow_transitions": "id dfid root_dfid from_status to_status correlation_id causation_id created_at",
    "decision_audit_events": "id dfid root_dfid event_type severity correlation_id causation_id step_id state"
    " detail_json created_at",
    "decision_ledger_entries": "id dfid root_dfid agent_id intent_payload context_ref evidence_hash signature"
    " committed_at",
}
INDEXED = {
    "agent_registry": "status",
    "decision_flows": "root_dfid dfid_parent agent_id status created_at",
    "decision_feedback_trajectory": "agent_id",
    "idempotency_cache": "expires_at",
    "resource_locks": "dfid expires_at",
    "intent_retry": "next_retry_at",
    "escalation_budget": "agent_id created_at",
    "escalation_requests": "dfid root_dfid agent_id status",
    "flow_transitions": "dfid root_dfid created_at",
    "decision_ledger_entries": "dfid agent_id committed_at",
    "decision_audit_events": "dfid root_dfid event_type created_at severity",
}
CASCADES = {
    ("decision_flows", "dfid_parent", "decision_flows", False),
    ("decision_flows", "agent_id", "agent_registry", False),
    ("flow_context", "dfid", "decision_flows", True),
    ("agent_state", "agent_id", "agent_registry", True),
    ("decision_feedback_trajectory", "agent_id", "agent_registry", True),
    ("decision_feedback_trajectory", "dfid", "decision_flows", True),
    ("saga_dirty_state", "dfid", "decision_flows", True),
    ("resource_locks", "dfid", "decision_flows", True),
    ("intent_retry", "dfid", "decision_flows", True),
    ("escalation_budget", "agent_id", "agent_registry", True),
    ("escalation_requests", "dfid", "decision_flows", True),
    ("escalation_requests", "agent_id", "agent_registry", False),
    ("flow_transitions", "dfid", "decision_flows", True),
    ("decision_audit_events", "dfid", "decision_flows", True),
    ("decision_ledger_entries", "dfid", "decision_flows", True),
    ("decision_ledger_entries", "agent_id", "agent_registry", False),
}
_COLUMNS = sql("SELECT name FROM pragma_table_info(:table) ORDER BY cid", postgres="SELECT :table")
_INDEXES = sql(
    "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL",
    postgres="SELECT 1",
)
_KEYS = sql('SELECT "from", "table", on_delete FROM pragma_foreign_key_list(:table)', postgres="SELECT :table")


def _tables(tx: Tx) -> dict[str, list[str]]:
    return {table: [row[0] for row in tx.all(_COLUMNS, table=table)] for table in SEED}


@pytest.fixture
def db() -> Database:
    return open_database(MEMORY)


def test_every_column_of_the_seed_is_there_and_comes_first(db: Database) -> None:
    with closing(db):
        tables = db.read(_tables).result()
    for table, columns in SEED.items():
        names = columns.split()
        assert tables[table][: len(names)] == names
        assert "ns" in tables[table]


def test_the_28_indexes_have_the_names_of_their_columns(db: Database) -> None:
    with closing(db):
        found = {(table, name) for name, table in db.read(lambda tx: tx.all(_INDEXES)).result()}
    wanted = {(table, f"idx_{table}_{column}") for table, columns in INDEXED.items() for column in columns.split()}
    assert len(wanted) == 28
    assert wanted <= found
    others = {(table, name) for table, name in found - wanted if table in SEED}
    # Over columns of ours: what expired unanswered is counted at every scrape.
    ours = {
        ("escalation_requests", "idx_escalation_requests_expired"),
        # What was requested and answered is counted by the hour.
        ("escalation_requests", "idx_escalation_requests_created_at"),
        ("escalation_requests", "idx_escalation_requests_resolved_at"),
        # Flows are listed and counted by when they were opened, within a namespace.
        ("decision_flows", "idx_decision_flows_listed"),
    }
    assert others == ours, "and the seed has no others"


def test_foreign_keys_cascade_as_the_seed_says(db: Database) -> None:
    def keys(tx: Tx) -> set[tuple[str, str, str, bool]]:
        return {
            (table, column, other, action == "CASCADE")
            for table in SEED
            for column, other, action in tx.all(_KEYS, table=table)
            # Every reference of ours holds the namespace too: ids belong to one.
            if column != "ns"
        }

    with closing(db):
        assert db.read(keys).result() == CASCADES


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE agent_registry SET status = 'HAPPY'",
        "UPDATE agent_registry SET contract = 'no json'",
        "UPDATE decision_flows SET status = 'HAPPY'",
        "UPDATE decision_flows SET root_dfid = 'another'",
        "UPDATE decision_flows SET agent_id = 'nobody'",
        "UPDATE decision_audit_events SET severity = 'LOUD'",
        "UPDATE decision_audit_events SET detail_json = '{'",
        "UPDATE idempotency_cache SET request_hash = NULL",
        "UPDATE idempotency_cache SET expires_at = NULL",
        "DELETE FROM agent_registry",
    ],
)
def test_the_database_itself_refuses_what_the_seed_forbids(db: Database, text: str) -> None:
    with closing(db):
        db.write(_fill).result()
        with pytest.raises(errors.ConstraintError):
            db.write(lambda tx: tx.script(text)).result()


def test_deleting_a_flow_deletes_what_hangs_on_it(db: Database) -> None:
    with closing(db):
        db.write(_fill).result()
        db.write(lambda tx: tx.script("DELETE FROM decision_flows")).result()
        assert db.read(lambda tx: tx.all(sql("SELECT 1 FROM decision_audit_events"))).result() == []


def _fill(tx: Tx) -> None:
    tx.script(
        "INSERT INTO agent_registry (agent_id, registered_at, updated_at, leaf_id, leaf_ver)"
        " VALUES ('a','n','n','l',1);"
        "INSERT INTO decision_flows (dfid, root_dfid, agent_id, created_at, updated_at, leaf_id, leaf_ver)"
        " VALUES ('f','f','a','n','n','l',1);"
        "INSERT INTO decision_audit_events (dfid, root_dfid, event_type, created_at, leaf_id, leaf_ver)"
        " VALUES ('f','f','E','n','l',1);"
        "INSERT INTO idempotency_cache (idempotency_key, request_hash, result, created_at, expires_at)"
        " VALUES ('k','h','1','n','n')"
    )


def test_every_record_under_the_log_covers_its_key_and_its_columns(db: Database) -> None:
    with closing(db):
        tables = db.read(_tables).result()
    for record in kernel_tables.TABLES:
        table = record.projection.table
        assert record.kind in TYPES
        assert record.key in record.projection.columns
        if table not in SEED:
            continue
        free = set(tables[table]) - set(record.projection.columns) - {"leaf_id", "leaf_ver", "leaf_salt"}
        follows = {"status", "started_at", "completed_at", "updated_at"} if table == "decision_flows" else set[str]()
        assert free == follows, "what the leaf leaves out follows from the transitions"


def test_every_table_has_a_namespace() -> None:
    script = next(step.text for step in shipped("kernel") if step.name == "0007_runtime")
    for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)^\);", script, re.DOTALL | re.MULTILINE):
        assert re.search(r"^  ns TEXT NOT NULL", body, re.MULTILINE), table


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, object(), 2**53, "\ud800", {"a": {1, 2}}])
def test_what_has_no_canonical_json_is_refused(value: object) -> None:
    with pytest.raises(errors.InvalidInputError):
        dump_json(value)  # type: ignore[arg-type]
