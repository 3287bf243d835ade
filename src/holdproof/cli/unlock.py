"""`holdproof unlock` and `holdproof lockdown`: after tampering was found."""

import os
from pathlib import Path
from typing import Annotated

import typer

from holdproof.cli.call import Call, command, options
from holdproof.cli.files import read
from holdproof.cli.storage import filed
from holdproof.model.verify import Locked
from holdproof.upkeep import unlock as statements

_PASSPHRASE = "HOLDPROOF_KEY_PASSPHRASE"  # noqa: S105 (the variable's name)

app = typer.Typer()
lockdown = typer.Typer(
    help="The lockdown: its state, and the statement that ends it.",
    epilog="Example: holdproof lockdown status",
    no_args_is_help=True,
)
lockdown.callback()(options)


@command(app, example="holdproof unlock --statement unlock.json")
def unlock(
    call: Call, statement: Annotated[Path, typer.Option("--statement", help="The statement that root signed.")]
) -> Locked:
    """End the lockdown with a statement signed by root."""
    with call.open() as store:
        return store.lockdown.unlock(read(str(statement)).strip())


@command(lockdown, example="holdproof lockdown status --json")
def status(call: Call) -> dict[str, object]:
    """Show whether the store is locked, since when and why."""
    with call.open() as store:
        locked = store.lockdown.status()
        return {"locked": locked is not None, **(locked.to_dict() if locked else {})}


@command(lockdown, example="holdproof lockdown lock --reason 'keys were stolen'")
def lock(call: Call, reason: Annotated[str, typer.Option("--reason", help="Why, in a sentence.")]) -> Locked:
    """Lock the store by hand."""
    with call.open() as store:
        return store.lockdown.lock(reason=reason)


@command(lockdown, example="holdproof lockdown statement --reason mended --out draft.json")
def statement(
    call: Call,
    reason: Annotated[str, typer.Option("--reason", help="Why the lockdown may end.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write it.")],
) -> dict[str, str]:
    """Write the statement that root is to sign, perhaps on another machine."""
    with call.open() as store:
        filed([f"{store.lockdown.statement(reason=reason)}\n".encode()], out)
    return {"written": str(out), "next": f"holdproof lockdown sign {out} --key root.pem --out unlock.json"}


@command(lockdown, example="holdproof lockdown sign draft.json --key root.pem --out unlock.json")
def sign(
    _: Call,
    draft: Annotated[Path, typer.Argument(help="The statement to sign.")],
    key: Annotated[Path, typer.Option("--key", help="The root's private key file.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write the signed statement.")],
) -> dict[str, str]:
    """Sign a statement with the root key; needs no store and no network."""
    secret = os.environ.get(_PASSPHRASE, "").encode() or None
    signed = statements.sign(read(str(draft)).strip().encode(), statements.load_root(key, secret))
    filed([signed, b"\n"], out)
    return {"written": str(out), "next": f"holdproof unlock --statement {out}"}
