"""`holdproof migrate-legacy`: data of kgents, taken over."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from holdproof import sync
from holdproof.cli.bar import bar
from holdproof.cli.call import Call, command
from holdproof.cli.render import words
from holdproof.model.legacy import LegacyReport

app = typer.Typer()

_STYLES = {"moved": "green", "would move": "cyan", "moved before": "dim"}


def _draw(value: dict[str, Any]) -> Text:
    """A paragraph for each source: what became of it, what was in it, why it was left."""
    drawn = Text()
    for each in value["sources"]:
        drawn.append(words(each["outcome"]).ljust(13), style=_STYLES.get(each["outcome"], "bold red"))
        drawn.append(f" {words(each['source'])}\n")
        for name in ("found", "moved", "skipped", "why", "renamed"):
            if each[name]:
                drawn.append(f"  {name.ljust(12)}", style="cyan").append(f"{words(each[name])}\n")
    return drawn or Text("nothing to take over in " + ", ".join(map(words, value["roots"])) + "\n")


@command(
    app,
    example="holdproof migrate-legacy --from ~/.kgents --dry-run",
    exit_code=lambda report: report.exit_code,
    draw=_draw,
)
def migrate_legacy(
    call: Call,
    *,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="The folder; else where kgents keeps things."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read everything, touch nothing.")] = False,
) -> LegacyReport:
    """Take over data of kgents, verify it, rename its source to NAME.migrated; exits with 8 if anything was left."""
    with bar() as progress:
        return sync.migrate_legacy(source, call.home, call.url, dry_run=dry_run, progress=progress)
