"""The root command, and the one place where errors become output and exit codes.

Exit codes: 0 done, 2 usage, 70 a defect of Holdproof, 74 the output cannot be written, 130 interrupted, 141 nobody
reads the output any more; every other is the `exit_code` of an error in `holdproof.errors`.
"""

import io
import os
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from itertools import takewhile
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from holdproof.cli import (
    agents,
    archive,
    audit,
    backup,
    blobs,
    call,
    copy,
    db,
    dbom,
    demo,
    doctor,
    documents,
    erase,
    escalations,
    evaluations,
    exports,
    feedback,
    flows,
    image,
    imports,
    init,
    keys,
    legacy,
    locks,
    log,
    mcp,
    notes,
    objects,
    render,
    restore,
    retention,
    sagas,
    sessions,
    skills,
    snapshots,
    status,
    sweep,
    telemetry,
    threads,
    tokens,
    transcripts,
    unlock,
    up,
    vectors,
    verify,
    watch,
    witness,
)
from holdproof.errors import HoldproofError, InvalidInputError

# typer has no public name for it, but its public child leads there whether typer brings its own click or not.
_UsageError = cast("Any", typer.BadParameter.__base__)
_DEFECT = 70
_INTERRUPTED = 130


class Root(TyperGroup):
    """The root command; everything a command raises arrives here."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, print what went wrong, and exit."""
        words = list(sys.argv[1:] if args is None else args)
        run = partial(super().main, words, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return run()
        try:
            code = run()
        except KeyboardInterrupt:
            code = _INTERRUPTED
        except Exception as error:
            # Looked up in the words, since an error may come before or while they are parsed.
            code = _report(error, "--json" in takewhile(lambda word: word != "--", words))
        sys.exit(code)


def _report(error: Exception, as_json: bool) -> int:
    try:
        if os.environ.get("HOLDPROOF_DEBUG") == "1":
            render.aside("".join(traceback.format_exception(error)))
        return _tell(error, as_json)
    except typer.Exit as closed:
        return closed.exit_code


def _tell(error: Any, as_json: bool) -> int:
    if isinstance(error, HoldproofError):
        render.fail(error.to_dict(), as_json)
        return error.exit_code
    if isinstance(error, _UsageError):
        return _usage(error, as_json)
    message = f"unexpected {type(error).__name__}: {error}"
    remedy = "This is a defect of Holdproof: report it with the traceback that HOLDPROOF_DEBUG=1 shows."
    render.fail({"code": "internal", "message": message, "remedy": remedy}, as_json)
    return _DEFECT


def _usage(error: Any, as_json: bool) -> int:
    refused = InvalidInputError(error.format_message())
    if as_json:
        render.fail(refused.to_dict(), as_json)
    else:
        hint = io.StringIO()
        error.show(hint)
        render.aside(hint.getvalue())
    return refused.exit_code


app = typer.Typer(
    name="holdproof",
    cls=Root,
    help="The ground AI agents stand on: what they decide, know and owe, durable and provable.",
    epilog="Example: holdproof --home ./store status",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(
    ctx: typer.Context,
    home: call.Home = None,
    url: call.Url = None,
    as_json: call.Json = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Read the options that stand before the command."""
    call.options(ctx, home, url, as_json)
    if version:
        render.show({"holdproof": metadata.version("holdproof")}, as_json)
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        ctx.fail("Missing command.")


for noun in (init, up, demo, status, watch, doctor, verify, unlock, restore, copy, legacy, mcp):
    app.add_typer(noun.app)
app.add_typer(tokens.app, name="tokens")
app.add_typer(agents.app, name="agents")
app.add_typer(flows.app, name="flows")
app.add_typer(escalations.app, name="escalations")
app.add_typer(documents.contexts, name="contexts")
app.add_typer(documents.state, name="state")
app.add_typer(feedback.app, name="feedback")
app.add_typer(audit.app, name="audit")
app.add_typer(locks.app, name="locks")
app.add_typer(sagas.app, name="sagas")
app.add_typer(sessions.app, name="sessions")
app.add_typer(sweep.app, name="sweep")
app.add_typer(objects.app, name="objects")
app.add_typer(snapshots.app, name="snapshots")
app.add_typer(image.app, name="image")
app.add_typer(archive.app, name="archive")
app.add_typer(threads.app, name="threads")
app.add_typer(blobs.app, name="blobs")
app.add_typer(vectors.app, name="vectors")
app.add_typer(telemetry.app, name="telemetry")
app.add_typer(notes.app, name="notes")
app.add_typer(transcripts.app, name="transcripts")
app.add_typer(db.app, name="db")
app.add_typer(log.app, name="log")
app.add_typer(witness.app, name="witness")
app.add_typer(evaluations.app, name="evaluations")
app.add_typer(dbom.app, name="dbom")
app.add_typer(keys.app, name="keys")
app.add_typer(imports.app, name="import")
app.add_typer(exports.app, name="export")
app.add_typer(backup.app, name="backup")
app.add_typer(erase.app, name="erase")
app.add_typer(retention.app, name="retention")
app.add_typer(skills.app, name="skills")
app.add_typer(unlock.lockdown, name="lockdown")


def main() -> None:
    """Run the command line; the entry point `holdproof`."""
    get_command(app).main(prog_name="holdproof")
