"""The provider: the four stores together, what each row of the degradation table looks like, what is under way."""

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner

from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.config import Paths
from holdproof.db import Migration, migrate, open_database
from holdproof.model.storage import StorageOp
from holdproof.storage import (
    BlobStore,
    IBlobStore,
    IRelationalStore,
    ITelemetryStore,
    IVectorStore,
    RelationalStore,
    StorageProvider,
    TelemetryEvent,
    TelemetryStore,
    VectorStore,
)

ADD = "INSERT INTO agent_state (agent_id) VALUES (:id)"
IDS = "SELECT agent_id FROM agent_state ORDER BY agent_id"
EVENT = TelemetryEvent("x", "2026-01-01T00:00:00Z", {}, span_id="s")
UNIT = [1.0, 0.0]
SMALL: dict[str, Any] = {"vector": {"dimensions": 2}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in [each for each in os.environ if each.startswith(("HOLDPROOF_", "XDG_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def use(
    test: Callable[[StorageProvider], Awaitable[None]], config: dict[str, Any] | None = None, **options: Any
) -> None:
    """Run a test with the provider of these settings."""

    async def run() -> None:
        async with await StorageProvider.from_config_dict({"providers": SMALL | (config or {})}, **options) as storage:
            await test(storage)

    asyncio.run(run())


async def everything(storage: StorageProvider) -> None:
    """Each store keeps what it is given."""
    await storage.relational.execute(ADD, {"id": "soul"})
    await storage.vector.add("v", UNIT)
    await storage.blob.put("backups/today.bak", b"x" * 100_000)
    await storage.telemetry.append([EVENT])
    await kept(storage)


async def kept(storage: StorageProvider) -> None:
    assert await storage.relational.fetch_all(IDS) == [{"agent_id": "soul"}]
    assert [found.id for found in await storage.vector.search(UNIT)] == ["v"]
    assert await storage.blob.get("backups/today.bak") == b"x" * 100_000
    assert await storage.telemetry.query("s") == [EVENT]


async def empty(storage: StorageProvider) -> None:
    assert await storage.relational.fetch_all(IDS) == []
    assert (await storage.blob.list()).items == []
    assert await storage.telemetry.count() == 0


# --- the four together -----------------------------------------------------------------------------------------------


def test_what_is_stored_is_there_at_the_next_opening(home: Path) -> None:
    use(everything)
    use(kept)
    assert {path.name for path in home.iterdir()} >= {"membrane.db", "telemetry.db", "blobs"}


def test_the_minimal_provider_works_and_touches_no_disk(home: Path) -> None:
    async def run() -> None:
        async with await StorageProvider.create_minimal() as storage:
            await storage.relational.execute(ADD, {"id": "soul"})
            assert await storage.relational.fetch_all(IDS) == [{"agent_id": "soul"}]
            await storage.blob.put("a", b"1")
            assert await storage.blob.get("a") == b"1"
            await storage.telemetry.append([EVENT])
            assert await storage.telemetry.query() == [EVENT]
            await storage.vector.add("v", [1.0] * 384)
            assert len(await storage.vector.search([1.0] * 384)) == 1
            assert len(storage.status().degraded) == 4

    asyncio.run(run())
    assert not home.exists()


def test_the_stores_are_known_under_both_spellings() -> None:
    async def test(storage: StorageProvider) -> None:
        for store, kinds in (
            (storage.relational, (RelationalStore, IRelationalStore)),
            (storage.vector, (VectorStore, IVectorStore)),
            (storage.blob, (BlobStore, IBlobStore)),
            (storage.telemetry, (TelemetryStore, ITelemetryStore)),
        ):
            assert all(isinstance(store, kind) for kind in kinds)

    use(test)


def test_migrations_are_entered_where_programs_look_for_them() -> None:
    async def test(storage: StorageProvider) -> None:
        for _ in range(2):
            assert await storage.run_migrations() == []
            versions = await storage.relational.fetch_all("SELECT version FROM schema_version ORDER BY version")
            assert [row["version"] for row in versions] == [int(step.name[:4]) for step in migrate.shipped("membrane")]

    use(test)


def test_on_postgres_the_same_four_work(postgres_url: str) -> None:
    postgres = {"type": "postgres", "connection": postgres_url}
    use(everything, {"relational": postgres, "telemetry": postgres})
    use(kept, {"relational": postgres, "telemetry": {"type": "postgres"}})


def test_one_store_may_be_closed_without_the_others() -> None:
    async def test(storage: StorageProvider) -> None:
        await storage.relational.close()
        with pytest.raises(errors.ClosedError):
            await storage.relational.fetch_all(IDS)
        await storage.blob.put("a", b"1")
        await storage.vector.add("v", UNIT)
        await storage.close()
        await storage.close()
        with pytest.raises(errors.HoldproofError):
            await storage.telemetry.count()

    use(test)


def test_settings_come_from_the_file_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"providers: {{telemetry: {{path: {tmp_path}/elsewhere.db}}}}\n")

    async def run() -> None:
        async with await StorageProvider.from_config(tmp_path / "mine.yaml") as storage:
            await storage.telemetry.append([EVENT])
            assert storage.config.source == tmp_path / "mine.yaml"

    asyncio.run(run())
    assert (tmp_path / "elsewhere.db").exists()


# --- the state machine -----------------------------------------------------------------------------------------------


def test_while_the_storage_migrates_everything_else_is_refused() -> None:
    async def test(storage: StorageProvider) -> None:
        with storage._stores.tracker.operation(StorageOp.MIGRATE):
            assert storage.status().under_way == {"migrating": 1}
            for call in (
                lambda: storage.relational.fetch_all(IDS),
                lambda: storage.relational.execute(ADD, {"id": "a"}),
                lambda: storage.telemetry.append([EVENT]),
                lambda: storage.blob.put("a", b"1"),
                lambda: storage.vector.add("v", UNIT),
                storage.run_migrations,
                storage.recover,
            ):
                with pytest.raises(errors.StorageBusyError):
                    await call()
            with pytest.raises(errors.StorageBusyError):
                async with storage.relational.transaction():
                    pass
        assert storage.status().under_way == {}
        await empty(storage)

    use(test)


def test_what_is_under_way_is_seen_and_runs_side_by_side() -> None:
    async def test(storage: StorageProvider) -> None:
        async with storage.relational.transaction() as tx:
            await tx.execute(ADD, {"id": "a"})
            assert storage.status().under_way == {"writing": 1}
            assert await storage.relational.fetch_all(IDS) == []
        await asyncio.gather(*(storage.relational.fetch_all(IDS) for _ in range(20)))
        assert storage.status().under_way == {}
        await asyncio.sleep(0.01)
        assert await storage.relational.fetch_all(IDS) == [{"agent_id": "a"}]
        assert storage.status().under_way == {}, "what was answered at once is over, too"

    use(test)


# --- degradation -----------------------------------------------------------------------------------------------------


def in_the_way(home: Path) -> None:
    home.write_text("not a folder")


def wrong_files(home: Path) -> None:
    home.mkdir()
    for name in ("membrane.db", "telemetry.db"):
        (home / name).write_text("this is no database at all, but long enough to be taken for one" * 20)
    (home / "blobs").write_text("no folder")


def other_programs(home: Path) -> None:
    home.mkdir()
    for name in ("membrane.db", "telemetry.db"):
        connection = apsw.Connection(str(home / name))
        connection.execute("CREATE TABLE theirs (x)")
        connection.close()
    (home / "blobs").symlink_to("/dev/null")


@pytest.mark.parametrize("harm", [in_the_way, wrong_files, other_programs])
def test_what_cannot_be_opened_falls_back_to_memory_and_says_so(
    home: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    harm(home)

    async def test(storage: StorageProvider) -> None:
        await everything(storage)
        status = storage.status()
        assert {each.type for each in status.stores.values()} == {"memory"}
        assert len(status.degraded) == 4
        assert all(kind in text for kind, text in zip(status.stores, status.degraded, strict=True))

    with caplog.at_level(logging.WARNING, "holdproof.storage"):
        use(test)
    assert len([each for each in caplog.records if "outlives this process" in each.message]) == 4


def test_the_next_healthy_start_says_what_was_not_kept(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.mkdir()
    (home / "membrane.db").mkdir()
    use(lambda storage: storage.relational.execute(ADD, {"id": "lost"}))  # type: ignore[arg-type,return-value]
    assert json.loads((home / "state" / "degraded.json").read_text()).keys() == {"relational", "vector", "blob"}

    async def again(storage: StorageProvider) -> None:
        assert len(storage.status().degraded) == 3
        assert storage.status().warnings == []

    use(again)
    with sync.open() as store:
        assert any("was in memory since" in text for text in store.status().degraded)
    shown = CliRunner().invoke(app, ["status"])
    assert "the relational store was in memory" in " ".join(shown.output.split())
    (home / "membrane.db").rmdir()

    async def healthy(storage: StorageProvider) -> None:
        assert storage.status().degraded == []
        assert [text.split()[1] for text in storage.status().warnings] == ["blob", "relational", "vector"]
        await empty(storage)

    with caplog.at_level(logging.WARNING, "holdproof.storage"):
        use(healthy)
    assert len([each for each in caplog.records if "was not kept" in each.message]) == 3
    use(_without_warnings)
    with sync.open() as store:
        assert store.status().degraded == []


async def _without_warnings(storage: StorageProvider) -> None:
    assert (storage.status().degraded, storage.status().warnings) == ([], [])


def test_a_provider_that_was_killed_while_degraded_is_remembered(home: Path) -> None:
    home.mkdir()
    (home / "telemetry.db").mkdir()
    program = f"""
import asyncio, os, signal
from holdproof.storage import StorageProvider

async def main():
    await StorageProvider.from_config_dict({ {"providers": SMALL}!r})
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == -9
    assert "outlives this process" in done.stderr
    (home / "telemetry.db").rmdir()

    async def test(storage: StorageProvider) -> None:
        assert ["telemetry" in text for text in storage.status().warnings] == [True]

    use(test)


def test_memory_that_was_chosen_is_not_remembered_as_a_loss(home: Path) -> None:
    use(everything, {"telemetry": {"type": "memory"}})
    use(_without_warnings)


def test_without_a_fallback_the_error_is_raised(home: Path) -> None:
    in_the_way(home)
    with pytest.raises(errors.UnavailableError):
        use(everything, {"relational": {"fallback": []}})


def test_a_locked_file_falls_back(home: Path) -> None:
    use(everything)
    other = apsw.Connection(str(home / "telemetry.db"), vfs="cksmvfs")
    other.pragma("locking_mode", "exclusive")
    other.execute("BEGIN EXCLUSIVE").fetchall()

    async def test(storage: StorageProvider) -> None:
        assert [each.type for each in storage.status().stores.values()] == ["sqlite", "numpy", "filesystem", "memory"]
        assert "locked" in str(storage.status().stores["telemetry"].degraded)
        await storage.telemetry.append([EVENT])

    try:
        use(test, busy_s=0.3)
    finally:
        other.close()
    use(kept)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_full_disk_falls_back_at_opening_and_is_a_typed_error_later(home: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", full], capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        (full / "ballast").write_bytes(b"x" * (1 << 20))
        config = {"telemetry": {"path": f"{full}/telemetry.db"}}

        async def at_once(storage: StorageProvider) -> None:
            assert storage.status().stores["telemetry"].type == "memory"
            await storage.telemetry.append([EVENT])

        use(at_once, config)
        for path in full.iterdir():
            path.unlink()

        async def later(storage: StorageProvider) -> None:
            await storage.telemetry.append([EVENT])
            noise = [TelemetryEvent("x", EVENT.timestamp, {"x": os.urandom(500).hex()}) for _ in range(4000)]
            with pytest.raises(errors.UnavailableError):
                await storage.telemetry.append(noise)
            assert await storage.telemetry.count() == 1

        use(later, config)
    finally:
        subprocess.run(["umount", "-l", full], check=True)


def test_a_dead_server_is_passed_over_for_the_next_of_the_chain(home: Path) -> None:
    url = f"postgresql://nobody@/nothing?host={home.parent}"
    dead = {"type": "postgres", "connection": url, "fallback": ["sqlite"]}

    async def test(storage: StorageProvider) -> None:
        await everything(storage)
        kinds = {kind: each.type for kind, each in storage.status().stores.items()}
        assert (kinds["relational"], kinds["telemetry"]) == ("sqlite", "sqlite")
        assert "cannot connect" in str(storage.status().stores["relational"].degraded)

    use(test, {"relational": dead, "telemetry": dead, "vector": {"dimensions": 2, "fallback": ["memory"]}})


def test_vectors_and_blobs_follow_the_fallback_of_the_relational_store(home: Path) -> None:
    """Their rows are in its database: what falls back to a file keeps them there, in the same file."""
    dead = {"type": "postgres", "connection": f"postgresql://nobody@/nothing?host={home.parent}"}

    async def test(storage: StorageProvider) -> None:
        await everything(storage)
        stores = storage.status().stores
        assert {kind: each.type for kind, each in stores.items()} == {
            "relational": "sqlite",
            "vector": "numpy",
            "blob": "filesystem",
            "telemetry": "sqlite",
        }
        assert "fell back" in str(stores["vector"].degraded)
        assert "fell back" in str(stores["blob"].degraded)

    use(test, {"relational": {**dead, "fallback": ["sqlite"]}})
    # The next opening, here of the file by choice, finds it all.
    use(kept, {"relational": {"type": "sqlite"}})


def test_the_connection_of_a_sqlite_store_is_its_file(home: Path, tmp_path: Path) -> None:
    """D-gent's own spelling; a URL there is an error for the kernel, and left out by the provider."""
    files = {kind: tmp_path / f"{kind}.db" for kind in ("relational", "telemetry")}
    config = {kind: {"type": "sqlite", "connection": str(file)} for kind, file in files.items()}

    async def test(storage: StorageProvider) -> None:
        await everything(storage)
        assert {kind: storage.status().stores[kind].where for kind in files} == {
            kind: str(file) for kind, file in files.items()
        }

    use(test, config)
    assert all(file.exists() for file in files.values())
    assert not (home / "membrane.db").exists()
    use(kept, config)


@pytest.mark.parametrize("name", ["vectors.db", "vectors.json"])
def test_the_path_of_the_vectors_is_a_file_of_their_own(home: Path, tmp_path: Path, name: str) -> None:
    """D-gent names a JSON file: the database is beside it, and a JSON file that is there is left alone."""
    legacy = tmp_path / "vectors.json"
    legacy.write_text("{}")
    config = {"vector": {"type": "numpy", "path": str(tmp_path / name), "dimensions": 2}}

    async def add(storage: StorageProvider) -> None:
        await storage.vector.add("a", [1.0, 0.0])
        assert storage.status().stores["vector"].where == str(tmp_path / "vectors.db")

    async def find(storage: StorageProvider) -> None:
        assert [each.id for each in await storage.vector.search([1.0, 0.0], 1)] == ["a"]

    use(add, config)
    assert (tmp_path / "vectors.db").exists()
    assert legacy.read_text() == "{}"
    use(find, config)


def test_a_backup_names_databases_that_the_configuration_puts_elsewhere(home: Path, tmp_path: Path) -> None:
    """`connection` of a SQLite store and `path` of the vectors are files outside the home: not in it, so named."""
    relational = tmp_path / "tables.db"
    vectors = tmp_path / "vectors.db"
    text = f"providers:\n  relational: {{type: sqlite, connection: {relational}}}\n  vector: {{path: {vectors}}}\n"
    paths = Paths.find(home)
    paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text(text)
    with sync.open(home) as store:
        store.relational.execute("INSERT INTO agent_state (agent_id) VALUES ('soul')")
        backup = store.backup.create(tmp_path / "backup")
    assert {f"application tables: {relational}", f"vectors: {vectors}"} <= set(backup.outside)


class Own:
    """A store of one's own, of every kind at once: the seed's methods, and nothing else."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any) -> Any:
            del args
            self.calls.append(name)
            return None

        if name in {"execute", "fetch_all", "fetch_one", "add", "search", "put", "get", "delete", "append", "query"}:
            return call
        if name == "close":
            return call
        raise AttributeError(name)


def test_a_provider_is_made_of_stores_of_ones_own() -> None:
    stores = {kind: Own() for kind in ("relational", "vector", "blob", "telemetry")}

    async def run() -> None:
        async with StorageProvider(*stores.values()) as storage:
            assert await storage.run_migrations() == []
            await storage.relational.execute(ADD, {"id": "soul"})
            await storage.vector.search(UNIT)
            await storage.blob.put("a", b"1")
            await storage.telemetry.append([EVENT])
            assert storage.status().degraded == []
            assert {each.type for each in storage.status().stores.values()} == {"Own"}
            assert (await storage.recover()).degraded == []
            with pytest.raises(errors.InvalidInputError, match="from_config"):
                _ = storage.membrane
        await storage.close()
        with pytest.raises(errors.ClosedError):
            _ = storage.blob

    asyncio.run(run())
    assert {kind: each.calls for kind, each in stores.items()} == {
        "relational": ["execute", "close"],
        "vector": ["search", "close"],
        "blob": ["put", "close"],
        "telemetry": ["append", "close"],
    }
    with pytest.raises(errors.InvalidInputError, match="blob is no store"):
        StorageProvider(stores["relational"], stores["vector"], blob=object(), telemetry=stores["telemetry"])


def test_a_store_of_ones_own_stands_beside_those_of_holdproof() -> None:
    own = Own()

    async def test(storage: StorageProvider) -> None:
        mixed = StorageProvider(storage.relational, own, storage.blob, storage.telemetry)
        await mixed.run_migrations()
        await mixed.relational.execute(ADD, {"id": "soul"})
        assert await storage.relational.fetch_all(IDS) == [{"agent_id": "soul"}]

    use(test)


def test_a_blob_server_that_is_not_there_is_passed_over(home: Path) -> None:
    async def test(storage: StorageProvider) -> None:
        assert storage.status().stores["blob"].type == "filesystem"
        await storage.blob.put("a", b"1")

    blob = {"type": "ipfs", "connection": "ipfs+http://127.0.0.1:9", "fallback": ["filesystem"]}
    use(test, {"blob": blob})


def test_settings_that_do_not_parse_are_left_out_with_file_and_line(home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.yaml").write_text("profile: mine\nproviders: [unclosed\n")

    async def run() -> None:
        async with await StorageProvider.from_config() as storage:
            [warning] = storage.status().warnings
            assert "config.yaml, line " in warning
            await storage.relational.execute(ADD, {"id": "a"})
            assert storage.status().degraded == []

    asyncio.run(run())
    assert (home / "membrane.db").exists()
    with pytest.raises(errors.ConfigError):
        sync.open()


def test_an_unset_variable_falls_back_to_the_default(home: Path) -> None:
    async def test(storage: StorageProvider) -> None:
        assert storage.status().stores["telemetry"].where == str(home / "telemetry.db")
        assert ["NO_SUCH_VARIABLE" in text for text in storage.status().warnings] == [True]

    use(test, {"telemetry": {"path": "${NO_SUCH_VARIABLE}/telemetry.db"}})


def test_a_failing_migration_is_an_error_that_names_it_and_changes_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(everything)
    shipped = migrate.shipped
    broken = Migration("9999_broken", "CREATE TABLE half (x @int); INSERT INTO nowhere VALUES (1);")
    monkeypatch.setattr(migrate, "shipped", lambda space: [*shipped(space), broken])
    with pytest.raises(errors.MigrationError, match="9999_broken"):
        use(everything)
    monkeypatch.undo()
    monkeypatch.setenv("HOLDPROOF_HOME", str(home))
    use(kept)


def test_a_newer_store_is_an_error_and_not_replaced(home: Path) -> None:
    newer = [*migrate.shipped("membrane"), Migration("9999_newer", "CREATE TABLE newer (x @int);")]
    open_database(home / "membrane.db", space="membrane", migrations=newer).close()
    with pytest.raises(errors.NewerStoreError):
        use(everything)


def test_recovering_opens_what_was_degraded(home: Path) -> None:
    home.mkdir()
    (home / "membrane.db").mkdir()

    async def test(storage: StorageProvider) -> None:
        await storage.relational.execute(ADD, {"id": "lost"})
        assert len((await storage.recover()).degraded) == 3, "still in the way, and nothing was lost by trying"
        assert await storage.relational.fetch_all(IDS) == [{"agent_id": "lost"}]
        (home / "membrane.db").rmdir()
        status = await storage.recover()
        assert status.degraded == []
        assert any("was not kept" in text for text in status.warnings)
        await empty(storage)
        await storage.relational.execute(ADD, {"id": "soul"})

    use(test)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use(_without_warnings)


def test_recovering_leaves_alone_what_is_well(home: Path) -> None:
    home.mkdir()
    (home / "telemetry.db").mkdir()

    async def test(storage: StorageProvider) -> None:
        await storage.vector.add("v", UNIT)
        before, vectors = storage.relational, storage.vector
        async with before.transaction() as tx:
            await tx.execute(ADD, {"id": "soul"})
            (home / "telemetry.db").rmdir()
            os.rename(home / "membrane.db", home / "aside.db")
            (home / "membrane.db").mkdir()
            assert "telemetry" not in str((await storage.recover()).degraded)
            (home / "membrane.db").rmdir()
            os.rename(home / "aside.db", home / "membrane.db")
        assert (storage.relational, storage.vector) == (before, vectors)
        assert await storage.relational.fetch_all(IDS) == [{"agent_id": "soul"}]
        assert [found.id for found in await storage.vector.search(UNIT)] == ["v"], "memory that was chosen is kept"
        await storage.telemetry.append([EVENT])

    use(test, {"vector": {"type": "memory", "dimensions": 2}})


def test_recovering_that_is_cancelled_at_any_moment_leaves_working_stores(home: Path) -> None:
    async def run(steps: int) -> None:
        shutil.rmtree(home, ignore_errors=True)
        (home / "membrane.db").mkdir(parents=True)
        async with await StorageProvider.from_config_dict({"providers": SMALL}) as storage:
            (home / "membrane.db").rmdir()
            recovering = asyncio.create_task(storage.recover())
            for _ in range(steps):
                await asyncio.sleep(0.005)
            recovering.cancel()
            await asyncio.gather(recovering, return_exceptions=True)
            await everything(storage)

    for steps in range(8):
        asyncio.run(run(steps))


def test_a_closed_storage_does_not_recover(home: Path) -> None:
    home.mkdir()
    (home / "membrane.db").mkdir()

    async def test(storage: StorageProvider) -> None:
        recovering = asyncio.create_task(storage.recover())
        await asyncio.sleep(0)
        (home / "membrane.db").rmdir()
        await storage.close()
        for attempt in (recovering, storage.recover()):
            with pytest.raises(errors.ClosedError):
                await attempt
        with pytest.raises(errors.ClosedError):
            await storage.relational.fetch_all(IDS)

    use(test)


def test_the_kernel_never_falls_back(home: Path) -> None:
    in_the_way(home)
    with pytest.raises(errors.HoldproofError):
        sync.open()
