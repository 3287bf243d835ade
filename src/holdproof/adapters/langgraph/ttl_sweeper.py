"""A thread that sweeps every so often."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from holdproof.errors import HoldproofError

_logger = logging.getLogger("holdproof")


class Sweeper:
    """Runs a sweep again and again, at most one at a time; one that fails is told and tried again the next time."""

    def __init__(self, sweep: Callable[[], int]) -> None:
        self._sweep = sweep
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._future: Future[None] = Future()

    def start(self, seconds: float) -> "Future[None]":
        """Start the thread unless it runs; cancelling the returned future ends it."""
        with self._lock:
            # Started again after a stop, or after the interpreter forked: a dead thread is no sweeper.
            if self._thread is None or not self._thread.is_alive():
                self._end = threading.Event()
                self._future = Future()
                end = self._end
                self._future.add_done_callback(lambda future: end.set() if future.cancelled() else None)
                work = (seconds, self._end, self._future)
                self._thread = threading.Thread(target=self._run, args=work, daemon=True, name="holdproof-sweeper")
                self._thread.start()
            return self._future

    def _run(self, seconds: float, end: threading.Event, future: "Future[None]") -> None:
        while not end.wait(seconds):
            try:
                self._sweep()
            except HoldproofError as error:
                _logger.warning("a sweep failed: %s", error)
        # A future that was cancelled must not be given a result.
        if future.set_running_or_notify_cancel():
            future.set_result(None)

    def stop(self, timeout: float | None) -> bool:
        """Let it end; whether it has, within so many seconds."""
        with self._lock:
            self._end.set()
            if self._thread is None:
                return True
            self._thread.join(timeout)
            return not self._thread.is_alive()
