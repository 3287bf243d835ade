"""Blobs in IPFS, through the Kubo RPC of one node; an address is a CID.

Rules:
- What is put there is public for as long as any node has it. Encrypt it first if it must stay private.
- A node's pins cannot be told from those of others: an address is entered in the database first, pinned after. Give the
  store a node, or content, of its own: removing a blob takes the pin away, whoever set it.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdproof.content.kubo import Cat, Kubo
from holdproof.storage.blobs.bodies import Body, Data, Spool, remove_spools


class Ipfs:
    """One Kubo node; see BlobBackend."""

    kind = "ipfs"
    # Other programs pin on the same node: which pins are ours is only known from our rows.
    pins = True
    renames = False

    def __init__(self, url: str, *, token: str | None = None, idle_s: float = 30.0, spools: Path | None = None) -> None:
        self._kubo = Kubo(url, token=token, idle_s=idle_s)
        self._spools = spools or Path(tempfile.gettempdir())

    def stage(self, data: Data) -> Body:
        """See BlobBackend."""
        return Body.of(bytes(data))

    def spool(self) -> Spool:
        """See BlobBackend."""
        return Spool(str(self._spools))

    def put_bytes(self, body: Body, name: str) -> str:
        """See BlobBackend. The address follows from the bytes; it is safe once it is pinned."""
        del name
        return self._kubo.add(body.source(), pin=False)

    def pin(self, address: str) -> None:
        """See BlobBackend."""
        self._kubo.pin(address)

    def open(self, address: str) -> Cat:
        """See BlobBackend."""
        return self._kubo.cat(address)

    def remove(self, address: str) -> None:
        """See BlobBackend. The node forgets it when it next collects garbage."""
        self._kubo.unpin(address)

    def erase(self, address: str) -> bool:
        """See BlobBackend. Other nodes may have a copy, which cannot be revoked."""
        self.remove(address)
        return False

    def list_older(self, older_than_s: float) -> Iterator[list[str]]:
        """See BlobBackend. Nothing is listed: only the database knows which pins are ours."""
        del older_than_s
        yield from ()

    def tidy(self, older_than_s: float) -> int:
        """See BlobBackend."""
        return remove_spools(self._spools, older_than_s)

    def where(self, address: str) -> str:
        """See BlobBackend."""
        return f"ipfs://{address}"

    def close(self) -> None:
        """See BlobBackend."""
        self._kubo.close()
