"""Connecting without holding up anybody: libpq's own way to connect stops every thread of the interpreter meanwhile.

Rules:
- Each host of a URL has `connect_timeout` seconds; the next one is tried after that.
- Nothing waits but the calling thread.
"""

import select
import time
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any, Final

from psycopg import Error, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdproof.errors import UnavailableError

_LISTED: Final = ("host", "hostaddr", "port")
_TIMEOUT_S: Final = 5.0
_LEAST_S: Final = 2.0
_ASIDE: Final = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}


def dial(conninfo: str) -> pq.abc.PGconn:
    """A connection to the first host that takes it; UnavailableError says why the last one did not."""
    trouble = ""
    for one, timeout_s in _hosts(conninfo):
        try:
            made = pq.PGconn.connect_start(one.encode())
            if _connected(made, time.monotonic() + timeout_s):
                return made
            trouble = made.get_error_message() if made.status == pq.ConnStatus.BAD else "timeout expired"
            made.finish()
        except Error as error:
            trouble = str(error)
    raise UnavailableError(f"cannot connect to PostgreSQL: {' '.join(trouble.split())}")


def _hosts(conninfo: str) -> Iterator[tuple[str, float]]:
    """How to connect to each host alone, and how long that may take."""
    parts: dict[str, Any] = conninfo_to_dict(conninfo)
    timeout_s = float(parts.get("connect_timeout") or _TIMEOUT_S)
    listed = {name: str(parts[name]).split(",") for name in _LISTED if parts.get(name)}
    for number in range(max((len(each) for each in listed.values()), default=1)):
        alone = {name: next(islice(cycle(each), number, None)) for name, each in listed.items()}
        yield make_conninfo(conninfo, **alone), max(_LEAST_S, timeout_s)


def _connected(made: pq.abc.PGconn, until: float) -> bool:
    """Whether a connection came about in time."""
    while made.status != pq.ConnStatus.BAD:
        wanted = made.connect_poll()
        if wanted not in _ASIDE:
            return wanted == pq.PollingStatus.OK
        poll = select.poll()  # anew: the socket may be another one by now
        poll.register(made.socket, _ASIDE[pq.PollingStatus(wanted)])
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            return False
    return False
