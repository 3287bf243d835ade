"""The root command, and the one place where errors become output and exit codes.

Exit codes: 0 success, 2 usage, 70 a defect of Holdproof, 74 the output cannot be written, 130 interrupted, 141 nobody
reads the output any more; every other is the `exit_code` of an error in `holdproof.errors`, or of a verdict.

The tree of commands is lazy: names and help come from the index, and a command is made when it is called. So `--help`,
`--version` and completion import neither the store nor any resource.
"""

import difflib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from holdproof.cli import index
from holdproof.cli.call import SETTINGS, merge_options, shared_options
from holdproof.errors import HoldproofError, InvalidInputError

_DEFECT: Final = 70
_INTERRUPTED: Final = 130
# Shared options that take a value.
_VALUED: Final = ("--home", "--url", "--tenant", "--server", "--token")


class LazyGroup(click.Group):
    """A group whose commands are named in the index and made when they are called."""

    entries: dict[str, dict[str, Any]]

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """See click.Group."""
        return list(self.entries)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names from the index; click would make every command to ask whether it is hidden."""
        names = [CompletionItem(name) for name in self.entries if name.startswith(incomplete)]
        return names if incomplete[:1] != "-" else click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click.Group; a name that is close to an existing one is suggested, as click does for options."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx))
            if not near or args[0].startswith("-"):
                raise
            suggestion = f"Did you mean {' or '.join(map(repr, near))}?"
            raise click.UsageError(f"{error.message} {suggestion}", ctx) from error


class ResourceGroup(LazyGroup):
    """The commands of one resource."""

    def __init__(self, name: str) -> None:
        about = index.commands()[name]
        self.entries = about["commands"]
        super().__init__(
            name,
            params=shared_options(),
            callback=_merge,
            help=about["summary"],
            epilog=f"Example: holdproof {name} {next(iter(self.entries))} --help",
            no_args_is_help=True,
            context_settings=SETTINGS,
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """See click.Group."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        return _command(entry, f"{self.name} {cmd_name}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """See click.Group."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _short(entry["summary"])) for name, entry in self.entries.items()])


class RootCommand(LazyGroup):
    """The root command; every error of a command arrives here."""

    def __init__(self) -> None:
        self.entries = index.commands()
        super().__init__(
            "holdproof",
            params=[*shared_options(), click.Option(["--version"], is_flag=True, help="Show the version and exit.")],
            callback=_root,
            help="Durable execution and a tamper-evident audit log for AI agents.",
            epilog="Example: holdproof --home ./store status",
            no_args_is_help=True,
            invoke_without_command=True,
            context_settings=SETTINGS,
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """See click.Group."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return self.commands.get(cmd_name)  # what a program added
        return ResourceGroup(cmd_name) if "commands" in entry else _command(entry, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click.Group; some resources have a command of their own name too, as `holdproof backup DEST`."""
        entry = self.entries.get(args[0], {})
        # The index knows both: without a word of the group, the command of that name is meant.
        single = "module" in entry or "method" in entry
        if single and _first_word(args[1:]) not in entry.get("commands", {}):
            return args[0], _command(entry, args[0]), args[1:]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """See click.Group; by heading."""
        for group in index.GROUPS:
            rows = [(name, _short(entry["summary"])) for name, entry in self.entries.items() if entry["group"] == group]
            with formatter.section(group):
                formatter.write_dl(rows)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, print what went wrong, and exit."""
        words = list(sys.argv[1:] if args is None else args)
        run = partial(super().main, words, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        try:
            code: int | str | None = run()
        except (KeyboardInterrupt, click.Abort):
            code = _INTERRUPTED
        except Exception as error:
            # Looked up in the words, since an error may come before or while they are parsed.
            code = _report(error, "--json" in takewhile(lambda word: word != "--", words))
        sys.exit(code)


def _first_word(args: Sequence[str]) -> str | None:
    """Return the first word that is neither an option nor the value of a shared one."""
    # Each word beside the one before it: after `--home` comes a value, not a command.
    previous = ["", *args]
    words = (word for word, option in zip(args, previous, strict=False) if option not in _VALUED)
    return next((word for word in words if not word.startswith("-")), None)


def _merge(**values: Any) -> None:
    merge_options(click.get_current_context(), values)


def _root(version: bool, **values: Any) -> None:
    ctx = click.get_current_context()
    call = merge_options(ctx, values)
    if version:
        # Written without the printer, which imports much more than a version needs.
        number = importlib.import_module("holdproof.version").VERSION
        click.echo(f'{{\n  "holdproof": "{number}"\n}}' if call.as_json else f"holdproof  {number}")
        ctx.exit()
    if ctx.invoked_subcommand is None:
        ctx.fail("Missing command.")


def _command(entry: dict[str, Any], words: str) -> click.Command:
    """Make the command that an entry of the index names: one that is written by hand, or that of a method."""
    command: click.Command
    if "module" in entry:
        command = importlib.import_module(f"holdproof.cli.{entry['module']}").COMMANDS[words]
        return command
    # Imported late: it imports the catalogue, and with it every resource.
    generate = importlib.import_module("holdproof.cli.generate")
    resource, method = entry.get("method", words.replace("-", "_")).split()
    command = generate.command(resource, method, words=words)
    return command


def _short(summary: str) -> str:
    # The first paragraph only: a list of commands has a line or two for each.
    return summary.partition("\n\n")[0].partition(";")[0].partition(". ")[0].rstrip(".") + "."


def _render() -> Any:
    """Import what prints, which help and completion can do without."""
    return importlib.import_module("holdproof.cli.render")


def _report(error: Exception, as_json: bool) -> int:
    try:
        if os.environ.get("HOLDPROOF_DEBUG") == "1":
            _render().aside("".join(traceback.format_exception(error)))
        return _print_error(error, as_json)
    except click.exceptions.Exit as closed:
        return closed.exit_code


def _print_error(error: Exception, as_json: bool) -> int:
    if isinstance(error, HoldproofError):
        _render().fail(error.to_dict(), as_json)
        return error.exit_code
    if isinstance(error, click.ClickException):
        return _usage(error, as_json)
    message = f"unexpected {type(error).__name__}: {error}"
    remedy = "This is a defect of Holdproof: report it with the traceback that HOLDPROOF_DEBUG=1 shows."
    _render().fail({"code": "internal", "message": message, "remedy": remedy}, as_json)
    return _DEFECT


def _usage(error: click.ClickException, as_json: bool) -> int:
    refused = InvalidInputError(error.format_message())
    if as_json:
        _render().fail(refused.to_dict(), as_json)
    else:
        hint = io.StringIO()
        error.show(hint)
        _render().aside(hint.getvalue())
    return refused.exit_code


app = RootCommand()


def main() -> None:
    """Run the command line; the entry point `holdproof`."""
    app.main(prog_name="holdproof")
