"""`BlobBackend`: the contract of what stores large blobs (a folder, a bucket, an IPFS node)."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from holdproof.storage.blobs.bodies import Body, Data, Spool


class BlobSource(Protocol):
    """Bytes being read, as from a binary file."""

    def read(self, size: int, /) -> bytes:
        """Return at most that many further bytes; none at the end."""
        ...

    def close(self) -> None:
        """Close it; may be called twice, from any thread."""
        ...


class BlobBackend(Protocol):
    """Stores bytes under addresses. Every call may block, and may come from any thread."""

    kind: str
    """Its name in the column `place` of a row."""

    pins: bool
    """Whether it cannot list what is ours: then an address is entered in the database first and pinned after."""

    renames: bool
    """Whether it renames atomically and at no cost; if so, bytes are stored first and deduplicated afterwards."""

    def stage(self, data: Data) -> Body:
        """Count and hash bytes, and prepare what `put_bytes` needs (a temporary file, where that is the way)."""
        ...

    def spool(self) -> Spool:
        """Open a temporary file for a stream."""
        ...

    def put_bytes(self, body: Body, name: str) -> str:
        """Store bytes under a name, replacing what was there; return their address. Durable when it returns."""
        ...

    def pin(self, address: str) -> None:
        """Protect an address from garbage collection; does nothing where there is none. May be called twice."""
        ...

    def open(self, address: str) -> BlobSource:
        """Open the bytes of an address; raises FileNotFoundError where there are none."""
        ...

    def remove(self, address: str) -> None:
        """Remove the bytes of an address; does nothing where there are none."""
        ...

    def erase(self, address: str) -> bool:
        """Remove them so that they cannot be recovered; False if others may still have a copy."""
        ...

    def list_older(self, older_than_s: float) -> Iterator[Sequence[str]]:
        """Every address that is at least that old, in pages; raises FileNotFoundError where nothing was ever stored."""
        ...

    def tidy(self, older_than_s: float) -> int:
        """Remove temporary files that are at least that old; return how many."""
        ...

    def where(self, address: str) -> str:
        """The path or URL of an address, for people and other programs."""
        ...

    def close(self) -> None:
        """Close connections; may be called twice."""
        ...
