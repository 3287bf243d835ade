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

from holdproof.crypto import b64, dsse, statement
from holdproof.crypto.canonical import sha256_hex
from holdproof.crypto.dbom import Dbom, Fields, check
from holdproof.crypto.dsse import Envelope
from holdproof.crypto.keys import ALGS, Alg, PublicKey, Signer
from holdproof.crypto.statement import PAYLOAD_TYPE, Statement, Subject
from holdproof.errors import FormatError, InvalidInputError, ProofError

PREDICATE_TYPE = "urn:holdproof:dbom:v1"

_SIGMA = re.compile(rf"dsse:({'|'.join(ALGS)}):([0-9a-f]{{64}}):([A-Za-z0-9_-]+)")
_LEGACY = "SIG_GREEN_"


@dataclass(frozen=True, slots=True)
class Sigma:
    """A real signature: algorithm, key id, bytes (DER for ECDSA)."""

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
        # Fixed width and byte order: a JSON text of floats would have many spellings.
        return sha256_hex(struct.pack(f">{len(vector)}d", *vector))
    except (struct.error, OverflowError) as error:
        raise InvalidInputError("v_intent holds something else than numbers", field="v_intent") from error


def make_statement(fields: Fields, alg: Alg, keyid: str) -> Statement:
    """Return the in-toto Statement that a judge's signature on these fields covers."""
    check(fields)
    return Statement(
        # The subject is the artifact that was judged, by its digest; everything else is the predicate.
        (Subject({"sha256": fields.h_delta}, fields.evaluation_id),),
        PREDICATE_TYPE,
        {
            "dbom_version": fields.dbom_version,
            "battle_id": fields.evaluation_id,
            "h_delta": fields.h_delta,
            "score_cis": float(fields.score_cis),
            "timestamp": fields.timestamp,
            "v_intent": {"dim": len(fields.v_intent), "sha256": hash_intent(fields.v_intent)},
            "signer": {"alg": alg, "keyid": keyid},
        },
    )


def signed_bytes(fields: Fields, alg: Alg, keyid: str) -> bytes:
    """Return the exact bytes that are signed."""
    return dsse.pae(PAYLOAD_TYPE, statement.encode(make_statement(fields, alg, keyid)))


def sign(fields: Fields, signer: Signer) -> Dbom:
    """Return the DBOM of these fields, signed."""
    signature = signer.sign(signed_bytes(fields, signer.alg, signer.keyid))
    return Dbom(fields, encode_sigma(Sigma(signer.alg, signer.keyid, signature)))


def verify(dbom: Dbom, key: PublicKey) -> None:
    """Return if the key's signature holds, else raise ProofError (FormatError if it is malformed)."""
    sigma = _real(dbom)
    # Compared first, for an error that says which key is missing; the statement names the key as well.
    if (sigma.alg, sigma.keyid) != (key.alg, key.keyid):
        raise ProofError("the DBOM names another key", found=sigma.keyid, expected=key.keyid)
    try:
        message = signed_bytes(dbom.fields, sigma.alg, sigma.keyid)
    except InvalidInputError as error:
        raise ProofError(f"no judge signs such a DBOM: {error}", **error.fields) from error
    key.verify(message, sigma.signature)


def to_envelope(dbom: Dbom) -> Envelope:
    """Return the DSSE envelope of a signed DBOM, made without any private key."""
    sigma = _real(dbom)
    payload = statement.encode(make_statement(dbom.fields, sigma.alg, sigma.keyid))
    return Envelope(PAYLOAD_TYPE, payload, (dsse.Signature(sigma.keyid, sigma.signature),))


def encode_sigma(sigma: Sigma) -> str:
    """Return the text of `sigma_judge`."""
    return f"dsse:{sigma.alg}:{sigma.keyid}:{b64.encode_url(sigma.signature)}"


def parse_sigma(text: str) -> Sigma | LegacySigma:
    """Return a signature, or what only looks like one; FormatError for anything else."""
    if text.startswith(_LEGACY):
        return LegacySigma(text)
    match = _SIGMA.fullmatch(text)
    if match is None:
        raise FormatError("sigma_judge: neither a DSSE signature nor a legacy one", text=text[:200])
    alg_name, keyid, signature = match.groups()
    alg = next(alg for alg in ALGS if alg == alg_name)
    return Sigma(alg, keyid, b64.decode_url(signature))


def _real(dbom: Dbom) -> Sigma:
    sigma = parse_sigma(dbom.sigma_judge)
    if isinstance(sigma, LegacySigma):
        raise ProofError("a simulated signature of an older Green Agent", legacy=True)
    return sigma
