"""Signed statements about keys, and the recovery of a root key; pure.

- A statement is an in-toto Statement (subject: the key, by role and key id) in a DSSE envelope, one line of JSON, so
  it can be signed on another machine and checked with openssl.
- It names the log it is for: a revocation made for one store counts in no other.
- A recovery is the 32 secret bytes and 4 of their SHA-256, in hex: a typing error is refused, never used as a key.
"""

import re
from dataclasses import dataclass
from typing import cast, get_args

from holdproof.crypto import canonical, dsse, keys, statement
from holdproof.crypto.dsse import Envelope
from holdproof.crypto.keys import PrivateKey, PublicKey, Signer
from holdproof.crypto.statement import PAYLOAD_TYPE, ResourceDescriptor
from holdproof.errors import BadKeyError, FormatError
from holdproof.model.keys import Action, Role

PREDICATE_TYPE = "urn:holdproof:key:v1"

_PREFIX = "urn:holdproof:"
_CHECK_BYTES = 4
_GROUP = re.compile(r"\b[0-9a-f]{4}\b")


@dataclass(frozen=True, slots=True)
class KeyStatement:
    """A statement about a key: its admission (by itself, its predecessor or root), re-admission or revocation."""

    action: Action
    role: Role
    public: PublicKey
    origin: str
    at: str
    previous: str | None = None
    revoked_from: int | None = None

    def encode(self) -> bytes:
        """Return the bytes to be signed as a DSSE payload."""
        predicate: dict[str, canonical.Json] = {
            "action": self.action,
            "role": self.role,
            "keyid": self.public.keyid,
            "alg": self.public.alg,
            "public": self.public.to_pem().decode(),
            "origin": self.origin,
            "at": self.at,
            "previous": self.previous,
            "revoked_from": self.revoked_from,
        }
        subject = (ResourceDescriptor({"sha256": self.public.keyid}, self.role),)
        return statement.encode(statement.Statement(subject, PREDICATE_TYPE, predicate))


def sign(payload: bytes, signer: Signer) -> str:
    """Sign a statement of Holdproof; returns the envelope on one line, and refuses any other payload."""
    # Root's signature must never be usable for another purpose: only our predicate types are signed.
    if not statement.parse_whole(payload).predicate_type.startswith(_PREFIX):
        raise FormatError("root signs only statements of Holdproof")
    return dsse.encode(dsse.sign(PAYLOAD_TYPE, payload, signer)).decode()


def parse(text: str) -> tuple[KeyStatement, Envelope]:
    """Parse a statement about a key from untrusted text; its signature is not verified yet."""
    envelope = dsse.parse(text.encode())
    return parse_payload(envelope.payload), envelope


def parse_payload(payload: bytes) -> KeyStatement:
    """Parse the payload of an envelope as a statement about a key; FormatError unless it is exactly as we write it."""
    parsed = statement.parse(payload)
    if parsed.predicate_type != PREDICATE_TYPE:
        raise FormatError("not a statement about a key", predicate_type=parsed.predicate_type)
    predicate = parsed.predicate
    texts = [predicate.get(name) for name in ("action", "role", "public", "origin", "at")]
    previous = predicate.get("previous")
    revoked = predicate.get("revoked_from")
    if not all(isinstance(text, str) for text in texts) or not isinstance(previous, str | None):
        raise FormatError("statement about a key: a field is missing or no text")
    if not isinstance(revoked, int | None) or isinstance(revoked, bool):
        raise FormatError("statement about a key: revoked_from is no number")
    action, role, public, origin, at = cast("list[str]", texts)
    if action not in get_args(Action) or role not in get_args(Role):
        raise FormatError("statement about a key: unknown action or role", action=action, role=role)
    stated = KeyStatement(
        cast("Action", action),
        cast("Role", role),
        keys.load_public_pem(public.encode()),
        origin,
        at,
        previous,
        revoked,
    )
    # Unknown fields or another order would be signed but not understood here.
    if stated.encode() != payload:
        raise FormatError("statement about a key: not as Holdproof writes it")
    return stated


def to_recovery(key: PrivateKey) -> str:
    """Return the text from which a root key can be recovered: to be printed, or kept in a file elsewhere."""
    secret = key.seed + canonical.sha256(key.seed)[:_CHECK_BYTES]
    digits = secret.hex()
    groups = [digits[at : at + 4] for at in range(0, len(digits), 4)]
    rows = [" ".join(groups[at : at + 6]) for at in range(0, len(groups), 6)]
    lines = ["Holdproof root key: keep this page offline; whoever has it can revoke keys and unlock the store.", *rows]
    return "\n".join([*lines, f"key id {key.keyid}", ""])


def from_recovery(text: str) -> PrivateKey:
    """Return the root key of a recovery; BadKeyError for a typing error."""
    secret = bytes.fromhex("".join(_GROUP.findall(text.lower().partition("key id")[0])))
    seed = secret[:32]
    check = secret[32:]
    if len(secret) != 32 + _CHECK_BYTES or canonical.sha256(seed)[:_CHECK_BYTES] != check:
        raise BadKeyError("the recovery of a root key is 18 groups of four hex digits; one is missing or mistyped")
    return keys.from_seed(seed)
