"""Blobs as files: `<root>/<first two digits>/<sha256>-<16 digits>`, temporary ones below `<root>/.tmp`.

Rules:
- A file appears complete or not at all: temporary file, fsync, rename, fsync of the folder.
- A name is made of digits only, and an address that is not such a name is refused: nothing lies outside the root.
"""

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

from holdproof import folders
from holdproof.content import disk
from holdproof.errors import FormatError
from holdproof.storage.blobs.blob_backend import BlobSource
from holdproof.storage.blobs.bodies import Body, Data, Spool, older, remove_spools

_NAME: Final = re.compile(r"[0-9a-f]{64}-[0-9a-f]{16}")
_BUCKET: Final = re.compile(r"[0-9a-f]{2}")
_PARALLEL_HASH_BYTES: Final = 8 << 20
"""From here on a second thread for the hash pays."""


class Files:
    """A folder with one file per object; see BlobBackend."""

    kind = "files"
    pins = False
    renames = True

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root.expanduser()))
        # Texts instead of paths: joining them is cheaper than pathlib, and every put and get does it.
        self._root = str(self.root)
        self._spools = f"{self.root}/.tmp"

    def stage(self, data: Data) -> Body:
        """See BlobBackend. The bytes are hashed while they are written."""
        spool = self.spool()
        try:
            digest = _hashed_while(partial(spool.fill, data), data)
        except BaseException:
            spool.drop()
            raise
        return Body(len(data), digest, spool=spool)

    def spool(self) -> Spool:
        """See BlobBackend."""
        return Spool(self._spools)

    def put_bytes(self, body: Body, name: str) -> str:
        """See BlobBackend."""
        assert body.spool is not None
        target = self._path(name)
        if not os.path.isdir(os.path.dirname(target)):
            self._make_buckets()
        body.spool.move(target)
        return name

    def _make_buckets(self) -> None:
        """Make all 256 at once: one sync is cheaper than 256."""
        with disk.translated(self.root):
            folders.make(self.root)
            for number in range(256):
                (self.root / f"{number:02x}").mkdir(mode=0o700, exist_ok=True)
            folders.sync(self.root)

    def pin(self, address: str) -> None:
        """See BlobBackend. A file stays."""

    def open(self, address: str) -> BlobSource:
        """See BlobBackend."""
        path = self._path(address)
        try:
            return open(path, "rb")
        except FileNotFoundError:
            with disk.translated(self.root):
                self.root.stat()  # an unmounted disk is no missing blob
            raise
        # Any other error becomes a typed one, with the path.
        except OSError:
            with disk.translated(path):
                raise

    def remove(self, address: str) -> None:
        """See BlobBackend."""
        path = self._path(address)
        with disk.translated(path), suppress(FileNotFoundError):
            os.unlink(path)

    def erase(self, address: str) -> bool:
        """See BlobBackend. The bytes are overwritten; a copy-on-write file system may still have them."""
        path = self._path(address)
        with disk.translated(path):
            disk.shred(Path(path))
        return True

    def list_older(self, older_than_s: float) -> Iterator[list[str]]:
        """See BlobBackend."""
        with disk.translated(self.root):
            for bucket in sorted(self.root.iterdir()) if self.root.is_dir() else []:
                # The folder of temporary files and whatever people put here are not ours to list.
                if _BUCKET.fullmatch(bucket.name):
                    yield [path.name for path in older(bucket, older_than_s) if _NAME.fullmatch(path.name)]

    def tidy(self, older_than_s: float) -> int:
        """See BlobBackend."""
        return remove_spools(Path(self._spools), older_than_s)

    def where(self, address: str) -> str:
        """See BlobBackend."""
        return self._path(address)

    def close(self) -> None:
        """See BlobBackend."""

    def _path(self, address: str) -> str:
        if not _NAME.fullmatch(address):
            raise FormatError(f"not the address of a blob: {address[:100]!r}", address=address[:100])
        return f"{self._root}/{address[:2]}/{address}"


def _hashed_while(act: Callable[[], None], data: Data) -> str:
    """Hash bytes while `act` runs; large ones in a second thread, since hashing and writing release the GIL."""
    if len(data) < _PARALLEL_HASH_BYTES:
        act()
        return sha256(data).hexdigest()
    with ThreadPoolExecutor(1) as pool:
        hashing = pool.submit(sha256, data)
        act()
    return hashing.result().hexdigest()
