"""The first touch of a store: a wrong path creates nothing, `open` takes a path or a URL, and git takes no keys."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner, Result

import holdproof
from holdproof import config, errors, sync
from holdproof.api import wire
from holdproof.api.catalogue import MethodSpec, Parameter, methods
from holdproof.cli import index
from holdproof.cli.app import app
from holdproof.cli.generate import is_flag
from holdproof.model.storage import TelemetryEvent


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("HOLDPROOF_", "XDG_", "PG"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


# --- a store that is not there -------------------------------------------------------------------------------------


def _word(spec: MethodSpec, parameter: Parameter, folder: Path) -> str:
    """Return any word that the parameter's type accepts."""
    if parameter.shape.callback:
        return "os.path:basename"
    schema = parameter.shape.schema({})
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    if parameter.name in spec.exposure.files or parameter.shape.local or any(map(wire.is_bytes, kinds)):
        file = folder / "argument.json"
        file.write_text("{}")
        return str(file)
    if "enum" in kinds[0]:
        return str(kinds[0]["enum"][0])
    if parameter.shape.scalar:
        return {"integer": "1", "number": "1"}.get(kinds[0].get("type", ""), "x")
    return "[]" if kinds[0].get("type") == "array" else "{}"


def _words(spec: MethodSpec, folder: Path) -> list[str]:
    words: list[str] = []
    for each in (each for each in spec.parameters if each.required and not is_flag(each)):
        word = _word(spec, each, folder)
        words += [word] if each.positional else [f"--{each.name.replace('_', '-')}", word]
    return words


def _read_commands() -> Iterator[tuple[str, str]]:
    for spec in methods().values():
        written = index.commands()[spec.resource.replace("_", "-")]["commands"]
        exposed = not spec.exposure.internal and not spec.exposure.storeless
        if exposed and not spec.exposure.creates and "module" not in written[spec.method.replace("_", "-")]:
            yield spec.resource, spec.method


@pytest.mark.parametrize(("resource", "method"), [*_read_commands()])
def test_a_command_that_reads_creates_nothing_where_there_is_no_store(
    resource: str, method: str, tmp_path: Path
) -> None:
    spec = methods()[resource, method]
    words = _words(spec, tmp_path)
    confirmed = ["--yes"] if spec.exposure.confirm else []
    done = run("--home", "typo", "--json", resource.replace("_", "-"), method.replace("_", "-"), *words, *confirmed)
    assert (done.exit_code, '"store.absent"' in done.output) == (3, True), done.output
    assert not (tmp_path / "typo").exists()


def test_every_method_that_reads_is_a_command_that_creates_nothing() -> None:
    assert [spec.name for spec in methods().values() if spec.reads and spec.exposure.creates] == []


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["doctor"],
        ["verify"],
        ["verify", "--full"],
        ["db", "check"],
        ["db", "migrate", "--dry-run"],
        ["watch", "--once"],
        ["blobs", "get", "x"],
        ["flows", "recover", "--register", "os:getcwd"],
        ["backup", "made"],
        ["export", "flows"],
    ],
    ids=" ".join,
)
def test_a_written_command_that_reads_creates_nothing_either(words: list[str], tmp_path: Path) -> None:
    done = run("--home", "typo", *words)
    assert done.exit_code == 3, done.output
    assert "there is no store at" in done.output
    assert [path.name for path in tmp_path.iterdir()] == []


def test_on_postgresql_a_database_without_a_store_is_none_and_stays_so(empty_postgres_url: str, tmp_path: Path) -> None:
    for words in (["status"], ["verify"], ["db", "check"], ["flows", "list"], ["blobs", "list"]):
        done = run("--home", "typo", "--url", empty_postgres_url, *words)
        assert (done.exit_code, "there is no store at" in done.output) == (3, True), done.output
    assert not (tmp_path / "typo").exists()
    with pytest.raises(errors.NoStoreError):
        sync.open(empty_postgres_url, create=False)


def test_a_database_that_was_deleted_beside_its_kept_heads_is_a_finding_and_no_new_store(tmp_path: Path) -> None:
    with sync.open("store") as store:
        store.agents.register("trader", version="1.0.0")
        # An application store that is left there does not make it a store to verify.
        store.telemetry.append([TelemetryEvent("seen", timestamp="2026-01-01T00:00:00Z")])
    for file in Path("store").glob("kernel.db*"):
        file.unlink()
    done = run("--home", "store", "verify")
    assert (done.exit_code, "the database is gone" in done.output) == (20, True), done.output
    assert not (tmp_path / "store" / "kernel.db").exists()


# --- open ----------------------------------------------------------------------------------------------------------


def test_open_takes_a_url_where_it_takes_a_path(postgres_url: str, tmp_path: Path) -> None:
    for opened in (sync.open(postgres_url, home="home"), sync.open("home", url=postgres_url)):
        with opened as store:
            assert store.status().database["backend"] == "postgres"
            assert store.core.paths.data == tmp_path / "home"

    async def look() -> str:
        async with holdproof.open(postgres_url, home="home", create=False) as store:
            return str((await store.status()).database["backend"])

    assert asyncio.run(look()) == "postgres"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    with sync.open(":memory:") as store:
        assert store.status().database["path"] == ":memory:"


def test_a_place_that_is_named_twice_or_is_a_url_in_a_path_is_refused(tmp_path: Path) -> None:
    places: list[dict[str, Any]] = [
        {"where": "a", "home": "b"},
        {"where": "postgresql://x/y", "url": "postgresql://x/z"},
        {"where": Path("postgresql://x/y")},
    ]
    for place in places:
        with pytest.raises(errors.InvalidInputError):
            sync.open(**place)
    assert [*tmp_path.iterdir()] == []


def test_an_option_that_does_not_exist_is_a_type_error() -> None:
    anything: dict[str, Any] = {"homee": "./store"}
    for opening in (sync.open, holdproof.open):
        with pytest.raises(TypeError, match="homee"):
            opening(**anything)


def test_without_create_a_missing_store_is_an_error_in_both_clients(tmp_path: Path) -> None:
    async def opened() -> None:
        async with holdproof.open("typo", create=False):
            pass

    with pytest.raises(errors.NoStoreError):
        sync.open("typo", create=False)
    with pytest.raises(errors.NoStoreError):
        sync.open("typo", readonly=True)
    with pytest.raises(errors.NoStoreError):
        asyncio.run(opened())
    assert [*tmp_path.iterdir()] == []


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("url", ["", "postgres_url"])
def test_a_store_that_is_only_read_is_read_verified_and_not_changed(url: str, request: pytest.FixtureRequest) -> None:
    place: dict[str, Any] = {"home": "store", "url": request.getfixturevalue(url) if url else None}
    with sync.open(**place) as store:
        store.agents.register("trader", version="1.0.0")
        store.evaluations.submit({"x": 1}, evaluation_id="b-1", score=0.5, intent=[1.0])
    before = _tree(Path("store"))
    with sync.open(**place, readonly=True) as store:
        assert store.agents.get("trader").agent_id == "trader"
        with pytest.raises(errors.ReadOnlyError):
            store.agents.register("other", version="1.0.0")
        assert "read only" in " ".join(store.status().degraded)
    # On a server the schema is compared with one that is made for it, which nobody may who only reads.
    report = sync.verify(**place, full=True, readonly=True)
    assert report.verdict.word == ("INCOMPLETE" if url else "VALID")
    assert {finding.table for finding in report.findings} == ({"schema"} if url else set())
    assert _tree(Path("store")) == before


def test_a_store_is_verified_by_its_database_file_too() -> None:
    with sync.open("store") as store:
        store.agents.register("trader", version="1.0.0")
    done = run("verify", "store/kernel.db")
    assert (done.exit_code, "VALID (fast)" in done.output) == (0, True), done.output
    shutil.copy("store/kernel.db", "other.db")
    done = run("verify", "other.db")
    assert (done.exit_code, "verify that folder" in done.output) == (2, True), done.output


def test_who_only_reads_leaves_the_files_of_those_who_are_there() -> None:
    with sync.open("store") as store:
        store.agents.register("trader", version="1.0.0")
        assert sync.verify(home="store", readonly=True).verdict.word == "VALID"
        store.agents.register("other", version="1.0.0")
    with sync.open("store") as store:
        assert store.agents.get("other").agent_id == "other"
        assert store.verify.run(full=True).verdict.word == "VALID"


def test_a_store_on_media_that_cannot_be_written_is_read_without_a_file_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with sync.open("store") as store:
        store.agents.register("trader", version="1.0.0")
    before = sorted(str(path) for path in Path("store").rglob("*"))
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    with sync.open("store", readonly=True) as store:
        assert store.agents.get("trader").agent_id == "trader"
        assert sorted(str(path) for path in Path("store").rglob("*")) == before
    # Commits that are only in the write-ahead log would be missing without a word.
    Path("store/kernel.db-wal").write_bytes(b"\0" * 32)
    with pytest.raises(errors.UnavailableError, match="holds commits"):
        sync.open("store", readonly=True)


@pytest.fixture
def medium(tmp_path: Path) -> Iterator[Path]:
    """The copy of a store that nobody can write: mounted read-only, or without the rights to."""
    with sync.open("store") as store:
        store.agents.register("trader", version="1.0.0")
        store.evaluations.submit({"n": 1}, evaluation_id="e-1", score=0.5)
    home = tmp_path / "store"
    if os.geteuid() != 0:
        for path in (home, *home.rglob("*")):
            path.chmod(0o500 if path.is_dir() else 0o400)
        yield home
        for path in (home, *home.rglob("*")):
            path.chmod(0o700)
        return
    place = tmp_path / "medium"
    place.mkdir()
    bound = subprocess.run(["mount", "--bind", home, place], check=False, capture_output=True)
    if bound.returncode != 0:
        pytest.skip("this root may not mount")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_commands_read_a_store_on_a_medium_that_cannot_be_written_and_say_so(medium: Path) -> None:
    for words in (["audit"], ["log", "list"], ["evaluations", "get", "e-1"], ["status"], ["agents", "get", "trader"]):
        done = run("--home", str(medium), *words)
        assert done.exit_code == 0, done.stderr
        assert "opened to read only" in done.stderr
    out = medium.parent / "e-1.zip"
    assert run("--home", str(medium), "export", "bundle", "e-1", "--out", str(out)).exit_code == 0
    assert run("verify", str(out)).exit_code == 0
    assert run("verify", str(medium)).exit_code == 0
    for words in (["agents", "register", "other", "--version", "1"], ["retention", "gc"]):
        refused = run("--home", str(medium), *words, "--json")
        assert (refused.exit_code, json.loads(refused.stdout)["error"]["code"]) == (6, "database.read_only")


def test_verify_that_could_not_lock_says_so_and_names_the_verify_that_works(medium: Path) -> None:
    refused = run("--home", str(medium), "verify", "--lock")
    assert "cannot be written" in refused.stderr
    assert "verify without --lock" in refused.stderr
    assert "INSERT" not in refused.stderr
    with pytest.raises(errors.ReadOnlyError, match="readonly=True"):
        sync.verify(medium)
    assert sync.verify(medium, readonly=True).verdict.word == "VALID"


# --- git -----------------------------------------------------------------------------------------------------------


def _taken_by_git(folder: Path) -> set[str]:
    git = ["git", "-C", str(folder), "-c", "core.excludesFile=/dev/null"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    listed = subprocess.run([*git, "ls-files"], check=True, capture_output=True, text=True)
    return set(listed.stdout.split())


def test_git_add_takes_no_key_of_a_store_in_the_work_tree(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("pass\n")
    for home in ("store", ".holdproof", "."):
        with sync.open(home) as store:
            store.keys.export_root()
    assert {path.name for path in tmp_path.rglob("root.pem")} == {"root.pem"}
    taken = _taken_by_git(tmp_path)
    # A home that is the project itself hides its keys only: its own files stay the project's.
    assert "agent.py" in taken
    assert not [name for name in taken if "keys" in name or name.startswith(("store/", ".holdproof"))]


def test_git_add_takes_the_settings_of_a_project_and_no_store_in_its_folder(tmp_path: Path) -> None:
    config.init_project(tmp_path)
    with sync.open(tmp_path / ".holdproof"):
        pass
    assert _taken_by_git(tmp_path) == {".holdproof/.gitignore", ".holdproof/config.yaml"}


def test_an_xdg_home_hides_its_four_folders_from_git(tmp_path: Path) -> None:
    with sync.open() as store:
        store.keys.export_root()
    assert _taken_by_git(tmp_path / "nobody") == set()
    with closing(apsw.Connection(str(store.core.paths.kernel_db))) as connection:
        assert connection.execute("SELECT count(*) FROM keyring").get
