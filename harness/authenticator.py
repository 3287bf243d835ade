"""An authenticator in software: it makes a passkey, as a browser reports it to a server (WebAuthn)."""

import hashlib
import json
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec

# The person is there and was verified, and the data of a new credential follows.
_FLAGS: Final = 0x45


def register(options: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return the credential that a browser would send, given the options of a registration."""
    numbers = ec.generate_private_key(ec.SECP256R1()).public_key().public_numbers()
    # A key as COSE has it: elliptic, ES256, on P-256, and its point.
    key = {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
    credential_id = secrets.token_bytes(16)
    about = hashlib.sha256(options["rp"]["id"].encode()).digest() + bytes([_FLAGS]) + bytes(4)
    about += bytes(16) + len(credential_id).to_bytes(2, "big") + credential_id + cbor2.dumps(key)
    client = {"type": "webauthn.create", "challenge": options["challenge"], "origin": origin, "crossOrigin": False}
    attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": about})
    response = {"clientDataJSON": _text(json.dumps(client).encode()), "attestationObject": _text(attestation)}
    name = _text(credential_id)
    return {"id": name, "rawId": name, "type": "public-key", "response": response, "clientExtensionResults": {}}


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
