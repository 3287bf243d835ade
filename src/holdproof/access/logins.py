"""Logins: a link that opens the console once, and the session it is exchanged for.

Rules:
- A link is used once, within minutes, an hour at most; of two who use it at the same moment one comes in.
- A link or a session ends at its time, with the token or the passkey it came from, with that passkey's person, or by
  `end`; a session by logging out too. Its secret is no token: tokens, links and sessions each open only what they are
  for.
- Secrets are 256 random bits, stored as a hash.
- People log in while the store is locked: these rows pass the lockdown, and so are not logged in the Merkle log.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from holdproof import paging, validation
from holdproof.access import tokens
from holdproof.db import Tx, sql
from holdproof.errors import InvalidInputError, NotFoundError, UnauthenticatedError
from holdproof.model import jsontext
from holdproof.model.access import Login, NewLogin
from holdproof.model.namespaces import EVERY
from holdproof.model.page import Page
from holdproof.model.times import later

LINK_S: Final = 600.0
MOST_LINK_S: Final = 3600.0
SESSION_S: Final = 12 * 3600.0
_ROLES: Final = frozenset({"operator", "auditor"})
_RETENTION_S: Final = 7 * 86_400.0
_AFTER_EVERY_ID: Final = "\U0010ffff"
"""Sorts after every login id, which are ASCII."""


class _Stored(NamedTuple):
    """A login, and how the token, the passkey and the passkey's person stand that it came from."""

    login_id: str
    kind: str
    token_id: str | None
    name: str
    role: str
    resources: str | None
    created_at: str
    expires_at: str
    ended_at: str | None
    ns: str
    credential_id: str | None
    token_revoked_at: str | None
    token_expires_at: str | None
    passkey_revoked_at: str | None
    person_removed_at: str | None

    def login(self) -> Login:
        """The row as a value."""
        names = jsontext.load(self.resources)
        return Login(
            login_id=self.login_id,
            kind=self.kind,
            token_id=self.token_id,
            name=self.name,
            role=self.role,
            resources=None if names is None else tuple(names),
            created_at=self.created_at,
            expires_at=self.expires_at,
            ended_at=self.ended_at,
            ns=self.ns,
            credential_id=self.credential_id,
        )


# Joined with the token, the passkey and its person: a login has no more rights, and lives no longer, than what it came
# from.
_SELECT: Final = (
    "SELECT l.login_id, l.kind, l.token_id, l.name, l.role, t.nouns, l.created_at, l.expires_at, l.ended_at, l.ns,"
    " l.credential_id, t.revoked_at, t.expires_at, p.revoked_at, h.removed_at"
    " FROM access_logins l"
    " LEFT JOIN access_tokens t ON t.token_id = l.token_id"
    " LEFT JOIN passkeys p ON p.credential_id = l.credential_id"
    " LEFT JOIN people h ON h.ns = p.ns AND h.name = p.person"
)
_ADD = sql(
    "INSERT INTO access_logins (login_id, kind, token_id, name, role, secret_hash, created_at, expires_at, ended_at,"
    " ns, credential_id) VALUES (:login_id, :kind, :token_id, :name, :role, :secret_hash, :created_at, :expires_at,"
    " :ended_at, :ns, :credential_id)"
)


def create_link(
    tx: Tx,
    *,
    token_id: str | None = None,
    name: str = "operator",
    role: str = "operator",
    ttl_s: float = LINK_S,
    ns: str = EVERY,
) -> NewLogin:
    """Create a link to log in by, once: as the holder of a token, or without one as the operator of the server."""
    validation.one_of("role", role, _ROLES)
    token = None if token_id is None else tokens.get(tx, token_id, ns=ns)
    if token is not None and token.role not in _ROLES:
        raise InvalidInputError("the console is for operators and auditors", role=token.role)
    login = Login(
        login_id=tx.new_id(),
        kind="link",
        token_id=token_id,
        name=validation.name("name", name) if token is None else token.name,
        role=role if token is None else token.role,
        resources=None if token is None else token.resources,
        created_at=tx.now,
        expires_at=later(tx.now, validation.number("ttl_s", ttl_s, least=0.001, most=MOST_LINK_S)),
        ended_at=None,
        ns=ns if token is None else token.ns,
    )
    return _write(tx, login, "hpl_")


def _write(tx: Tx, login: Login, prefix: str) -> NewLogin:
    secret = tokens.new_secret(tx, prefix)
    row = login.to_dict()
    del row["resources"]  # they are the token's
    tx.execute(_ADD, **row, secret_hash=tokens.digest(secret), expect=1)
    return NewLogin(login, secret)


# One statement: of two who use a link at the same moment, the second changes no row.
_USE = sql(
    "UPDATE access_logins SET ended_at = :now WHERE secret_hash = :secret_hash AND kind = 'link' AND ended_at IS NULL"
    " AND expires_at > :now"
)


def exchange(tx: Tx, code: str, *, ttl_s: float = SESSION_S, ns: str = EVERY) -> NewLogin:
    """Exchange the code of a link for a session; UnauthenticatedError a second time, or too late."""
    secret_hash = tokens.digest(code)
    if tx.count(_USE, secret_hash=secret_hash, now=tx.now) == 0:
        raise UnauthenticatedError(
            "this link was used or has expired; create another with `holdproof logins create-link`"
        )
    row = tx.one(_FIND, secret_hash=secret_hash, kind="link")
    assert row is not None, "it was just used"
    link = _usable(tx, _Stored(*row), ns)
    return open_session(tx, link, ttl_s=ttl_s)


_PRUNE = sql("DELETE FROM access_logins WHERE expires_at < :before")


def open_session(tx: Tx, source: Login, *, ttl_s: float = SESSION_S) -> NewLogin:
    """Open a session of the person, with the rights and the origin, that a login names."""
    # Old logins are removed when somebody logs in, by a link or a passkey: no job has to run for that.
    tx.execute(_PRUNE, before=later(tx.now, -_RETENTION_S))
    session = replace(
        source,
        login_id=tx.new_id(),
        kind="session",
        created_at=tx.now,
        expires_at=later(tx.now, validation.seconds("ttl_s", ttl_s, least=0.001)),
        ended_at=None,
    )
    return _write(tx, session, "hps_")


_FIND = sql(f"{_SELECT} WHERE l.secret_hash = :secret_hash AND l.kind = :kind")


def authenticate(tx: Tx, secret: str, *, ns: str = EVERY) -> Login:
    """Return the session of a secret; UnauthenticatedError where it has ended."""
    row = tx.one(_FIND, secret_hash=tokens.digest(secret), kind="session")
    stored = None if row is None else _Stored(*row)
    if stored is None or stored.ended_at is not None or stored.expires_at <= tx.now:
        raise UnauthenticatedError("this session has ended; log in again")
    return _usable(tx, stored, ns)


def _usable(tx: Tx, stored: _Stored, ns: str) -> Login:
    """Return a login, unless what it came from has ended, or it is of another namespace."""
    expired = stored.token_expires_at is not None and stored.token_expires_at <= tx.now
    ends = (stored.token_revoked_at, stored.passkey_revoked_at, stored.person_removed_at)
    revoked = any(end is not None for end in ends)
    if ns not in (EVERY, stored.ns) or revoked or expired:
        raise UnauthenticatedError("what this login came from, a token or a passkey, has ended")
    return stored.login()


_GET = sql(f"{_SELECT} WHERE l.login_id = :login_id AND (:ns = '*' OR l.ns = :ns)")


def get(tx: Tx, login_id: str, *, ns: str = EVERY) -> Login:
    """Return one link or session, without its secret."""
    row = tx.one(_GET, login_id=login_id, ns=ns)
    if row is None:
        raise NotFoundError(f"there is no login {login_id}", listed_by="logins list", login_id=login_id)
    return _Stored(*row).login()


_LIST = sql(
    f"{_SELECT} WHERE l.login_id < :before AND (:ns = '*' OR l.ns = :ns) AND (:all = 1 OR (l.ended_at IS NULL"
    " AND l.expires_at > :now AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now)"
    " AND p.revoked_at IS NULL AND h.removed_at IS NULL)) ORDER BY l.login_id DESC LIMIT :limit"
)


def list(tx: Tx, *, all: bool = False, cursor: str | None = None, limit: int = 100, ns: str = EVERY) -> Page[Login]:
    """List links and sessions that are valid, newest first; with `all` also those that have ended."""
    (before,) = paging.decode(cursor, _AFTER_EVERY_ID)
    rows = tx.all(_LIST, ns=ns, all=int(all), now=tx.now, before=before, limit=paging.fetch(limit))
    return paging.page((_Stored(*row).login() for row in rows), limit, lambda login: (login.login_id,))


# The first end counts: ending a login again does not change when it ended.
_END = sql(
    "UPDATE access_logins SET ended_at = coalesce(ended_at, :now) WHERE login_id = :login_id"
    " AND (:ns = '*' OR ns = :ns)"
)


def end(tx: Tx, login_id: str, *, ns: str = EVERY) -> Login:
    """End a link or a session; one that has ended stays as it is."""
    tx.execute(_END, login_id=login_id, now=tx.now, ns=ns)
    return get(tx, login_id, ns=ns)


_LOGOUT = sql(
    "UPDATE access_logins SET ended_at = :now WHERE secret_hash = :secret_hash AND kind = 'session'"
    " AND ended_at IS NULL"
)


def logout(tx: Tx, secret: str) -> bool:
    """End the session of a secret; return whether it was open."""
    return tx.count(_LOGOUT, secret_hash=tokens.digest(secret), now=tx.now) > 0
