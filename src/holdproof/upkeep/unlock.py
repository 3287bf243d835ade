"""Unlock statements: only one signed by root ends a lockdown.

The statement is an in-toto Statement v1 in a DSSE envelope (payload type `application/vnd.in-toto+json`), so it can be
written here, signed on another machine (`holdproof lockdown sign`, or openssl over the PAE bytes) and brought back:

    subject        [{"name": "lockdown <id>", "digest": {"sha256": digest of the lockdown}}]
    predicateType  urn:holdproof:unlock:v1
    predicate      {"store_id", "lockdown", "verdict", "locked_at", "reason"}

with digest = SHA-256 of JCS({"id", "locked_at", "reason", "store_id", "verdict"}) as the lockdown itself has them.

Rules:
- It names the store and the lockdown: it ends no other, here or elsewhere.
- Only a root key counts that is in the keyring, not revoked, and proven by the log: row, leaf, inclusion, head. A row
  that somebody inserted proves nothing, and neither does a key file beside the store.
- The head is one that the log key of this home signed (trusted_keys.py).
- Nor does a leaf alone: a root key that somebody appended to the log needs the statement of the root before it
  (key_audit.py).
- It is kept in the lockdown's row, under a leaf.
"""

import os
import stat
from pathlib import Path
from typing import Final

from holdproof.crypto import canonical, dsse, keys, statement
from holdproof.crypto.keys import PrivateKey, PublicKey
from holdproof.crypto.statement import PAYLOAD_TYPE, ResourceDescriptor, Statement
from holdproof.db import Tx, sql
from holdproof.errors import BadKeyError, FormatError, InvalidInputError, NotFoundError, ProofError, UnavailableError
from holdproof.evidence import keys as ring
from holdproof.model.verify import Locked
from holdproof.store.context import Context
from holdproof.upkeep.verification import trusted_keys

PREDICATE_TYPE: Final = "urn:holdproof:unlock:v1"


def draft(store_id: str, locked: Locked, *, reason: str) -> bytes:
    """Return the payload for root to sign: which lockdown of which store ends, and why."""
    if not reason.strip():
        raise InvalidInputError("say why the lockdown ends", field="reason")
    facts: dict[str, canonical.Json] = {"store_id": store_id, **locked.to_dict()}
    predicate: dict[str, canonical.Json] = {
        "store_id": store_id,
        "lockdown": locked.id,
        "verdict": locked.verdict,
        "locked_at": locked.locked_at,
        "reason": reason,
    }
    subject = ResourceDescriptor({"sha256": canonical.sha256_hex(canonical.dumps(facts))}, f"lockdown {locked.id}")
    return statement.encode(Statement((subject,), PREDICATE_TYPE, predicate))


def sign(payload: bytes, signer: PrivateKey) -> bytes:
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


def check(envelope: bytes, roots: list[PublicKey], store_id: str, locked: Locked) -> str:
    """Return the statement as text if root signed it and it ends exactly this lockdown; else raise ProofError."""
    parsed = dsse.parse(envelope)
    if not roots:
        raise ProofError("the log proves no root key here: restore a backup that verifies, then `keys init-root`")
    dsse.verify(parsed, roots, payload_type=PAYLOAD_TYPE)
    parsed_statement = statement.parse(parsed.payload)
    if parsed_statement.predicate_type != PREDICATE_TYPE:
        raise ProofError("root signed another kind of statement", predicate_type=parsed_statement.predicate_type)
    reason = parsed_statement.predicate.get("reason")
    # The payload must be exactly our draft for this lockdown and this reason.
    if not isinstance(reason, str) or draft(store_id, locked, reason=reason) != parsed.payload:
        raise ProofError("the statement ends another lockdown", lockdown=locked.id, store_id=store_id)
    return dsse.encode(parsed).decode()


def reason_of(envelope: str) -> str:
    """Return the reason that a checked statement gives."""
    return str(statement.parse(dsse.parse(envelope.encode()).payload).predicate["reason"])


_ROOTS = sql("SELECT keyid, public FROM keyring WHERE role = 'root' AND revoked_from IS NULL ORDER BY added_at")


def roots(tx: Tx, context: Context) -> list[PublicKey]:
    """Return the root keys that count: validly admitted to the keyring, and proven by the log."""
    rows = tx.all(_ROOTS)
    flawed = ring.flaws(tx)
    own = [context.keys.load("log").public]
    heads = context.head_file.kept() if context.head_file else []
    listed = [(keyid, public) for keyid, public in rows if keyid not in flawed]
    proven = [public for keyid, public in listed if trusted_keys.is_proven(tx, keyid, own, heads)]
    return [keys.load_public_pem(public.encode()) for public in proven]
