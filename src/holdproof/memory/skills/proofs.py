"""What is signed when a skill is approved, and whether an approval of the database holds; pure.

Rules:
- An approval is an in-toto Statement about the file (its path and its root) in a DSSE envelope, signed with the store's
  memory key. It names its number, the namespace and the log: none can stand in for another, nor count in another store.
- It holds if the row says what was signed, the hashes of its blocks lead to its root, and a memory key that somebody
  brought in, and that counted at its leaf, signed it. A row that was only written into the database does not.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdproof.crypto import dsse, statement
from holdproof.crypto.canonical import Json
from holdproof.crypto.keys import Signer
from holdproof.crypto.statement import PAYLOAD_TYPE, ResourceDescriptor
from holdproof.errors import FormatError, InvalidInputError, ProofError, RevokedKeyError
from holdproof.evidence import keys
from holdproof.memory.skills.skill_blocks import root_of
from holdproof.model.keys import Key
from holdproof.model.skills import Block

PREDICATE_TYPE: Final = "urn:holdproof:skill:v1"
SIGNED: Final = (
    *("path", "n", "action", "place", "rules", "root", "size"),
    *("approved_by", "comment", "approved_at", "ns"),
)
"""The columns that are signed."""


def encode(row: Mapping[str, Any], origin: str) -> bytes:
    """Return the bytes to be signed for a row, in the log of that name."""
    predicate: dict[str, Json] = {name: row[name] for name in SIGNED}
    subject = (ResourceDescriptor({"sha256": row["root"]}, row["path"]),)
    return statement.encode(statement.Statement(subject, PREDICATE_TYPE, {**predicate, "origin": origin}))


def sign(row: Mapping[str, Any], origin: str, signer: Signer) -> str:
    """Return the envelope of a row, as JSON text."""
    return dsse.encode(dsse.sign(PAYLOAD_TYPE, encode(row, origin), signer)).decode()


class Ring(NamedTuple):
    """Whose signatures count: the memory keys of a store, those that nobody brought in, and the names of its log."""

    keys: Mapping[str, Key]
    flawed: Collection[str]
    origins: Collection[str]


def check(row: Mapping[str, Any], blocks: Sequence[Block], *, index: int | None, ring: Ring) -> None:
    """Return if an approval holds; ProofError says why not, RevokedKeyError that its key does not count there."""
    key = ring.keys.get(row["keyid"])
    # A key that was only written into the database, without its leaf, counts for nothing.
    if key is None or key.role != "memory" or key.keyid in ring.flawed:
        raise ProofError(f"it is signed with {str(row['keyid'])[:16]}, which is no memory key of this store")
    try:
        envelope = dsse.parse(row["statement"].encode())
        origin = statement.parse(envelope.payload).predicate.get("origin")
        payload = encode(row, str(origin))
    except (FormatError, InvalidInputError, AttributeError, TypeError) as error:  # a forged row may hold anything
        raise ProofError(f"its statement is none: {error}") from error
    if origin not in ring.origins or envelope.payload != payload:
        raise ProofError("its statement says something else than the row")
    dsse.verify(envelope, [keys.public(key)], payload_type=PAYLOAD_TYPE)
    if row["action"] == "approve" and root_of([block.hash for block in blocks]) != row["root"]:
        raise ProofError("its blocks do not lead to its root")
    if not key.trusted_at(index):
        raise RevokedKeyError(f"its key does not count from leaf {key.revoked_from} on", keyid=key.keyid)
