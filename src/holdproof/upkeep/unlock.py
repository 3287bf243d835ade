"""Unlock statements: only one signed by root ends a lockdown; by the log key, where the store has no root key.

The statement is an in-toto Statement v1 in a DSSE envelope (payload type `application/vnd.in-toto+json`), so it can be
written here, signed on another machine (`holdproof lockdown sign`, or openssl over the PAE bytes) and brought back:

    subject        [{"name": "lockdown <id>", "digest": {"sha256": digest of the lockdown}}]
    predicateType  urn:holdproof:unlock:v1
    predicate      {"store_id", "lockdown", "verdict", "locked_at", "reason", "signed_by": "root" or "log"}

with digest = SHA-256 of JCS({"id", "locked_at", "reason", "store_id", "verdict"}) as the lockdown itself has them.

Rules:
- It names the store and the lockdown: it ends no other, here or elsewhere.
- Only a root key counts that is in the keyring, not revoked, and proven by the log: row, leaf, inclusion, head. A row
  that somebody inserted proves nothing, and neither does a key file beside the store.
- The head is one that the log key of this home signed (trusted_keys.py).
- Nor does a leaf alone: a root key that somebody appended to the log needs the statement of the root before it
  (key_audit.py).
- A store whose log never admitted a root key (its keys come from a KMS without one) is unlocked by its own log key, and
  the statement says so: otherwise it would be locked for ever. Every key entry of the log must then have its row, so
  that deleting the row of root does not make a store one without root.
- It is kept in the lockdown's row, under a leaf.
"""

import os
import stat
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from holdproof.crypto import canonical, dsse, keys, statement
from holdproof.crypto.keys import PrivateKey, PublicKey, Signer
from holdproof.crypto.statement import PAYLOAD_TYPE, ResourceDescriptor, Statement
from holdproof.db import Tx, sql
from holdproof.errors import BadKeyError, FormatError, InvalidInputError, NotFoundError, ProofError, UnavailableError
from holdproof.evidence import keys as ring
from holdproof.model.keys import Role
from holdproof.model.verify import Locked
from holdproof.store.context import Context
from holdproof.upkeep.verification import trusted_keys

PREDICATE_TYPE: Final = "urn:holdproof:unlock:v1"


class Signers(NamedTuple):
    """Who may end a lockdown: the role, and its public keys."""

    role: Role
    public: list[PublicKey]


def draft(store_id: str, locked: Locked, *, reason: str, signed_by: Role = "root") -> bytes:
    """Return the payload to be signed: which lockdown of which store ends, why, and on whose authority."""
    if not reason.strip():
        raise InvalidInputError("say why the lockdown ends: `--reason TEXT`, in code `reason=`", field="reason")
    facts: dict[str, canonical.Json] = {"store_id": store_id, **locked.to_dict()}
    predicate: dict[str, canonical.Json] = {
        "store_id": store_id,
        "lockdown": locked.id,
        "verdict": locked.verdict,
        "locked_at": locked.locked_at,
        "reason": reason,
        "signed_by": signed_by,
    }
    subject = ResourceDescriptor({"sha256": canonical.sha256_hex(canonical.dumps(facts))}, f"lockdown {locked.id}")
    return statement.encode(Statement((subject,), PREDICATE_TYPE, predicate))


def sign(payload: bytes, signer: Signer) -> bytes:
    """Sign a draft; returns the envelope, and refuses any other payload."""
    if statement.parse_whole(payload).predicate_type != PREDICATE_TYPE:
        raise FormatError("that is no draft of an unlock statement")
    return dsse.encode(dsse.sign(PAYLOAD_TYPE, payload, signer))


def load_root(path: Path, passphrase: bytes | None = None) -> PrivateKey:
    """Load a root key from its PKCS#8 file; BadKeyError if others can read the file."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            pem = file.read(1 << 16)
    except FileNotFoundError:
        raise NotFoundError(f"there is no key at {path}", path=str(path)) from None
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error.strerror}", path=str(path)) from error
    if mode & 0o077:
        raise BadKeyError(f"{path} can be read by others; chmod 600 it", path=str(path))
    key = keys.load_private(pem, passphrase)
    if key.alg != "ed25519":
        raise BadKeyError("a root key is ed25519", alg=key.alg)
    return key


def check(envelope: bytes, signers: Signers, store_id: str, locked: Locked) -> str:
    """Return the statement as text if a key that may end exactly this lockdown signed it; ProofError otherwise."""
    parsed = dsse.parse(envelope)
    if not signers.public:
        raise ProofError("the log proves no key here that may end the lockdown: restore a backup that verifies")
    dsse.verify(parsed, signers.public, payload_type=PAYLOAD_TYPE)
    parsed_statement = statement.parse(parsed.payload)
    if parsed_statement.predicate_type != PREDICATE_TYPE:
        raise ProofError("it is another kind of statement", predicate_type=parsed_statement.predicate_type)
    reason = parsed_statement.predicate.get("reason")
    # The payload must be exactly our draft for this lockdown and this reason.
    expected = None if not isinstance(reason, str) else draft(store_id, locked, reason=reason, signed_by=signers.role)
    if expected != parsed.payload:
        raise ProofError("the statement ends another lockdown", lockdown=locked.id, store_id=store_id)
    return dsse.encode(parsed).decode()


def reason_of(envelope: str) -> str:
    """Return the reason that a checked statement gives."""
    reason, _ = reason_and_signer(envelope)
    return reason


def reason_and_signer(envelope: str) -> tuple[str, str]:
    """Return the reason that a statement gives, and the role of the key that it names; FormatError for no statement."""
    predicate = statement.parse(dsse.parse(envelope.encode()).payload).predicate
    return str(predicate.get("reason", "")), str(predicate.get("signed_by", ""))


_ROOTS = sql("SELECT keyid, public FROM keyring WHERE role = 'root' AND revoked_from IS NULL ORDER BY added_at")


_KEY_LEAVES = sql(
    "SELECT count(*) FROM log_leaves l WHERE l.leaf LIKE :kind"
    " AND NOT EXISTS (SELECT 1 FROM keyring k WHERE k.leaf_id = l.id)"
)
_ANY_ROOT = sql("SELECT 1 FROM keyring WHERE role = 'root' LIMIT 1")


def signers(tx: Tx, context: Context) -> Signers:
    """Return who may end a lockdown: the root keys that the log proves, or its log key if it never had a root key."""
    own = context.keys.load("log").public
    heads = context.head_file.kept() if context.head_file else []
    proven = partial(trusted_keys.is_proven, tx, own=[own], heads=heads)
    if tx.one(_ANY_ROOT) is None and tx.all(_KEY_LEAVES, kind='%"t":"key"%') == [(0,)]:
        return Signers("log", [own] if proven(own.keyid) else [])
    flawed = ring.flaws(tx)
    roots = [public for keyid, public in tx.all(_ROOTS) if keyid not in flawed and proven(keyid)]
    return Signers("root", [keys.load_public_pem(public.encode()) for public in roots])
