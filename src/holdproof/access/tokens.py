"""Tokens: who may act at the server, as what, and until when.

Rules:
- A secret is 256 random bits, shown once, stored as a hash; it is found by that hash, so nothing is compared.
- Making and revoking a token are leaves of its record.
- A token that is revoked or past its time opens nothing; revoking it ends the logins that came from it.
- A token of an agent works in the agent's own namespace, and beside decisions only with the nouns it was given. An
  agent that is RETIRED comes in by none.
- When a token was last used is known to a few minutes, and is outside the promise.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from holdproof.db import Row, Tx, lock_exclusive, sql
from holdproof.errors import AgentInactiveError, AuthenticationError, InvalidInputError, NotFoundError
from holdproof.errors import UnauthenticatedError as Unauthenticated
from holdproof.evidence.leaves import Projection
from holdproof.model.access import EVERY, ROLES, NewToken, Token, TokenPage
from holdproof.model.agents import Agent
from holdproof.model.times import later
from holdproof.runtime import agents, logged_rows

TOKENS: Final = logged_rows.register(
    Projection(
        "access_tokens",
        1,
        (
            *("token_id", "name", "role", "agent_id", "nouns", "secret_hash", "created_by", "created_at"),
            *("expires_at", "revoked_at", "revoked_by", "ns"),
        ),
    ),
    kind="token",
    key="token_id",
)
TTL_S: Final = 90 * 86_400.0
grantable: set[str] = set()
"""The resources that a token of an agent may name: the layer above, which declares resources, adds them."""
_PREFIX: Final = "hf_"
_SECRET_BYTES: Final = 32
_MOST_NOUNS: Final = 100

_ADD = sql(
    "INSERT INTO access_tokens (token_id, name, role, agent_id, nouns, secret_hash, created_by, created_at, expires_at,"
    " revoked_at, revoked_by, ns, leaf_id, leaf_ver, leaf_salt) VALUES (:token_id, :name, :role, :agent_id, :nouns,"
    " :secret_hash, :created_by, :created_at, :expires_at, :revoked_at, :revoked_by, :ns, :leaf_id, :leaf_ver,"
    " :leaf_salt)"
)


def create(
    tx: Tx,
    name: str,
    *,
    role: str = "operator",
    agent_id: str | None = None,
    nouns: Iterable[str] | None = None,
    ttl_s: float | None = TTL_S,
    by: str = "operator",
    ns: str = EVERY,
) -> NewToken:
    """Make a token and show its secret, this once; without `ttl_s` it lasts until it is revoked."""
    logged_rows.one_of("role", role, ROLES)
    if (role == "agent") != (agent_id is not None):
        raise InvalidInputError("a token of an agent names the agent, and no other does", role=role)
    row: dict[str, Any] = dict.fromkeys(TOKENS.columns)
    row |= {"token_id": tx.new_id(), "name": logged_rows.name("name", name), "role": role, "agent_id": agent_id}
    row |= {"nouns": _listed(role, nouns), "created_by": logged_rows.name("by", by), "created_at": tx.now}
    row["ns"] = logged_rows.name("ns", ns) if agent_id is None else _home(tx, agent_id, ns)
    if ttl_s is not None:
        row["expires_at"] = later(tx.now, logged_rows.seconds("ttl_s", ttl_s, least=0.001))
    secret = new_secret(tx, _PREFIX)
    logged_rows.add(tx, _ADD, "token", TOKENS, row | {"secret_hash": digest(secret)})
    return NewToken(_token(row | {"last_used_at": None}), secret)


def new_secret(tx: Tx, prefix: str) -> str:
    """256 random bits that say by their first letters what they are."""
    return prefix + urlsafe_b64encode(tx.random(_SECRET_BYTES)).decode().rstrip("=")


def digest(secret: str) -> str:
    """What is stored of a secret; whatever it is, it has one."""
    return sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _listed(role: str, nouns: Iterable[str] | None) -> str | None:
    if nouns is None:
        return None
    names = sorted({logged_rows.name("a noun", each) for each in nouns})
    if len(names) > _MOST_NOUNS:
        raise InvalidInputError(f"a token names at most {_MOST_NOUNS} nouns")
    if role == "agent" and (beyond := [each for each in names if each not in grantable]):
        raise InvalidInputError(
            f"an agent may be given {', '.join(sorted(grantable))}, not {', '.join(beyond)}", nouns=beyond
        )
    return logged_rows.dump(names)


_HOME = sql("SELECT ns FROM agent_registry WHERE agent_id = :agent_id")


def _home(tx: Tx, agent_id: str, ns: str) -> str:
    """The namespace that an agent lives in."""
    found = tx.one(_HOME, agent_id=agent_id)
    if found is None or ns not in (EVERY, found[0]):
        raise NotFoundError(f"there is no agent {agent_id}", agent_id=agent_id)
    return str(found[0])


_COLUMNS: Final = (
    "token_id, name, role, agent_id, nouns, secret_hash, created_by, created_at, expires_at, revoked_at, revoked_by,"
    " ns, last_used_at, leaf_id, leaf_ver"
)
_FIND = sql(f"SELECT {_COLUMNS} FROM access_tokens WHERE token_id = :token_id")  # noqa: S608


def get(tx: Tx, token_id: str, *, ns: str = EVERY) -> Token:
    """One token, without its secret."""
    return _shown(_known(tx, token_id, ns))


def _known(tx: Tx, token_id: str, ns: str) -> Row:
    row = tx.one(_FIND, token_id=token_id)
    if row is None or ns not in (EVERY, row[11]):
        raise NotFoundError(f"there is no token {token_id}", token_id=token_id)
    return row


_LIST = sql(
    f"SELECT {_COLUMNS} FROM access_tokens WHERE token_id > :after AND (:ns = '*' OR ns = :ns)"  # noqa: S608
    " AND (:all = 1 OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)))"
    " ORDER BY token_id LIMIT :limit"
)


def list(tx: Tx, *, all: bool = False, ns: str = EVERY, after: str = "", limit: int = 100) -> TokenPage:
    """Tokens that open something, oldest first, a page at a time; with `all` also those that do no more."""
    found = tx.all(_LIST, ns=ns, all=int(all), now=tx.now, after=after, limit=logged_rows.limited(limit))
    return TokenPage(*logged_rows.paged(found, limit, _shown, lambda token: token.token_id))


_REVOKE = sql(
    "UPDATE access_tokens SET revoked_at = :revoked_at, revoked_by = :revoked_by, leaf_id = :leaf_id,"
    " leaf_ver = :leaf_ver, leaf_salt = :leaf_salt WHERE token_id = :token_id AND revoked_at IS NULL"
)
_END = sql("UPDATE access_logins SET ended_at = :now WHERE token_id = :token_id AND ended_at IS NULL")


def revoke(tx: Tx, token_id: str, *, by: str = "operator", ns: str = EVERY) -> Token:
    """End a token and every login that came from it; one that is revoked already stays as it is."""
    lock_exclusive(tx, f"token:{token_id}")
    known = _known(tx, token_id, ns)
    if known[9] is not None:
        return _shown(known)
    row = dict(zip(TOKENS.columns, known, strict=False)) | {
        "revoked_at": tx.now,
        "revoked_by": logged_rows.name("by", by),
    }
    logged_rows.change(tx, _REVOKE, "token", TOKENS, row, leaf_id=known[13], leaf_ver=known[14])
    tx.execute(_END, token_id=token_id, now=tx.now)
    return _token(row | {"last_used_at": known[12]})


_BY_SECRET = sql(f"SELECT {_COLUMNS} FROM access_tokens WHERE secret_hash = :secret_hash")  # noqa: S608


def authenticate(tx: Tx, secret: str, *, ns: str = EVERY) -> Token:
    """The token of a secret, if it opens anything now; else UnauthenticatedError."""
    row = tx.one(_BY_SECRET, secret_hash=digest(secret))
    if row is None or ns not in (EVERY, row[11]):
        raise Unauthenticated("this token is not known here")
    token = _shown(row)
    if token.revoked_at is not None:
        raise Unauthenticated(f"the token {token.name} was revoked", token_id=token.token_id)
    if token.expires_at is not None and token.expires_at <= tx.now:
        raise Unauthenticated(f"the token {token.name} ended {token.expires_at}", token_id=token.token_id)
    if token.agent_id is not None:
        _admit(agents.get(tx, token.agent_id, ns=token.ns))
    return token


def agent(tx: Tx, agent_id: str, secret: str, *, ns: str = EVERY) -> Agent:
    """The agent that a session token belongs to, wherever it lives; one that is RETIRED does not come in."""
    try:
        found = tx.one(_HOME, agent_id=agent_id)
        known = agents.authenticate(tx, agent_id, secret, ns=found[0] if found else logged_rows.MAIN)
    except (AuthenticationError, InvalidInputError) as error:
        raise Unauthenticated("agent and token do not belong together") from error
    if ns not in (EVERY, known.ns):
        raise Unauthenticated("agent and token do not belong together")
    return _admit(known)


def _admit(known: Agent) -> Agent:
    """An agent that comes in, by whatever token."""
    if known.status == "RETIRED":
        about = {"agent_id": known.agent_id, "agent_status": known.status}
        raise AgentInactiveError(f"agent {known.agent_id} is RETIRED", **about)
    return known


_TOUCH = sql(
    "UPDATE access_tokens SET last_used_at = :at WHERE token_id = :token_id"
    " AND (last_used_at IS NULL OR last_used_at < :at)"
)


def touch(tx: Tx, used: Mapping[str, str]) -> None:
    """Keep when tokens were last used; an older moment than the one known changes nothing."""
    tx.many(_TOUCH, [{"token_id": token_id, "at": at} for token_id, at in sorted(used.items())])


def _shown(row: Row) -> Token:
    return _token(dict(zip((*TOKENS.columns, "last_used_at"), row, strict=False)))


def _token(row: Mapping[str, Any]) -> Token:
    names = logged_rows.load(row["nouns"])
    shown = {column: value for column, value in row.items() if column != "secret_hash"}
    return Token(**shown | {"nouns": None if names is None else tuple(names)})
