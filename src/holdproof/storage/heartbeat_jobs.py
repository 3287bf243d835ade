"""What stores that are open in this process want done at every heartbeat of a `Lifecycle` over the same home.

A process that calls `bootstrap` sends the heartbeats; a store, which knows of no `Lifecycle`, registers its job here
while it is open. Jobs block, and run in threads.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

Job = Callable[[], object]

_lock: Final = threading.Lock()
_jobs: Final[dict[object, tuple[Path, Job]]] = {}


def register(home: Path, job: Job) -> Callable[[], None]:
    """Have a job run at every heartbeat over a home; returns what ends that, and may be called twice."""
    key = object()
    with _lock:
        _jobs[key] = (home, job)

    def unregister() -> None:
        with _lock:
            _jobs.pop(key, None)

    return unregister


def of(home: Path) -> list[Job]:
    """Return the jobs of the stores that are open over a home now."""
    with _lock:
        return [job for path, job in _jobs.values() if path == home]
