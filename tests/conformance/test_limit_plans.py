"""What counting open flows for a limit reads on PostgreSQL, among those of other namespaces."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdproof import sync
from holdproof.evidence import tenant_limits
from holdproof.runtime import gauges

# Open flows of two hundred namespaces, as many as a server may have; made of a real one.
_FILL = """
    INSERT INTO kernel.decision_flows ({columns})
    SELECT {values} FROM kernel.decision_flows f, generate_series(1, 20000) g WHERE f.dfid = 'flow-0'"""
_OTHER = {"dfid": "'flow-' || g", "root_dfid": "'flow-' || g", "ns": "'ns-' || g % 200", "leaf_id": "'leaf-' || g"}


@pytest.fixture
def connection(tmp_path: Path, postgres_url: str) -> Any:
    with sync.open(tmp_path, postgres_url) as store:
        store.agents.register("trader", version="1.0.0")
        store.flows.start("trader", flow_id="flow-0")
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SET session_replication_role = replica")
        rows = connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'kernel'"
            " AND table_name = 'decision_flows' ORDER BY ordinal_position"
        )
        columns = [name for (name,) in rows]
        values = ", ".join(_OTHER.get(name, f"f.{name}") for name in columns)
        connection.execute(_FILL.format(columns=", ".join(columns), values=values).encode())
        connection.execute("ANALYZE kernel.decision_flows")
        connection.execute("SET search_path TO kernel")
        yield connection
        # Nothing of it was committed.
        connection.rollback()


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(
    ("query", "values"),
    [(tenant_limits.COUNTED["open_flows"], {"ns": "ns-7", "most": 100}), (gauges._FLOWS_OF, {"ns": "ns-7"})],
    ids=["limit", "gauge"],
)
def test_open_flows_of_a_namespace_are_found_by_status_and_namespace(
    connection: "psycopg.Connection[Any]", query: Any, values: dict[str, Any], mode: str
) -> None:
    connection.execute(f"SET plan_cache_mode TO {mode}".encode())
    connection.execute(f"PREPARE asked AS {query.postgres}".encode())
    listed = ", ".join(f"'{values[name]}'" for name in query.names)
    [(plan,)] = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked ({listed})".encode()).fetchall()
    text = json.dumps(plan)
    assert "Seq Scan" not in text, text
    assert "idx_decision_flows_status" in text, text
    conditions = [each["Index Cond"] for each in _nodes(plan[0]["Plan"]) if "Index Cond" in each]
    assert any("ns" in each and "status" in each for each in conditions), conditions


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for each in plan.get("Plans", ()) for node in _nodes(each))]
