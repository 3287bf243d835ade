"""Heads kept outside the database: a high-water file that a thief of the database does not have.

One JSON line a head, appended and synced, at most once a second (the last one at close). A file put back from
yesterday, or a log whose tail was cut, is behind the mark: `verify` says ROLLED_BACK.

Rules:
- Only durable heads come here; a line is whole or not counted. It carries its own digest, because a flipped bit must
  not pass for a fork; one without it, put there by hand, counts as it is. Its signature is not asked: the keyring that
  knows the keys is what it guards against.
- The largest head of every log stays; of the others, once the file has grown, a thinned selection.
- Any number of processes may append to it, and thin it, at once.
"""

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from holdproof import folders
from holdproof.content import disk
from holdproof.crypto import checkpoint
from holdproof.crypto.canonical import sha256_hex
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.errors import DiskFullError, FormatError, UnavailableError

_EVERY_S = 1.0
_MOST_BYTES = 512 << 10
_RECENT = 256
_OLDER = 256


class HeadFile:
    """The high-water file of one store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._written = -1e9
        self._waiting = ""

    def publish(self, head: str) -> None:
        """Keep a durable head; written at once, or with the next one if the last was written just now."""
        with self._lock:
            self._waiting = max(self._waiting, head, key=partial(_size, newest=head))
            if time.monotonic() - self._written >= _EVERY_S:
                self._flush()

    def flush(self) -> None:
        """Write what is waiting."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        line = json.dumps({"head": self._waiting, "sha256": sha256_hex(self._waiting.encode())}) + "\n"
        try:
            folders.make(self.path.parent)
            with self._opened() as file:
                end = os.fstat(file).st_size
                if end and os.pread(file, 1, end - 1) != b"\n":
                    line = "\n" + line  # a torn line is ended, or it would swallow this one
                _write(file, line.encode())
                os.fsync(file)
                if not end:
                    folders.sync(self.path.parent)  # or the file itself may be gone after a power cut
                self._waiting = ""
                self._written = time.monotonic()
                if end > _MOST_BYTES:
                    self._thin()
        except OSError as error:
            kind = DiskFullError if error.errno in disk.FULL else UnavailableError
            raise kind(f"cannot keep the log head in {self.path}: {error.strerror}") from error

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The file for appending, and nobody else at it; opened again if it was replaced while we waited."""
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if _is_at(file, self.path):
                    yield file
                    return
            finally:
                os.close(file)

    def _thin(self) -> None:
        """Write the file anew without most of its older heads; called with the file locked."""
        lines = self._lines()
        largest = {line for _, line in _largest(lines).values()}
        older = lines[:-_RECENT]
        recent = lines[-_RECENT:]
        step = max(1, -(-len(older) // _OLDER))
        selection = [line for number, line in enumerate(older) if number % step == 0 or line in largest] + recent
        spare = self.path.with_name(f".{self.path.name}.new")  # one name: nobody else is here, and a crash leaves one
        with open(spare, "w", encoding="utf-8", opener=disk.private) as file:
            file.write("".join(f"{line}\n" for line in selection))
            file.flush()
            os.fsync(file.fileno())
        os.replace(spare, self.path)
        folders.sync(self.path.parent)

    def kept(self) -> list[SignedCheckpoint]:
        """Every head in the file, oldest first; what is no head is left out."""
        return [head for line in self._lines() if (head := _parse(line)) is not None]

    def unreadable(self) -> int:
        """How many lines are no head: torn by a crash, or damaged; nobody can tell which."""
        return sum(line != "" and _parse(line) is None for line in self._lines())

    def largest(self) -> dict[str, SignedCheckpoint]:
        """The largest head of each log, by its origin."""
        by_origin = {origin: _parse(line) for origin, (_, line) in _largest(self._lines()).items()}
        return {origin: head for origin, head in by_origin.items() if head is not None}

    def _lines(self) -> list[str]:
        """Every line; the last one too if nothing ends it, for it may be whole or torn like any other."""
        try:
            return self.path.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UnavailableError(f"cannot read {self.path}: {error}") from error


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.fstat(file).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _write(file: int, data: bytes) -> None:
    """All of it, or an error: a disk that is nearly full takes a part and says nothing."""
    while data:
        data = data[os.write(file, data) :]


def _size(head: str, newest: str) -> int:
    """By which heads are compared; one of another log than the newest gives way to it."""
    origin, _, rest = head.partition("\n")
    size = rest.partition("\n")[0]
    return int(size) if size.isdecimal() and newest.startswith(f"{origin}\n") else -1


def _largest(lines: list[str]) -> dict[str, tuple[int, str]]:
    """Size and line of the largest head of each log, without checking more than has to be."""
    largest: dict[str, tuple[int, str]] = {}
    for line in reversed(lines):  # the newest is the largest, as a rule
        try:
            origin, size, _ = json.loads(line)["head"].split("\n", 2)
            if int(size) > largest.get(origin, (-1, ""))[0] and _parse(line) is not None:
                largest[origin] = int(size), line
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return largest


def _parse(line: str) -> SignedCheckpoint | None:
    try:
        fields = json.loads(line)
        head = fields["head"].encode()
        return checkpoint.parse(head) if fields.get("sha256") in (None, sha256_hex(head)) else None
    except (ValueError, KeyError, TypeError, AttributeError, FormatError):
        return None
