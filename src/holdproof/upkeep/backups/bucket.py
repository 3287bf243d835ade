"""A bucket of S3 as a place for files: sent, read, listed and removed by their whole names.

Endpoint and credentials come from the AWS_ variables. A file is there as a whole or not at all.

Rules:
- Nothing is held in memory but some parts of one file: files are sent in parts and read in ranges. Each is a request
  with its own time limit, so that a slow connection is not taken for a dead one.
- What arrived is known by reading it: no answer of the service stands for the bytes.
- Of a file of several parts each part is told to `tell`; what that raises ends the work on the file.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

import obstore
from obstore.exceptions import AlreadyExistsError as TakenError
from obstore.exceptions import BaseError, PreconditionError
from obstore.exceptions import NotFoundError as MissingError
from obstore.store import S3Store

from holdproof import folders
from holdproof.errors import BucketMissingError, ConfigError, FormatError, NotFoundError
from holdproof.model.backup import Entry
from holdproof.model.progress import Progress
from holdproof.storage.blobs.s3 import plain, refusal

_PATIENCE = timedelta(minutes=2)
"""How long an answer may take, and how long a request may be tried again: parts of a backup are large."""
_CHUNK: Final = 1 << 20
_RANGE: Final = 8 << 20
_PART: Final = 8 << 20
_PAGE: Final = 1000
_MOST_PARTS: Final = 9000
"""S3 takes 10,000 parts a file."""


class BucketListing(NamedTuple):
    """What lies directly below a name: folders, and files with the time of each, by their last part."""

    folders: list[str]
    files: dict[str, datetime]


class Bucket:
    """A bucket; names are `/`-separated and never begin with one."""

    def __init__(self, name: str) -> None:
        self.where = f"s3://{name}"
        self._large = Lock()
        try:
            self._store = S3Store(
                name,
                # Without a limit a silent server would block for ever.
                client_options={"timeout": _PATIENCE, **({"allow_http": True} if plain({}) else {})},
                retry_config={"max_retries": 3, "retry_timeout": _PATIENCE},
            )
        except BaseError as error:
            raise ConfigError(f"{self.where}: {error}") from error

    def create(self, name: str, data: bytes) -> bool:
        """Write a small file if there is none of that name; whether there was none."""
        with self._translated():
            try:
                obstore.put(self._store, name, data, mode="create")
            except (TakenError, PreconditionError, FileExistsError):
                return False
        return True

    def put(self, name: str, data: bytes) -> None:
        """Write a small file; one of that name is replaced."""
        with self._translated():
            obstore.put(self._store, name, data)

    def send(self, file: Path, name: str, tell: Progress) -> Entry:
        """Send a file in parts; return hash and length of what was sent. FileNotFoundError if it is not there."""
        digest = sha256()
        sent = 0
        with file.open("rb") as reader:
            total = os.fstat(reader.fileno()).st_size

            def pieces() -> Iterator[bytes]:
                nonlocal sent
                while chunk := reader.read(_CHUNK):
                    digest.update(chunk)
                    sent += len(chunk)
                    yield chunk
                    if total > _PART:
                        tell(f"sending {name.rpartition('/')[2]}", sent, max(sent, total))

            part = max(_PART, total // _MOST_PARTS)
            # One large file at a time: on a slow line its parts would take each other's time.
            with self._translated(), self._large if total > _PART else nullcontext():
                obstore.put(self._store, name, pieces(), chunk_size=part, max_concurrency=2)
        return Entry(digest.hexdigest(), sent)

    def read(self, name: str, most: int) -> bytes:
        """Return a file of at most `most` bytes; NotFoundError where there is none, FormatError where it is larger."""
        size = self._size(name)
        if size > most:
            raise FormatError(f"{self.where}/{name} is larger than {most} bytes", size=size)
        return b"".join(self._ranges(name, size))

    def version(self, name: str) -> str:
        """Return what tells a file from another one of that name; NotFoundError where there is none."""
        with self._translated(name):
            about = obstore.head(self._store, name)
        return f"{about['e_tag']} {about['size']} {about['last_modified']}"

    def entry(self, name: str, size: int, tell: Progress) -> Entry:
        """Read a file that has to be that long; return hash and length. NotFoundError where there is none."""
        return self._consumed(name, size, _drop, tell)

    def fetch(self, name: str, target: Path, size: int, tell: Progress) -> Entry:
        """Read a file that has to be that long into a new one; return hash and length of what arrived.

        NotFoundError where there is none. Of one that is longer nothing is read: it could fill the disk.
        """
        folders.make(target.parent)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as writer:
            return self._consumed(name, size, writer.write, tell)

    def list(self, folder: str) -> BucketListing:
        """Return what lies directly in a folder; nothing where there is no such folder."""
        with self._translated():
            answer = obstore.list_with_delimiter(self._store, folder or None)
        below = {each["path"].rpartition("/")[2]: each["last_modified"] for each in answer["objects"]}
        return BucketListing([each.rpartition("/")[2] for each in answer["common_prefixes"]], below)

    def names(self, folder: str) -> Iterator[str]:
        """Yield the whole names of all files below a folder."""
        with self._translated():
            for page in obstore.list(self._store, prefix=f"{folder}/" if folder else None):
                for each in page:
                    yield each["path"]

    def remove(self, name: str) -> None:
        """Remove a file; one that is gone is no error."""
        with self._translated():
            obstore.delete(self._store, name)

    def remove_below(self, folder: str) -> None:
        """Remove every file below a folder."""
        # Listed first: some services skip names of a listing that shrinks while it is read.
        names = [*self.names(folder)]
        for start in range(0, len(names), _PAGE):
            with self._translated():
                obstore.delete(self._store, names[start : start + _PAGE])

    def _consumed(self, name: str, expected: int, sink: Callable[[bytes], object], tell: Progress) -> Entry:
        there = self._size(name)
        if there != expected:
            raise FormatError(f"{self.where}/{name} has {there} bytes, and not {expected}: it was changed", size=there)
        digest = sha256()
        size = 0
        for chunk in self._ranges(name, there):
            digest.update(chunk)
            size += len(chunk)
            sink(chunk)
            if expected > _PART:
                tell(f"reading {name.rpartition('/')[2]}", size, expected)
        return Entry(digest.hexdigest(), size)

    def _size(self, name: str) -> int:
        with self._translated(name):
            return int(obstore.head(self._store, name)["size"])

    def _ranges(self, name: str, size: int) -> Iterator[bytes]:
        for start in range(0, size, _RANGE):
            with self._translated(name):
                yield obstore.get_range(self._store, name, start=start, length=min(_RANGE, size - start)).to_bytes()

    @contextmanager
    def _translated(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            failure = refusal(error, self.where)
            # A name that is not there, in a bucket that is.
            if isinstance(error, (MissingError, FileNotFoundError)) and not isinstance(failure, BucketMissingError):
                raise NotFoundError(f"{self.where}/{name}: no such file", path=f"{self.where}/{name}") from error
            raise failure from error


def _drop(chunk: bytes) -> None:
    """Take bytes that are only hashed."""
    del chunk
