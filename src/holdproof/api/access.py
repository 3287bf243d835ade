"""Who may act at the server: the noun of tokens, with the logins of people and what happened at the door."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

from holdproof.access import access_log, logins, tokens
from holdproof.db import Tx
from holdproof.executors import Awaits, Executor, Reads, Resource, Writes
from holdproof.store.context import Context

P = ParamSpec("P")
T = TypeVar("T")


def _ungated(fn: Callable[Concatenate[Tx, P], T]) -> Callable[Concatenate[Context, P], Future[T]]:
    """An operation that writes while the store is locked too: people come in to see why."""

    @wraps(fn)
    def write(context: Context, /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return context.database.write(lambda tx: fn(tx, *args, **kwargs), ungated=True)

    return write


class Tokens(Resource[Executor]):
    """Who may act at the server, and what happened at its door."""

    group = "Operate"

    create = Writes(
        tokens.create, secret=True, delegates=True, example="grafana --role auditor --nouns log --ttl-s 2592000"
    )
    get = Reads(tokens.get)
    list = Reads(
        tokens.list,
        columns=("token_id", "name", "role", "agent_id", "ns", "expires_at", "revoked_at", "last_used_at"),
        example="--all",
    )
    revoke = Writes(tokens.revoke, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --by ann")
    authenticate = Reads(tokens.authenticate, internal=True)
    agent = Reads(tokens.agent, internal=True)
    touch = Awaits(_ungated(tokens.touch), internal=True)
    link = Awaits(
        _ungated(logins.link),
        secret=True,
        delegates=True,
        from_caller=("token_id", "name", "role"),
        example="--name ann",
    )
    login = Awaits(_ungated(logins.login), secret=True, internal=True)
    logout = Awaits(_ungated(logins.logout), internal=True)
    session = Reads(logins.session, internal=True)
    end = Awaits(_ungated(logins.end), example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304")
    logins = Reads(
        logins.list,
        columns=("login_id", "kind", "name", "role", "ns", "token_id", "expires_at", "ended_at"),
        example="--all",
    )
    record = Awaits(_ungated(access_log.record), internal=True)
    events = Reads(
        access_log.events,
        columns=("id", "created_at", "event", "status", "code", "caller", "address", "method", "path", "count"),
        example="--event denied",
    )


class AccessResources(Generic[Executor]):
    """The noun of the server, shown by a face."""

    def __init__(self, face: Executor) -> None:
        self.tokens = Tokens(face)
