"""Wake-ups: topics are names, signalled after a commit that notified them.

A notification is never lost between a read and a wait: a waiter passes the epoch of its last read, and a topic that was
signalled since then wakes it at once. Topics share a fixed number of cells, so memory does not grow; sharing a cell
only costs a needless second read.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable

_log = logging.getLogger("holdproof.db")

_CELLS = 4096
# PostgreSQL limits a notification to 8,000 bytes, and many topics share one.
_LONGEST = 500


def short(topic: str) -> str:
    """Return a topic as one line of bounded length, so that any name can be notified on every database."""
    if len(topic) <= _LONGEST and "\n" not in topic:
        return topic
    return "sha256:" + hashlib.sha256(topic.encode()).hexdigest()


class Topics:
    """The topics of one database inside one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoch = 0
        self._cells = [0] * _CELLS
        self._waiters: dict[str, list[Callable[[], None]]] = {}

    @property
    def epoch(self) -> int:
        """A number that grows with every signal; read it before you read the database."""
        return self._epoch

    def signal(self, topics: Iterable[str]) -> None:
        """Wake everybody who waits for one of these topics; callable from any thread."""
        callbacks: list[Callable[[], None]] = []
        with self._lock:
            self._epoch += 1
            for topic in map(short, topics):
                self._cells[hash(topic) % _CELLS] = self._epoch
                callbacks += self._waiters.pop(topic, [])
        # Outside the lock: a callback may subscribe again.
        for wake in callbacks:
            try:
                wake()
            except Exception:  # its event loop was closed: the others must still be woken
                _log.debug("a waiter could not be woken", exc_info=True)

    def subscribe(self, topic: str, since: int, wake: Callable[[], None]) -> bool:
        """Have `wake` called once at the next signal; False if there was one after epoch `since` already."""
        topic = short(topic)
        with self._lock:
            if self._cells[hash(topic) % _CELLS] > since:
                return False
            self._waiters.setdefault(topic, []).append(wake)
            return True

    def unsubscribe(self, topic: str, wake: Callable[[], None]) -> None:
        """Remove a waiter that gave up; harmless if it was woken already."""
        topic = short(topic)
        with self._lock:
            waiters = self._waiters.get(topic, [])
            if wake in waiters:
                waiters.remove(wake)
            if not waiters:
                self._waiters.pop(topic, None)
