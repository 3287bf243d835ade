"""Tokens: who may act at the server, as what, and until when.

Rules:
- A secret is 256 random bits, shown once, stored as a hash; it is looked up by that hash, so nothing is compared.
- Creating and revoking a token are leaves of its record.
- A token that is revoked or expired is refused; revoking it ends the logins that came from it.
- A token of an agent works in the agent's own namespace, and beside its flows only with the resources it is granted. A
  RETIRED agent is refused with any token.
- When a token was last used is recorded to a few minutes, and is not logged in the Merkle log.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from holdproof import paging, validation
from holdproof.crypto import canonical
from holdproof.db import Database, Tx, lock_exclusive, sql
from holdproof.errors import AgentInactiveError, AuthenticationError, InvalidInputError, NotFoundError
from holdproof.errors import UnauthenticatedError as Unauthenticated
from holdproof.evidence.tables import StoredRecord, Table
from holdproof.model import jsontext
from holdproof.model.access import ROLES, NewToken, Token
from holdproof.model.agents import Agent
from holdproof.model.coverage import Cover, columns
from holdproof.model.namespaces import EVERY, MAIN
from holdproof.model.page import Page
from holdproof.model.times import later
from holdproof.runtime import agents


def _names(text: str) -> tuple[str, ...]:
    return tuple(jsontext.load(text))


TOKENS: Final = Table(
    "access_tokens",
    Token,
    kind="token",
    key="token_id",
    logged=(
        *("token_id", "name", "role", "agent_id", "nouns", "secret_hash", "created_by", "created_at"),
        *("expires_at", "revoked_at", "revoked_by", "ns"),
    ),
    columns={"resources": "nouns"},
    loads={"nouns": _names},
    further=columns("last_used_at", Cover.NONE, "written with every request; it shows which tokens nobody uses"),
)
# Ninety days: long enough for a dashboard, short enough that a forgotten token ends.
TTL_S: Final = 90 * 86_400.0
PREFIX: Final = "hp_"
_SECRET_BYTES: Final = 32
_MOST_RESOURCES: Final = 100
_AFTER_EVERY_ID: Final = "\U0010ffff"
"""Sorts after every token id, which are ASCII."""

_ADD = sql(TOKENS.insert())


class TokenContext(NamedTuple):
    """What tokens need of a store: its database, and the resources that the token of an agent may name.

    Resources are declared in a layer above, which passes their names.
    """

    database: Database
    grantable: Collection[str]


def create(
    context: TokenContext,
    name: str,
    *,
    role: str = "operator",
    agent_id: str | None = None,
    resources: Iterable[str] | None = None,
    ttl_s: float | None = TTL_S,
    by: str = "operator",
    ns: str = EVERY,
) -> Callable[[Tx], NewToken]:
    """Create a token and return its secret, this once; without `ttl_s` it lasts until it is revoked.

    The token of an agent may name grantable resources only.
    """
    validation.one_of("role", role, ROLES)
    if (role == "agent") != (agent_id is not None):
        raise InvalidInputError("a token with role agent names its agent_id, and no other does", role=role)
    columns: dict[str, Any] = {
        **dict.fromkeys(TOKENS.columns),
        "name": validation.name("name", name),
        "role": role,
        "agent_id": agent_id,
        "nouns": _resources(resources, context.grantable if role == "agent" else None),
        "created_by": validation.name("by", by),
        "ns": validation.name("ns", ns),
    }
    lasts_s = None if ttl_s is None else validation.seconds("ttl_s", ttl_s, least=0.001)
    return partial(_add, columns=columns, ttl_s=lasts_s)


def _add(tx: Tx, *, columns: dict[str, Any], ttl_s: float | None) -> NewToken:
    secret = new_secret(tx, PREFIX)
    agent_id = columns["agent_id"]
    row = columns | {
        "token_id": tx.new_id(),
        "secret_hash": digest(secret),
        "created_at": tx.now,
        "expires_at": None if ttl_s is None else later(tx.now, ttl_s),
        "ns": columns["ns"] if agent_id is None else _home(tx, agent_id, columns["ns"]),
    }
    TOKENS.add(tx, _ADD, row)
    return NewToken(TOKENS.from_columns(row), secret)


def new_secret(tx: Tx, prefix: str) -> str:
    """Return 256 random bits as text; the prefix tells tokens, links and sessions apart."""
    return prefix + urlsafe_b64encode(tx.random(_SECRET_BYTES)).decode().rstrip("=")


def digest(secret: str) -> str:
    """Return the SHA-256 of a secret, as it is stored; any string has one, also one with lone surrogates."""
    return sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _resources(resources: Iterable[str] | None, grantable: Collection[str] | None) -> str | None:
    """Return the names of resources as JSON text; with `grantable` no others are allowed."""
    if resources is None:
        return None
    names = sorted({validation.name("a resource", each) for each in resources})
    if len(names) > _MOST_RESOURCES:
        raise InvalidInputError(f"a token names at most {_MOST_RESOURCES} resources")
    if grantable is not None and (beyond := [each for each in names if each not in grantable]):
        raise InvalidInputError(
            f"an agent may be granted {', '.join(sorted(grantable))}, not {', '.join(beyond)}", resources=beyond
        )
    return canonical.dump_text(names)


_HOMES = sql("SELECT ns FROM agent_registry WHERE agent_id = :agent_id AND (:ns = :every OR ns = :ns) ORDER BY ns")


def _homes(tx: Tx, agent_id: str, ns: str) -> tuple[str, ...]:
    """Return the namespaces that have an agent of that id, as far as they are visible from `ns`."""
    return tuple(str(home) for (home,) in tx.all(_HOMES, agent_id=agent_id, ns=ns, every=EVERY))


def _home(tx: Tx, agent_id: str, ns: str) -> str:
    """Return the namespace of an agent; NotFoundError where it is not visible from `ns`."""
    homes = _homes(tx, agent_id, ns)
    if not homes:
        raise NotFoundError(f"there is no agent {agent_id}", listed_by="agents list", agent_id=agent_id)
    if len(homes) > 1:
        raise InvalidInputError(f"several namespaces have an agent {agent_id}: name one with ns", agent_id=agent_id)
    [home] = homes
    return home


_FIND = sql(TOKENS.select("WHERE token_id = :token_id", leaf=True))


def get(tx: Tx, token_id: str, *, ns: str = EVERY) -> Token:
    """Return one token, without its secret."""
    return _record(tx, token_id, ns).value


def _record(tx: Tx, token_id: str, ns: str) -> StoredRecord[Token]:
    row = tx.one(_FIND, token_id=token_id)
    record = None if row is None else TOKENS.record(row)
    if record is None or ns not in (EVERY, record.value.ns):
        raise NotFoundError(f"there is no token {token_id}", listed_by="tokens list", token_id=token_id)
    return record


_LIST = sql(
    TOKENS.select(
        "WHERE token_id < :before AND (:ns = '*' OR ns = :ns)"
        " AND (:all = 1 OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)))"
        " ORDER BY token_id DESC LIMIT :limit"
    )
)


def list(tx: Tx, *, all: bool = False, cursor: str | None = None, limit: int = 100, ns: str = EVERY) -> Page[Token]:
    """List tokens that are valid, newest first; with `all` also those that are revoked or expired."""
    (before,) = paging.decode(cursor, _AFTER_EVERY_ID)
    params = {"ns": ns, "all": int(all), "now": tx.now, "before": before, "limit": paging.fetch(limit)}
    return paging.page(TOKENS.all(tx, _LIST, **params), limit, lambda token: (token.token_id,))


_REVOKE = sql(TOKENS.update("revoked_at", "revoked_by", where="token_id = :token_id AND revoked_at IS NULL"))
_END = sql("UPDATE access_logins SET ended_at = :now WHERE token_id = :token_id AND ended_at IS NULL")


def revoke(tx: Tx, token_id: str, *, by: str = "operator", ns: str = EVERY) -> Token:
    """Revoke a token and end every login that came from it; one that is revoked already stays as it is."""
    # Two who revoke at once must not both write the next version.
    lock_exclusive(tx, f"token:{token_id}")
    record = _record(tx, token_id, ns)
    if record.value.revoked_at is not None:
        return record.value
    token = TOKENS.change(tx, _REVOKE, record, {"revoked_at": tx.now, "revoked_by": validation.name("by", by)})
    tx.execute(_END, token_id=token_id, now=tx.now)
    return token


# A unique index on the hash makes this a lookup; no secret is ever compared byte by byte.
_BY_SECRET = sql(TOKENS.select("WHERE secret_hash = :secret_hash"))


def authenticate(tx: Tx, secret: str, *, ns: str = EVERY) -> Token:
    """Return the token of a secret; UnauthenticatedError where it is unknown, revoked or expired."""
    token = TOKENS.find(tx, _BY_SECRET, secret_hash=digest(secret))
    if token is None or ns not in (EVERY, token.ns):
        raise Unauthenticated("this token is unknown; create one with `holdproof tokens create`")
    if token.revoked_at is not None:
        raise Unauthenticated(f"the token {token.name} was revoked", token_id=token.token_id)
    if token.expires_at is not None and token.expires_at <= tx.now:
        raise Unauthenticated(f"the token {token.name} expired at {token.expires_at}", token_id=token.token_id)
    if token.agent_id is not None:
        _admit(agents.get(tx, token.agent_id, ns=token.ns))
    return token


def authenticate_agent(tx: Tx, agent_id: str, secret: str, *, ns: str = EVERY) -> Agent:
    """Return the agent that a session token belongs to, whatever its namespace.

    Raises UnauthenticatedError where they do not belong together, and AgentInactiveError for a RETIRED agent.
    """
    matches: dict[str, Agent] = {}
    # What no database can hold is no agent's name or token either.
    with suppress(InvalidInputError):
        # An unknown agent is looked for in the main namespace, and refused there like a wrong token.
        for home in _homes(tx, agent_id, ns) or (MAIN,):
            with suppress(AuthenticationError):
                matches[home] = agents.authenticate(tx, agent_id, secret, ns=home)
    # Our tokens are random; two namespaces can share one only if another kernel gave it to both, and then it tells
    # neither from the other.
    if len(matches) != 1:
        raise Unauthenticated("agent and token do not belong together")
    [agent] = matches.values()
    return _admit(agent)


def _admit(agent: Agent) -> Agent:
    """Refuse an agent that is RETIRED, whatever its token."""
    if agent.status == "RETIRED":
        raise AgentInactiveError(
            f"agent {agent.agent_id} is RETIRED", agent_id=agent.agent_id, agent_status=agent.status
        )
    return agent


# Requests finish in any order: only a later moment replaces an earlier one.
_TOUCH = sql(
    "UPDATE access_tokens SET last_used_at = :at WHERE token_id = :token_id"
    " AND (last_used_at IS NULL OR last_used_at < :at)"
)


def touch(tx: Tx, used: Mapping[str, str]) -> None:
    """Record when tokens were last used; a moment older than the recorded one changes nothing."""
    tx.many(_TOUCH, [{"token_id": token_id, "at": at} for token_id, at in sorted(used.items())])
