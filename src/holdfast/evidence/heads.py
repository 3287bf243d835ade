"""Heads kept outside the database: a high-water file that a thief of the database does not have.

One JSON line a head, appended and synced, at most once a second (the last one at close). A file put back from
yesterday, or a log whose tail was cut, is behind the mark: `verify` says ROLLED_BACK.
"""

import json
import os
import threading
import time
from pathlib import Path

from holdfast.crypto import checkpoint
from holdfast.crypto.checkpoint import SignedCheckpoint
from holdfast.errors import FormatError, UnavailableError

_EVERY_S = 1.0


class HighWater:
    """The high-water file of one store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._written, self._waiting = -1e9, ""

    def publish(self, head: str) -> None:
        """Keep a durable head; written at once, or with the next one if the last was written just now."""
        with self._lock:
            self._waiting = head
            if time.monotonic() - self._written >= _EVERY_S:
                self._flush()

    def flush(self) -> None:
        """Write what is waiting."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        line = json.dumps({"head": self._waiting}) + "\n"
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, line.encode())
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise UnavailableError(f"cannot keep the log head in {self.path}: {error.strerror}") from error
        self._waiting, self._written = "", time.monotonic()

    def kept(self) -> list[SignedCheckpoint]:
        """Every head in the file, oldest first; a torn last line is left out."""
        try:
            lines = self.path.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise UnavailableError(f"cannot read {self.path}: {error}") from error
        return [head for line in lines[:-1] if (head := _parse(line)) is not None]


def _parse(line: str) -> SignedCheckpoint | None:
    try:
        return checkpoint.parse(json.loads(line)["head"].encode())
    except (ValueError, KeyError, TypeError, AttributeError, FormatError):
        return None
