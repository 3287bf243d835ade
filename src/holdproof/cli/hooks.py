"""`holdproof hook`: what coding agents do, recorded; and the set-up of their hooks."""

import difflib
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import click

from holdproof import config
from holdproof.adapters.hooks import client, install, provenance, service
from holdproof.cli import render
from holdproof.cli.call import Argument, CommandContext, Namespace, Option, Subject, ask_or_refuse, command
from holdproof.errors import InvalidInputError

COMMANDS: dict[str, click.Command] = {}

Tool = Annotated[
    Literal["claude-code", "codex", "gemini", "cursor"],
    Argument("The coding agent.", "claude-code|codex|gemini|cursor"),
]
User = Annotated[bool, Option("--user", help="For all projects of this user, not for the one in this folder.")]
Yes = Annotated[bool, Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would change, and change nothing.")]
_HOOK: Final = "Record what coding agents do: Claude Code, Codex, Gemini CLI, Cursor."
_INCOMPLETE: Final = 1


@command(
    COMMANDS,
    "hook",
    example="holdproof hook claude-code < event.json",
    group="Run",
    reach="anywhere",
    group_summary=_HOOK,
)
def hook(
    call: CommandContext,
    tool: Tool,
    *,
    gate: Annotated[bool, Option("--gate", help="Let the store's policies decide about tool calls.")] = False,
    agent: Annotated[str | None, Option("--agent", help="The agent's name in the log; that of the tool.")] = None,
    subject: Subject = None,
    state: Annotated[Path | None, Option("--state", help="The folder that hooks and recorder share.")] = None,
    ns: Namespace = "main",
) -> None:
    """Record one event of a coding agent, given on standard input; `holdproof hook install` sets agents up to call it.

    Other commands: hook install, hook uninstall, hook status, hook drain, hook blame. It exits with 0 whatever happens,
    and says on stderr what could not be recorded: a hook must not stop its agent.
    """
    words = [tool, "--state", str(state or _state(call)), "--ns", ns]
    words += ["--gate"] if gate else []
    words += ["--agent", agent] if agent else []
    words += ["--subject", subject] if subject else []
    words += ["--home", os.path.abspath(call.home)] if call.home else []
    raise click.exceptions.Exit(client.main(words))


@command(COMMANDS, "hook install", example="holdproof hook install claude-code", group="Run", reach="anywhere")
def install_(
    call: CommandContext,
    tool: Tool,
    *,
    user: User = False,
    gate: Annotated[bool, Option("--gate", help="Let the store's policies decide about tool calls.")] = False,
    agent: Annotated[str | None, Option("--agent", help="The agent's name in the log; that of the tool.")] = None,
    subject: Subject = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> dict[str, Any]:
    """Add the hooks to a coding agent's configuration, once it was shown and confirmed."""
    if call.url is not None:
        raise InvalidInputError(
            "--url would stand in the agent's configuration, password and all: set HOLDPROOF_DATABASE_URL or the"
            " connection in config.yaml, and leave it out here"
        )
    home = None if call.home is None else os.path.abspath(call.home)
    if home is None and os.environ.get("HOLDPROOF_HOME"):
        # The agent may be started from elsewhere, without this variable.
        home = str(config.Paths.find().data)
    text = install.command_of(
        hook_program(), tool, state=_state(call), home=home, agent=agent, gate=gate, subject=subject
    )
    path = install.path_of(tool, user=user, project=Path.cwd())
    return _apply(install.installed(tool, path, text, gate=gate), tool, dry_run=dry_run, yes=yes)


@command(COMMANDS, "hook uninstall", example="holdproof hook uninstall claude-code", group="Run", reach="anywhere")
def uninstall(
    call: CommandContext,  # noqa: ARG001
    tool: Tool,
    *,
    user: User = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> dict[str, Any]:
    """Take the hooks out of a coding agent's configuration; everything else stays."""
    path = install.path_of(tool, user=user, project=Path.cwd())
    return _apply(install.uninstalled(tool, path), tool, dry_run=dry_run, yes=yes)


@command(COMMANDS, "hook status", example="holdproof hook status", group="Run", reach="anywhere")
def status(call: CommandContext) -> dict[str, Any]:
    """Show whether a recorder runs, how many events wait for it, and what keeps it from writing them."""
    state = _state(call)
    error = state / client.ERROR
    spool = state / client.SPOOL
    return {
        "recorder": "running" if service.is_running(state) else "not running",
        "waiting": len(list(spool.glob("*.json"))),
        "damaged": len(list(spool.glob("*.damaged"))),
        "error": error.read_text(encoding="utf-8").strip() if error.is_file() else None,
        "state": str(state),
    }


@command(COMMANDS, "hook drain", example="holdproof hook drain", group="Run", reach="anywhere")
def drain(call: CommandContext) -> dict[str, Any]:
    """Write the events that wait into the store now; a recorder that runs does so by itself."""
    state = _state(call)
    words = ["--state", str(state), "--idle-s", "0"]
    words += ["--home", os.path.abspath(call.home)] if call.home else []
    # In its own process, as hooks start it: it changes its working folder.
    code = os.spawnv(  # noqa: S606 (this program)
        os.P_WAIT, sys.executable, [sys.executable, "-m", "holdproof.adapters.hooks.service", *words]
    )
    if code:
        raise click.exceptions.Exit(code)
    return status_of(state)


def status_of(state: Path) -> dict[str, Any]:
    """Return how many events wait, and why."""
    error = state / client.ERROR
    return {
        "waiting": len(list((state / client.SPOOL).glob("*.json"))),
        "error": error.read_text(encoding="utf-8").strip() if error.is_file() else None,
    }


def _blame_code(blame: provenance.Blame) -> int:
    strict = click.get_current_context().params["strict"]
    return _INCOMPLETE if strict and not blame.complete else 0


@command(COMMANDS, "hook blame", example="holdproof hook blame HEAD", group="Prove", exit_code=_blame_code)
def blame(
    call: CommandContext,
    commit: Annotated[str, Argument("The commit; HEAD.")] = "HEAD",
    *,
    repository: Annotated[Path | None, Option("--repository", help="The work tree; the one of this folder.")] = None,
    strict: Annotated[bool, Option("--strict", help="Exit with 1 unless every line comes from a record.")] = False,  # noqa: ARG001
    ns: Namespace = "main",
) -> provenance.Blame:
    """Show for each hunk of a commit the recorded change, the session and the prompt that it comes from."""
    with call.open(create=False) as store:
        return provenance.blame(store, str((repository or Path.cwd()).absolute()), commit, ns=ns)


def _apply(configuration: install.Configuration, tool: str, *, dry_run: bool, yes: bool) -> dict[str, Any]:
    """Show what changes, ask, and write it."""
    path = str(configuration.path)
    if configuration.unchanged:
        return {"tool": tool, "file": path, "changed": False}
    before = (configuration.before or "").splitlines(keepends=True)
    after = (configuration.after or "").splitlines(keepends=True)
    render.aside("".join(difflib.unified_diff(before, after, path, path)))
    if dry_run:
        return {"tool": tool, "file": path, "changed": False}
    if not yes:
        ask_or_refuse(f"Write {path}?")
    install.write(configuration)
    return {"tool": tool, "file": path, "changed": True}


def _state(call: CommandContext) -> Path:
    return config.Paths.find(call.home).state / "hooks"


def hook_program() -> str:
    """Return the program that hooks call: this Python and the hook alone, or else the program that runs now."""
    package = Path(client.__file__).parent
    if sys.executable and package.is_dir():
        # With the whole program around it a hook costs three times as much. A script that is gone would end with the
        # code by which agents refuse a call; this ends with another.
        return shlex.join([sys.executable, "-I", "-S", "-c", client.LAUNCH, str(package)])
    beside = Path(sys.executable).with_name("holdproof")
    if beside.is_file():
        return str(beside)
    return shutil.which("holdproof") or f"{sys.executable} -m holdproof"
