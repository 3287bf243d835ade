"""Passkeys: people register a key, and sign exactly the bytes that they were shown (WebAuthn).

Rules:
- A challenge is used once, within five minutes. That of an answer is the SHA-256 of the statement's hash and a nonce.
- A signature counts at the origin where the key was registered, by a key of the person, who was verified.
- The statement is computed anew when the answer comes: if anything in it has changed, the signature is for other bytes.
- The assertion, the nonce and the public key are stored with the answer, so that a bundle can be checked offline
  (crypto/passkey_answers.py).
- Registering and revoking are entries; keys are compared with theirs before a signature counts.
- As what a passkey opens the console (access/passkey_logins.py) is what the session was that registered it. One of
  another namespace than `main` opens that one only: people are removed, and passkeys listed and revoked, in each.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from holdproof import paging, validation
from holdproof.crypto import passkey_answers
from holdproof.crypto.passkey_answers import to_bytes, to_text
from holdproof.db import Refused, Tx, lock_exclusive, sql
from holdproof.errors import InvalidInputError, NotFoundError, PasskeyRefusedError
from holdproof.evidence import logged_tables
from holdproof.evidence.tables import Table
from holdproof.model.approvals import digest
from holdproof.model.coordination import Escalation
from holdproof.model.coverage import Cover, columns
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.passkeys import Passkey, PasskeyChallenge
from holdproof.model.times import later
from holdproof.runtime import approvals, escalation_rows, escalations, people

CHALLENGE_S: Final = 300.0
NONCE_BYTES: Final = 32
_LOCAL: Final = frozenset({"localhost"})
_RELYING_PARTY: Final = "Holdproof"
_AFTER_EVERY_ID: Final = "\U0010ffff"
"""Sorts after every credential id, which are ASCII."""

_LOGIN_ROLES: Final = frozenset({"operator", "auditor"})

_FIRST_LOGGED: Final = (
    *("credential_id", "person", "public_key", "rp_id", "origin", "created_at", "created_by"),
    *("revoked_at", "revoked_by", "ns"),
)
PASSKEYS: Final = Table(
    "passkeys",
    Passkey,
    kind="passkey",
    key="credential_id",
    logged=(*_FIRST_LOGGED, "login_role", "login_token_id", "login_ns"),
    version=2,
    # Entries that were written before passkeys opened the console.
    older=(_FIRST_LOGGED,),
    further=columns("sign_count", Cover.NONE, "the authenticator's counter; a challenge is used once anyway"),
)


class StoredChallenge(NamedTuple):
    """A challenge as it is stored."""

    challenge: str
    person: str
    nonce: str
    origin: str
    escalation_id: int | None
    statement_hash: str | None


_ASK = sql(
    "INSERT INTO passkey_challenges (challenge, purpose, person, nonce, origin, escalation_id, statement_hash,"
    " expires_at, ns) VALUES (:challenge, :purpose, :person, :nonce, :origin, :escalation_id, :statement_hash,"
    " :expires_at, :ns)"
)
_PRUNE = sql("DELETE FROM passkey_challenges WHERE expires_at < :now")
# One statement: of two who use a challenge at the same moment, the second changes no row.
_USE = sql(
    "UPDATE passkey_challenges SET used_at = :now WHERE challenge = :challenge AND purpose = :purpose AND ns = :ns"
    " AND used_at IS NULL AND expires_at > :now"
    " RETURNING challenge, person, nonce, origin, escalation_id, statement_hash"
)


def use_challenge(tx: Tx, credential: Mapping[str, Any], purpose: str, ns: str) -> StoredChallenge:
    """Return the challenge that a credential answers, used up by that; PasskeyRefusedError a second time."""
    try:
        client = json.loads(to_bytes(credential["response"]["clientDataJSON"]))
        text = client["challenge"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError("that is no credential of WebAuthn as JSON", field="credential") from error
    # What no database can store is refused here, in words of ours.
    challenge = validation.name("challenge", text)
    row = tx.one(_USE, challenge=challenge, purpose=purpose, ns=ns, now=tx.now)
    if row is None:
        raise PasskeyRefusedError("this challenge was used, has expired, or was never given: begin again")
    return StoredChallenge(*row)


# --- registering -------------------------------------------------------------------------------------------------


def register_options(tx: Tx, name: str, *, origin: str, ns: str = MAIN) -> PasskeyChallenge:
    """Return the options with which a person's browser creates a passkey at an origin: scheme and host."""
    webauthn = passkey_answers.load_webauthn()
    if people.was_removed(tx, name, ns=ns):
        raise InvalidInputError(f"{name} was removed: put them again first (`people put`)", field="name", value=name)
    structs = webauthn.helpers.structs
    rp_id = host_of(origin)
    nonce = tx.random(NONCE_BYTES)
    expires_at = store_challenge(tx, nonce, purpose="register", person=name, nonce=nonce, origin=origin, ns=ns)
    options = webauthn.generate_registration_options(
        rp_id=rp_id,
        rp_name=_RELYING_PARTY,
        user_name=name,
        user_id=digest(f"{ns}:{name}").encode()[:64],
        challenge=nonce,
        # Kept on the authenticator where it can: a login names nobody, so that the key has to be found there.
        authenticator_selection=structs.AuthenticatorSelectionCriteria(
            resident_key=structs.ResidentKeyRequirement.PREFERRED,
            user_verification=structs.UserVerificationRequirement.REQUIRED,
        ),
    )
    return PasskeyChallenge(json.loads(webauthn.options_to_json(options)), expires_at)


def host_of(origin: str) -> str:
    """Return the relying party of an origin; InvalidInputError where browsers sign nothing at it."""
    try:
        parts = urlsplit(validation.name("origin", origin))
    except ValueError as error:
        raise _no_origin() from error
    host = parts.hostname or ""
    if origin != f"{parts.scheme}://{parts.netloc}" or not (parts.scheme == "https" or host in _LOCAL):
        raise _no_origin()
    return host


def _no_origin() -> InvalidInputError:
    return InvalidInputError("origin is https and a host, such as https://holdproof.example.org", field="origin")


def store_challenge(tx: Tx, challenge: bytes, **facts: Any) -> str:
    """Store a challenge, to be used once, and remove those that have expired; return until when it counts."""
    tx.execute(_PRUNE, now=tx.now)
    expires_at = later(tx.now, CHALLENGE_S)
    row = {"escalation_id": None, "statement_hash": None, **facts, "nonce": to_text(facts["nonce"])}
    tx.execute(_ASK, **row, challenge=to_text(challenge), expires_at=expires_at, expect=1)
    return expires_at


_ADD = sql(PASSKEYS.insert())


def register(
    tx: Tx,
    credential: Mapping[str, Any],
    *,
    by: str,
    login: Mapping[str, str | None] | None = None,
    ns: str = MAIN,
) -> Passkey:
    """Register the passkey that a browser created; `credential` is its JSON, PasskeyRefusedError if it is not ours.

    `login` says as what it opens the console: `role`, the `ns` or `*` for all, and the `token_id` that it ends with.
    """
    webauthn = passkey_answers.load_webauthn()
    role, token_id, login_ns = _login(login, ns)
    challenge = use_challenge(tx, credential, "register", ns)
    # A key of somebody else's hand would sign in this person's name.
    if people.person_of(validation.name("by", by)) != challenge.person:
        raise PasskeyRefusedError(
            f"this passkey was begun by {challenge.person}, who registers it", name=challenge.person
        )
    try:
        verified = webauthn.verify_registration_response(
            credential=dict(credential),
            expected_challenge=to_bytes(challenge.challenge),
            expected_rp_id=host_of(challenge.origin),
            expected_origin=challenge.origin,
            require_user_verification=True,
        )
    except (webauthn.helpers.exceptions.WebAuthnException, ValueError, KeyError, TypeError) as error:
        raise PasskeyRefusedError(f"the passkey was not registered: {error}") from error
    passkey = Passkey(
        credential_id=to_text(verified.credential_id),
        person=challenge.person,
        public_key=to_text(verified.credential_public_key),
        rp_id=host_of(challenge.origin),
        origin=challenge.origin,
        created_at=tx.now,
        created_by=validation.name("by", by),
        revoked_at=None,
        revoked_by=None,
        ns=ns,
        login_role=role,
        login_token_id=token_id,
        login_ns=login_ns,
    )
    PASSKEYS.add(tx, _ADD, PASSKEYS.to_columns(passkey))
    return passkey


def _login(login: Mapping[str, str | None] | None, ns: str) -> tuple[str | None, str | None, str | None]:
    """Return as what a passkey opens the console: role, token and namespace; three times None where it does not."""
    if login is None:
        return None, None, None
    role = validation.one_of("login.role", login.get("role"), _LOGIN_ROLES)
    token_id = login.get("token_id")
    token = None if token_id is None else validation.name("login.token_id", token_id)
    opens = validation.name("login.ns", login.get("ns"))
    return role, token, opens if ns == MAIN else ns


_FIND = sql(PASSKEYS.select("WHERE credential_id = :credential_id AND ns = :ns", leaf=True))
_REVOKE = sql(
    PASSKEYS.update("revoked_at", "revoked_by", where="credential_id = :credential_id AND revoked_at IS NULL")
)


def revoke(tx: Tx, credential_id: str, *, by: str, ns: str = MAIN) -> Passkey:
    """Revoke a passkey: it signs nothing more; what it signed stays valid."""
    lock_exclusive(tx, f"passkey:{credential_id}")
    row = tx.one(_FIND, credential_id=credential_id, ns=ns)
    if row is None:
        raise NotFoundError(
            f"there is no passkey {credential_id}", listed_by="passkeys list", credential_id=credential_id
        )
    record = PASSKEYS.record(row)
    if record.value.revoked_at is not None:
        return record.value
    return PASSKEYS.change(tx, _REVOKE, record, {"revoked_at": tx.now, "revoked_by": validation.name("by", by)})


_LIST = sql(PASSKEYS.select("WHERE ns = :ns AND credential_id < :before ORDER BY credential_id DESC LIMIT :limit"))


def list(tx: Tx, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Page[Passkey]:
    """List passkeys, revoked ones too."""
    (before,) = paging.decode(cursor, _AFTER_EVERY_ID)
    passkeys = PASSKEYS.all(tx, _LIST, ns=ns, before=before, limit=paging.fetch(limit))
    return paging.page(passkeys, limit, lambda each: (each.credential_id,))


_OF_PERSON = logged_tables.selecting(
    PASSKEYS.logged, "credential_id", "t.ns = :ns AND t.person = :person AND t.revoked_at IS NULL"
)


def _of_person(tx: Tx, person: str, ns: str) -> dict[str, Passkey]:
    """Return a person's passkeys by id, compared with their entries in the log."""
    rows = logged_tables.confirm(tx, PASSKEYS.logged, _OF_PERSON, ns=ns, person=person)
    return {each.credential_id: each for each in map(PASSKEYS.from_columns, rows)}


# --- signing -----------------------------------------------------------------------------------------------------


def _statement(tx: Tx, escalation: Escalation, response: approvals.Answer, person: str) -> str:
    readable = escalation_rows.shown(tx, escalation)
    return approvals.statement(approvals.shown(tx, readable), response, person=person)


def challenge(
    tx: Tx,
    id: int,
    decision: str,
    *,
    by: str,
    proposal: Any = None,
    result: Any = None,
    comment: str | None = None,
    ns: str = MAIN,
) -> PasskeyChallenge | Refused:
    """Return the statement of an answer, and the options with which a person's browser signs it."""
    webauthn = passkey_answers.load_webauthn()
    person = people.person_of(validation.name("by", by))
    response = approvals.Answer(*escalations.checked(decision, proposal, result), comment)
    record = escalations.lock_pending(tx, id, response.word, ns=ns)
    if isinstance(record, Refused):
        return record
    passkeys = _of_person(tx, person, ns)
    if not passkeys:
        raise NotFoundError(f"{person} has no passkey: register one with `passkeys register-options`", name=person)
    statement = _statement(tx, record.value, response, person)
    nonce = tx.random(NONCE_BYTES)
    value = passkey_answers.challenge_of(digest(statement), nonce)
    # A person's newest passkey says where they sign; keys of other origins are not offered.
    newest = max(passkeys.values(), key=lambda each: (each.created_at, each.credential_id))
    usable = [each for each in passkeys.values() if each.origin == newest.origin]
    facts = {"person": person, "nonce": nonce, "origin": newest.origin, "escalation_id": id}
    expires_at = store_challenge(tx, value, purpose="answer", statement_hash=digest(statement), ns=ns, **facts)
    descriptor = webauthn.helpers.structs.PublicKeyCredentialDescriptor
    options = webauthn.generate_authentication_options(
        rp_id=newest.rp_id,
        challenge=value,
        allow_credentials=[descriptor(id=to_bytes(each.credential_id)) for each in usable],
        user_verification=webauthn.helpers.structs.UserVerificationRequirement.REQUIRED,
    )
    return PasskeyChallenge(json.loads(webauthn.options_to_json(options)), expires_at, statement, digest(statement))


_COUNT = sql(
    "UPDATE passkeys SET sign_count = :count WHERE credential_id = :credential_id"
    " AND (sign_count < :count OR (sign_count = 0 AND :count = 0))"
)


def answer(
    tx: Tx,
    id: int,
    decision: str,
    *,
    assertion: Mapping[str, Any],
    by: str,
    proposal: Any = None,
    result: Any = None,
    comment: str | None = None,
    ns: str = MAIN,
) -> Escalation | Refused:
    """Answer an escalation with a passkey's signature of exactly this answer; `assertion` is the browser's JSON.

    Raises PasskeyRefusedError where it is replayed, or for other bytes, another origin or another person.
    """
    person = people.person_of(validation.name("by", by))
    response = approvals.Answer(*escalations.checked(decision, proposal, result), comment)
    record = escalations.lock_pending(tx, id, response.word, ns=ns)
    if isinstance(record, Refused):
        return record
    asked_for = use_challenge(tx, assertion, "answer", ns)
    passkey = _of_person(tx, person, ns).get(str(assertion.get("id")))
    if passkey is None or (asked_for.person, asked_for.escalation_id) != (person, id):
        raise PasskeyRefusedError(f"this is no passkey of {person} for escalation {id}", id=id)
    statement = _statement(tx, record.value, response, person)
    if digest(statement) != asked_for.statement_hash:
        raise PasskeyRefusedError("what was signed is not this answer to what is asked now: begin again", id=id)
    evidence = {
        "credential_id": passkey.credential_id,
        "public_key": passkey.public_key,
        "rp_id": passkey.rp_id,
        "origin": passkey.origin,
        "nonce": asked_for.nonce,
        "assertion": dict(assertion),
    }
    facts = {"statement": statement, "statement_hash": digest(statement), "passkey": evidence}
    if problem := passkey_answers.problem_of(facts):
        raise PasskeyRefusedError(problem, id=id)
    advance(tx, passkey, assertion)
    return escalations.answer(tx, id, response, by=by, passkey=evidence, ns=ns)


def advance(tx: Tx, passkey: Passkey, assertion: Mapping[str, Any]) -> None:
    """Write the authenticator's counter; one that does not grow is that of a copied key."""
    # Bytes 33 to 36 of the authenticator data, as WebAuthn has them; 0 where an authenticator does not count.
    count = int.from_bytes(to_bytes(assertion["response"]["authenticatorData"])[33:37])
    if tx.count(_COUNT, credential_id=passkey.credential_id, count=count) == 0:
        raise PasskeyRefusedError("the authenticator's counter went back: the passkey may have been copied")
