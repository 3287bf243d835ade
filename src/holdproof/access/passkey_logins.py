"""Logins by passkey: a person logs in with a registered key, with the rights of the session that registered it.

Rules:
- Nobody is named before the signature: the options are the same for everybody, and every refusal is the same too.
- A challenge is for one origin, used once, within minutes, whatever became of it.
- The request, the challenge, the registered key and the browser's own words are of one origin.
- A passkey opens the console if its entry in the log says so, and neither it, its token nor its person has ended.
- A session has the rights of the session that registered the passkey, never more; it ends with the passkey.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from holdproof import validation
from holdproof.access import logins, passkeys, tokens
from holdproof.crypto import passkey_answers
from holdproof.crypto.passkey_answers import to_bytes
from holdproof.db import Refused, Tx
from holdproof.errors import (
    InvalidInputError,
    NotFoundError,
    PasskeyRefusedError,
    TamperedError,
    UnauthenticatedError,
)
from holdproof.evidence import logged_tables
from holdproof.model.access import Login, NewLogin
from holdproof.model.namespaces import EVERY
from holdproof.model.passkeys import Passkey, PasskeyChallenge
from holdproof.runtime import people

_NOBODY: Final = ""
"""The person of a challenge that anybody may answer."""
_LONGEST_ID: Final = 1_364
"""The characters of the longest credential id there is, 1,023 bytes, as base64url."""
_REFUSED: Final = (
    "this passkey does not open the console here: use one that was registered on its page Access, at this address,"
    " or log in with a token or a link"
)


def options(tx: Tx, *, origin: str) -> PasskeyChallenge:
    """Return the options with which a browser signs a login with whichever passkey of this origin its user chooses."""
    webauthn = passkey_answers.load_webauthn()
    nonce = tx.random(passkeys.NONCE_BYTES)
    expires_at = passkeys.store_challenge(
        tx, nonce, purpose="login", person=_NOBODY, nonce=nonce, origin=origin, ns=EVERY
    )
    chosen = webauthn.generate_authentication_options(
        rp_id=passkeys.host_of(origin),
        challenge=nonce,
        user_verification=webauthn.helpers.structs.UserVerificationRequirement.REQUIRED,
    )
    return PasskeyChallenge(json.loads(webauthn.options_to_json(chosen)), expires_at)


def exchange(
    tx: Tx, assertion: Mapping[str, Any], *, origin: str, ttl_s: float = logins.SESSION_S
) -> NewLogin | Refused:
    """Exchange a passkey's signature of a login for a session; `origin` is where the request came to.

    Refuses with UnauthenticatedError, in the same words whatever was wrong.
    """
    try:
        challenge = passkeys.use_challenge(tx, assertion, "login", EVERY)
        passkey = _verified(tx, assertion, challenge, origin)
        source = _login_of(tx, passkey)
        passkeys.advance(tx, passkey, assertion)
    except (PasskeyRefusedError, InvalidInputError, NotFoundError, TamperedError):
        # Refused, not raised: the challenge stays used.
        return Refused(UnauthenticatedError(_REFUSED))
    return logins.open_session(tx, source, ttl_s=ttl_s)


_BY_ID = logged_tables.selecting(
    passkeys.PASSKEYS.logged, "credential_id", "t.credential_id = :credential_id AND t.revoked_at IS NULL"
)


def _verified(tx: Tx, assertion: Mapping[str, Any], challenge: passkeys.StoredChallenge, origin: str) -> Passkey:
    """Return the passkey that signed this challenge at this origin; PasskeyRefusedError if none did."""
    webauthn = passkey_answers.load_webauthn()
    # Compared with its entry: a row that was edited in the database lets nobody in.
    credential_id = validation.name("id", assertion.get("id"), most=_LONGEST_ID)
    rows = logged_tables.confirm(tx, passkeys.PASSKEYS.logged, _BY_ID, credential_id=credential_id)
    if not rows:
        raise PasskeyRefusedError("there is no such passkey")
    [columns] = rows
    passkey = passkeys.PASSKEYS.from_columns(columns)
    if not origin == challenge.origin == passkey.origin:
        raise PasskeyRefusedError("the passkey is for another origin")
    try:
        webauthn.verify_authentication_response(
            credential=dict(assertion),
            expected_challenge=to_bytes(challenge.challenge),
            expected_rp_id=passkey.rp_id,
            expected_origin=passkey.origin,
            credential_public_key=to_bytes(passkey.public_key),
            # The counter is compared as it is written (`advance`), so that two at once do not both pass.
            credential_current_sign_count=0,
            require_user_verification=True,
        )
    except (webauthn.helpers.exceptions.WebAuthnException, ValueError, KeyError, TypeError) as error:
        raise PasskeyRefusedError("the signature does not hold") from error
    return passkey


def _login_of(tx: Tx, passkey: Passkey) -> Login:
    """Return whom a passkey lets in as what; PasskeyRefusedError where it does not, or does not any more."""
    if passkey.login_role is None or passkey.login_ns is None or people.was_removed(tx, passkey.person, ns=passkey.ns):
        raise PasskeyRefusedError("the passkey signs answers only")
    resources = None
    if passkey.login_token_id is not None:
        token = tokens.get(tx, passkey.login_token_id)
        if token.revoked_at is not None or (token.expires_at is not None and token.expires_at <= tx.now):
            raise PasskeyRefusedError("the token of the passkey has ended")
        resources = token.resources
    return Login(
        login_id="",
        kind="session",
        token_id=passkey.login_token_id,
        name=passkey.person,
        role=passkey.login_role,
        resources=resources,
        created_at=tx.now,
        expires_at=tx.now,
        ended_at=None,
        ns=passkey.login_ns,
        credential_id=passkey.credential_id,
    )
