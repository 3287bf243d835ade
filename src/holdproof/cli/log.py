"""`holdproof log`: the append-only log."""

from pathlib import Path
from typing import Annotated, Any

import typer

from holdproof.cli.bar import bar
from holdproof.cli.call import Call, command, options
from holdproof.cli.storage import filed
from holdproof.crypto import b64, tlog_proof
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.evidence.log import verifiers
from holdproof.evidence.witness_client import CosignedHead
from holdproof.model.log import Audited, Level

app = typer.Typer(
    help="Heads, proofs and audits of the log.", epilog="Example: holdproof log head", no_args_is_help=True
)
app.callback()(options)


@command(app, example="holdproof log head --json")
def head(call: Call) -> dict[str, Any]:
    """Show the newest signed head, as a note and in its parts, with the keys it can be checked with."""
    with call.open() as store:
        signed, keys, waiting = store.log.head(), store.read(verifiers), store.log.pending()
    return {**_plain(signed), "pending": waiting, "keys": [key.encode() for key in keys]}


@command(app, example="holdproof log prove 0198a7c2-9c1e-7a3b-8f00-5d2c6e1b4a97 --out b-1.tlog-proof")
def prove(
    call: Call,
    leaf_id: Annotated[
        str, typer.Argument(help="The handle of a record's leaf: its whole `leaf_id`, as in `evaluations show`.")
    ],
    ver: Annotated[int | None, typer.Option("--ver", help="That version of the record; the newest without it.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write a .tlog-proof file.")] = None,
) -> dict[str, Any]:
    """Prove that a leaf stands in the log, for anybody who has the log's public key."""
    with call.open() as store:
        proof = store.log.prove(leaf_id, ver)
    if out is not None:
        filed([tlog_proof.encode(proof)], out)
    hashes = [b64.encode(digest) for digest in proof.proof]
    facts = {"index": proof.index, "leaf": proof.extra.decode(), "proof": hashes, "head": _plain(proof.head)}
    return facts if out is None else {**facts, "written": str(out)}


@command(app, example="holdproof log consistency 1000 2000")
def consistency(
    call: Call,
    old: Annotated[int, typer.Argument(help="The smaller size.")],
    new: Annotated[int | None, typer.Argument(help="The larger size; the newest head's without it.")] = None,
) -> dict[str, Any]:
    """Prove that the log of one size continues the log of a smaller one."""
    with call.open() as store:
        size = store.log.head().checkpoint.size if new is None else new
        return {"old": old, "new": size, "proof": [b64.encode(each) for each in store.log.prove_consistency(old, size)]}


@command(app, example="holdproof log audit --full", exit_code=lambda outcome: outcome.verdict.exit_code)
def audit(
    call: Call, full: Annotated[bool, typer.Option("--full", help="Recompute everything from the leaves.")] = False
) -> Audited:
    """Check the log against itself and the heads kept here; exits with the code of its verdict (0, 20, 21, 22)."""
    with call.open() as store, bar() as show:
        progress = None if show is None else (lambda done, total: show("leaves", done, total))
        return store.log.audit(full=full, progress=progress)


@command(app, example="holdproof log level")
def level(call: Call) -> Level:
    """Show who else could tell if the log were rewritten: LOCAL, KEPT or WITNESSED n/m."""
    with call.open() as store:
        return store.log.level()


@command(app, example="holdproof log witness https://witness.example --key KEY")
def witness(
    call: Call,
    address: Annotated[str, typer.Argument(metavar="URL", help="The witness's submission prefix.")],
    key: Annotated[str | None, typer.Option("--key", help="Its verifier key; needed the first time.")] = None,
    timeout_s: Annotated[float, typer.Option("--timeout-s", help="Seconds to wait for it.")] = 10.0,
) -> CosignedHead:
    """Have a witness cosign the newest head."""
    with call.open() as store:
        return store.log.witness(address, key=key, timeout_s=timeout_s)


def _plain(head: SignedCheckpoint) -> dict[str, Any]:
    said = head.checkpoint
    return {"origin": said.origin, "size": said.size, "root": b64.encode(said.root), "note": head.encode().decode()}
