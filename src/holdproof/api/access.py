"""Access to the server: tokens, the logins of people, and the access log."""

from typing import TYPE_CHECKING, Any, Final, Generic

from holdproof.executors import AwaitsUngated, Executor, Reads, Resource, Writes, WritesWith
from holdproof.lazy import lazy_functions

if TYPE_CHECKING:
    from holdproof.access import access_log, logins, passkey_logins, tokens
else:
    globals().update(lazy_functions("holdproof.access", "access_log logins passkey_logins tokens"))

_ORIGIN: Final = "Where the page is: scheme, host and port."


class Tokens(Resource[Executor]):
    """Who may act at the server."""

    group = "Operate"

    grantable_names: frozenset[str] = frozenset()
    """The resources of this store that the token of an agent may name."""

    @property
    def held(self) -> Any:
        """See Resource."""
        return tokens.TokenContext(self._executor.database, self.grantable_names)

    create = WritesWith(
        tokens.create,
        secret=True,
        delegates=True,
        parameters={"resources": "Only these resources; for an agent, these too."},
        example="grafana --role auditor --resources log --ttl-s 2592000",
        creates=True,
    )
    get = Reads(tokens.get)
    list = Reads(
        tokens.list,
        columns=("token_id", "name", "role", "agent_id", "ns", "expires_at", "revoked_at", "last_used_at"),
        example="--all",
    )
    revoke = Writes(tokens.revoke, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --by ann")
    # For the server only: they take secrets of callers who are not authenticated yet.
    authenticate = Reads(tokens.authenticate, internal=True)
    authenticate_agent = Reads(tokens.authenticate_agent, internal=True)
    touch = AwaitsUngated(tokens.touch, internal=True)


class Logins(Resource[Executor]):
    """Links that open the console once, and sessions of people."""

    group = "Operate"

    create_link = AwaitsUngated(
        logins.create_link,
        secret=True,
        delegates=True,
        # The server fills these in: nobody creates a link for somebody else.
        from_caller=("token_id", "name", "role"),
        example="--name ann",
        creates=True,
    )
    exchange = AwaitsUngated(logins.exchange, secret=True, internal=True)
    # For the login page only: whoever asks is not authenticated yet.
    passkey_options = AwaitsUngated(passkey_logins.options, parameters={"origin": _ORIGIN}, internal=True)
    exchange_passkey = AwaitsUngated(
        passkey_logins.exchange,
        secret=True,
        parameters={"origin": _ORIGIN, "assertion": "What the browser answered to these options."},
        internal=True,
    )
    authenticate = Reads(logins.authenticate, internal=True)
    get = Reads(logins.get)
    list = Reads(
        logins.list,
        columns=("login_id", "kind", "name", "role", "ns", "token_id", "expires_at", "ended_at"),
        example="--all",
    )
    end = AwaitsUngated(logins.end, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304")
    logout = AwaitsUngated(logins.logout, internal=True)


class AccessLog(Resource[Executor]):
    """Who was refused by the server, who logged in, who logged out."""

    group = "Operate"

    record = AwaitsUngated(access_log.record, internal=True)
    list = Reads(
        access_log.list,
        columns=("id", "created_at", "event", "status", "code", "caller", "address", "method", "path", "count"),
        example="--event denied",
    )


class AccessResources(Generic[Executor]):
    """The resources of access, of a client."""

    def __init__(self, executor: Executor) -> None:
        self.tokens = Tokens(executor)
        self.logins = Logins(executor)
        self.access_log = AccessLog(executor)
