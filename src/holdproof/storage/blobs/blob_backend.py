"""Where large blobs lie: the contract of a place."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from holdproof.storage.blobs.bodies import Body, Data, Spool


class BlobSource(Protocol):
    """Bytes on their way out, as a binary file gives them."""

    def read(self, size: int, /) -> bytes:
        """At most that many further bytes; none at the end."""
        ...

    def close(self) -> None:
        """Let go of it; may be called twice, from any thread."""
        ...


class BlobBackend(Protocol):
    """Somewhere bytes can lie under an address. Every call may block, and may come from any thread."""

    kind: str
    """How rows name it."""

    pins: bool
    """Whether it cannot list what is ours: then an address is entered first and pinned after."""

    moves: bool
    """Whether bytes that are there can take another name at once: then they are kept before equal ones are sought."""

    def take(self, data: Data) -> Body:
        """Count and hash bytes that are all there; hold what `keep` needs."""
        ...

    def spool(self) -> Spool:
        """A temporary file for a stream."""
        ...

    def keep(self, body: Body, name: str) -> str:
        """Keep bytes under a name, in the place of what was there; durable when it returns. Their address."""
        ...

    def pin(self, address: str) -> None:
        """Keep it from being forgotten, where a place forgets."""
        ...

    def open(self, address: str) -> BlobSource:
        """The bytes of an address; FileNotFoundError where there are none."""
        ...

    def remove(self, address: str) -> None:
        """Remove the bytes of an address; nothing happens where there are none."""
        ...

    def erase(self, address: str) -> bool:
        """The same so that nobody reads them again; whether that was in its power."""
        ...

    def listed(self, older_than_s: float) -> Iterator[Sequence[str]]:
        """Every address that is at least that old, in pages."""
        ...

    def tidy(self, older_than_s: float) -> int:
        """Remove temporary files that are at least that old; how many."""
        ...

    def where(self, address: str) -> str:
        """An address as people and programs outside can find it."""
        ...

    def close(self) -> None:
        """Let go of connections; may be called twice."""
        ...
