"""Blobs in S3 or a compatible service: `<prefix>/<first two digits>/<sha256>-<16 digits>`.

Rules:
- Bytes are read in ranges, each a request of its own with its own time limit: a slow connection is not taken for a
  dead one. An object that is removed after its first range, because its key was overwritten, is a StaleVersionError.
- A bucket should end unfinished multipart uploads by a lifecycle rule: a crash leaves them where no list shows them.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import S3Store

from holdproof.db.clock import system_clock
from holdproof.errors import BucketDeniedError, BucketMissingError, ConfigError, StaleVersionError, UnreachableError
from holdproof.storage.blobs.bodies import Body, Data, Spool, remove_spools

_RANGE: Final = 8 << 20
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_ANSWER: Final = re.compile(r"<Error>\s*<Code>(?P<code>\w+)</Code>\s*<Message>(?P<reason>[^<]{0,300})")
_DENIED: Final = re.compile(r"status code: 40[13] |\(code: AccessDenied\)")
_METADATA: Final = "169.254.169.254"
PATIENCE = timedelta(seconds=30)
"""How long an answer may take, and how long a request may be tried again."""


class S3:
    """A bucket, or a part of one; see BlobBackend."""

    kind = "s3"
    pins = False
    # S3 has no rename: a copy costs as much as an upload.
    renames = False

    def __init__(self, bucket: str, prefix: str = "", *, spools: Path | None = None, **config: Any) -> None:
        self._where = f"s3://{bucket}/{prefix.strip('/') + '/' if prefix else ''}"
        self._spools = spools or Path(tempfile.gettempdir())
        try:
            self._store = S3Store(
                bucket,
                prefix=prefix or None,
                # Without a limit a silent server would block a thread for ever.
                client_options={"timeout": PATIENCE, **({"allow_http": True} if plain(config) else {})},
                retry_config={"max_retries": 3, "retry_timeout": PATIENCE},
                **config,
            )
        except BaseError as error:
            raise ConfigError(f"{self._where}: {error}") from error

    def stage(self, data: Data) -> Body:
        """See BlobBackend."""
        return Body.of(bytes(data))

    def spool(self) -> Spool:
        """See BlobBackend."""
        return Spool(str(self._spools))

    def put_bytes(self, body: Body, name: str) -> str:
        """See BlobBackend."""
        with self._translated():
            obstore.put(self._store, _path(name), body.source(), max_concurrency=4)
        return name

    def pin(self, address: str) -> None:
        """See BlobBackend. An object stays."""

    def open(self, address: str) -> "Ranges":
        """See BlobBackend."""
        with self._translated():
            # The first range comes with the size of the object: one request for small ones.
            answer = obstore.get(self._store, _path(address), options={"range": (0, _RANGE)})
            return Ranges(self, address, answer.meta["size"], answer.bytes().to_bytes())

    def range(self, address: str, start: int) -> bytes:
        """A later part of an object."""
        try:
            with self._translated():
                return obstore.get_range(self._store, _path(address), start=start, length=_RANGE).to_bytes()
        except FileNotFoundError as error:
            raise StaleVersionError(f"{self.where(address)} was removed while it was read") from error

    def remove(self, address: str) -> None:
        """See BlobBackend."""
        try:
            with self._translated():
                obstore.delete(self._store, _path(address))
        except FileNotFoundError:
            return

    def erase(self, address: str) -> bool:
        """See BlobBackend. A bucket that keeps versions keeps this one too, which is for its lifecycle rules to end."""
        self.remove(address)
        return True

    def list_older(self, older_than_s: float) -> Iterator[list[str]]:
        """See BlobBackend."""
        limit = datetime.fromtimestamp(system_clock() / 1e6 - older_than_s, UTC)
        with self._translated():
            for page in obstore.list(self._store, chunk_size=1000):
                yield [each["path"].rpartition("/")[2] for each in page if each["last_modified"] <= limit]

    def tidy(self, older_than_s: float) -> int:
        """See BlobBackend."""
        return remove_spools(self._spools, older_than_s)

    def where(self, address: str) -> str:
        """See BlobBackend."""
        return self._where + _path(address)

    def close(self) -> None:
        """See BlobBackend."""

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except NotFoundError as error:
            # The contract of a backend is Python's own error; everything else is an unreachable service.
            raise FileNotFoundError(brief(error)) from error
        except BaseError as error:
            raise refusal(error, self._where) from error


class Ranges:
    """An object read from its beginning to its end; see BlobSource."""

    def __init__(self, bucket: S3, address: str, size: int, first: bytes) -> None:
        self._bucket = bucket
        self._address = address
        self._size = size
        self._buffer = first
        self._fetched = len(first)

    def read(self, size: int, /) -> bytes:
        """See BlobSource."""
        if not self._buffer and self._fetched < self._size:
            self._buffer = self._bucket.range(self._address, self._fetched)
            self._fetched += len(self._buffer)
        piece = self._buffer[:size]
        self._buffer = self._buffer[size:]
        return piece

    def close(self) -> None:
        """See BlobSource."""


def plain(config: Mapping[str, Any]) -> bool:
    """Whether the endpoint, an option or a variable, is plain HTTP, which obstore refuses unless it is allowed."""
    endpoint = config.get("endpoint") or next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
    return str(endpoint).startswith("http://")


def brief(error: Exception) -> str:
    """The first line of an error; the others are debugging output of obstore."""
    return str(error).partition("\n")[0][:300]


def refusal(error: Exception, where: str) -> UnreachableError:
    """Return the typed error of a request that failed: no such bucket, no right or a wrong key, or no answer."""
    text = str(error)
    answer = _ANSWER.search(text)
    code, reason = (answer["code"], answer["reason"]) if answer else ("", "")
    outcome = f"{code}: {reason}".rstrip(": ") or brief(error)
    if code == "NoSuchBucket":
        return BucketMissingError(f"{where}: {outcome}", place=where)
    if _DENIED.search(text):
        return BucketDeniedError(f"{where}: {outcome}", place=where)
    if _METADATA in text:  # where a machine of a cloud would have keys for whom no variable has any
        return BucketDeniedError(f"{where}: no AWS_ACCESS_KEY_ID is set, and this machine has no role", place=where)
    return UnreachableError(f"{where}: {outcome}", place=where)


def _path(address: str) -> str:
    return f"{address[:2]}/{address}"
