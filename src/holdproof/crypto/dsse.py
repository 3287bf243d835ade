"""DSSE v1: the bytes that are signed (PAE) and the JSON envelope around them.

- The signature covers PAE(payload type, payload): never the envelope's JSON, never the bare payload.
- A key id in an envelope is a hint that narrows the search for a key, never a reason to trust.
- Verification needs `threshold` distinct trusted keys and the payload type the caller expects.
- Readers accept either base64 alphabet and ignore fields they do not know, as the standard demands.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdproof.crypto import b64, canonical
from holdproof.crypto.keys import PublicKey, Signer
from holdproof.errors import FormatError, InvalidInputError, ProofError

MAX_SIGNATURES = 64

_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature of an envelope; `keyid` is a hint which key made it, and may be empty."""

    keyid: str
    sig: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload, its type and its signatures."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the pre-authentication encoding: the bytes that are signed."""
    try:
        kind = payload_type.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError("payload type: lone surrogate") from error
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(payload_type: str, payload: bytes, *signers: Signer) -> Envelope:
    """Sign a payload with every signer, in order; InvalidInputError without any."""
    if not signers:
        raise InvalidInputError("an envelope needs at least one signer")
    message = pae(payload_type, payload)
    signatures = tuple(Signature(signer.keyid, signer.sign(message)) for signer in signers)
    return Envelope(payload_type, payload, signatures)


def encode(envelope: Envelope) -> bytes:
    """Encode an envelope as JSON; the same envelope always gives the same bytes."""
    return canonical.dumps(
        {
            "payload": b64.encode(envelope.payload),
            "payloadType": envelope.payload_type,
            "signatures": [{"keyid": s.keyid, "sig": b64.encode(s.sig)} for s in envelope.signatures],
        }
    )


def parse(data: bytes) -> Envelope:
    """Parse an envelope from untrusted JSON; verifies nothing."""
    value = canonical.loads(data)
    if not isinstance(value, dict):
        raise FormatError("DSSE envelope: not an object")
    signatures = value.get("signatures")
    if not isinstance(signatures, list) or not 1 <= len(signatures) <= MAX_SIGNATURES:
        raise FormatError(f"DSSE envelope: signatures must be a list of 1 to {MAX_SIGNATURES}")
    payload = b64.decode_either(_text(value, "payload"))
    return Envelope(_text(value, "payloadType"), payload, tuple(_signature(item) for item in signatures))


def verify(
    envelope: Envelope, keys: Iterable[PublicKey], *, payload_type: str, threshold: int = 1
) -> tuple[PublicKey, ...]:
    """Return the distinct trusted keys whose signature is valid; ProofError if fewer than `threshold` are."""
    if threshold < 1:
        raise InvalidInputError("a threshold below 1 proves nothing", threshold=threshold)
    if envelope.payload_type != payload_type:
        raise ProofError("another payload type", found=envelope.payload_type, expected=payload_type)
    message = pae(envelope.payload_type, envelope.payload)
    trusted = {key.keyid: key for key in keys}
    accepted: dict[str, PublicKey] = {}
    # Envelopes can be built without `parse`: the bound keeps the work finite for these as well.
    for signature in envelope.signatures[:MAX_SIGNATURES]:
        # A hint that names a trusted key saves trying the others; without one, every trusted key is tried.
        hinted = trusted.get(signature.keyid)
        for key in (hinted,) if hinted else trusted.values():
            # A key counts once: copies of one signature must not reach the threshold.
            if key.keyid not in accepted and _is_valid(key, message, signature.sig):
                accepted[key.keyid] = key
                break
    if len(accepted) < threshold:
        raise ProofError("too few signatures of trusted keys", accepted=len(accepted), threshold=threshold)
    return tuple(accepted.values())


def _is_valid(key: PublicKey, message: bytes, signature: bytes) -> bool:
    try:
        key.verify(message, signature)
    except ProofError:
        return False
    return True


def _signature(item: object) -> Signature:
    if not isinstance(item, dict):
        raise FormatError("DSSE envelope: a signature is not an object")
    sig = b64.decode_either(_text(item, "sig"))
    if not sig:
        raise FormatError("DSSE envelope: an empty signature")
    return Signature(_text(item, "keyid") if "keyid" in item else "", sig)


def _text(value: Mapping[str, object], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise FormatError(f"DSSE envelope: {name} must be a string", field=name)
    # JSON escapes can spell lone surrogates, which have no UTF-8 to be signed.
    if _SURROGATE.search(text):
        raise FormatError(f"DSSE envelope: {name} holds a lone surrogate", field=name)
    return text
