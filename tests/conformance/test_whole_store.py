"""A backup holds the whole store: every database, application tables of any shape; what is elsewhere, it names."""

import hashlib
import json
import shutil
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from harness.filling import populate
from harness.servers import Seaweed
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.crypto import keys
from holdproof.evidence import sequencer
from holdproof.model.backup import Entry
from holdproof.model.storage import TelemetryEvent
from holdproof.storage.blobs import open_backend
from holdproof.upkeep.backups import backup_list, manifest
from tests.store_locations import StoreLocation, everything, submit

_LARGE = b"large" * 20_000
_TOWARDS = [0.0, *[1.0] * 383]


def fill_every_store(place: StoreLocation) -> None:
    """Something in each store: evaluations, memory, blobs in rows and in files, vectors, sessions, telemetry."""
    with place.open() as store:
        populate(store)
        store.objects.put("note", type="note", content={"text": "kept"})
        store.snapshots.create("before")
        store.blobs.put("small", b"\x00\xff", content_type="text/plain")
        store.blobs.put("large", _LARGE)
        for number in range(3):
            store.vectors.add(f"v{number}", [float(number), *[1.0] * 383], {"number": number})
        store.vectors.delete("v2")
        session = store.sessions.start_session("script", "nightly")
        store.sessions.log_event(session.id, "command", "repl", "a line\twith a tab")
        store.telemetry.append([TelemetryEvent("seen", timestamp="2026-01-01T00:00:00+00:00")])


def content(place: StoreLocation) -> dict[str, Any]:
    """What a user finds in each store."""
    with place.open() as store:
        return {
            "evaluations": everything(store),
            "note": store.objects.get("note"),
            "found": store.objects.search("kept"),
            "small": store.blobs.get("small"),
            "stat": store.blobs.stat("small"),
            "large": store.blobs.get("large"),
            "vectors": [(each.id, each.metadata) for each in store.vectors.search(_TOWARDS, 5)],
            "sessions": store.sessions.list_sessions(),
            "timelines": [store.sessions.timeline(each.id) for each in store.sessions.list_sessions()],
            "telemetry": store.telemetry.count(),
        }


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    return StoreLocation(tmp_path / "home", url)


@pytest.fixture
def elsewhere(place: StoreLocation, request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    """A new machine: another home, and for a server another database."""
    url = request.getfixturevalue("empty_postgres_url") if place.url else None
    return StoreLocation(tmp_path / "elsewhere", url)


def test_every_store_is_in_the_backup_and_comes_back_on_another_machine(
    place: StoreLocation, elsewhere: StoreLocation, tmp_path: Path
) -> None:
    fill_every_store(place)
    before = content(place)
    place.backup(tmp_path / "backup", keys=True)
    backup_list.inspect(tmp_path / "backup")
    restored = elsewhere.restore(tmp_path / "backup")
    assert content(elsewhere) == before
    assert restored.outside == []
    elsewhere.sound()
    with elsewhere.open() as store:
        store.vectors.add("v9", [9.0, *[1.0] * 383])
        assert store.vectors.count() == 3, "new vectors are found beside the old ones"
        store.blobs.put("after", b"x")
        store.relational.execute("CREATE TABLE fresh (id INTEGER)")
        submit(store, "after")
    elsewhere.sound()


def test_a_restore_in_place_brings_every_store_back_to_the_moment_of_the_backup(
    place: StoreLocation, tmp_path: Path
) -> None:
    fill_every_store(place)
    before = content(place)
    place.backup(tmp_path / "backup")
    with place.open() as store:
        store.blobs.delete("small")
        store.blobs.put("large", b"other")
        store.vectors.delete("v0")
        store.telemetry.append([TelemetryEvent("later", timestamp="2026-01-02T00:00:00+00:00")])
        store.sessions.start_session("script", "later")
    place.restore(tmp_path / "backup")
    assert content(place) == before
    place.sound()


@pytest.mark.parametrize("forth", [True, False], ids=["sqlite to postgres", "postgres to sqlite"])
def test_a_backup_restores_into_the_other_kind_of_database(
    tmp_path: Path, postgres_url: str, empty_postgres_url: str, forth: bool
) -> None:
    source = StoreLocation(tmp_path / "home", None if forth else postgres_url)
    target = StoreLocation(tmp_path / "other", empty_postgres_url if forth else None)
    fill_every_store(source)
    before = content(source)
    source.backup(tmp_path / "backup", keys=True)
    target.restore(tmp_path / "backup")
    assert content(target) == before
    with target.open() as store:
        submit(store, "after")
    target.sound()


def test_entries_that_were_pending_on_the_server_are_in_the_log_of_the_file(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = StoreLocation(tmp_path / "home", postgres_url)
    with source.open() as store:
        submit(store, "first")
    with monkeypatch.context() as patch:
        patch.setattr(sequencer.Sequencer, "_look", lambda *_: None)
        patch.setattr(sequencer.Sequencer, "close", lambda *_: None)
        with source.open() as store:
            submit(store, "pending")
            store.backup.create(tmp_path / "backup", keys=True)
    target = StoreLocation(tmp_path / "file")
    target.restore(tmp_path / "backup")
    with target.open() as store:
        assert [name for name, _ in everything(store)] == ["first", "pending"]
    target.sound()


# --- tables of applications --------------------------------------------------------------------------------------

SHAPES = """
CREATE TYPE mood AS ENUM ('calm', 'it''s late');
CREATE DOMAIN positive AS INTEGER NOT NULL CHECK (VALUE > 0);
CREATE SEQUENCE tickets START WITH 40 INCREMENT BY 2;
CREATE FUNCTION shout(line TEXT) RETURNS TEXT IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN upper(line); END $$;
CREATE TABLE "Odd name / here" (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  number BIGINT DEFAULT nextval('tickets') UNIQUE,
  feeling mood,
  amount positive DEFAULT 1,
  price NUMERIC(30, 10),
  tags TEXT[],
  at TIMESTAMP,
  document JSONB,
  "a ""quoted"" column" TEXT COLLATE "C",
  loud TEXT GENERATED ALWAYS AS (shout("a ""quoted"" column")) STORED
);
CREATE TABLE parts (day DATE NOT NULL, what TEXT, owner BIGINT REFERENCES "Odd name / here" (id) ON DELETE CASCADE)
  PARTITION BY RANGE (day);
CREATE TABLE parts_2026 PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
CREATE INDEX parts_what ON parts (lower(what)) WHERE what IS NOT NULL;
CREATE TABLE serials (id SERIAL PRIMARY KEY, bytes BYTEA);
CREATE VIEW loud_ones AS SELECT id, loud FROM "Odd name / here" WHERE loud IS NOT NULL;
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.what := NEW.what || '!'; RETURN NEW; END $$;
CREATE TRIGGER stamps BEFORE INSERT ON parts FOR EACH ROW EXECUTE FUNCTION stamp()
"""
ROWS = """
INSERT INTO "Odd name / here" (feeling, price, tags, at, document, "a ""quoted"" column")
  VALUES ('it''s late', 12345678901234567890.0123456789, '{"x,y","\\\\",NULL}', '2026-01-02 03:04:05.678901',
          '{"a": [1, 2]}', E'tab\\there\\nand \\\\ there'), ('calm', NULL, NULL, NULL, NULL, NULL);
INSERT INTO parts VALUES ('2026-05-05', 'one', 1);
INSERT INTO serials (bytes) VALUES ('\\x00ff'), (NULL);
CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM serials
"""
READINGS = (
    'SELECT * FROM "Odd name / here" ORDER BY id',
    "SELECT * FROM parts",
    "SELECT * FROM serials ORDER BY id",
    "SELECT * FROM loud_ones",
    "SELECT * FROM counted",
)


def readings(place: StoreLocation) -> list[Any]:
    with place.open() as store:
        return [store.relational.fetch_all(query) for query in READINGS]


def run(place: StoreLocation, script: str) -> None:
    with place.open() as store:
        store.relational.execute(script)


def test_tables_of_applications_of_any_shape_come_back_with_their_rules(
    tmp_path: Path, postgres_url: str, empty_postgres_url: str
) -> None:
    source, target = StoreLocation(tmp_path / "home", postgres_url), StoreLocation(tmp_path / "new", empty_postgres_url)
    run(source, SHAPES)
    run(source, ROWS)
    before = readings(source)
    source.backup(tmp_path / "backup")
    for place in (target, source):
        restored = place.restore(tmp_path / "backup", root_recovery=source.recovery)
        assert restored.outside == []
        assert readings(place) == before
        run(place, "INSERT INTO \"Odd name / here\" (feeling) VALUES ('calm')")
        run(place, "INSERT INTO parts VALUES ('2026-06-06', 'two', 3)")
        run(place, "INSERT INTO serials DEFAULT VALUES")
        with place.open() as store:
            [row] = store.relational.fetch_all('SELECT id, number FROM "Odd name / here" ORDER BY id DESC LIMIT 1')
            assert row == {"id": 3, "number": 44}, "sequences go on"
            assert store.relational.fetch_all("SELECT what FROM parts WHERE owner = 3") == [{"what": "two!"}]
            assert store.relational.fetch_one("SELECT max(id) AS id FROM serials") == {"id": 3}
            with pytest.raises(errors.ConstraintError):
                store.relational.execute("INSERT INTO parts VALUES ('2026-07-07', 'x', 99)")
            # The definition itself is alike, and belongs to the applications' login.
            store.relational.execute('ALTER TABLE "Odd name / here" ADD COLUMN more INTEGER')
            store.relational.execute("DROP VIEW loud_ones")
        place.sound()


def test_a_second_backup_of_what_was_restored_is_the_same(
    tmp_path: Path, postgres_url: str, empty_postgres_url: str
) -> None:
    source, target = StoreLocation(tmp_path / "home", postgres_url), StoreLocation(tmp_path / "new", empty_postgres_url)
    run(source, SHAPES)
    run(source, ROWS)
    source.backup(tmp_path / "one")
    target.restore(tmp_path / "one", root_recovery=source.recovery)
    target.backup(tmp_path / "two")
    name = "membrane/application.json"
    assert json.loads((tmp_path / "two" / name).read_bytes()) == json.loads((tmp_path / "one" / name).read_bytes())


def test_what_a_backup_cannot_carry_of_an_application_is_named(tmp_path: Path, postgres_url: str) -> None:
    source = StoreLocation(tmp_path / "home", postgres_url)
    run(source, "CREATE AGGREGATE total (INTEGER) (SFUNC = int4pl, STYPE = INTEGER, INITCOND = '0')")
    run(source, "CREATE TABLE seen (id INTEGER); CREATE RULE quiet AS ON DELETE TO seen DO INSTEAD NOTHING")
    made = source.backup(tmp_path / "backup")
    assert [each.partition(":")[0] for each in made.outside] == ["not carried", "not carried"]
    assert any("total" in each for each in made.outside)
    assert any("quiet" in each for each in made.outside)


def test_functions_of_an_application_never_run_as_the_owner(
    tmp_path: Path, postgres_url: str, empty_postgres_url: str
) -> None:
    """A constraint calls its function for every row that is loaded: with whose rights, the function says."""
    source, target = StoreLocation(tmp_path / "home", postgres_url), StoreLocation(tmp_path / "new", empty_postgres_url)
    run(source, "CREATE TABLE diary (who TEXT)")
    run(
        source,
        "CREATE FUNCTION spy(x INTEGER) RETURNS BOOLEAN LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO diary VALUES (current_user); RETURN true; END $$;"
        "CREATE TABLE bait (x INTEGER CHECK (spy(x)));",
    )
    run(source, "INSERT INTO bait VALUES (1)")
    source.backup(tmp_path / "backup")
    target.restore(tmp_path / "backup", root_recovery=source.recovery)
    with target.open() as store:
        callers = {row["who"] for row in store.relational.fetch_all("SELECT who FROM diary")}
    assert callers
    assert all(name.startswith("holdproof_membrane_") for name in callers)


@pytest.mark.parametrize("is_signed_anew", [False, True], ids=["unsigned", "signed by a stranger"])
def test_no_statement_of_a_backup_is_run_before_its_signature_holds(
    tmp_path: Path, postgres_url: str, is_signed_anew: bool
) -> None:
    """Definitions of tables are SQL, and whoever wrote them would have it run by a restore that is refused."""
    source = StoreLocation(tmp_path / "home", postgres_url)
    run(source, "CREATE TABLE orders (id INTEGER)")
    source.backup(tmp_path / "backup")
    name = "membrane/application.json"
    definitions = json.loads((tmp_path / "backup" / name).read_bytes())
    definitions["before"].insert(0, "this is run")
    data = json.dumps(definitions, separators=(",", ":"), sort_keys=True).encode()
    (tmp_path / "backup" / name).write_bytes(data)
    about = manifest.read(tmp_path / "backup")[0]
    changed = {**about.files, name: Entry(hashlib.sha256(data).hexdigest(), len(data))}
    encoded = manifest.encode(replace(about, files=changed))
    (tmp_path / "backup" / manifest.MANIFEST).write_bytes(encoded)
    if is_signed_anew:
        stranger = manifest.sign(encoded, about.store_id, keys.generate("ed25519"))
        (tmp_path / "backup" / manifest.SIGNATURE).write_bytes(stranger)
    with pytest.raises(errors.ProofError, match="not signed by a key"):
        source.restore(tmp_path / "backup")
    source.sound()


def test_an_overload_that_an_application_planted_is_not_called_by_a_backup(tmp_path: Path, postgres_url: str) -> None:
    source = StoreLocation(tmp_path / "home", postgres_url)
    run(source, "CREATE TABLE diary (who TEXT)")
    body = "LANGUAGE plpgsql AS $$ BEGIN INSERT INTO diary VALUES (current_user); RETURN 'x'; END $$"
    for name in ("format_type(oid, integer)", "quote_ident(name)", "pg_export_snapshot()", "format(text, name, text)"):
        run(source, f"CREATE FUNCTION {name} RETURNS TEXT {body}")
    source.backup(tmp_path / "backup")
    with source.open() as store:
        assert store.relational.fetch_all("SELECT who FROM diary") == []


@pytest.mark.parametrize("forth", [True, False], ids=["sqlite to postgres", "postgres to sqlite"])
def test_tables_of_applications_are_named_where_another_kind_of_database_cannot_take_them(
    tmp_path: Path, postgres_url: str, empty_postgres_url: str, forth: bool
) -> None:
    source = StoreLocation(tmp_path / "home", None if forth else postgres_url)
    target = StoreLocation(tmp_path / "other", empty_postgres_url if forth else None)
    run(source, "CREATE TABLE mine (id INTEGER)")
    source.backup(tmp_path / "backup", keys=True)
    with pytest.raises(errors.InvalidInputError, match="mine"):
        target.restore(tmp_path / "backup")
    assert not (target.home / "kernel.db").exists()


def test_a_flipped_byte_in_any_file_of_a_server_s_backup_is_refused_and_leaves_no_login(
    tmp_path: Path, postgres_url: str, empty_postgres_url: str
) -> None:
    source, target = StoreLocation(tmp_path / "home", postgres_url), StoreLocation(tmp_path / "new", empty_postgres_url)
    run(source, SHAPES)
    run(source, ROWS)
    source.backup(tmp_path / "backup")
    logins = _logins(postgres_url)
    names = ("membrane/blob_facts.copy", "membrane/application.json", "membrane/application/1.copy")
    for name in names:
        path = tmp_path / "backup" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
        with pytest.raises(errors.HoldproofError):
            target.restore(tmp_path / "backup", root_recovery=source.recovery)
        with pytest.raises(errors.HoldproofError):
            backup_list.inspect(tmp_path / "backup")
        path.write_bytes(whole)
    target.restore(tmp_path / "backup", root_recovery=source.recovery, dry_run=True)
    assert _logins(postgres_url) == logins
    with psycopg.connect(empty_postgres_url) as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname IN ('kernel', 'membrane')").fetchall() == []


def _logins(url: str) -> int:
    with psycopg.connect(url) as connection:
        query = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'holdproof_membrane_%'"
        [(count,)] = connection.execute(query).fetchall()
        return int(count)


# --- what is elsewhere -------------------------------------------------------------------------------------------


def test_what_is_not_in_the_home_is_named_in_manifest_answer_command_and_verdict(
    place: StoreLocation, elsewhere: StoreLocation, tmp_path: Path
) -> None:
    bodies = tmp_path / "bodies"
    (place.home / "config").mkdir(parents=True)
    settings = f"providers: {{blob: {{path: '{bodies}'}}, telemetry: {{path: '{tmp_path / 'events.db'}'}}}}\n"
    (place.home / "config" / "config.yaml").write_text(settings)
    with place.open() as store:
        store.blobs.put("large", _LARGE)
        store.telemetry.append([TelemetryEvent("seen", timestamp="2026-01-01T00:00:00+00:00")])
        made = store.backup.create(tmp_path / "backup")
    assert made.outside == [f"telemetry: {tmp_path / 'events.db'}", f"1 blobs: {bodies}"]
    assert manifest.read(tmp_path / "backup")[0].outside == made.outside
    told = CliRunner().invoke(app, ["backup", "check", str(tmp_path / "backup")])
    assert f"not in the backup: 1 blobs: {bodies}" in told.stderr.replace("\n", " ")
    assert elsewhere.restore(tmp_path / "backup", root_recovery=place.recovery).outside == made.outside
    with elsewhere.open() as store:
        report = store.verify.run(full=True, lock=False)
    assert report.verdict.word != "VALID"
    assert any("large" in each.row for each in report.findings)


def test_blobs_in_a_bucket_are_named_and_a_machine_without_the_bucket_is_not_valid(
    place: StoreLocation, elsewhere: StoreLocation, tmp_path: Path, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = f"s3://t{uuid.uuid4().hex[:12]}"
    with closing(open_backend(bucket, **seaweed.options)) as backend:
        backend.put_bytes(backend.stage(b"makes the bucket"), "seed")
    for name, value in seaweed.options.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    (place.home / "config").mkdir(parents=True)
    settings = f"providers: {{blob: {{type: s3, connection: '{bucket}'}}}}\n"
    (place.home / "config" / "config.yaml").write_text(settings)
    with place.open() as store:
        store.blobs.put("large", _LARGE)
    made = place.backup(tmp_path / "backup")
    assert made.outside == [f"1 blobs: {bucket}"]
    assert elsewhere.restore(tmp_path / "backup", root_recovery=place.recovery).outside == made.outside
    with elsewhere.open() as store:
        assert store.verify.run(lock=False).verdict.word != "VALID"
    (elsewhere.home / "config" / "config.yaml").write_text(settings)
    with elsewhere.open() as store:
        assert store.blobs.get("large") == _LARGE
    elsewhere.sound()


# --- copies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source_on", "copy_on"),
    [("sqlite", "sqlite"), ("sqlite", "postgres"), ("postgres", "sqlite"), ("postgres", "postgres")],
)
def test_a_copy_leaves_the_source_alone_and_both_go_on_under_origins_of_their_own(
    tmp_path: Path, postgres_url: str, empty_postgres_url: str, source_on: str, copy_on: str
) -> None:
    source = StoreLocation(tmp_path / "home", postgres_url if source_on == "postgres" else None)
    copy = StoreLocation(tmp_path / "copy", empty_postgres_url if copy_on == "postgres" else None)
    fill_every_store(source)
    before = content(source)
    with source.open():  # a copy is made while the store is in use
        to_home = copy.home if copy.url else None
        done = sync.copy(source.url or source.home, copy.url or copy.home, source.home, to_home=to_home)
    assert (done.verdict, "/1-" in done.origin) == ("VALID", True)
    assert content(source) == before
    assert content(copy) == before
    for each in (source, copy):
        with each.open() as store:
            submit(store, f"on {each.home.name}")
            store.blobs.delete("large")
        each.sound()
    assert not list(copy.home.glob("before-restore-*"))
    assert not (copy.home / ".copying").exists()


def test_a_copy_is_refused_where_it_would_share_something_with_its_source(tmp_path: Path) -> None:
    source = StoreLocation(tmp_path / "home")
    (source.home / "config").mkdir(parents=True)
    (source.home / "config" / "config.yaml").write_text(f"providers: {{blob: {{path: '{tmp_path / 'bodies'}'}}}}\n")
    with source.open() as store:
        store.blobs.put("large", _LARGE)
    with pytest.raises(errors.InvalidInputError, match="share these parts"):
        sync.copy(source.home, tmp_path / "copy")
    with pytest.raises(errors.InvalidInputError, match="share a home"):
        sync.copy(source.home, source.home)
    with pytest.raises(errors.InvalidInputError, match="--to-home"):
        sync.copy(source.home, "postgresql://127.0.0.1:1/x")
    with pytest.raises(errors.NotFoundError):
        sync.copy(tmp_path / "nothing", tmp_path / "copy")
    assert not (tmp_path / "nothing").exists()
    StoreLocation(tmp_path / "taken").open().close()
    with pytest.raises(errors.AlreadyExistsError):
        sync.copy(source.home, tmp_path / "taken")
    assert not (tmp_path / "copy" / "kernel.db").exists()


def test_a_dry_run_of_a_copy_makes_none(tmp_path: Path) -> None:
    source = StoreLocation(tmp_path / "home")
    fill_every_store(source)
    words = ["--json", "copy", str(source.home), str(tmp_path / "copy")]
    told = json.loads(CliRunner().invoke(app, [*words, "--dry-run"]).stdout)
    assert (told["dry_run"], told["origin"]) == (True, "")
    assert not (tmp_path / "copy" / "kernel.db").exists()
    assert json.loads(CliRunner().invoke(app, words).stdout)["verdict"] == "VALID"


# --- the machine is lost -----------------------------------------------------------------------------------------


@pytest.fixture
def drilled(place: StoreLocation, tmp_path: Path) -> Path:
    """A store with a root key whose recovery code is kept elsewhere; a backup without keys; nothing else left."""
    recovery = tmp_path / "safe" / "root.txt"
    recovery.parent.mkdir()
    with place.open() as store:
        store.keys.export_root(recovery=recovery)
        submit(store, "before")
        store.objects.put("note", type="note", content={"text": "kept"})
        store.snapshots.create("before")
        store.backup.create(tmp_path / "safe" / "backup")
    shutil.rmtree(place.home)
    return recovery


def _restore_by_python(place: StoreLocation, src: Path, recovery: Path) -> None:
    place.restore(src, root_recovery=recovery)


def _restore_by_command(place: StoreLocation, src: Path, recovery: Path) -> None:
    where = ["--home", str(place.home), *(["--url", place.url] if place.url else [])]
    done = CliRunner().invoke(app, [*where, "restore", str(src), "--root-recovery", str(recovery)])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("restore", [_restore_by_python, _restore_by_command])
def test_a_backup_without_keys_and_the_root_recovery_code_bring_a_lost_machine_back(
    drilled: Path,
    elsewhere: StoreLocation,
    tmp_path: Path,
    restore: Callable[[StoreLocation, Path, Path], None],
) -> None:
    backup = tmp_path / "safe" / "backup"
    with pytest.raises(errors.UnknownKeyError, match="--root-recovery"):
        elsewhere.restore(backup)
    restore(elsewhere, backup, drilled)
    elsewhere.sound()
    with elsewhere.open() as store:
        assert [name for name, _ in everything(store)] == ["before"]
        submit(store, "after")
        store.objects.put("note", type="note", content={"text": "changed"})
        store.snapshots.create("after")
        store.keys.rotate("log")
        submit(store, "later")
        admitted = {each.role for each in store.keys.list().items if "admit" in _actions(each.statement)}
    assert admitted == {"log", "judge", "memory"}, "root vouched for each"
    assert not (elsewhere.home / "config" / "keys" / "root.pem").exists(), "the root key stays where it was kept"
    elsewhere.sound()


def _actions(statement: str) -> str:
    from base64 import b64decode  # noqa: PLC0415 (only here)

    lines = [line for line in statement.splitlines() if line.startswith("{")]
    return " ".join(json.loads(b64decode(json.loads(line)["payload"]))["predicate"]["action"] for line in lines)


def test_a_recovery_code_of_another_root_is_refused_and_nothing_is_there(
    drilled: Path, elsewhere: StoreLocation, tmp_path: Path
) -> None:
    other = StoreLocation(tmp_path / "other")
    with other.open() as store:
        store.keys.export_root(recovery=tmp_path / "other.txt")
    with pytest.raises(errors.UnknownKeyError, match="recovery code"):
        elsewhere.restore(tmp_path / "safe" / "backup", root_recovery=tmp_path / "other.txt")
    with pytest.raises(errors.NotFoundError):
        elsewhere.restore(tmp_path / "safe" / "backup", root_recovery=tmp_path / "absent.txt")
    (tmp_path / "junk.txt").write_text("not a code")
    with pytest.raises(errors.HoldproofError):
        elsewhere.restore(tmp_path / "safe" / "backup", root_recovery=tmp_path / "junk.txt")
    assert not (elsewhere.home / "kernel.db").exists()
    elsewhere.restore(tmp_path / "safe" / "backup", root_recovery=drilled)
    elsewhere.sound()
