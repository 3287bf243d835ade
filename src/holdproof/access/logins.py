"""Logins: a link that opens the console once, and the session it is exchanged for.

Rules:
- A link is used once, within minutes, an hour at most; of two who use it at the same moment one comes in.
- A link or a session ends at its time, with the token it came from, or by whoever may (`end`); a session by logging out
  too. Its secret is no token: each of the three kinds opens only what it is for.
- Secrets are 256 random bits, stored as a hash.
- People come in while the store is locked: these rows pass the lockdown's gate, and so are outside the promise.
"""

from typing import Final

from holdproof.access import tokens
from holdproof.db import Row, Tx, sql
from holdproof.errors import InvalidInputError, NotFoundError, UnauthenticatedError
from holdproof.model.access import EVERY, Login, LoginPage, NewLogin
from holdproof.model.times import later
from holdproof.runtime import logged_rows
from holdproof.validation import number

LINK_S: Final = 600.0
MOST_LINK_S: Final = 3600.0
SESSION_S: Final = 12 * 3600.0
_ROLES: Final = frozenset({"operator", "auditor"})
_KEPT_S: Final = 7 * 86_400.0

_ADD = sql(
    "INSERT INTO access_logins (login_id, kind, token_id, name, role, secret_hash, created_at, expires_at, ended_at,"
    " ns) VALUES (:login_id, :kind, :token_id, :name, :role, :secret_hash, :created_at, :expires_at, :ended_at, :ns)"
)


def link(
    tx: Tx,
    *,
    token_id: str | None = None,
    name: str = "operator",
    role: str = "operator",
    ttl_s: float = LINK_S,
    ns: str = EVERY,
) -> NewLogin:
    """A link to log in by, once: as the holder of a token, or without one as who runs the server."""
    logged_rows.one_of("role", role, _ROLES)
    nouns = None
    if token_id is not None:
        token = tokens.get(tx, token_id, ns=ns)
        if token.role not in _ROLES:
            raise InvalidInputError("the console is for operators and auditors", role=token.role)
        name, role, ns, nouns = token.name, token.role, token.ns, token.nouns
    until = later(tx.now, number("ttl_s", ttl_s, least=0.001, most=MOST_LINK_S))
    made = Login(tx.new_id(), "link", token_id, logged_rows.name("name", name), role, nouns, tx.now, until, None, ns)
    return _write(tx, made, "hfl_")


def _write(tx: Tx, made: Login, prefix: str) -> NewLogin:
    secret = tokens.new_secret(tx, prefix)
    row = made.to_dict()
    del row["nouns"]
    tx.execute(_ADD, **row, secret_hash=tokens.digest(secret), expect=1)
    return NewLogin(made, secret)


_FORGET = sql("DELETE FROM access_logins WHERE expires_at < :before")
_USE = sql(
    "UPDATE access_logins SET ended_at = :now WHERE secret_hash = :secret_hash AND kind = 'link' AND ended_at IS NULL"
    " AND expires_at > :now"
)


def login(tx: Tx, code: str, *, ttl_s: float = SESSION_S, ns: str = EVERY) -> NewLogin:
    """Exchange the code of a link for a session; a second time, or too late, it is UnauthenticatedError."""
    secret_hash = tokens.digest(code)
    tx.execute(_FORGET, before=later(tx.now, -_KEPT_S))
    if tx.count(_USE, secret_hash=secret_hash, now=tx.now) == 0:
        raise UnauthenticatedError("this link was used, has ended, or never was")
    found = tx.one(_FIND, secret_hash=secret_hash, kind="link")
    assert found is not None, "it was just used"
    used = _open(tx, found, ns)
    until = later(tx.now, logged_rows.seconds("ttl_s", ttl_s, least=0.001))
    made = Login(tx.new_id(), "session", used.token_id, used.name, used.role, used.nouns, tx.now, until, None, used.ns)
    return _write(tx, made, "hfs_")


_FIND = sql(
    "SELECT l.login_id, l.kind, l.token_id, l.name, l.role, t.nouns, l.created_at, l.expires_at, l.ended_at, l.ns,"
    " t.revoked_at, t.expires_at FROM access_logins l LEFT JOIN access_tokens t ON t.token_id = l.token_id"
    " WHERE l.secret_hash = :secret_hash AND l.kind = :kind"
)


def session(tx: Tx, secret: str, *, ns: str = EVERY) -> Login:
    """The session of a secret, if it is still open; else UnauthenticatedError."""
    row = tx.one(_FIND, secret_hash=tokens.digest(secret), kind="session")
    if row is None or row[8] is not None or row[7] <= tx.now:
        raise UnauthenticatedError("this session has ended; log in again")
    return _open(tx, row, ns)


def _open(tx: Tx, row: Row, ns: str) -> Login:
    """What was found, unless the token it came from has ended, or it is of another namespace."""
    revoked, until = row[10], row[11]
    if ns not in (EVERY, row[9]) or revoked is not None or (until is not None and until <= tx.now):
        raise UnauthenticatedError("the token that this came from has ended")
    return _shown(row)


def _shown(row: Row) -> Login:
    names = logged_rows.load(row[5])
    return Login(*(*row[:5], None if names is None else tuple(names), *row[6:10]))


_LIST = sql(
    "SELECT l.login_id, l.kind, l.token_id, l.name, l.role, t.nouns, l.created_at, l.expires_at, l.ended_at, l.ns"
    " FROM access_logins l LEFT JOIN access_tokens t ON t.token_id = l.token_id WHERE l.login_id > :after"
    " AND (:ns = '*' OR l.ns = :ns) AND (:all = 1 OR (l.ended_at IS NULL AND l.expires_at > :now"
    " AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now))) ORDER BY l.login_id LIMIT :limit"
)


def list(tx: Tx, *, all: bool = False, ns: str = EVERY, after: str = "", limit: int = 100) -> LoginPage:
    """Links and sessions that open something, oldest first, a page at a time; with `all` also those that do no more."""
    found = tx.all(_LIST, ns=ns, all=int(all), now=tx.now, after=after, limit=logged_rows.limited(limit))
    return LoginPage(*logged_rows.paged(found, limit, _shown, lambda login: login.login_id))


_END_ONE = sql(
    "UPDATE access_logins SET ended_at = coalesce(ended_at, :now) WHERE login_id = :login_id"
    " AND (:ns = '*' OR ns = :ns)"
)
_ONE = sql(
    "SELECT l.login_id, l.kind, l.token_id, l.name, l.role, t.nouns, l.created_at, l.expires_at, l.ended_at, l.ns"
    " FROM access_logins l LEFT JOIN access_tokens t ON t.token_id = l.token_id WHERE l.login_id = :login_id"
)


def end(tx: Tx, login_id: str, *, ns: str = EVERY) -> Login:
    """End a link or a session; one that has ended stays as it is."""
    ended = tx.count(_END_ONE, login_id=login_id, now=tx.now, ns=ns)
    found = tx.one(_ONE, login_id=login_id)
    if not ended or found is None:
        raise NotFoundError(f"there is no login {login_id}", login_id=login_id)
    return _shown(found)


_END = sql(
    "UPDATE access_logins SET ended_at = :now WHERE secret_hash = :secret_hash AND kind = 'session'"
    " AND ended_at IS NULL"
)


def logout(tx: Tx, secret: str) -> bool:
    """End a session; whether it was open."""
    return tx.count(_END, secret_hash=tokens.digest(secret), now=tx.now) > 0
