"""Where a blob store puts bytes: the backends it knows, and what stays in the database."""

import math
from collections import deque
from pathlib import Path
from typing import Any, Final

from holdproof.errors import ConfigError, InvalidInputError, MissingExtraError
from holdproof.storage.blobs.blob_backend import BlobBackend
from holdproof.storage.blobs.blob_rows import DB
from holdproof.storage.blobs.bodies import Spool
from holdproof.storage.blobs.files import Files
from holdproof.storage.blobs.ipfs import Ipfs

INLINE: Final = 32 << 10
"""Up to here a row in a group commit is faster than a file with its syncs."""


class BlobStoreConfig:
    """New blobs that are too large for a row go to `backend`; existing ones are also read from `others`.

    Without a backend everything stays in the database, as it must in memory. It belongs to one database.
    """

    def __init__(self, backend: BlobBackend | None = None, *others: BlobBackend, inline: int = INLINE) -> None:
        self.backend = backend
        self.inline: float = math.inf if backend is None else inline
        # Rows name a backend by its kind: blobs of an earlier configuration stay readable while it is among these.
        self.backends: dict[str, BlobBackend] = {each.kind: each for each in (backend, *others) if each is not None}
        self.is_shared = False
        """Whether the rows are on a server, so that a body in a folder may lie on the disk of another machine."""
        self.endings: deque[str] = deque()
        """Unused endings for names of new objects; read from the database many at a time."""

    def backend_for(self, size: int) -> BlobBackend | None:
        """The backend for a new blob of that size; None if it is stored in its row."""
        return None if size <= self.inline else self.backend

    def spool(self) -> Spool:
        """A temporary file for a stream that is too large for a row."""
        assert self.backend is not None
        return self.backend.spool()

    def at(self, kind: str) -> BlobBackend:
        """The backend that a row names; raises ConfigError if the store was opened without it."""
        backend = self.backends.get(kind)
        if backend is None:
            raise ConfigError(
                f"there are blobs at {kind}, and this store was opened without it; configure providers.blob for {kind}",
                place=kind,
            )
        return backend

    def where(self, key: str, place: str, address: str | None) -> str:
        """Where the bytes of a blob are: a path, a URL, or `db:<key>`."""
        return f"{DB}:{key}" if address is None else self.at(place).where(address)

    def close(self) -> None:
        """Close connections; may be called twice."""
        for backend in self.backends.values():
            backend.close()


def open_backend(target: str | Path, **options: Any) -> BlobBackend:
    """Open the backend that a text names: a folder, `s3://bucket/prefix`, or `ipfs+http://127.0.0.1:5001`.

    A folder takes no options. Those of S3 are obstore's (`endpoint`, `region`, `access_key_id`, …), and missing
    ones come from the AWS_ variables; IPFS takes a bearer `token` and `idle_s`, the longest silence. Both take
    `spools`, a folder for temporary files.
    """
    scheme, separator, rest = str(target).partition("://")
    # A path has no scheme; a Windows drive has no "//" after its colon either.
    if not separator:
        if options:
            raise InvalidInputError(f"a folder takes no option {min(options)!r}", option=min(options))
        return Files(Path(target))
    if scheme == "s3":
        return _s3(rest, **options)
    if scheme in {"ipfs+http", "ipfs+https"}:
        return Ipfs(f"{scheme.removeprefix('ipfs+')}://{rest}", **options)
    raise ConfigError(f"blobs cannot be stored at {scheme}://; use a folder, s3:// or ipfs+http://", scheme=scheme)


def _s3(rest: str, **options: Any) -> BlobBackend:
    try:
        from holdproof.storage.blobs.s3 import S3  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("S3 needs its client: pip install 'holdproof[s3]'") from error
    # Everything after the bucket is the prefix, slashes included.
    bucket, _, prefix = rest.partition("/")
    return S3(bucket, prefix, **options)
