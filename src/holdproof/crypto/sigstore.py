"""A Sigstore bundle (v0.3) of a DSSE envelope, for Sigstore verifiers that are given our public key.

- The bundle names the key by its id, as a hint, and does not contain it: a verifier must trust the key already.
- It has no entry of Sigstore's log and no timestamp of its authorities: configure the verifier to require none.
- A bundle holds exactly one signature.
"""

from typing import Final

from holdproof.crypto import canonical, dsse
from holdproof.crypto.dsse import Envelope
from holdproof.errors import InvalidInputError

MEDIA_TYPE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"


def encode(envelope: Envelope) -> bytes:
    """Encode an envelope as a bundle; needs no private key, and always gives the same bytes."""
    if len(envelope.signatures) != 1:
        raise InvalidInputError("a Sigstore bundle holds exactly one signature", count=len(envelope.signatures))
    [signature] = envelope.signatures
    return canonical.dumps(
        {
            "mediaType": MEDIA_TYPE,
            "verificationMaterial": {"publicKey": {"hint": signature.keyid}, "tlogEntries": []},
            "dsseEnvelope": canonical.loads(dsse.encode(envelope)),
        }
    )
