"""Blobs in IPFS, through the Kubo RPC of one node; an address is a CID.

Rules:
- What is put there is public for as long as any node has it. Seal it first if it is not meant to be.
- A node's pins cannot be told from those of others: an address is entered in the database first, pinned after. Give the
  store a node, or content, of its own: removing a blob takes the pin away, whoever set it.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdproof.content.kubo import Cat, Kubo
from holdproof.storage.blobs.bodies import Body, Data, Spool, remove_spools


class Ipfs:
    """A node; see Place."""

    kind, pins, moves = "ipfs", True, False

    def __init__(self, url: str, *, token: str | None = None, idle_s: float = 30.0, spools: Path | None = None) -> None:
        self._kubo = Kubo(url, token=token, idle_s=idle_s)
        self._spools = spools or Path(tempfile.gettempdir())

    def take(self, data: Data) -> Body:
        """See Place."""
        return Body.of(bytes(data))

    def spool(self) -> Spool:
        """See Place."""
        return Spool(str(self._spools))

    def keep(self, body: Body, name: str) -> str:
        """See Place. The address follows from the bytes; it is safe once it is pinned."""
        del name
        return self._kubo.add(body.source(), pin=False)

    def pin(self, address: str) -> None:
        """See Place."""
        self._kubo.pin(address)

    def open(self, address: str) -> Cat:
        """See Place."""
        return self._kubo.cat(address)

    def remove(self, address: str) -> None:
        """See Place. The node forgets it when it next collects garbage."""
        self._kubo.unpin(address)

    def erase(self, address: str) -> bool:
        """See Place. Other nodes may have it, and nobody can call it back."""
        self.remove(address)
        return False

    def listed(self, older_than_s: float) -> Iterator[list[str]]:
        """See Place. What is ours is what the database says."""
        del older_than_s
        yield from ()

    def tidy(self, older_than_s: float) -> int:
        """See Place."""
        return remove_spools(self._spools, older_than_s)

    def where(self, address: str) -> str:
        """See Place."""
        return f"ipfs://{address}"

    def close(self) -> None:
        """See Place."""
        self._kubo.close()
