"""C2SP tlog-proof: one file that proves, offline, that an entry is in a log.

- Lines: `c2sp.org/tlog-proof@v1`, `extra <base64>` if there is any, `index <n>`, the inclusion proof one
  hash per line, an empty line, the signed checkpoint verbatim.
- Extra data are not authenticated. The proof is verified under the origin, keys and quorum that the verifier
  trusts already; the file brings none.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from holdproof.crypto import b64, checkpoint, merkle
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.lines import decode_number, decode_proof, decode_text, encode_number, encode_proof
from holdproof.crypto.note import VerifiedSignature
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

    @property
    def file(self) -> bytes:
        """The bytes of its `.tlog-proof` file."""
        return encode(self)


def encode(proof: TlogProof) -> bytes:
    """Encode the text of a `.tlog-proof` file."""
    extra = f"extra {b64.encode(proof.extra)}\n" if proof.extra else ""
    index = f"index {encode_number(proof.index, 'index')}\n"
    hashes = encode_proof(proof.proof, "inclusion proof")
    return f"{HEADER}\n{extra}{index}{hashes}\n".encode() + proof.head.encode()


def parse(data: bytes) -> TlogProof:
    """Parse a proof from untrusted bytes; verifies nothing."""
    top, blank, head = data.partition(b"\n\n")
    header, *lines = decode_text(top, "tlog-proof").split("\n")
    if not blank or header != HEADER:
        raise FormatError(f"not a {HEADER}")
    extra = b""
    if lines and lines[0].startswith("extra "):
        extra = b64.decode(lines.pop(0).removeprefix("extra "))
        # An empty extra is written as no line at all: one proof has one text.
        if not extra:
            raise FormatError("tlog-proof: an empty extra line")
    if not lines or not lines[0].startswith("index "):
        raise FormatError("tlog-proof: no index line")
    index = decode_number(lines.pop(0).removeprefix("index "), "tlog-proof index")
    return TlogProof(index, decode_proof(lines, "tlog-proof"), checkpoint.parse(head), extra)


def verify(
    proof: TlogProof,
    leaf_hash: bytes,
    *,
    origin: str,
    log_keys: Iterable[VerifierKey],
    witnesses: Iterable[VerifierKey] = (),
    quorum: int = 0,
) -> tuple[VerifiedSignature, ...]:
    """Return the witnesses' cosignatures on the head; ProofError unless the head is valid and includes the entry."""
    # The head first: an inclusion proof means nothing under a root that the log did not sign.
    cosignatures = checkpoint.verify(proof.head, origin=origin, log_keys=log_keys, witnesses=witnesses, quorum=quorum)
    head = proof.head.checkpoint
    merkle.verify_inclusion(leaf_hash, proof.index, head.size, proof.proof, head.root)
    return cosignatures
