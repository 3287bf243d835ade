"""A server that says nothing is either at work or gone, and TCP cannot always tell: it is asked on another connection.

Rules:
- A statement may take as long as it takes, while the server itself says that it is at it.
- Who cannot be asked either, or says that there is nothing to be done, has lost our question or we its answer: the
  connection counts as broken, and whoever waits hears so. It may have lost the end of our question only: then it calls
  itself active, and waits for us.
"""

from collections.abc import Callable, Generator
from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo

from holdproof.db.postgres.wire import Wire
from holdproof.db.sql import sql_postgres
from holdproof.errors import HoldproofError

T = TypeVar("T")

SILENCE_S = 30.0
"""How long a server may say nothing before it is asked after."""

_ANSWER_S: Final = 5.0
_STATE = sql_postgres(
    "SELECT coalesce(state, 'active') = 'active' AND coalesce(wait_event_type, '') <> 'Client'"
    " FROM pg_stat_activity WHERE pid = :pid"
)


def backend_is_active(conninfo: str, pid: int) -> bool:
    """Whether the server is busy for the connection of that number; False where it does not say so in time."""
    try:
        wire = Wire(make_conninfo(conninfo, application_name="holdproof-asks"), silence_s=_ANSWER_S)
        try:
            wire.send(_STATE, {"pid": pid})
            return wire.sync() == [(True,)]
        finally:
            wire.close()
    except HoldproofError:
        return False


class _SilentError(psycopg.OperationalError):
    """The server neither speaks nor works."""


class MonitoredConnection(psycopg.Connection[Any]):
    """A connection of the driver whose waits end as those of a wire do."""

    conninfo = ""
    """How it was reached, password and all."""

    def wait(self, gen: Generator[Any, Any, T], *given: Any, **named: Any) -> T:
        """See psycopg, which looks up from its waiting now and then."""
        try:
            return super().wait(_bounded(gen, SILENCE_S, self._is_active), *given, **named)
        except _SilentError:  # nothing more is to be asked of it, not even to undo what was begun
            self.close()
            raise

    def _is_active(self) -> bool:
        return backend_is_active(self.conninfo, self.pgconn.backend_pid)


def _bounded(gen: Generator[Any, Any, T], silence_s: float, is_active: Callable[[], bool]) -> Generator[Any, Any, T]:
    """The same waits, ended where the server neither speaks nor works."""
    heard, ready = monotonic(), None
    try:
        state = next(gen)
        while True:
            ready = yield state
            if ready or (monotonic() - heard > silence_s and is_active()):
                heard = monotonic()
            elif monotonic() - heard > silence_s:
                raise _SilentError(f"the server has said nothing for {silence_s:g} s")
            state = gen.send(ready)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
