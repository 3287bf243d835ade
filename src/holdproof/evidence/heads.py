"""The head file: signed heads kept outside the database, so that replacing the database does not replace them.

One JSON line a head, appended and synced, at most once a second (the last one at close). A database restored from
yesterday, or a log whose tail was cut, is behind the newest head: `verify` says ROLLED_BACK.

Rules:
- Only durable heads are written; an incomplete line does not count. Each line carries its own digest, because a flipped
  bit must not pass for a fork; a line without one, added by hand, counts as it is. The signature is not checked here:
  the keyring is in the database, which is what this file guards against.
- Each line says for which database of this home it was kept (`at`): one laid in the place of another is noticed.
- A line `restored` names an origin that this home restored the log to. It is written before the restored database goes
  live: only such a restore gives up heads that were kept here, one that was made elsewhere does not.
- The heads of a store that another one replaced on purpose go to a folder beside the file (`set_aside`).
- The largest head of every log stays, and each that is the first with more or fewer signatures than the one before,
  which is also written at once: from where on heads were signed twice is known without the database. Of the others,
  once the file has grown, a thinned selection.
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
from holdproof.evidence.restores import generation
from holdproof.urls import redact

_EVERY_S = 1.0
_MOST_BYTES = 512 << 10
_RECENT = 256
_OLDER = 256
_USUAL_BYTES = 512
_RESTORED = "restored"
_SIGNATURE = "\n\u2014 "
_ESCAPED_SIGNATURE = json.dumps(_SIGNATURE)[1:-1]


def name_of(target: str | Path) -> str:
    """Return a short name for a database, for the head file: of a URL only a digest, since it may hold a password."""
    # The file of a home is always the same one: a home that was moved keeps its heads.
    return "file" if isinstance(target, Path) else sha256_hex(redact(target).encode())[:16]


class HeadFile:
    """The head file of one home; any number of threads and processes may use it at once."""

    def __init__(self, path: Path, at: str = "") -> None:
        self.path = path
        self._at = at
        self._lock = threading.Lock()
        self._written = -1e9
        self._waiting = ""
        self._signatures = 0
        """How many signatures the head had that was written last."""

    def publish(self, head: str) -> None:
        """Keep a durable head: written now, or with the next one if the last write is less than a second ago."""
        with self._lock:
            self._waiting = max(self._waiting, head, key=partial(_size, newest=head))
            is_first = self._waiting.count(_SIGNATURE) != self._signatures
            if is_first or time.monotonic() - self._written >= _EVERY_S:
                self._flush()

    def flush(self) -> None:
        """Write the head that waits, if any."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        with self._opened() as file:
            head = self._waiting
            end = self._append(file, "head", head)
            self._waiting = ""
            self._written = time.monotonic()
            self._signatures = head.count(_SIGNATURE)
            # By the length of this head, since an ML-DSA-44 signature makes it eight times as long.
            if end > _MOST_BYTES * max(1, len(head) // _USUAL_BYTES):
                self._thin()

    def _append(self, file: int, kind: str, text: str) -> int:
        """Append a line, durable when it returns; return how long the file was before."""
        fields = {kind: text, "sha256": sha256_hex(text.encode())}
        line = json.dumps({**fields, "at": self._at} if self._at else fields) + "\n"
        end = os.fstat(file).st_size
        # A crash in the middle of an append leaves a line without its end.
        if end and os.pread(file, 1, end - 1) != b"\n":
            line = "\n" + line  # a torn line is ended, or it would swallow this one
        _write(file, line.encode())
        os.fsync(file)
        if not end:
            folders.sync(self.path.parent)  # or the file itself may be gone after a power cut
        return end

    def record_restore(self, origin: str) -> None:
        """Write down that this home restores the log to a new origin; to be called before that log goes live."""
        with self._lock, self._opened() as file:
            self._append(file, _RESTORED, origin)

    def restored_here(self) -> frozenset[str]:
        """Return the origins that this home restored a log to."""
        return frozenset(origin for line in self._lines() if (origin := _restored(line)))

    def stores_here(self) -> frozenset[str]:
        """Return the names of the stores whose heads were kept for just this database; by hand-made lines of none."""
        return frozenset(_store(head) for line in self._lines() if (head := _parse(line)) and _at(line) == self._at)

    def replaced(self, store: str) -> list[str]:
        """Return a line for each other store than this one whose heads were kept for this database."""
        former_stores = sorted(self.stores_here() - {store})
        return [
            f"the log is that of {store}; heads of {each} were kept here: another store was put in place"
            for each in former_stores
        ]

    def set_aside(self, store: str, folder: Path) -> Path | None:
        """Move the heads that were kept for this database, but of another store than this one, to a file in a folder.

        Returns the file; None if there are no such heads. They are durable there before they go here.
        """
        with self._lock, self._opened():
            lines = self._lines()
            others = [line for line in lines if self._is_other(line, store)]
            if not others:
                return None
            folders.make(folder)
            # Named by what is in it: moving the same heads again after a crash makes no second file.
            digest = sha256_hex("\n".join(others).encode())[:16]
            aside = folder / f"{self.path.stem}-{digest}{self.path.suffix}"
            _replace(aside, others)
            _replace(self.path, [line for line in lines if line not in others])
            return aside

    def _is_other(self, line: str, store: str) -> bool:
        head = _parse(line)
        return head is not None and _at(line) == self._at and _store(head) != store

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the file for appending and lock it; opened again if it was replaced while we waited."""
        try:
            folders.make(self.path.parent)
            while True:
                file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    if _is_at(file, self.path):
                        yield file
                        return
                finally:
                    os.close(file)
        except OSError as error:
            kind = DiskFullError if error.errno in disk.FULL else UnavailableError
            raise kind(f"cannot keep the log head in {self.path}: {error.strerror}") from error

    def _thin(self) -> None:
        """Rewrite the file without most of its older heads; called with the file locked."""
        # Kept: the largest head of each origin, the first with more or fewer signatures, restores, the newest lines,
        # and an even selection of the older ones.
        lines = self._lines()
        protected = {line for _, line in _largest(lines).values()}.union(_first_signed_so(lines))
        older = lines[:-_RECENT]
        recent = lines[-_RECENT:]
        step = max(1, -(-len(older) // _OLDER))
        selection = [
            line for number, line in enumerate(older) if number % step == 0 or line in protected or _restored(line)
        ]
        _replace(self.path, [*selection, *recent])

    def kept(self) -> list[SignedCheckpoint]:
        """Return every head in the file, oldest first; damaged lines are left out."""
        return [head for line in self._lines() if (head := _parse(line)) is not None]

    def kept_here(self) -> list[SignedCheckpoint]:
        """Return the heads kept for this database, oldest first; lines that do not say for which count for any."""
        return [head for line in self._lines() if (head := _parse(line)) is not None and _at(line) in ("", self._at)]

    def unreadable(self) -> int:
        """Return how many lines say nothing: torn by a crash or damaged."""
        return sum(line != "" and _parse(line) is None and not _restored(line) for line in self._lines())

    def largest(self) -> dict[str, SignedCheckpoint]:
        """Return the largest head of each log, by its origin."""
        by_origin = {origin: _parse(line) for origin, (_, line) in _largest(self._lines()).items()}
        return {origin: head for origin, head in by_origin.items() if head is not None}

    def _lines(self) -> list[str]:
        """Return every line, also a last one without a line end: it may be complete or torn like any other."""
        try:
            return self.path.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UnavailableError(f"cannot read {self.path}: {error}") from error


def _replace(path: Path, lines: list[str]) -> None:
    """Write a file of these lines, whole and durable, in place of the one that is there."""
    spare = path.with_name(f".{path.name}.new")  # one name: nobody else is here, and a crash leaves one
    with open(spare, "w", encoding="utf-8", opener=disk.private) as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    # Other processes notice the new file by its inode, see _opened.
    os.replace(spare, path)
    folders.sync(path.parent)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.fstat(file).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _write(file: int, data: bytes) -> None:
    """Write all of the data: on a disk that is nearly full, `os.write` takes a part without an error."""
    while data:
        data = data[os.write(file, data) :]


def _size(head: str, newest: str) -> int:
    """Return the size of a head, or -1 for one of another log than the newest, which replaces it."""
    origin, _, rest = head.partition("\n")
    size = rest.partition("\n")[0]
    return int(size) if size.isdecimal() and newest.startswith(f"{origin}\n") else -1


def _largest(lines: list[str]) -> dict[str, tuple[int, str]]:
    """Return size and line of the largest head of each log; only candidates are parsed in full."""
    largest: dict[str, tuple[int, str]] = {}
    for line in reversed(lines):  # the newest is usually the largest, so the others need no parsing
        try:
            origin, size, _ = json.loads(line)["head"].split("\n", 2)
            if int(size) > largest.get(origin, (-1, ""))[0] and _parse(line) is not None:
                largest[origin] = int(size), line
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return largest


def _first_signed_so(lines: list[str]) -> Iterator[str]:
    """Yield the lines whose head has another number of signatures than the head before."""
    before = 0
    for line in lines:
        # Counted in the JSON text, which escapes the dash: a head need not be parsed for that.
        signatures = line.count(_ESCAPED_SIGNATURE)
        if signatures and signatures != before:
            before = signatures
            yield line


def _at(line: str) -> str:
    return str(json.loads(line).get("at", ""))


def _store(head: SignedCheckpoint) -> str:
    return generation(head.checkpoint.origin)[0]


def _restored(line: str) -> str:
    """Return the origin that a line says this home restored to; empty for any other line."""
    try:
        fields = json.loads(line)
        origin = str(fields[_RESTORED])
        # Unlike a head it is not signed, so a line without its digest says nothing.
        return origin if fields.get("sha256") == sha256_hex(origin.encode()) else ""
    except (ValueError, KeyError, TypeError):
        return ""


def _parse(line: str) -> SignedCheckpoint | None:
    try:
        fields = json.loads(line)
        head = fields["head"].encode()
        return checkpoint.parse(head) if fields.get("sha256") in (None, sha256_hex(head)) else None
    except (ValueError, KeyError, TypeError, AttributeError, FormatError):
        return None
