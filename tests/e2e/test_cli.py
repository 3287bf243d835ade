"""The command line: as a process where the process matters, through click's runner elsewhere; always a real store."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import click
import pytest
from click.testing import CliRunner, Result

from holdproof import sync
from holdproof.cli.app import ResourceGroup, RootCommand, app
from holdproof.cli.call import CommandContext, command
from holdproof.db import open_database
from holdproof.errors import BusyError

HOLDPROOF = str(Path(sys.executable).parent / "holdproof")
COMMANDS = (Path(__file__).parent / "commands.txt").read_text().splitlines()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, outside any project, and nothing else in the environment."""
    for name in [name for name in os.environ if name.startswith(("HOLDPROOF", "XDG_", "PG"))]:
        monkeypatch.delenv(name)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def existing(home: Path) -> None:
    """A store that is there already: commands that read create none."""
    sync.open(home).close()


def process(*words: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([HOLDPROOF, *words], env={**os.environ, **(env or {})}, text=True, check=False, **pipes)


def run(*words: str, of: RootCommand = app) -> Result:
    return CliRunner().invoke(of, words)


def config_file(home: Path, text: str) -> Path:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.yaml").write_text(text)
    return home / "config" / "config.yaml"


# --- as a process ------------------------------------------------------------------------------------------------


def test_the_first_run_says_where_data_lives_and_status_prints_one_json_document(home: Path) -> None:
    first = process("agents", "register", "trader", "--version", "1.0.0")
    assert (first.returncode, "first run" in first.stderr, str(home) in first.stderr) == (0, True, True)
    second = process("status", "--json")
    assert (second.returncode, second.stderr) == (0, "")
    assert json.loads(second.stdout)["database"]["path"] == str(home / "kernel.db")


def test_without_a_home_data_goes_where_xdg_says(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "HOLDPROOF_HOME"}
    done = subprocess.run([HOLDPROOF, "db", "migrate"], env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert (tmp_path / ".local" / "share" / "holdproof" / "kernel.db").exists()


@pytest.mark.parametrize(
    ("url", "code"),
    [("", 7), ("localhost/kernel", 7), ("mysql://ada:s3cret@db/x", 7), ("postgresql://ada:s3cret@127.0.0.1:1/x", 6)],
)
def test_a_bad_url_has_its_exit_code_shows_no_password_and_creates_no_other_database(
    home: Path, url: str, code: int
) -> None:
    for given in (process("--url", url, "status"), process("status", env={"HOLDPROOF_DATABASE_URL": url})):
        assert given.returncode == code
        assert given.stderr.startswith("error: ")
        assert "Traceback" not in given.stderr
        assert "s3cret" not in given.stdout + given.stderr
    assert not (home / "kernel.db").exists()


def test_a_request_may_be_cancelled_at_its_deadline(home: Path) -> None:
    with sync.open(home) as store:
        store.agents.register("trader", version="1.0.0")
        flow_id = store.flows.start("trader").flow_id
        store.flows.transition(flow_id, "RUNNING")
    options = ("--reason", "?", "--deadline-s", "3600", "--on-deadline", "cancel")
    asked = run("escalations", "request", flow_id, *options, "--json")
    assert json.loads(asked.stdout)["on_deadline"] == "cancel", asked.output


def test_init_twice_is_a_conflict_and_changes_nothing() -> None:
    assert process("init").returncode == 0
    Path(".holdproof/config.yaml").write_text("profile: mine\n")
    again = process("init")
    assert (again.returncode, again.stdout) == (4, "")
    assert "exists already" in again.stderr
    assert Path(".holdproof/config.yaml").read_text() == "profile: mine\n"


def test_broken_yaml_exits_7_with_file_and_line(home: Path) -> None:
    file = config_file(home, "profile: a\nproviders: {\n")
    done = process("status")
    assert (done.returncode, done.stdout) == (7, "")
    assert f"error: {file}, line 3, column 1" in done.stderr
    assert not (home / "kernel.db").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_prints(shell: str) -> None:
    done = process(env={"_HOLDPROOF_COMPLETE": f"{shell}_source"})
    assert done.returncode == 0
    assert "_HOLDPROOF_COMPLETE" in done.stdout


def test_completion_knows_commands_and_shared_options() -> None:
    ask = {"_HOLDPROOF_COMPLETE": "bash_complete", "COMP_WORDS": "holdproof st", "COMP_CWORD": "1"}
    expected = ["plain,start-over", "plain,state", "plain,status", "plain,storage"]
    assert process(env=ask).stdout.split() == expected
    ask |= {"COMP_WORDS": "holdproof db check --js", "COMP_CWORD": "3"}
    assert process(env=ask).stdout.split() == ["plain,--json"]


@pytest.mark.usefixtures("existing")
@pytest.mark.parametrize("words", [["status"], ["status", "--json"], ["--help"], ["status", "--bad", "--json"]])
def test_a_reader_that_went_away_is_no_traceback(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = process(*words, stdout=write)
    os.close(write)
    assert done.returncode in {1, 141}
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.usefixtures("existing")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_told() -> None:
    with open("/dev/full", "w") as full:
        done = process("status", "--json", stdout=full)
    assert done.returncode == 74
    assert done.stderr.endswith("error: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_names_the_terminal_cannot_show_are_escaped(tmp_path: Path, encoding: str) -> None:
    name = "stör\N{SNOWMAN}"
    (tmp_path / name).mkdir()
    human = process("init", str(tmp_path / name), env={"PYTHONIOENCODING": encoding})
    assert human.returncode == 0
    assert (name in human.stdout) == (encoding == "utf-8")
    assert process("init", str(tmp_path / name), "--json", env={"PYTHONIOENCODING": encoding}).returncode == 4


def until_it_has_open(child: subprocess.Popen[str], file: Path) -> None:
    """Signals before that would meet the interpreter's start, which is not ours."""
    folder = Path(f"/proc/{child.pid}/fd")
    deadline = time.monotonic() + (30 if folder.exists() else 3)
    while time.monotonic() < deadline and child.poll() is None:
        time.sleep(0.2)
        with suppress(FileNotFoundError):  # it closes some of them while we look
            if any(os.path.realpath(each) == str(file) for each in folder.glob("*")):
                return


def hears_ctrl_c() -> None:
    """A shell's background job, and so every child of one, would ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.usefixtures("existing")
def test_ctrl_c_exits_130_and_leaves_a_sound_store(home: Path) -> None:
    assert process("status").returncode == 0
    connection = apsw.Connection(str(home / "kernel.db"))
    connection.execute("BEGIN IMMEDIATE")  # the next opener has to wait
    waiting = subprocess.Popen(
        [HOLDPROOF, "status"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hears_ctrl_c,
    )
    until_it_has_open(waiting, home / "kernel.db")
    waiting.send_signal(signal.SIGINT)
    connection.execute("ROLLBACK")
    connection.close()
    _, told = waiting.communicate(timeout=60)
    assert (waiting.returncode, "Traceback" in told) == (130, False)
    assert process("db", "check").returncode == 0


# --- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "--home {} --json db check",
        "--json db --home {} check",
        "db check --json --home {}",
        "--home /nowhere db --home /nowhere check --home {} --json",
        "--json --url :memory: db check --home {} --json",
    ],
)
def test_shared_options_stand_anywhere_and_the_last_counts(tmp_path: Path, home: Path, words: str) -> None:
    sync.open(tmp_path / "other").close()
    result = run(*words.format(tmp_path / "other").split())
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"ok": True, "findings": []})
    assert not home.exists()


def test_an_empty_home_is_refused_and_not_taken_for_the_current_folder() -> None:
    result = run("status", "--home", "")
    assert (result.exit_code, "set but empty" in result.stderr, os.listdir()) == (7, True, [])


def test_the_version_is_shown_as_text_and_as_json() -> None:
    assert run("--version").stdout.split()[0] == "holdproof"
    assert list(json.loads(run("--version", "--json").stdout)) == ["holdproof"]


@pytest.mark.parametrize("words", [["bogus"], ["status", "--bogus"], ["db", "bogus"], ["init", "a", "b"]])
def test_wrong_usage_exits_2_with_the_usage_on_stderr(words: list[str]) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: " in result.stderr


@pytest.mark.parametrize("words", [[], ["db"]])
def test_a_group_without_a_command_shows_its_help_and_exits_2(words: list[str]) -> None:
    result = run(*words)
    assert (result.exit_code, "Example: holdproof" in result.output) == (2, True)


@pytest.mark.parametrize("words", [["bogus"], ["status", "--bogus"], ["db", "bogus"], []])
def test_wrong_usage_is_json_too_if_asked(words: list[str]) -> None:
    result = run("--json", *words)
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, "input.invalid")


def walk(
    group: RootCommand | ResourceGroup, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, group
    context = click.Context(group)
    for name in group.list_commands(context):
        each = group.get_command(context, name)
        assert each is not None
        if isinstance(each, ResourceGroup):
            yield from walk(each, (*words, name))
        else:
            yield (*words, name), each


@pytest.mark.parametrize(("words", "each"), list(walk(app)), ids=str)
def test_every_help_text_carries_an_example_that_is_understood(words: tuple[str, ...], each: click.Command) -> None:
    assert each.epilog
    shown = run(*words, "--help")
    assert (shown.exit_code, "Example: holdproof" in shown.stdout) == (0, True)
    program, *rest = shlex.split(each.epilog.removeprefix("Example: "))
    assert program == "holdproof"
    assert tuple(word for word in rest if word in words) == words
    # What comes after `--` is another program's command line.
    own = rest[: rest.index("--")] if "--" in rest else rest
    assert run(*own, "--help").exit_code == 0
    assert "--json" in shown.stdout
    assert "--home" in shown.stdout


def test_all_commands_of_this_version_are_there() -> None:
    leaves = {" ".join(words) for words, each in walk(app) if not isinstance(each, click.Group)}
    own = {name for name, entry in app.entries.items() if "module" in entry or "method" in entry}
    assert sorted(leaves | own) == COMMANDS


# --- commands ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("existing")
def test_status_for_people_shows_every_fact(home: Path) -> None:
    rows = dict(line.split(maxsplit=1) for line in run("status").stdout.splitlines() if len(line.split()) > 1)
    assert (rows["path"], rows["degraded"], rows["backend"]) == (str(home / "kernel.db"), "none", "sqlite")


@pytest.mark.usefixtures("existing")
def test_status_for_people_counts_migrations_and_fits_each_store_on_a_line(home: Path) -> None:
    names = json.loads(run("status", "--json").stdout)["migrations"]
    lines = run("status").stdout.splitlines()
    assert [line for line in lines if line.split()[0] == "migrations"] == [
        f"{'migrations':<20}{len(names)}, the newest {names[-1]}"
    ]
    assert f"{'  blob':<20}filesystem, {home / 'blobs'}: empty" in lines


def test_what_is_degraded_is_a_warning_on_stderr_too() -> None:
    result = run("status", "--url", ":memory:", "--json")
    [reason] = json.loads(result.stdout)["degraded"]
    assert f"warning: {reason}\n" in result.stderr


def test_init_names_what_it_created_in_the_given_folder(tmp_path: Path) -> None:
    result = run("init", str(tmp_path), "--json")
    folder = tmp_path / ".holdproof"
    assert json.loads(result.stdout) == {"created": [str(folder / "config.yaml")]}
    assert run("init", str(tmp_path / "missing")).exit_code == 3


@pytest.mark.usefixtures("existing")
def test_a_new_project_does_not_change_where_data_lives() -> None:
    before = json.loads(run("status", "--json").stdout)
    assert run("init").exit_code == 0
    after = json.loads(run("status", "--json").stdout)
    assert (before["store_id"], before["database"]["path"]) == (after["store_id"], after["database"]["path"])


def test_a_dry_run_names_pending_migrations_and_applies_none(home: Path) -> None:
    open_database(home / "kernel.db", migrations=[]).close()
    pending = json.loads(run("db", "migrate", "--dry-run", "--json").stdout)
    assert (bool(pending["pending"]), pending["applied"]) == (True, [])
    assert json.loads(run("db", "migrate", "--json").stdout) == {"applied": pending["pending"], "pending": []}
    assert json.loads(run("db", "migrate", "--json").stdout) == {"applied": [], "pending": []}


@pytest.mark.usefixtures("existing")
def test_a_failing_check_exits_8_and_names_what_it_found(home: Path) -> None:
    assert run("db", "check").exit_code == 0
    connection = apsw.Connection(str(home / "kernel.db"))
    connection.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY); CREATE TABLE child (id REFERENCES parent)")
    connection.execute("PRAGMA foreign_keys = OFF; INSERT INTO child VALUES (7)")
    connection.close()
    result = run("db", "check", "--json")
    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (8, False)
    assert any("child" in finding for finding in json.loads(result.stdout)["findings"])


def test_a_file_that_is_no_store_is_refused_and_left_alone(home: Path) -> None:
    home.mkdir()
    (home / "kernel.db").write_bytes(b"precious " * 1000)
    result = run("status")
    assert (result.exit_code, result.stdout) == (8, "")
    assert (home / "kernel.db").read_bytes() == b"precious " * 1000


def test_an_error_is_a_message_or_json_with_its_facts(home: Path) -> None:
    file = config_file(home, "profil: a\n")
    human, machine = run("status"), run("status", "--json")
    assert human.stderr == f"error: {file}: profil: unknown key\n", "what is said for any setting would say nothing"
    error = json.loads(machine.stdout)["error"]
    assert (error["code"], error["file"], error["key"]) == ("config.invalid", str(file), "profil")
    assert (human.exit_code, human.stdout, machine.exit_code, machine.stderr) == (7, "", 7, "")


# --- the rim itself, with commands made for the purpose ----------------------------------------------------------


def scratch(handler: Callable[[CommandContext], Any]) -> RootCommand:
    commands: dict[str, click.Command] = {}
    command(commands, "go", example="holdproof go")(handler)
    root = RootCommand()
    root.add_command(commands["go"])
    return root


def raising(error: BaseException) -> RootCommand:
    def go(_: CommandContext) -> None:
        raise error

    return scratch(go)


def test_an_unexpected_exception_is_one_short_line_and_exits_70() -> None:
    result = run("go", of=raising(ZeroDivisionError("oops")))
    assert (result.exit_code, result.stdout) == (70, "")
    assert result.stderr.startswith("error: unexpected ZeroDivisionError: oops\n")
    assert "Traceback" not in result.stderr


def test_an_unexpected_exception_is_json_if_asked() -> None:
    result = run("go", "--json", of=raising(ZeroDivisionError("oops")))
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (70, "internal")


@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), BusyError("waited")])
def test_the_traceback_is_shown_in_debug_mode_only(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setenv("HOLDPROOF_DEBUG", "1")
    shown = run("go", "--json", of=raising(error))
    assert "Traceback" in shown.stderr
    assert "error" in json.loads(shown.stdout)


def test_an_interrupt_exits_130_without_a_traceback() -> None:
    result = run("go", of=raising(KeyboardInterrupt()))
    assert (result.exit_code, "Traceback" in result.output) == (130, False)


def test_json_behind_two_dashes_is_an_argument_and_no_option() -> None:
    result = run("init", "--", "--json")
    assert (result.exit_code, result.stdout) == (3, "")


def test_values_cannot_control_the_terminal_or_pass_for_markup_or_other_rows() -> None:
    evil = {"name": "[red]x[/red] \x1b[2J\x9b1m \u202e1", "text": "a\nok  yes", "k\n\x1by": 1}
    shown = run("go", of=scratch(lambda _: evil)).stdout
    assert shown.splitlines() == [
        "name          [red]x[/red] [U+001B][2J[U+009B]1m [U+202E]1",
        "text          a",
        "              ok  yes",
        r"k\n[U+001B]y  1",
    ]


def test_people_read_words_for_values_without_text() -> None:
    value: dict[str, Any] = {"a": None, "b": True, "c": False, "d": [], "e": {}, "f": [1, {"x": 2}], "g": 0, "h": ""}
    shown = run("go", of=scratch(lambda _: value)).stdout
    assert [line.split() for line in shown.splitlines()] == [
        ["a", "-"],
        ["b", "yes"],
        ["c", "no"],
        ["d", "none"],
        ["e", "none"],
        ["f", "1"],
        ["x=2"],
        ["g", "0"],
        ["h"],
    ]


def test_a_list_is_shown_item_by_item_and_long_lines_are_not_broken() -> None:
    shown = run("go", of=scratch(lambda _: [{"path": "x" * 300}, {"path": "y"}])).stdout
    assert [line.split() for line in shown.splitlines()] == [["path", "x" * 300], [], ["path", "y"]]


def test_output_that_is_piped_has_no_colours_even_if_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in run("status").output


def test_the_list_of_commands_has_a_sentence_for_each_and_no_paragraphs() -> None:
    text = subprocess.run(
        [sys.executable, "-m", "holdproof", "--help"], capture_output=True, text=True, check=True
    ).stdout
    commands = text[text.index("Run:") :]
    assert not [line for line in commands.splitlines() if line and not line.strip()]
    assert "which has to be empty" not in commands
