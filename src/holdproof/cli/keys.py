"""`holdproof keys`: the keyring, rotation, revocation, and the root key."""

import builtins
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from holdproof.cli.call import Call, command, options
from holdproof.cli.dbom import written
from holdproof.cli.files import read
from holdproof.errors import InvalidInputError
from holdproof.evidence import trust as trusting
from holdproof.evidence.key_files import ROLES
from holdproof.model.keys import Key, Role, Root, Successors

app = typer.Typer(
    help="List, rotate and revoke keys; the root key.", epilog="Example: holdproof keys list", no_args_is_help=True
)
app.callback()(options)

RoleName = Annotated[str, typer.Argument(metavar="ROLE", help="judge, memory, log or root.")]
KeyId = Annotated[str, typer.Argument(metavar="KEYID", help="The key id, or its first 8 digits or more.")]
Out = Annotated[Path | None, typer.Option("--out", help="Where to write it; stdout without it.")]
FromIndex = Annotated[
    int | None, typer.Option("--from-index", help="The first leaf it does not count for; here and now by default.")
]

SuccessorsOption = Annotated[
    str | None,
    typer.Option("--successors", metavar="WHAT", help="What of keys it brought in after that leaf: readmit or revoke."),
]


@command(app, example="holdproof keys list --json")
def list(call: Call) -> builtins.list[dict[str, Any]]:
    """List every key: role, id, since which leaf it counts and, if revoked, up to which."""
    with call.open() as store:
        return [_short(key) for key in store.keys.list(limit=1_000).items]


@command(app, example="holdproof keys rotate judge")
def rotate(call: Call, role: RoleName) -> dict[str, Any]:
    """Replace the key of a role; the old one signs the new one in and is kept, what it signed stays good."""
    with call.open() as store:
        made = _known(store.keys.rotate(_role(role)))
    return {**made, "next": "holdproof keys export-root --recovery FILE"} if role == "root" else made


@command(app, example="holdproof keys revoke 3f1c9a02 --from-index 4711")
def revoke(
    call: Call, keyid: KeyId, from_index: FromIndex = None, successors: SuccessorsOption = None
) -> dict[str, Any]:
    """Do not trust a key from a leaf on; needs the root key here (else: `keys statement`)."""
    if successors not in (None, *get_args(Successors)):
        raise InvalidInputError("--successors is readmit or revoke", successors=successors)
    with call.open() as store:
        said = cast("Successors | None", successors)
        return _short(store.keys.revoke(keyid, from_index=from_index, successors=said))


@command(app, example="holdproof keys trust --out trust.json")
def trust(call: Call, out: Out = None) -> Any:
    """Write trust.json: every key with role and validity, signed by root, or by the log key while there is no root."""
    with call.open() as store:
        return written(store.keys.trust().text, out)


@command(app, example="holdproof keys init-root --recovery root-recovery.txt")
def init_root(
    call: Call,
    recovery: Annotated[str, typer.Option("--recovery", help="The file for its recovery, or - to print it.")],
    offline: Annotated[bool, typer.Option("--offline", help="Keep the key nowhere but in the recovery.")] = False,
) -> dict[str, Any]:
    """Make the root key. Keep its recovery elsewhere: backups leave keys out."""
    printed = recovery == "-"
    with call.open() as store:
        made = store.keys.init_root(recovery=None if printed else Path(recovery), offline=offline)
    shown = {"recovery": made.recovery} if printed else {"written": recovery}
    return {"keyid": made.keyid, "kept": made.kept, **shown}


@command(app, example="holdproof keys recover-root --recovery root-recovery.txt")
def recover_root(
    call: Call, recovery: Annotated[str, typer.Option("--recovery", help="Its recovery: a file, or - for stdin.")]
) -> dict[str, Any]:
    """Put the root key back from its recovery."""
    text = read(recovery)
    with call.open() as store:
        return _short(store.keys.recover_root(recovery=text))


@command(app, example="holdproof keys export-root --recovery root-recovery.txt")
def export_root(
    call: Call, recovery: Annotated[Path, typer.Option("--recovery", help="The file for its recovery.")]
) -> dict[str, Any]:
    """Write the recovery of the root key that is here, as after its rotation."""
    with call.open() as store:
        made: Root = store.keys.export_root(recovery=recovery)
    return {"keyid": made.keyid, "written": str(recovery)}


@command(app, example="holdproof keys statement --revoke 3f1c9a02 --out revoke.json")
def statement(  # noqa: PLR0917 (each is an option)
    call: Call,
    revoke: Annotated[str | None, typer.Option("--revoke", metavar="KEYID", help="Revoke this key.")] = None,
    admit: Annotated[str | None, typer.Option("--admit", metavar="ROLE", help="Admit this machine's key.")] = None,
    readmit: Annotated[str | None, typer.Option("--readmit", metavar="KEYID", help="Let this key stay.")] = None,
    from_index: FromIndex = None,
    out: Out = None,
) -> Any:
    """Write a statement for a root key that is kept elsewhere: sign it there (`keys sign`), then import it."""
    if [revoke, admit, readmit].count(None) != 2:
        raise InvalidInputError("say one of --revoke KEYID, --admit ROLE and --readmit KEYID")
    with call.open() as store:
        if readmit is not None:
            return written(store.keys.readmission(readmit).text, out)
        if revoke is not None:
            return written(store.keys.revocation(revoke, from_index=from_index).text, out)
        return written(store.keys.statement(_role(admit or "")).text, out)


@command(app, example="holdproof keys sign revoke.json --recovery root-recovery.txt")
def sign(
    _: Call,
    payload: Annotated[str, typer.Argument(help="The statement: a file, or - for stdin.")],
    recovery: Annotated[Path, typer.Option("--recovery", help="The recovery of the root key.")],
    out: Out = None,
) -> Any:
    """Sign a statement with the root key; needs no store, so any machine will do."""
    return written(trusting.sign_statement(read(payload), recovery=read(str(recovery))), out)


@command(app, example="holdproof keys import-statement revoke.signed.json")
def import_statement(
    call: Call, file: Annotated[str, typer.Argument(help="The signed statement: a file, or - for stdin.")]
) -> dict[str, Any]:
    """Carry out a signed statement: admit, rotate or revoke a key."""
    text = read(file)
    with call.open() as store:
        return _known(store.keys.get(store.keys.import_statement(text).keyid))


def _short(key: Key) -> dict[str, Any]:
    named = ("keyid", "role", "alg", "index", "revoked_from", "added_at")
    return {name: getattr(key, name) for name in named}


def _known(key: Key) -> dict[str, Any]:
    """A key that just came in: on a server its leaf may wait for an index yet."""
    return {name: value for name, value in _short(key).items() if value is not None}


def _role(name: str) -> Role:
    if name not in ROLES:
        raise InvalidInputError(f"there is no role {name!r}; roles are {', '.join(ROLES)}", role=name)
    return cast("Role", name)
