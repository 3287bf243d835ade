"""Access to the server: tokens, logins, and the access log."""

from dataclasses import dataclass, field
from typing import Final

from holdproof.model.value import Value

ROLES: Final = frozenset({"operator", "auditor", "agent"})


@dataclass(frozen=True, slots=True)
class Token(Value):
    """What its holder may do, and until when.

    `resources` are those an operator or an auditor is limited to, or those an agent has beside its own flows.
    """

    token_id: str
    name: str
    role: str
    agent_id: str | None
    resources: tuple[str, ...] | None
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
class Login(Value):
    """A login link, or a session; with a `token_id` or a `credential_id` it ends with that token or passkey."""

    login_id: str
    kind: str
    token_id: str | None
    name: str
    role: str
    resources: tuple[str, ...] | None
    created_at: str
    expires_at: str
    ended_at: str | None
    ns: str
    credential_id: str | None = None


@dataclass(frozen=True, slots=True)
class NewLogin(Value):
    """A new link or session, and its secret, which is shown this once."""

    login: Login
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AccessEvent(Value):
    """A refused or accepted access; `count` is how often within a minute."""

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
