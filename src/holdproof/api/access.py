"""Access to the server: tokens, the logins of people, and the access log."""

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
    """An operation that writes while the store is locked too: people log in to see why."""

    @wraps(fn)
    def write(context: Context, /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return context.database.write(lambda tx: fn(tx, *args, **kwargs), ungated=True)

    return write


class Tokens(Resource[Executor]):
    """Who may act at the server."""

    create = Writes(tokens.create, secret=True)
    get = Reads(tokens.get)
    list = Reads(tokens.list)
    revoke = Writes(tokens.revoke)
    authenticate = Reads(tokens.authenticate)
    authenticate_agent = Reads(tokens.authenticate_agent)
    touch = Awaits(_ungated(tokens.touch))


class Logins(Resource[Executor]):
    """Links that open the console once, and sessions of people."""

    create_link = Awaits(_ungated(logins.create_link), secret=True)
    exchange = Awaits(_ungated(logins.exchange), secret=True)
    authenticate = Reads(logins.authenticate)
    get = Reads(logins.get)
    list = Reads(logins.list)
    end = Awaits(_ungated(logins.end))
    logout = Awaits(_ungated(logins.logout))


class AccessLog(Resource[Executor]):
    """Who was refused by the server, who logged in, who logged out."""

    record = Awaits(_ungated(access_log.record))
    list = Reads(access_log.list)


class AccessResources(Generic[Executor]):
    """The resources of access, of a client."""

    def __init__(self, face: Executor) -> None:
        self.tokens = Tokens(face)
        self.logins = Logins(face)
        self.access_log = AccessLog(face)
