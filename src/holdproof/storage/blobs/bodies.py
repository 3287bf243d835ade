"""Bytes to be stored: counted and hashed, in memory or in a temporary file.

Rules:
- A stream is held in memory up to the size that stays in the database, then in a temporary file: memory is bounded.
- A temporary file is readable by the owner only, and removed when its spool is dropped, however the work ended.
"""

import io
import os
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final

from holdproof import folders
from holdproof.content import disk
from holdproof.db.clock import system_clock, system_random
from holdproof.errors import InvalidInputError

PIECE: Final = 1 << 20
SPARE: Final = ".holdproof-blob-"
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL

Data = bytes | bytearray | memoryview
Chunks = AsyncIterable[Data] | Iterable[Data] | IO[bytes]


class Spool:
    """A temporary file that grows; `move` makes it another file, durably."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._moved = False
        self._synced = False
        with disk.translated(folder):
            handle, self._path = _temporary(folder)
        self._file = io.FileIO(handle, "r+")

    def write(self, data: Data) -> None:
        """Add bytes."""
        with disk.translated(self._path):
            self._write(data)

    def fill(self, data: Data) -> None:
        """Add bytes and make them durable."""
        with disk.translated(self._path):
            self._write(data)
            self._sync()

    def _write(self, data: Data) -> None:
        self._synced = False
        count = self._file.write(data)
        while count < len(data):  # the system takes no more than 2 GiB at once, or less before a disk is full
            count += self._file.write(memoryview(data)[count:])

    def _sync(self) -> None:
        if not self._synced:
            os.fsync(self._file.fileno())
            self._synced = True

    def source(self) -> IO[bytes]:
        """What was added, from the beginning; readable even if the file was unlinked."""
        self._file.seek(0)
        return self._file

    def move(self, target: str) -> None:
        """Rename it to `target`, durably, replacing what is there; a file that was unlinked is copied."""
        with disk.translated(target):
            spool = self
            # A sweep with an age of nothing may unlink our temporary file at any moment.
            while not spool._rename(target):
                spool = self._copy()
            folders.sync(os.path.dirname(target))

    def _rename(self, target: str) -> bool:
        self._sync()
        try:
            os.utime(self._path)  # a sweep goes by age: the file must not look older than its name
            os.replace(self._path, target)
        except FileNotFoundError:
            if os.path.isdir(os.path.dirname(target)):
                return False
            raise
        self._path = target
        self._moved = True
        return True

    def _copy(self) -> "Spool":
        copy = Spool(self._folder)
        source = self.source()
        while piece := source.read(PIECE):
            copy.write(piece)
        return copy

    def drop(self) -> None:
        """Close it, and remove it unless it was moved; may be called twice, from any thread."""
        with suppress(OSError):
            self._file.close()
        if not self._moved:
            self._moved = True
            with suppress(OSError):
                os.unlink(self._path)

    # A stream that nobody finishes (a cancelled task, a forgotten iterator) must not leave its file behind.
    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.drop()


def _temporary(folder: str) -> tuple[int, str]:
    path = f"{folder}/{SPARE}{system_random(8).hex()}"
    try:
        return os.open(path, _NEW, 0o600), path
    except FileNotFoundError:
        folders.make(Path(folder))
        return os.open(path, _NEW, 0o600), path


def remove_spools(folder: Path, older_than_s: float) -> int:
    """Remove the temporary files that a crash left in a folder; return how many."""
    leftovers = [path for path in older(folder, older_than_s) if path.name.startswith(SPARE)]
    with disk.translated(folder):
        for path in leftovers:
            path.unlink(missing_ok=True)
    return len(leftovers)


def older(folder: Path, seconds: float) -> Iterator[Path]:
    """The files of a folder that were last written at least that long ago."""
    limit_s = system_clock() / 1e6 - seconds
    with disk.translated(folder):
        for path in folder.iterdir() if folder.is_dir() else ():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime <= limit_s:
                    yield path


@dataclass(frozen=True, slots=True)
class Body:
    """Complete bytes to be stored, in memory or in a temporary file."""

    size: int
    sha256: str
    data: bytes | None = None
    spool: Spool | None = None

    @classmethod
    def of(cls, data: bytes) -> "Body":
        """Bytes in memory."""
        return cls(len(data), sha256(data).hexdigest(), data)

    def source(self) -> bytes | IO[bytes]:
        """The bytes as an object or as a file, for clients that accept both."""
        if self.data is not None:
            return self.data
        assert self.spool is not None
        return self.spool.source()

    def drop(self) -> None:
        """Remove the temporary file; may be called twice."""
        if self.spool is not None:
            self.spool.drop()


class Intake:
    """Collects a stream; small pieces are gathered into larger writes."""

    def __init__(self, inline: float, spool: Callable[[], Spool]) -> None:
        self._inline = inline
        self._open = spool
        self._hash = sha256()
        self._size = 0
        self._waiting: list[bytes] = []
        self._length = 0
        self._spool: Spool | None = None

    def add(self, piece: Data) -> bool:
        """Add a piece; return whether it is time to `flush`."""
        if not isinstance(piece, Data):
            raise InvalidInputError(f"a stream of bytes gave {type(piece).__name__}", got=type(piece).__name__)
        self._waiting.append(bytes(piece))
        self._length += len(self._waiting[-1])
        # Up to `inline` bytes everything stays in memory: it may become a row.
        return self._length > max(PIECE, self._inline)

    @property
    def size(self) -> int:
        """How many bytes were added."""
        return self._size + self._length

    def flush(self) -> None:
        """Write the gathered pieces to the temporary file."""
        self._spool = self._spool or self._open()
        pieces = b"".join(self._waiting)
        self._hash.update(pieces)
        self._spool.write(pieces)
        self._size += self._length
        self._waiting = []
        self._length = 0

    def finish(self) -> Body:
        """Return everything that was added."""
        # Small enough for a row: no file was ever needed.
        if self._spool is None and self._length <= self._inline:
            return Body.of(b"".join(self._waiting))
        self.flush()
        assert self._spool is not None
        return Body(self._size, self._hash.hexdigest(), spool=self._spool)

    def drop(self) -> None:
        """Remove what is temporary."""
        if self._spool is not None:
            self._spool.drop()


def puller(chunks: Chunks) -> Callable[[], Any]:
    """Return a function for the next piece of a stream, None at its end; a coroutine function for async streams."""
    if isinstance(chunks, AsyncIterable):
        arriving = aiter(chunks)

        async def pull() -> Data | None:
            return await anext(arriving, None)

        return pull
    if hasattr(chunks, "read"):
        return lambda: chunks.read(PIECE) or None
    pieces = iter(chunks)
    return lambda: next(pieces, None)
