"""Waking those who wait: topics are names, signalled after a commit that notified them.

A notification is never lost between a look and a wait: a waiter says which epoch it last looked at, and a topic
signalled since then answers at once. Topics share a fixed number of cells, so memory does not grow; a shared cell only
costs a needless second look.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable

_log = logging.getLogger("holdproof.db")

_CELLS = 4096
_LONGEST = 500


def short(topic: str) -> str:
    """A topic as it travels: one line of bounded length, so that any name can be notified in every database."""
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
        """Grows with every signal; take it before you look."""
        return self._epoch

    def signal(self, topics: Iterable[str]) -> None:
        """Wake all who wait for one of these topics; callable from any thread."""
        woken: list[Callable[[], None]] = []
        with self._lock:
            self._epoch += 1
            for topic in map(short, topics):
                self._cells[hash(topic) % _CELLS] = self._epoch
                woken += self._waiters.pop(topic, [])
        for wake in woken:
            try:
                wake()
            except Exception:  # its loop is gone: the others must still hear
                _log.debug("a waiter could not be woken", exc_info=True)

    def subscribe(self, topic: str, since: int, wake: Callable[[], None]) -> bool:
        """Have `wake` called once at the next signal; False if one came after epoch `since` already."""
        topic = short(topic)
        with self._lock:
            if self._cells[hash(topic) % _CELLS] > since:
                return False
            self._waiters.setdefault(topic, []).append(wake)
            return True

    def unsubscribe(self, topic: str, wake: Callable[[], None]) -> None:
        """Forget a waiter that gave up; nothing happens if it was woken already."""
        topic = short(topic)
        with self._lock:
            waiters = self._waiters.get(topic, [])
            if wake in waiters:
                waiters.remove(wake)
            if not waiters:
                self._waiters.pop(topic, None)
