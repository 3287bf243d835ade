"""Commands around the root key: its recovery is shown once, and it signs on machines that have no store."""

import os
from pathlib import Path
from typing import Annotated, Any, Final

import click

from holdproof.cli.call import Argument, CommandContext, Option, command
from holdproof.cli.files import read
from holdproof.cli.storage import filed
from holdproof.evidence import trust as trusting
from holdproof.upkeep import unlock as statements

COMMANDS: dict[str, click.Command] = {}

_PASSPHRASE: Final = "HOLDPROOF_KEY_PASSPHRASE"  # noqa: S105 (the variable's name)
Out = Annotated[Path | None, Option("--out", help="Where to write it; stdout without it.")]


@command(
    COMMANDS,
    "lockdown sign",
    example="holdproof lockdown sign draft.json --key root.pem --out unlock.json",
    group="Prove",
    reach="anywhere",
)
def lockdown_sign(
    _: CommandContext,
    draft: Annotated[Path, Argument(help="The statement to sign.")],
    key: Annotated[Path, Option("--key", help="The root's private key file.")],
    out: Annotated[Path, Option("--out", help="Where to write the signed statement.")],
) -> dict[str, str]:
    """Sign a statement with the root key; needs no store and no network."""
    # Only from the environment: an argument would stand in the shell's history.
    secret = os.environ.get(_PASSPHRASE, "").encode() or None
    signed = statements.sign(read(str(draft)).strip().encode(), statements.load_root(key, secret))
    filed([signed, b"\n"], out)
    return {"written": str(out), "next": f"holdproof unlock {out}"}


@command(COMMANDS, "keys export-root", example="holdproof keys export-root --recovery root-recovery.txt", group="Prove")
def export_root(
    call: CommandContext,
    recovery: Annotated[str, Option("--recovery", help="The file for its recovery, or - to print it.")],
    offline: Annotated[
        bool, Option("--offline", help="Remove the key here: only the recovery brings it back.")
    ] = False,
) -> dict[str, Any]:
    """Write the recovery of the root key. Keep it elsewhere: backups leave keys out."""
    printed = recovery == "-"  # then the recovery is in the answer, and in no file
    with call.open(create=False) as store:
        root = store.keys.export_root(recovery=None if printed else Path(recovery), offline=offline)
    place = {"recovery": root.recovery} if printed else {"written": recovery}
    return {"keyid": root.keyid, "on_disk": root.on_disk, **place}


@command(
    COMMANDS,
    "keys sign",
    example="holdproof keys sign revoke.json --recovery root-recovery.txt",
    group="Prove",
    reach="anywhere",
)
def keys_sign(
    _: CommandContext,
    payload: Annotated[str, Argument(help="The statement: a file, or - for stdin.")],
    recovery: Annotated[Path, Option("--recovery", help="The recovery of the root key.")],
    out: Out = None,
) -> Any:
    """Sign a statement with the root key; needs no store, so any machine will do."""
    return written(trusting.sign_statement(read(payload), recovery=read(str(recovery))), out)


def written(text: str, out: Path | None) -> Any:
    """Write a document to a file and say so; without a file return the document itself."""
    if out is None:
        return text
    filed([f"{text}\n".encode()], out)
    return {"written": str(out)}
