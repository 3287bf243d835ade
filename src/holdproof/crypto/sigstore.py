"""A Sigstore bundle (v0.3) of a DSSE envelope: for verifiers that speak Sigstore and bring our public key.

- The key is named by its id, as a hint; it never comes along, so whoever verifies has to trust it already.
- There is no entry of Sigstore's log and no timestamp of its authorities: a verifier must be told to ask for none.
- A bundle holds exactly one signature.
"""

from typing import Final

from holdproof.crypto import canonical, dsse
from holdproof.crypto.dsse import Envelope
from holdproof.errors import InvalidInputError

MEDIA_TYPE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"


def encode(envelope: Envelope) -> bytes:
    """Return the bundle as JSON, the same bytes every time; made without any private key."""
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
