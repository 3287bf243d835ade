"""Who may act at the server: the noun of tokens, with the logins of people and what happened at the door."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

from holdproof.db import Tx
from holdproof.evidence.context import Context
from holdproof.faces import Face, Hears, Noun, Reads, Writes
from holdproof.runtime import door, logins, tokens

P = ParamSpec("P")
T = TypeVar("T")


def _ungated(fn: Callable[Concatenate[Tx, P], T]) -> Callable[Concatenate[Context, P], Future[T]]:
    """An operation that writes while the store is locked too: people come in to see why."""

    @wraps(fn)
    def write(context: Context, /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return context.database.write(lambda tx: fn(tx, *args, **kwargs), ungated=True)

    return write


class Tokens(Noun[Face]):
    """Who may act at the server, and what happened at its door."""

    create = Writes(tokens.create, secret=True)
    get = Reads(tokens.get)
    list = Reads(tokens.list)
    revoke = Writes(tokens.revoke)
    authenticate = Reads(tokens.authenticate)
    agent = Reads(tokens.agent)
    touch = Hears(_ungated(tokens.touch))
    link = Hears(_ungated(logins.link), secret=True)
    login = Hears(_ungated(logins.login), secret=True)
    logout = Hears(_ungated(logins.logout))
    session = Reads(logins.session)
    end = Hears(_ungated(logins.end))
    logins = Reads(logins.list)
    record = Hears(_ungated(door.record))
    events = Reads(door.events)


class Access(Generic[Face]):
    """The noun of the server, shown by a face."""

    def __init__(self, face: Face) -> None:
        self.tokens = Tokens(face)
