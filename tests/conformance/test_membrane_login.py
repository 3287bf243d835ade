"""What the databases guide asks of a PostgreSQL administrator is enough, and not more than enough."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdproof.db import open_database
from holdproof.storage import StorageProvider, TelemetryEvent


@pytest.fixture
def services_url(empty_postgres_url: str) -> Iterator[str]:
    """As the guide says: made once by the owner, then a login for services that is granted the role."""
    for space in ("kernel", "membrane", "telemetry"):
        open_database(empty_postgres_url, space=space, workers=1).close()
    with closing(psycopg.connect(empty_postgres_url, autocommit=True)) as owner:
        owner.execute("CREATE ROLE services_login LOGIN PASSWORD 'x'")
        owner.execute("GRANT holdproof_membrane TO services_login")
        owner.execute("GRANT holdproof_telemetry TO services_login")
    yield make_conninfo(empty_postgres_url, user="services_login", password="x")
    with closing(psycopg.connect(empty_postgres_url, autocommit=True)) as owner:
        owner.execute("DROP OWNED BY services_login CASCADE")
        owner.execute("DROP ROLE services_login")


def test_services_work_under_a_login_of_their_own_that_cannot_reach_the_kernel(
    empty_postgres_url: str, services_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HOLDPROOF_DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    parts = psycopg.conninfo.conninfo_to_dict(services_url)
    url = f"postgresql://services_login:x@/{parts['dbname']}?host={parts['host']}&port={parts.get('port', 5432)}"

    async def work() -> None:
        own = {"type": "postgres", "connection": url, "fallback": []}
        providers = {"relational": own, "telemetry": own, "vector": {"type": "numpy", "dimensions": 2, "fallback": []}}
        async with await StorageProvider.from_config_dict({"providers": providers}) as storage:
            assert storage.status().degraded == []
            await storage.relational.execute("INSERT INTO agent_state (agent_id) VALUES ('soul')")
            await storage.relational.execute("CREATE TABLE own (x TEXT)")
            await storage.blob.put("a", b"x" * 100_000)
            await storage.vector.add("v", [1.0, 0.0])
            await storage.telemetry.append([TelemetryEvent("x", "2026-01-01T00:00:00Z")])
            assert await storage.telemetry.count() == 1

    asyncio.run(work())
    with closing(psycopg.connect(services_url, autocommit=True)) as login:
        for statement in ("SELECT * FROM kernel.store_facts", "CREATE TABLE kernel.x (y TEXT)", "SET ROLE postgres"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                login.execute(statement.encode())
