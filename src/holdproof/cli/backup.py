"""`holdproof backup DEST`, `backup list`, `backup check`."""

import builtins
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from holdproof.cli import render
from holdproof.cli.bar import bar
from holdproof.cli.call import Call, command, options
from holdproof.model.backup import Backup
from holdproof.upkeep.backups import backup_list

_VALUED = ("--home", "--url")


class _Default(TyperGroup):
    """`holdproof backup DEST` is `holdproof backup create DEST`."""

    def parse_args(self, ctx: Any, args: builtins.list[str]) -> builtins.list[str]:
        """Put the command's name where the first word is none."""
        words = [word for before, word in zip(["", *args], args, strict=False) if before not in _VALUED]
        first = next((word for word in words if not word.startswith("-")), None)
        if first is not None and first not in self.commands:
            args = ["create", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Default,
    help="Back up the store while it is in use: `holdproof backup DEST`; list and check backups.",
    epilog="Example: holdproof backup /mnt/backups/monday",
    no_args_is_help=True,
)
app.callback()(options)


@command(app, example="holdproof backup create /mnt/backups/monday")
def create(
    call: Call,
    dest: Annotated[Path, typer.Argument(help="The folder to make; it must not exist.")],
    keys: Annotated[bool, typer.Option("--keys", help="Put the private keys in, and those of subjects.")] = False,
) -> Backup:
    """Copy the whole store as it stands into a new folder, signed; writers go on."""
    with call.open() as store, bar() as progress:
        made = store.backup.create(dest, keys=keys, progress=progress)
    if made.sealed and not made.keys:
        render.aside(
            f"note: the keys of {made.sealed} subjects are not in it: what is sealed opens only with this store,"
            " or with a backup made with --keys and kept apart\n"
        )
    return made


@command(app, example="holdproof backup list /mnt/backups")
def list(_: Call, folder: Annotated[Path, typer.Argument(help="The folder that holds backups.")]) -> dict[str, Any]:
    """Show the backups in a folder, the oldest first: the moments and log indices that can be restored."""
    return {Path(each.path).name: each.to_dict() for each in backup_list.list_backups(folder)}


@command(app, example="holdproof backup check /mnt/backups/monday")
def check(
    _: Call,
    src: Annotated[Path, typer.Argument(help="The backup.")],
    key: Annotated[str | None, typer.Option("--key", help="The id of the log key that must have signed it.")] = None,
) -> Backup:
    """Check a backup: signature, every file, the database, the log; needs no store."""
    with bar() as progress:
        return backup_list.inspect(src, key=key, tell=progress or backup_list.no_progress)
