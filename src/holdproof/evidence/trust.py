"""The root key and `trust.json`: which keys to trust, for what and up to where, in one portable signed file.

Rules:
- A store has a root key from its first open (startup.py); taken offline, only the text of its recovery restores it.
- `trust.json` is a DSSE envelope signed by root, or by the log key while there is no root; the reader is told which.
- A key without a valid admission is left out, and signs no trust file.
- A reader who has the root key passes it: then only root's signature counts.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from holdproof.content import disk
from holdproof.crypto import canonical, dsse, keys
from holdproof.crypto.dsse import Envelope
from holdproof.crypto.keys import PublicKey, Signer
from holdproof.crypto.vkey import ED25519, ML_DSA_44, VerifierKey
from holdproof.db import Call, Read, Tx, Work, ask
from holdproof.errors import (
    AlreadyExistsError,
    DiskFullError,
    FormatError,
    NotFoundError,
    ProofError,
    ReadOnlyError,
    UnknownKeyError,
)
from holdproof.evidence import key_use, statements, tree
from holdproof.evidence import keys as ring
from holdproof.evidence.key_files import ROLES, KeyFolder, MemoryKeys
from holdproof.model.keys import Key, Role, Root, Signed
from holdproof.store.context import Context

PAYLOAD_TYPE = "application/vnd.holdproof.trust+json"


def recover_root(context: Context, *, recovery: str) -> Work[Key]:
    """Put the root key back into the key folder from the text of its recovery."""
    key = statements.from_recovery(recovery)
    root: Key | None = yield from ask(Read(partial(ring.find, keyid=key.keyid)))
    if root is None or root.role != "root":
        raise NotFoundError("this is not the root key of this store", keyid=key.keyid)
    folder = context.keys
    if not isinstance(folder, KeyFolder | MemoryKeys):
        raise NotFoundError("this store keeps its keys elsewhere: bring the root key back there")
    yield from ask(Call(partial(folder.adopt, "root", key)))
    return root


def export_root(context: Context, *, recovery: str | Path | None = None, offline: bool = False) -> Work[Root]:
    """Return the recovery of the root key that is here and, if a file is named, write it there.

    From then on the store no longer reminds of storing it elsewhere. With `offline` the key itself is removed: only
    the recovery brings it back.
    """
    key: Signer = yield from ask(Call(partial(context.keys.load, "root")))
    folder = context.keys
    if not isinstance(key, keys.PrivateKey) or not isinstance(folder, KeyFolder | MemoryKeys):
        raise NotFoundError("this store keeps its keys elsewhere: back the root key up there")
    text = statements.to_recovery(key)
    if offline:
        yield from _admit_before_root_leaves(context)
    if recovery is not None:
        yield from ask(Call(partial(_write_new, Path(recovery), text)))
    yield from ask(Call(partial(_stored_elsewhere, folder, offline)))
    return Root(key.keyid, text, on_disk=not offline)


def _admit_before_root_leaves(context: Context) -> Work[None]:
    """Admit the keys that sign decisions and memory now: at their first use root would be needed for it."""
    roles: tuple[Role, ...] = ("judge", "memory")
    for role in roles:
        yield from key_use.use(context, role)


def _stored_elsewhere(folder: KeyFolder | MemoryKeys, offline: bool) -> None:
    if offline:
        folder.remove("root")
    if isinstance(folder, KeyFolder):
        with disk.translated(folder.recovery):
            folder.recovery.unlink(missing_ok=True)


class Reminder(NamedTuple):
    """Something that is still to be done by a person, and how."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}. {self.remedy}"


def reminders(context: Context) -> list[Reminder]:
    """Return what `status` and `doctor` remind of: a recovery that was not stored elsewhere yet."""
    folder = context.keys
    if not isinstance(folder, KeyFolder) or not folder.recovery.exists():
        return []
    what = f"the recovery of the root key is in {folder.recovery}: restoring a backup on another machine needs it"
    return [Reminder(what, "Store it elsewhere: `holdproof keys export-root --recovery FILE`, or move that file away")]


def sign_statement(payload: str, *, recovery: str) -> str:
    """Sign a statement with the root key of a recovery: needs no store, so a machine without network can do it."""
    return statements.sign(payload.strip().encode(), statements.from_recovery(recovery))


# --- trust.json --------------------------------------------------------------------------------------------------


def trust(context: Context) -> Work[Signed]:
    """Return every key with its role and validity, signed by root, or by the log key if root is not here."""
    return (yield from sign_document(context, "trust", PAYLOAD_TYPE, _document))


def sign_document(context: Context, kind: str, payload_type: str, make: Callable[[Tx], bytes]) -> Work[Signed]:
    """Return a document of this store in a DSSE envelope, signed by root, or by the log key if root is not here."""
    payload, able = yield from ask(Read(lambda tx: (make(tx), _able(tx))))
    signer: Signer
    role: Role
    signer, role = yield from ask(Call(partial(_signer, context, able)))
    envelope: Envelope = yield from ask(Call(partial(dsse.sign, payload_type, payload, signer)))
    return Signed(dsse.encode(envelope).decode(), kind, role)


def _able(tx: Tx) -> set[str]:
    """Return the keys that may sign it: a signature by a key that is not listed, or revoked, would prove nothing."""
    flawed = ring.flaws(tx)
    return {key.keyid for key in ring.keyring(tx) if key.revoked_from is None and key.keyid not in flawed}


def _signer(context: Context, able: set[str]) -> tuple[Signer, Role]:
    """Return the root key if it is here, else the log key; a file that is no key of this store is skipped."""
    roles: tuple[Role, ...] = ("root", "log")
    for role in roles:
        with suppress(NotFoundError):
            signer = context.keys.load(role)
            if signer.keyid in able:
                return signer, role
    raise UnknownKeyError("neither a root key nor a log key of this store is here to sign what it gives away")


def _document(tx: Tx) -> bytes:
    state = tree.state(tx)
    flawed = ring.flaws(tx)
    listed: list[canonical.Json] = [
        {
            "keyid": key.keyid,
            "role": key.role,
            "alg": key.alg,
            "public": key.public,
            "from": key.index,
            "until": key.revoked_from,
        }
        for key in ring.keyring(tx)
        if key.keyid not in flawed
    ]
    origins: list[canonical.Json] = [*ring.origins(tx)]
    return canonical.dumps({"v": 1, "origins": origins, "size": state.size, "issued_at": tx.now, "keys": listed})


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A key of a trust file: it counts for leaves from `since` and before `until`."""

    role: Role
    public: PublicKey
    since: int | None
    until: int | None

    def trusted_at(self, index: int | None) -> bool:
        """Whether what the key signed at that index counts; nothing does before its own leaf is in the log."""
        # A key without an index is not in the log yet.
        if self.since is None or (index is not None and index < self.since):
            return False
        return self.until is None or (index is not None and index < self.until)


@dataclass(frozen=True, slots=True)
class Trust:
    """A trust file whose signature holds."""

    signed_by: Role
    signer: PublicKey
    origins: tuple[str, ...]
    size: int
    issued_at: str
    keys: dict[str, TrustedKey]

    def of(self, role: Role) -> list[PublicKey]:
        """Every key of a role."""
        return [key.public for key in self.keys.values() if key.role == role]

    def head_keys(self, origin: str, size: int) -> list[VerifierKey]:
        """Return the keys that count under a head of that size: it needs a signature by one of each type."""
        counted = [key for key in self.keys.values() if key.trusted_at(size - 1)]
        log_keys = [VerifierKey(origin, ED25519, key.public) for key in counted if key.role == "log"]
        second = [VerifierKey(origin, ML_DSA_44, key.public) for key in counted if key.role == "log-pq"]
        # The second signature never stands in for the log key's.
        return [*log_keys, *second] if log_keys else []


def parse(data: bytes, *, root: PublicKey | None = None) -> Trust:
    """Parse a trust file from untrusted bytes; ProofError unless root, or a log key it names, signed it.

    Without a `root` key from elsewhere this proves only that the file was not changed since its own signer made it;
    `signed_by` says which kind of key that was.
    """
    envelope = dsse.parse(data)
    value = canonical.loads(envelope.payload)
    try:
        trusted = _keys(value)
        document = cast("dict[str, Any]", value)
        origins = tuple(map(str, document["origins"]))
        size = int(document["size"])
        issued = str(document["issued_at"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError("not a trust file of Holdproof") from error
    # A file that lists a root key should be signed by it.
    role: Role = "root" if root or any(key.role == "root" for key in trusted.values()) else "log"
    allowed = [root] if root else [key.public for key in trusted.values() if key.role == role]
    try:
        [signer, *_] = dsse.verify(envelope, allowed, payload_type=PAYLOAD_TYPE)
    except ProofError:
        fallback = [key.public for key in trusted.values() if key.role == "log"]
        if root is not None or role == "log":
            raise
        role = "log"
        [signer, *_] = dsse.verify(envelope, fallback, payload_type=PAYLOAD_TYPE)
    return Trust(role, signer, origins, size, issued, trusted)


def _keys(value: Any) -> dict[str, TrustedKey]:
    if value["v"] != 1:
        raise FormatError("a trust file of another version")
    trusted = {}
    for each in value["keys"]:
        key = keys.load_public_pem(each["public"].encode())
        if key.keyid != each["keyid"] or each["role"] not in ROLES:
            raise FormatError("trust file: a key is not what it is called", keyid=key.keyid)
        if any(type(each[name]) not in (int, type(None)) for name in ("from", "until")):
            raise FormatError("trust file: where a key counts is no index of a log", keyid=key.keyid)
        trusted[key.keyid] = TrustedKey(each["role"], key, each["from"], each["until"])
    return trusted


def _write_new(path: Path, text: str) -> None:
    """Write a secret to a new file, durably; AlreadyExistsError for an existing one."""
    try:
        with open(path, "x", encoding="utf-8", opener=disk.private) as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:  # an incomplete file would make the next attempt fail with "exists already"
                path.unlink()
                raise
    except FileExistsError as error:
        raise AlreadyExistsError(f"{path} exists already", path=str(path)) from error
    except OSError as error:
        kind = DiskFullError if error.errno in disk.FULL else ReadOnlyError
        raise kind(f"cannot write {path}: {error.strerror}", path=str(path)) from error
