"""Moving a store to another database: the same log goes on there, and the source is retired."""

import asyncio
import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from harness.filling import populate
from harness.raw_access import attack, attack_server, behind
from harness.servers import Postgres
from holdproof import client, errors, sync
from holdproof.cli.app import app
from holdproof.db import transfer
from holdproof.db.row_stream import RowStream
from holdproof.evidence import tree
from holdproof.model.storage import TelemetryEvent
from tests.store_locations import StoreLocation, everything, submit


@pytest.fixture(scope="module")
def furnished(
    postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[StoreLocation, StoreLocation, str]]:
    """A store in files and one on a server, made once, to be copied for each test."""
    name, folder = f"f{uuid.uuid4().hex[:12]}", tmp_path_factory.mktemp("furnished")
    postgres.sql(f"CREATE DATABASE {name}")
    files, server = StoreLocation(folder / "files"), StoreLocation(folder / "server", postgres.url(name))
    furnish(files)
    furnish(server)
    yield files, server, name
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["to the server", "to files"])
def ends(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    furnished: tuple[StoreLocation, StoreLocation, str],
    postgres: Postgres,
) -> Iterator[tuple[StoreLocation, StoreLocation]]:
    """A furnished store and an empty place for it, once in each direction."""
    forth, home, name = request.param == "to the server", tmp_path / "home", f"t{uuid.uuid4().hex[:12]}"
    shutil.copytree((furnished[0] if forth else furnished[1]).home, home)
    postgres.sql(f"CREATE DATABASE {name}" + ("" if forth else f" TEMPLATE {furnished[2]}"))
    files, server = StoreLocation(home), StoreLocation(home, postgres.url(name))
    yield (files, server) if forth else (server, files)
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")


def furnish(place: StoreLocation) -> None:
    with place.open() as store:
        populate(store)
        store.agents.register("ada", version="1", contract={"role": "clerk", "text": "tab\there \\ \N{SNOWMAN}"})
        flow = store.flows.start("ada")
        store.flows.start("ada", parent=flow.flow_id)
        store.locks.acquire(flow.flow_id, {"desk": 0.1}, capacity=1, ttl_s=600)
        store.audit.record(flow.flow_id, "SAID", detail={"nested": [1.5, None, {"a": "\u0000"}]})
        store.idempotency.once("key", {"asked": 1}, lambda: {"answer": 5.0})
        store.objects.put("note", type="note", content={"text": "kept", "bytes": b"\x00"})
        store.snapshots.create("before")
        store.blobs.put("small", b"\x00\xff")
        for number in range(3):
            store.vectors.add(f"v{number}", [float(number), *[1.0] * 383], {"number": number})
        store.vectors.delete("v2")
        store.telemetry.append([TelemetryEvent("seen", timestamp="2026-01-01T00:00:00+00:00")])


def moved(source: StoreLocation, target: StoreLocation, **options: Any) -> Any:
    return sync.move(at(source), at(target), source.home, **options)


def at(place: StoreLocation) -> str:
    return place.url or "sqlite"


def seen(place: StoreLocation) -> dict[str, Any]:
    with place.open() as store:
        return {
            "log": store.read(tree.state),
            "battles": everything(store),
            "agent": store.agents.get("ada"),
            "flows": store.flows.list(),
            "locks": store.locks.list().items,
            "audit": store.audit.list(),
            "note": store.objects.get("note"),
            "found": store.objects.search("kept"),
            "snapshots": store.snapshots.list().items,
            "blob": store.blobs.get("small"),
        }


def test_the_store_goes_on_with_the_same_log_and_the_same_rows(ends: tuple[StoreLocation, StoreLocation]) -> None:
    source, target = ends
    before = seen(source)
    done = moved(source, target)
    after = seen(target)
    assert after == before
    assert (done.origin, done.size, done.verdict) == (before["log"].origin, before["log"].size, "VALID")
    with target.open() as store:
        submit(store, "later")
        assert store.flows.start("ada").flow_id, "numbers go on where they stood"
        assert store.read(tree.state).origin == before["log"].origin
    target.sound()


def test_the_source_is_sealed_and_says_where_the_store_went(ends: tuple[StoreLocation, StoreLocation]) -> None:
    source, target = ends
    done = moved(source, target)
    with pytest.raises(errors.MovedError) as raised:
        source.open()
    assert raised.value.fields["to"] == done.target
    with closing(sync.storage(source.home, source.url)) as stores, pytest.raises(errors.MovedError):
        stores.open("relational")
    with pytest.raises(errors.MovedError):
        moved(source, StoreLocation(target.home, "postgresql://elsewhere/x"))


def test_what_services_store_goes_along_and_vectors_go_on(ends: tuple[StoreLocation, StoreLocation]) -> None:
    source, target = ends
    moved(source, target)
    with target.open() as store:
        assert [each.id for each in store.vectors.search([0.0, *[1.0] * 383], 5)] == ["v0", "v1"]
        store.vectors.add("v9", [9.0, *[1.0] * 383])
        assert store.vectors.count() == 3
        assert store.telemetry.count() == 1, "it stayed in the home"
    with target.open() as store:
        assert len(store.vectors.search([9.0, *[1.0] * 383], 5)) == 3


def test_telemetry_goes_along_where_that_is_asked_for(ends: tuple[StoreLocation, StoreLocation]) -> None:
    source, target = ends
    if source.url:
        return  # its telemetry is in a file, as it is by default
    done = moved(source, target, telemetry=True)
    assert done.rows["telemetry"] > 0
    with source_of_telemetry(target) as count:
        assert count == 1


@contextmanager
def source_of_telemetry(place: StoreLocation) -> Iterator[int]:
    config = place.home / "config" / "config.yaml"
    config.write_text(f"providers: {{telemetry: {{type: postgres, connection: '{place.url}'}}}}\n")
    with place.open() as store:
        yield store.telemetry.count()


def test_a_dry_run_says_what_would_be_and_changes_nothing(ends: tuple[StoreLocation, StoreLocation]) -> None:
    source, target = ends
    before = seen(source)
    planned = moved(source, target, dry_run=True)
    assert planned.dry_run
    assert planned.size == before["log"].size
    assert planned.rows["kernel"] > planned.size
    assert seen(source) == before
    with pytest.raises(errors.NotFoundError):
        moved(target, source)


def test_a_target_that_is_not_empty_is_refused_and_left_alone(
    ends: tuple[StoreLocation, StoreLocation], tmp_path: Path
) -> None:
    source, target = ends
    other = StoreLocation(tmp_path / "other", target.url) if target.url else target
    with other.open() as store:
        submit(store, "its own")
    with pytest.raises(errors.AlreadyExistsError):
        moved(source, target)
    with other.open() as store:
        assert [name for name, _ in everything(store)] == ["its own"]
    with source.open() as store:
        submit(store, "still open")


def test_a_store_that_is_open_is_not_moved(ends: tuple[StoreLocation, StoreLocation]) -> None:
    source, target = ends
    with source.open(), pytest.raises(errors.BusyError):
        moved(source, target)
    moved(source, target)


def test_services_that_have_their_tables_open_are_in_the_way(ends: tuple[StoreLocation, StoreLocation]) -> None:
    source, target = ends
    with closing(sync.storage(source.home, source.url)) as stores:
        stores.open("relational")
        with pytest.raises(errors.BusyError):
            moved(source, target)


def test_tables_that_services_made_are_named_and_nothing_is_moved(ends: tuple[StoreLocation, StoreLocation]) -> None:
    source, target = ends
    with source.open() as store:
        store.relational.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY)")
    with pytest.raises(errors.InvalidInputError, match="mine"):
        moved(source, target)
    seen(source)
    with source.open() as store:
        store.relational.execute("DROP TABLE mine")
    moved(source, target)


def test_a_store_that_does_not_verify_is_not_moved(ends: tuple[StoreLocation, StoreLocation]) -> None:
    source, target = ends
    forged = "UPDATE battles SET score = 0.99 WHERE battle_id = 'b3'"
    attack_server(source.url, forged) if source.url else attack(source.home, forged)
    with pytest.raises(errors.CorruptError, match="does not verify"):
        moved(source, target)
    with source.open() as store:
        assert not store.verify.run(lock=False).verdict.sound
    with pytest.raises(errors.NotFoundError):
        moved(target, source)


def test_a_locked_store_is_not_moved(ends: tuple[StoreLocation, StoreLocation]) -> None:
    source, target = ends
    with source.open() as store:
        store.lockdown.lock(reason="an operator saw something")
    with pytest.raises(errors.LockedError):
        moved(source, target)


def test_a_target_in_which_a_move_did_not_end_is_refused_and_the_next_move_begins_anew(
    ends: tuple[StoreLocation, StoreLocation],
) -> None:
    source, target = ends
    before = seen(source)
    transfer.create_marked(target.url or target.home / "kernel.db", "kernel")
    with pytest.raises(errors.UnfinishedMoveError):
        target.open()
    assert seen(source) == before
    moved(source, target)
    assert seen(target) == before


class DiedError(Exception):
    pass


def die_after_the_seal(what: str, done: int, total: int) -> None:
    if what == "sealing" and done:
        raise DiedError


def test_a_move_that_died_after_the_seal_is_finished_by_the_next_and_by_none_to_elsewhere(
    ends: tuple[StoreLocation, StoreLocation],
) -> None:
    source, target = ends
    before = seen(source)
    with pytest.raises(DiedError):
        moved(source, target, progress=die_after_the_seal)
    if not source.url:  # each file has a seal of its own, and the kernel's is the first
        with behind(source.home, "membrane.db") as connection:
            connection.execute("DELETE FROM schema_migrations WHERE name = 'moved'")
    for place in (source, target):
        with pytest.raises((errors.MovedError, errors.UnfinishedMoveError)):
            place.open()
    with pytest.raises(errors.MovedError):
        moved(source, StoreLocation(target.home, "postgresql://127.0.0.1:1/x"))
    moved(source, target)
    assert seen(target) == before
    assert moved(source, target).verdict == "VALID", "harmless if repeated"


def test_a_sealed_store_is_neither_replaced_by_a_restore_nor_the_source_of_one(
    ends: tuple[StoreLocation, StoreLocation], tmp_path: Path
) -> None:
    source, target = ends
    source.backup(tmp_path / "backup")
    moved(source, target)
    with pytest.raises(errors.MovedError):
        source.restore(tmp_path / "backup")
    if not source.url:
        with pytest.raises(errors.MovedError):
            sync.restore(source.home / "kernel.db", tmp_path / "elsewhere")


def test_the_command_line_moves_a_store_and_says_what_is_left_to_do(ends: tuple[StoreLocation, StoreLocation]) -> None:
    source, target = ends
    words = ["--home", str(source.home), "move", at(source), at(target), "--json"]
    planned = CliRunner().invoke(app, [*words, "--dry-run"])
    assert (planned.exit_code, json.loads(planned.stdout)["dry_run"]) == (0, True)
    refused = CliRunner().invoke(app, words)
    assert (refused.exit_code, "--yes" in refused.output) == (2, True), "nobody was there to ask"
    source.open().close()
    done = CliRunner().invoke(app, [*words, "--yes"])
    assert (done.exit_code, json.loads(done.stdout)["verdict"]) == (0, "VALID"), done.output
    assert json.loads(done.stdout)["next"]
    told = CliRunner().invoke(
        app, ["--home", str(source.home), *(["--url", source.url] if source.url else []), "status"]
    )
    assert (told.exit_code, "was moved to" in told.stderr) == (8, True)


def test_a_row_that_arrives_otherwise_is_found_before_the_seal(
    ends: tuple[StoreLocation, StoreLocation], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = ends
    whole = transfer.open_target

    def lossy(*words: Any) -> Any:
        made = whole(*words)
        fill = made.fill

        def drop(space: str, tables: Any, rows: Any, counters: Any) -> None:
            less = {}
            if space == "kernel":
                less["lock_fences"] = RowStream(lambda: (row for n, row in enumerate(rows["lock_fences"]) if n))
            fill(space, tables, rows | less, counters)

        made.fill = drop  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(transfer, "open_target", lossy)
    with pytest.raises(errors.CorruptError, match="lock_fences"):
        moved(source, target)
    monkeypatch.undo()
    moved(source, target)


def test_text_that_postgresql_cannot_keep_is_named_and_nothing_is_moved(
    tmp_path: Path, empty_postgres_url: str
) -> None:
    source, target = StoreLocation(tmp_path / "home"), StoreLocation(tmp_path / "home", empty_postgres_url)
    with source.open() as store:
        store.blobs.put("k", b"x", content_type="text/plain")
    with behind(source.home, "membrane.db") as connection:
        connection.execute("UPDATE blobs SET content_type = 'a' || char(0) || 'b'")
    with pytest.raises(errors.InvalidInputError, match="blobs"):
        moved(source, target)
    with source.open() as store:
        assert store.blobs.get("k") == b"x"


@pytest.mark.parametrize("words", [("sqlite", "sqlite"), ("one", "two"), ("sqlite", "one"), ("one", "one")])
def test_two_ends_that_are_files_are_refused(tmp_path: Path, words: tuple[str, str]) -> None:
    src, dst = (each if each == "sqlite" else tmp_path / each for each in words)
    with pytest.raises(errors.InvalidInputError):
        sync.move(src, dst, tmp_path / "one")


def test_a_move_to_itself_or_of_nothing_is_refused(tmp_path: Path, empty_postgres_url: str) -> None:
    with pytest.raises(errors.InvalidInputError):
        sync.move(empty_postgres_url, empty_postgres_url, tmp_path)
    for src in (tmp_path, empty_postgres_url):
        with pytest.raises(errors.NotFoundError):
            sync.move(src, empty_postgres_url if src == tmp_path else tmp_path)
    assert not (tmp_path / "kernel.db").exists()
    with psycopg.connect(empty_postgres_url) as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'kernel'").fetchall() == []


def test_the_async_face_moves_as_well(ends: tuple[StoreLocation, StoreLocation]) -> None:
    source, target = ends

    async def main() -> str:
        return (await client.move(at(source), at(target), source.home)).verdict

    assert asyncio.run(main()) == "VALID"
