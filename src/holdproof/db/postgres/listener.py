"""Hearing the notifications of other processes."""

import socket
import threading

from holdproof.db.postgres.connection import Connector
from holdproof.db.postgres.wire import Wire
from holdproof.db.topics import Topics
from holdproof.errors import HoldproofError


class Listener:
    """Hears the notifications of other processes and signals their topics here."""

    def __init__(self, connector: Connector, topics: Topics) -> None:
        self._connector, self._topics, self._closing = connector, topics, threading.Event()
        self._bell, self._rope = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="holdproof-listener", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        wire: Wire | None = None
        while not self._closing.is_set():
            try:
                if wire is None:
                    wire = self._connector.wire("holdproof-listener", patience_s=1)
                    wire.text(f"LISTEN {self._connector.channel}")
                    wire.sync()
                for payload in wire.heard(self._bell.fileno()):
                    self._topics.signal(payload.split("\n"))
            except HoldproofError:
                wire = None
                self._closing.wait(0.2)
        if wire is not None:
            wire.close()

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        self._rope.send(b"!")
        self._thread.join(5)
        self._rope.close()
        if not self._thread.is_alive():
            self._bell.close()
