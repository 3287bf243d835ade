"""Commands of evidence whose files are formats of their own: heads, proofs, the root key, the end of a lockdown."""

import os
from pathlib import Path
from typing import Annotated, Any, Final

import click

from holdproof.cli.call import Argument, CommandContext, Option, command
from holdproof.cli.files import read
from holdproof.cli.storage import filed
from holdproof.crypto import b64, tlog_proof
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.evidence import trust as trusting
from holdproof.evidence.log import verifiers
from holdproof.model.verify import Locked
from holdproof.upkeep import unlock as statements

COMMANDS: dict[str, click.Command] = {}

_PASSPHRASE: Final = "HOLDPROOF_KEY_PASSPHRASE"  # noqa: S105 (the variable's name)
Out = Annotated[Path | None, Option("--out", help="Where to write it; stdout without it.")]


@command(COMMANDS, "unlock", example="holdproof unlock --statement unlock.json", group="Prove")
def unlock(
    call: CommandContext, statement: Annotated[Path, Option("--statement", help="The statement that root signed.")]
) -> Locked:
    """End the lockdown with a statement signed by root."""
    with call.open() as store:
        return store.lockdown.unlock(read(str(statement)).strip())


@command(
    COMMANDS,
    "lockdown statement",
    example="holdproof lockdown statement --reason fixed --out draft.json",
    group="Prove",
)
def lockdown_statement(
    call: CommandContext,
    reason: Annotated[str, Option("--reason", help="Why the lockdown may end.")],
    out: Annotated[Path, Option("--out", help="Where to write it.")],
) -> dict[str, str]:
    """Write the statement that root is to sign, perhaps on another machine."""
    with call.open() as store:
        filed([f"{store.lockdown.statement(reason=reason)}\n".encode()], out)
    return {"written": str(out), "next": f"holdproof lockdown sign {out} --key root.pem --out unlock.json"}


@command(
    COMMANDS,
    "lockdown sign",
    example="holdproof lockdown sign draft.json --key root.pem --out unlock.json",
    group="Prove",
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
    return {"written": str(out), "next": f"holdproof unlock --statement {out}"}


@command(COMMANDS, "keys init-root", example="holdproof keys init-root --recovery root-recovery.txt", group="Prove")
def init_root(
    call: CommandContext,
    recovery: Annotated[str, Option("--recovery", help="The file for its recovery, or - to print it.")],
    offline: Annotated[bool, Option("--offline", help="Keep the key nowhere but in the recovery.")] = False,
) -> dict[str, Any]:
    """Make the root key. Keep its recovery elsewhere: backups leave keys out."""
    printed = recovery == "-"  # then the recovery is in the answer, and in no file
    with call.open() as store:
        root = store.keys.init_root(recovery=None if printed else Path(recovery), offline=offline)
    place = {"recovery": root.recovery} if printed else {"written": recovery}
    return {"keyid": root.keyid, "on_disk": root.on_disk, **place}


@command(COMMANDS, "keys sign", example="holdproof keys sign revoke.json --recovery root-recovery.txt", group="Prove")
def keys_sign(
    _: CommandContext,
    payload: Annotated[str, Argument(help="The statement: a file, or - for stdin.")],
    recovery: Annotated[Path, Option("--recovery", help="The recovery of the root key.")],
    out: Out = None,
) -> Any:
    """Sign a statement with the root key; needs no store, so any machine will do."""
    return written(trusting.sign_statement(read(payload), recovery=read(str(recovery))), out)


@command(COMMANDS, "log head", example="holdproof log head --json", group="Prove")
def head(call: CommandContext) -> dict[str, Any]:
    """Show the newest signed head, as a note and in its parts, with the keys it can be checked with."""
    with call.open() as store:
        signed = store.log.head()
        keys = store.read(verifiers)
        waiting = store.log.pending()
    return {**_plain(signed), "pending": waiting, "keys": [key.encode() for key in keys]}


@command(
    COMMANDS,
    "log prove",
    example="holdproof log prove 0198a7c2-9c1e-7a3b-8f00-5d2c6e1b4a97 --out b-1.tlog-proof",
    group="Prove",
)
def prove(
    call: CommandContext,
    leaf_id: Annotated[
        str, Argument(help="The handle of a record's leaf: its whole `leaf_id`, as in `evaluations show`.")
    ],
    ver: Annotated[int | None, Option("--ver", help="That version of the record; the newest without it.")] = None,
    out: Annotated[Path | None, Option("--out", help="Write a .tlog-proof file.")] = None,
) -> dict[str, Any]:
    """Prove that a leaf stands in the log, for anybody who has the log's public key."""
    with call.open() as store:
        proof = store.log.prove(leaf_id, ver)
    if out is not None:
        # The format of C2SP's tlog-proof, which other verifiers read.
        filed([tlog_proof.encode(proof)], out)
    hashes = [b64.encode(digest) for digest in proof.proof]
    facts = {"index": proof.index, "leaf": proof.extra.decode(), "proof": hashes, "head": _plain(proof.head)}
    return facts if out is None else {**facts, "written": str(out)}


def _plain(head: SignedCheckpoint) -> dict[str, Any]:
    fields = head.checkpoint
    return {
        "origin": fields.origin,
        "size": fields.size,
        "root": b64.encode(fields.root),
        "note": head.encode().decode(),
    }


def written(text: str, out: Path | None) -> Any:
    """Write a document to a file and say so; without a file return the document itself."""
    if out is None:
        return text
    filed([f"{text}\n".encode()], out)
    return {"written": str(out)}
