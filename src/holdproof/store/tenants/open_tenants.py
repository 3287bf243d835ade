"""Tenants that this process has open for others: who needs one alone has it closed meanwhile.

A server keeps tenants open between requests. What moves or deletes one, called through that same server, would wait for
itself; so it asks every holder of this process first, and they open it again when it is free.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from holdproof.store.tenants.places import TenantPlace

Holder = Callable[[Path], AbstractContextManager[None]]
"""Closes the tenant of a home, if it is open, and keeps it closed inside the block. Called from any thread."""

_holders: Final[list[Holder]] = []
_lock: Final = Lock()


@contextmanager
def holding(holder: Holder) -> Iterator[None]:
    """Have a holder asked during the block."""
    with _lock:
        _holders.append(holder)
    try:
        yield
    finally:
        with _lock:
            _holders.remove(holder)


@contextmanager
def released(place: TenantPlace) -> Iterator[None]:
    """Keep a tenant closed in this process during the block."""
    with _lock:
        holders = [*_holders]
    with ExitStack() as stack:
        for holder in holders:
            stack.enter_context(holder(place.home))
        yield
