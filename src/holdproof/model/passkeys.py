"""Passkeys: keys of people that sign answers."""

from dataclasses import dataclass
from typing import Any

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Passkey(Value):
    """A person's passkey: its public key (COSE, base64url), and the origin it signs at.

    With a `login_role` it opens the console too, as the session did that registered it.
    """

    credential_id: str
    person: str
    public_key: str
    rp_id: str
    origin: str
    created_at: str
    created_by: str
    revoked_at: str | None
    revoked_by: str | None
    ns: str
    login_role: str | None = None
    login_token_id: str | None = None
    login_ns: str | None = None


@dataclass(frozen=True, slots=True)
class PasskeyChallenge(Value):
    """What a browser is asked to sign: the options of WebAuthn as JSON, and until when.

    `statement` is the text that is signed for, empty for a registration.
    """

    options: Any
    expires_at: str
    statement: str = ""
    statement_hash: str = ""
