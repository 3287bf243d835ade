"""Checking a passkey's signature of an answer, offline: all that is needed stands in the answer's row.

Rules:
- The challenge is SHA-256 of the statement's hash and the nonce, so that exactly one text was signed; the text itself
  may be erased later, and the signature still holds for its hash.
- The signature is for one origin, by the registered key, with the person present and verified.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from typing import Any

from holdproof.errors import MissingExtraError


def load_webauthn() -> Any:
    """Return the package `webauthn`, an extra: it is loaded only where somebody signs or checks."""
    try:
        return import_module("webauthn")
    except ImportError as error:
        raise MissingExtraError("passkeys need the package webauthn: pip install 'holdproof[server]'") from error


def challenge_of(statement_hash: str, nonce: bytes) -> bytes:
    """Return what a passkey signs for a statement, given by its hash in hex, and a nonce."""
    return sha256(bytes.fromhex(statement_hash) + nonce).digest()


def to_text(data: bytes) -> str:
    """Return bytes as base64url without padding, as WebAuthn writes them."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def to_bytes(text: str) -> bytes:
    """Return the bytes of base64url; ValueError where it is none."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def problem_of(answer: Mapping[str, Any]) -> str:
    """Say what is wrong with the signature of an answer, given by `statement`, `statement_hash` and `passkey`.

    Empty where it holds. A statement that was erased is None: the signature is then checked against its hash.
    """
    webauthn = load_webauthn()
    statement = answer.get("statement")
    if statement is not None and sha256(statement.encode()).hexdigest() != answer["statement_hash"]:
        return "the statement is not the one whose hash was signed"
    evidence = answer["passkey"]
    try:
        webauthn.verify_authentication_response(
            credential=evidence["assertion"],
            expected_challenge=challenge_of(answer["statement_hash"], to_bytes(evidence["nonce"])),
            expected_rp_id=evidence["rp_id"],
            expected_origin=evidence["origin"],
            credential_public_key=to_bytes(evidence["public_key"]),
            # Counters are compared when an answer is given; alone an answer has nothing to compare with.
            credential_current_sign_count=0,
            require_user_verification=True,
        )
    except (webauthn.helpers.exceptions.WebAuthnException, ValueError, KeyError, TypeError) as error:
        return f"the signature does not hold: {error}"
    return ""
