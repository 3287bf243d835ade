"""The judge's signature on a DBOM: an in-toto Statement derived from its six other fields, signed as DSSE.

- `sigma_judge` = `dsse:<alg>:<keyid>:<base64url, no padding>`; the signed bytes are PAE(in-toto JSON,
  JCS(Statement)).
- The statement follows from the fields, alg and keyid alone, so an envelope can be exported without the
  private key and `openssl dgst -sha256 -verify` checks the signature over `signed_bytes`.
- The intent vector enters as its length and the SHA-256 of its big-endian doubles.
- The legacy `SIG_GREEN_…` is recognised, and never valid.
"""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from holdproof.crypto import b64, dsse, statement
from holdproof.crypto.canonical import sha256_hex
from holdproof.crypto.dbom import Fields, SignedDbom, check
from holdproof.crypto.dsse import Envelope
from holdproof.crypto.keys import ALGS, Alg, PublicKey, Signer
from holdproof.crypto.statement import PAYLOAD_TYPE, ResourceDescriptor, Statement
from holdproof.errors import FormatError, InvalidInputError, ProofError

PREDICATE_TYPE = "urn:holdproof:dbom:v1"

_SIGMA = re.compile(rf"dsse:(?P<alg>{'|'.join(ALGS)}):(?P<keyid>[0-9a-f]{{64}}):(?P<signature>[A-Za-z0-9_-]+)")
_LEGACY = "SIG_GREEN_"


@dataclass(frozen=True, slots=True)
class Sigma:
    """A parsed `sigma_judge`: algorithm, key id and signature bytes (DER for ECDSA)."""

    alg: Alg
    keyid: str
    signature: bytes


@dataclass(frozen=True, slots=True)
class LegacySigma:
    """A simulated signature of an older Green Agent; it proves nothing."""

    text: str


def hash_intent(vector: Sequence[float]) -> str:
    """Return the SHA-256, in hex, of the vector's big-endian IEEE-754 doubles."""
    try:
        return sha256_hex(struct.pack(f">{len(vector)}d", *vector))
    except (struct.error, OverflowError) as error:
        raise InvalidInputError("v_intent holds something else than numbers", field="v_intent") from error


def make_statement(fields: Fields, alg: Alg, keyid: str) -> Statement:
    """Build the in-toto Statement that a judge signs for these fields; InvalidInputError if they cannot be signed."""
    check(fields)
    return Statement(
        (ResourceDescriptor({"sha256": fields.h_delta}, fields.evaluation_id),),
        PREDICATE_TYPE,
        {
            "dbom_version": fields.dbom_version,
            "battle_id": fields.evaluation_id,
            "h_delta": fields.h_delta,
            # 1 and 1.0 are one score, but two JSON texts: a score signed as one type verifies as the other.
            "score_cis": float(fields.score_cis),
            "timestamp": fields.timestamp,
            "v_intent": {"dim": len(fields.v_intent), "sha256": hash_intent(fields.v_intent)},
            # The key is part of the statement, so that no other key's signature can be put in its place.
            "signer": {"alg": alg, "keyid": keyid},
        },
    )


def signed_bytes(fields: Fields, alg: Alg, keyid: str) -> bytes:
    """Return the exact bytes that the judge signs."""
    return dsse.pae(PAYLOAD_TYPE, statement.encode(make_statement(fields, alg, keyid)))


def sign(fields: Fields, signer: Signer) -> SignedDbom:
    """Sign the fields and return the complete DBOM."""
    signature = signer.sign(signed_bytes(fields, signer.alg, signer.keyid))
    return SignedDbom(fields, encode_sigma(Sigma(signer.alg, signer.keyid, signature)))


def verify(dbom: SignedDbom, key: PublicKey) -> None:
    """Return if the key's signature is valid, else raise ProofError (FormatError if it is malformed)."""
    sigma = _parse_signed(dbom)
    if (sigma.alg, sigma.keyid) != (key.alg, key.keyid):
        raise ProofError("the DBOM names another key", found=sigma.keyid, expected=key.keyid)
    try:
        message = signed_bytes(dbom.fields, sigma.alg, sigma.keyid)
    except InvalidInputError as error:
        # Fields that `sign` refuses can carry no valid signature: to a verifier that is a failed proof.
        raise ProofError(f"no judge signs such a DBOM: {error}", **error.fields) from error
    key.verify(message, sigma.signature)


def to_envelope(dbom: SignedDbom) -> Envelope:
    """Return the DSSE envelope of a signed DBOM; needs no private key."""
    sigma = _parse_signed(dbom)
    payload = statement.encode(make_statement(dbom.fields, sigma.alg, sigma.keyid))
    return Envelope(PAYLOAD_TYPE, payload, (dsse.Signature(sigma.keyid, sigma.signature),))


def encode_sigma(sigma: Sigma) -> str:
    """Return the text of `sigma_judge`."""
    return f"dsse:{sigma.alg}:{sigma.keyid}:{b64.encode_url(sigma.signature)}"


def parse_sigma(text: str) -> Sigma | LegacySigma:
    """Parse `sigma_judge`; FormatError unless it is a DSSE signature or a legacy one."""
    if text.startswith(_LEGACY):
        return LegacySigma(text)
    match = _SIGMA.fullmatch(text)
    if match is None:
        raise FormatError("sigma_judge: neither a DSSE signature nor a legacy one", text=text[:200])
    # The pattern admits the names in ALGS alone.
    return Sigma(cast("Alg", match["alg"]), match["keyid"], b64.decode_url(match["signature"]))


def _parse_signed(dbom: SignedDbom) -> Sigma:
    """Parse the signature of a DBOM; ProofError for a legacy one."""
    sigma = parse_sigma(dbom.sigma_judge)
    if isinstance(sigma, LegacySigma):
        raise ProofError("a simulated signature of an older Green Agent", legacy=True)
    return sigma
