"""Every query constant of the product is understood by both databases, with all shipped migrations applied."""

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import apsw
import psycopg
import pytest

import holdproof
from holdproof.db import open_database
from holdproof.db.sql import QUERIES, Query
from holdproof.errors import MissingExtraError
from holdproof.runtime import claims, leases, overview
from holdproof.upkeep import object_uses

OPTIONAL = {"fastapi", "uvicorn", "jinja2", "obstore", "opentelemetry", "mcp", "langgraph", "agents", "google"} | {
    "agent_framework",
    "crewai",
    "pydantic_ai_harness",
    "numpy",
    "psycopg",
    "starlette",
    "httpx",
}


def _import_all() -> list[str]:
    """Import every module of the package; the names of those whose optional part is not installed."""
    missing = []
    for module in pkgutil.walk_packages(holdproof.__path__, "holdproof.", onerror=lambda _: None):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            if (error.name or "").split(".")[0] not in OPTIONAL:
                raise
            missing.append(module.name)
        except MissingExtraError:
            missing.append(module.name)
    return missing


MISSING = _import_all()


def _ours(query: Query) -> bool:
    return query.where.startswith("holdproof.") and not query.where.startswith("holdproof.testing")


SHIPPED = [query for query in QUERIES if _ours(query)]


_MEMBRANE = (
    "holdproof.storage.",
    "holdproof.db.postgres.login",
    "holdproof.importers.kgents.",
    "holdproof.upkeep.backups.locations",
)
SPACES = ("kernel", "membrane", "telemetry")
Postgres = dict[str, "psycopg.Connection[tuple[object, ...]]"]


def _space(query: Query) -> str:
    """The database that a query is for: services have names of tables in common with the kernel."""
    if query.where.startswith("holdproof.storage.telemetry"):
        return "telemetry"
    return "membrane" if query.where.startswith(_MEMBRANE) else "kernel"


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, apsw.Connection]]:
    folder: Path = tmp_path_factory.mktemp("queries")
    with ExitStack() as stack:
        connections = {}
        for space in SPACES:
            open_database(folder / f"{space}.db", space=space).close()
            connections[space] = stack.enter_context(closing(apsw.Connection(str(folder / f"{space}.db"))))
        yield connections


@pytest.fixture
def postgres_spaces(postgres_url: str) -> Iterator[Postgres]:
    with ExitStack() as stack:
        connections: Postgres = {}
        for space in SPACES:
            open_database(postgres_url, space=space, workers=1).close()
            connection = stack.enter_context(psycopg.connect(postgres_url, autocommit=True))
            connection.execute(f"SET search_path TO {space}".encode())
            connections[space] = connection
        yield connections


def _explain_sqlite(connection: apsw.Connection, query: Query) -> str | None:
    """What SQLite has against a query, or None; it is compiled, not run."""
    try:
        connection.execute(f"EXPLAIN {query.sqlite}", query.bind(dict.fromkeys(query.names))).fetchall()
    except apsw.Error as error:
        return f"{query.where}: {error}"
    return None


def _explain_postgres(connection: "psycopg.Connection[tuple[object, ...]]", query: Query) -> str | None:
    """What PostgreSQL has against a query, or None; it is parsed and typed, not run."""
    try:
        connection.execute(f"PREPARE asked AS {query.postgres}".encode())
        connection.execute("DEALLOCATE asked")
    except psycopg.Error as error:
        return f"{query.where}: {error}"
    return None


def _preparable(query: Query) -> bool:
    return query.kind != "other"


def test_there_are_queries_to_ask_about() -> None:
    assert len(SHIPPED) >= 20
    assert len({query.number for query in QUERIES}) == len(QUERIES)


def test_every_query_says_where_it_stands() -> None:
    assert all(query.where.rpartition(":")[2].isdigit() for query in SHIPPED)


def test_sqlite_understands_every_query_of_the_product(sqlite: dict[str, apsw.Connection]) -> None:
    asked = [query for query in SHIPPED if query.sqlite]
    assert [found for query in asked if (found := _explain_sqlite(sqlite[_space(query)], query))] == []


def test_postgres_understands_every_query_of_the_product(
    postgres_spaces: Postgres,
) -> None:
    asked = [query for query in SHIPPED if _preparable(query) and not _only_sqlite(query)]
    assert [found for query in asked if (found := _explain_postgres(postgres_spaces[_space(query)], query))] == []


def _only_sqlite(query: Query) -> bool:
    """A query that is SQLite's own, or of its package, is never sent to a server."""
    return not query.postgres or query.where.startswith("holdproof.db.sqlite")


WRONG = {
    "a table that is not there": "SELECT x FROM no_such_table",
    "a column that is not there": "SELECT no_such_column FROM store_facts WHERE key = :key",
    "a word that is not SQL": "SELEKT 1",
    "too few columns": "INSERT INTO store_facts (key, value) VALUES (:key, :value, :more)",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_wrong_query_would_be_found_on_sqlite(sqlite: dict[str, apsw.Connection], text: str) -> None:
    assert _explain_sqlite(sqlite["kernel"], Query(text, text, "here:1", -1)) is not None


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_wrong_query_would_be_found_on_postgres(postgres_spaces: Postgres, text: str) -> None:
    assert _explain_postgres(postgres_spaces["kernel"], Query(text, text, "here:1", -1)) is not None


def test_explaining_changes_nothing(sqlite: dict[str, apsw.Connection]) -> None:
    before = [sqlite[space].total_changes() for space in SPACES]
    for query in SHIPPED:
        if query.sqlite:
            _explain_sqlite(sqlite[_space(query)], query)
    assert [sqlite[space].total_changes() for space in SPACES] == before


def test_only_modules_of_optional_extras_were_left_out() -> None:
    assert all(name.startswith(("holdproof.adapters", "holdproof.server", "holdproof.storage")) for name in MISSING)


@pytest.mark.parametrize(
    "query", [claims._LIVE, leases._BEAT_LATE, overview._LEASED], ids=["claims", "heartbeats", "metrics"]
)
def test_what_runs_is_counted_without_walking_over_flows_that_sleep(
    sqlite: dict[str, apsw.Connection], query: Query
) -> None:
    plan = _plan(sqlite["kernel"], query)
    assert "idx_flow_leases_worker" in plan
    assert "idx_flow_leases_due" not in plan
    assert "idx_flow_leases_expires_at" not in plan


def test_flows_that_wake_at_the_same_moment_are_leased_without_sorting_them_all(
    sqlite: dict[str, apsw.Connection],
) -> None:
    plan = _plan(sqlite["kernel"], claims._CANDIDATES)
    assert "idx_flow_leases_queue (ns=? AND queue=? AND priority=? AND expires_at<?)" in plan
    assert "ORDER BY" not in plan


# These look at every flow of a namespace on purpose: what is counted, what goes, what runs.
_WHOLE_NAMESPACE = ("holdproof.runtime.retention", "holdproof.runtime.replays", "holdproof.upkeep.person_file")


def test_no_query_reads_the_flows_of_a_whole_namespace_for_a_few(sqlite: dict[str, apsw.Connection]) -> None:
    """SQLite keeps no statistics, and takes an index that begins with the namespace for a narrow one."""
    wide = [
        query
        for query in SHIPPED
        if query.sqlite
        and query.kind != "other"
        and not query.where.startswith(_WHOLE_NAMESPACE)
        and "idx_decision_flows_listed (ns=?)" in _plan(sqlite[_space(query)], query)
        and "ORDER BY created_at DESC" not in query.sqlite
    ]
    assert wide == []


def test_flows_by_their_ids_are_read_in_that_order(sqlite: dict[str, apsw.Connection]) -> None:
    by_id = [query for query in SHIPPED if "+ns = " in query.sqlite and "ORDER BY dfid" in query.sqlite]
    assert len(by_id) == 3
    for query in by_id:
        assert "ORDER BY" not in _plan(sqlite["kernel"], query), query


def test_the_writer_of_a_version_is_found_by_its_moment_however_many_notes_there_are(
    sqlite: dict[str, apsw.Connection],
) -> None:
    plan = _plan(sqlite["kernel"], object_uses._WRITTEN_AT)
    assert "idx_decision_audit_events_created_at (created_at=?)" in plan
    assert "idx_decision_audit_events_event_type" not in plan


def _plan(connection: apsw.Connection, query: Query) -> str:
    rows = connection.execute(f"EXPLAIN QUERY PLAN {query.sqlite}", query.bind(dict.fromkeys(query.names)))
    return "\n".join(str(detail) for *_, detail in rows)
