"""Liveness: tell a server that works silently from one that is lost, by asking on a second connection.

TCP cannot always tell: a peer behind a broken router looks like a busy one.

Rules:
- A statement may take any time, as long as the server reports that it is working on it.
- If the probe fails or reports the session idle, the request or its response was lost: the connection counts as broken
  and the waiting call fails. A session that is active but waits for the client has lost the end of the request.
"""

from collections.abc import Callable, Generator
from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo

from holdproof.db.postgres.text import dump
from holdproof.db.postgres.wire import Wire
from holdproof.db.sql import Query, sql_postgres
from holdproof.errors import HoldproofError

T = TypeVar("T")

SILENCE_S = 30.0
"""How long a server may be silent before it is probed."""

_PROBE_S: Final = 5.0
_STATE = sql_postgres(
    "SELECT coalesce(state, 'active') = 'active' AND coalesce(wait_event_type, '') <> 'Client'"
    " FROM pg_stat_activity WHERE pid = :pid"
)


_STATE_BY_NAME = sql_postgres(
    "SELECT count(*) > 0 FROM pg_catalog.pg_stat_activity WHERE application_name = :name AND state = 'active'"
    " AND coalesce(wait_event_type, '') <> 'Client'"
)


def backend_is_active(conninfo: str, pid: int) -> bool:
    """Return whether the server works for the session of that process id; False if it does not say so in time."""
    return _confirms(conninfo, _STATE, "pid", pid)


def transaction_is_active(conninfo: str, name: str) -> bool:
    """Return whether the server works for the transaction of that name; process ids are the pooler's own there."""
    return _confirms(conninfo, _STATE_BY_NAME, "name", name)


def _confirms(conninfo: str, query: Query, parameter: str, value: Any) -> bool:
    """Ask on a connection of its own; nothing is prepared, since a pooler may lend a session of the last probe."""
    try:
        wire = Wire(make_conninfo(conninfo, application_name="holdproof-probe"), silence_s=_PROBE_S)
        try:
            dumped, form = dump(parameter, value)
            wire.query(query, [dumped], [form])
            return wire.sync() == [(True,)]
        finally:
            wire.close()
    except HoldproofError:
        return False


class _SilentError(psycopg.OperationalError):
    """The server is silent and does not work for this connection."""


class MonitoredConnection(psycopg.Connection[Any]):
    """A psycopg connection whose waits end when the server is lost, as those of a `Wire` do."""

    conninfo = ""
    """Its connection string, password included."""

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """See psycopg; its waits return to the generator regularly, so silence can be measured here."""
        try:
            return super().wait(_bounded(gen, SILENCE_S, self._is_active), *args, **kwargs)
        except _SilentError:  # no further statement may be sent, not even a rollback
            self.close()
            raise

    def _is_active(self) -> bool:
        return backend_is_active(self.conninfo, self.pgconn.backend_pid)


def _bounded(gen: Generator[Any, Any, T], silence_s: float, is_active: Callable[[], bool]) -> Generator[Any, Any, T]:
    """Forward the waits of psycopg's generator; raise _SilentError once the server is silent and inactive."""
    last_sign = monotonic()
    try:
        state = next(gen)
        while True:
            ready = yield state
            if ready or (monotonic() - last_sign > silence_s and is_active()):
                last_sign = monotonic()
            elif monotonic() - last_sign > silence_s:
                raise _SilentError(f"the server has sent nothing for {silence_s:g} s")
            state = gen.send(ready)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
