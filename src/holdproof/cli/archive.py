"""`holdproof archive`: snapshots as CAR files, and in IPFS."""

from enum import StrEnum
from typing import Annotated

import typer

from holdproof.cli import render
from holdproof.cli.bar import bar
from holdproof.cli.call import Call, Namespace, command, options
from holdproof.errors import InvalidInputError
from holdproof.memory.archive.archive import NODE
from holdproof.model.memory import Archived, SnapshotsImported

app = typer.Typer(
    help="Carry snapshots in IPFS: push, restore. As one file they are `export car` and `import car`.",
    epilog="Example: holdproof archive push --encrypt 'correct horse'",
    no_args_is_help=True,
)
app.callback()(options)

Chosen = Annotated[str, typer.Option("--snapshot", help="Which snapshot: its CID or rev, or head for the newest.")]
Encrypt = Annotated[
    str | None,
    typer.Option("--encrypt", metavar="PASSPHRASE", envvar="HOLDPROOF_ARCHIVE_PASSPHRASE", help="Seal it first."),
]
Passphrase = Annotated[
    str | None,
    typer.Option(
        "--passphrase", metavar="PASSPHRASE", envvar="HOLDPROOF_ARCHIVE_PASSPHRASE", help="Opens what was sealed."
    ),
]
Did = Annotated[str | None, typer.Option("--did", help="Trust this key: for an archive of another store.")]
Force = Annotated[
    bool, typer.Option("--force", help="Even if it is older, or other changes are here; they stay in a snapshot.")
]
NodeUrl = Annotated[str, typer.Option("--node", envvar="HOLDPROOF_IPFS_NODE", help="The RPC of the IPFS node.")]
Token = Annotated[str | None, typer.Option("--token", envvar="HOLDPROOF_IPFS_TOKEN", help="A bearer token for it.")]


class How(StrEnum):
    """As what an archive lies in IPFS."""

    dag = "dag"
    file = "file"


def export(
    call: Call,
    *,
    path: Annotated[str, typer.Argument(help="The file to write.")],
    snapshot: Chosen = "head",
    alone: Annotated[
        bool, typer.Option("--alone", help="Only that state, without its history: what AT Protocol tools expect.")
    ] = False,
    encrypt: Encrypt = None,
    ns: Namespace = "main",
) -> Archived:
    """Write a snapshot with its history to a CAR file."""
    with call.open() as store, bar() as tell:
        return store.archive.export_car(
            path, snapshot=snapshot, history=not alone, encrypt=encrypt, ns=ns, progress=tell
        )


def import_(
    call: Call,
    *,
    path: Annotated[str, typer.Argument(help="The file to read.")],
    did: Did = None,
    passphrase: Passphrase = None,
    force: Force = False,
    ns: Namespace = "main",
) -> SnapshotsImported:
    """Take over what a CAR file holds, once every block, signature and tree of it is verified."""
    with call.open() as store, bar() as tell:
        return store.archive.import_car(path, did=did, passphrase=passphrase, force=force, ns=ns, progress=tell)


@command(app, example="holdproof archive push --mode file --encrypt 'correct horse'")
def push(
    call: Call,
    *,
    mode: Annotated[How, typer.Option("--mode", help="As blocks, or as one file.")] = How.dag,
    snapshot: Chosen = "head",
    encrypt: Encrypt = None,
    node: NodeUrl = NODE,
    token: Token = None,
    yes: Annotated[bool, typer.Option("--yes", help="It may be public.")] = False,
    ns: Namespace = "main",
) -> Archived:
    """Give a snapshot with its history to an IPFS node. What is not sealed is public from then on, for good."""
    if encrypt is None:
        if not yes:
            raise InvalidInputError("what goes to IPFS is public for good: seal it with --encrypt, or say --yes")
        render.warn("what goes to IPFS is public, and nobody can take it back")
    with call.open() as store, bar() as tell:
        return store.archive.push(
            mode=mode.value, snapshot=snapshot, encrypt=encrypt, node=node, token=token, ns=ns, progress=tell
        )


@command(app, example="holdproof archive restore bafyreiexamplecidexamplecidexamplecidexamplecidexample")
def restore(
    call: Call,
    *,
    cid: Annotated[str, typer.Argument(metavar="CID", help="What `push` answered with.")],
    did: Did = None,
    passphrase: Passphrase = None,
    force: Force = False,
    node: NodeUrl = NODE,
    gateway: Annotated[str | None, typer.Option("--gateway", help="Ask this gateway instead of a node.")] = None,
    token: Token = None,
    ns: Namespace = "main",
) -> SnapshotsImported:
    """Take over what a CID names, once every block, signature and tree of it is verified."""
    with call.open() as store, bar() as tell:
        return store.archive.restore(
            cid,
            did=did,
            passphrase=passphrase,
            force=force,
            node=node,
            gateway=gateway,
            token=token,
            ns=ns,
            progress=tell,
        )
