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

    create = Writes(tokens.create, secret=True)
    get = Reads(tokens.get)
    list = Reads(tokens.list)
    revoke = Writes(tokens.revoke)
    authenticate = Reads(tokens.authenticate)
    agent = Reads(tokens.agent)
    touch = Awaits(_ungated(tokens.touch))
    link = Awaits(_ungated(logins.link), secret=True)
    login = Awaits(_ungated(logins.login), secret=True)
    logout = Awaits(_ungated(logins.logout))
    session = Reads(logins.session)
    end = Awaits(_ungated(logins.end))
    logins = Reads(logins.list)
    record = Awaits(_ungated(access_log.record))
    events = Reads(access_log.events)


class AccessResources(Generic[Executor]):
    """The noun of the server, shown by a face."""

    def __init__(self, face: Executor) -> None:
        self.tokens = Tokens(face)
