"""C2SP tlog-proof: one file that proves, offline, that an entry stands in a log.

- Lines: `c2sp.org/tlog-proof@v1`, `extra <base64>` if there is any, `index <n>`, the inclusion proof one
  hash to a line, an empty line, the signed checkpoint verbatim.
- Extra data are not authenticated. The proof holds for the origin, keys and quorum the verifier brings
  along.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from holdproof.crypto import b64, checkpoint, merkle
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.lines import decode_number, decode_proof, decode_text, encode_number, encode_proof
from holdproof.crypto.note import Verified
from holdproof.crypto.vkey import VerifierKey
from holdproof.errors import FormatError

HEADER = "c2sp.org/tlog-proof@v1"


@dataclass(frozen=True, slots=True)
class TlogProof:
    """An entry's index, its inclusion proof, the head it leads to, and unauthenticated extra data."""

    index: int
    proof: tuple[bytes, ...]
    head: SignedCheckpoint
    extra: bytes = b""


def encode(proof: TlogProof) -> bytes:
    """Return the text of a `.tlog-proof` file."""
    extra = f"extra {b64.encode(proof.extra)}\n" if proof.extra else ""
    index = f"index {encode_number(proof.index, 'index')}\n"
    hashes = encode_proof(proof.proof, "inclusion proof")
    return f"{HEADER}\n{extra}{index}{hashes}\n".encode() + proof.head.encode()


def parse(data: bytes) -> TlogProof:
    """Return a proof from untrusted bytes; nothing is verified yet."""
    top, blank, head = data.partition(b"\n\n")
    rows = decode_text(top, "tlog-proof").split("\n")
    if not blank or rows.pop(0) != HEADER:
        raise FormatError(f"not a {HEADER}")
    extra = b""
    # The extra line is optional, so the first line decides.
    line = rows.pop(0) if rows else ""
    if line.startswith("extra "):
        extra = b64.decode(line.removeprefix("extra "))
        if not extra:
            raise FormatError("tlog-proof: an empty extra line")
        line = rows.pop(0) if rows else ""
    if not line.startswith("index "):
        raise FormatError("tlog-proof: no index line")
    index = decode_number(line.removeprefix("index "), "tlog-proof index")
    return TlogProof(index, decode_proof(rows, "tlog-proof"), checkpoint.parse(head), extra)


def verify(
    proof: TlogProof,
    leaf_hash: bytes,
    *,
    origin: str,
    log_keys: Iterable[VerifierKey],
    witnesses: Iterable[VerifierKey] = (),
    quorum: int = 0,
) -> tuple[Verified, ...]:
    """Return the witnesses that vouch for the head; ProofError unless the entry stands under that head."""
    cosigners = checkpoint.verify(proof.head, origin=origin, log_keys=log_keys, witnesses=witnesses, quorum=quorum)
    head = proof.head.checkpoint
    merkle.verify_inclusion(leaf_hash, proof.index, head.size, proof.proof, head.root)
    return cosigners
