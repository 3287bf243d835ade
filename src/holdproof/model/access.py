"""Who may act at the server: tokens, logins, and what happened at the door."""

from dataclasses import dataclass, field
from typing import Final

from holdproof.model.value import Value

ROLES: Final = frozenset({"operator", "auditor", "agent"})
EVERY: Final = "*"
"""Every namespace, and the duties of the whole store."""


@dataclass(frozen=True, slots=True)
class Token(Value):
    """What its holder may do, and until when; `nouns` narrows an operator or an auditor, and widens an agent."""

    token_id: str
    name: str
    role: str
    agent_id: str | None
    nouns: tuple[str, ...] | None
    created_by: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    revoked_by: str | None
    last_used_at: str | None
    ns: str


@dataclass(frozen=True, slots=True)
class NewToken(Value):
    """A new token, and its secret, which is shown this once."""

    token: Token
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenPage(Value):
    """Some tokens, oldest first; `next` is where the following page begins."""

    tokens: tuple[Token, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Login(Value):
    """A link to log in by, or the session it was exchanged for; with a `token_id` it ends with that token."""

    login_id: str
    kind: str
    token_id: str | None
    name: str
    role: str
    nouns: tuple[str, ...] | None
    created_at: str
    expires_at: str
    ended_at: str | None
    ns: str


@dataclass(frozen=True, slots=True)
class NewLogin(Value):
    """A new link or session, and its secret, which is shown this once."""

    login: Login
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LoginPage(Value):
    """Some links and sessions, oldest first; `next` is where the following page begins."""

    logins: tuple[Login, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class AccessEvent(Value):
    """Something that happened at the door; `count` is how often within a minute."""

    id: int
    event: str
    status: int
    code: str
    caller: str
    address: str
    method: str
    path: str
    detail: str
    count: int
    created_at: str


@dataclass(frozen=True, slots=True)
class AccessPage(Value):
    """Some events, oldest first; `next` is where the following page begins."""

    events: tuple[AccessEvent, ...]
    next: int | None
