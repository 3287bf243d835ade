"""Blobs as files: `<root>/<first two digits>/<sha256>-<16 digits>`, temporary ones below `<root>/.tmp`.

Rules:
- A file appears whole or not at all: temporary file, fsync, rename, fsync of the folder.
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
_ASIDE: Final = 8 << 20


class Files:
    """A folder of files; see Place."""

    kind, pins, moves = "files", False, True

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root.expanduser()))
        self._root, self._spools = str(self.root), f"{self.root}/.tmp"

    def take(self, data: Data) -> Body:
        """See Place. The bytes are hashed while they are written."""
        spool = self.spool()
        try:
            digest = _hashed_while(partial(spool.fill, data), data)
        except BaseException:
            spool.drop()
            raise
        return Body(len(data), digest, spool=spool)

    def spool(self) -> Spool:
        """See Place."""
        return Spool(self._spools)

    def keep(self, body: Body, name: str) -> str:
        """See Place."""
        assert body.spool is not None
        target = self._path(name)
        if not os.path.isdir(os.path.dirname(target)):
            self._make_buckets()
        body.spool.move(target)
        return name

    def _make_buckets(self) -> None:
        """All of them at once: one sync is cheaper than 256."""
        with disk.translated(self.root):
            folders.make(self.root)
            for number in range(256):
                (self.root / f"{number:02x}").mkdir(mode=0o700, exist_ok=True)
            folders.sync(self.root)

    def pin(self, address: str) -> None:
        """See Place. A file stays."""

    def open(self, address: str) -> BlobSource:
        """See Place."""
        path = self._path(address)
        try:
            return open(path, "rb")
        except FileNotFoundError:
            with disk.translated(self.root):
                self.root.stat()  # an unmounted disk is no missing blob
            raise
        except OSError:
            with disk.translated(path):
                raise

    def remove(self, address: str) -> None:
        """See Place."""
        path = self._path(address)
        with disk.translated(path), suppress(FileNotFoundError):
            os.unlink(path)

    def erase(self, address: str) -> bool:
        """See Place. What is overwritten is gone, but for what a copying file system keeps."""
        path = self._path(address)
        with disk.translated(path):
            disk.shred(Path(path))
        return True

    def listed(self, older_than_s: float) -> Iterator[list[str]]:
        """See Place."""
        with disk.translated(self.root):
            for bucket in sorted(self.root.iterdir()) if self.root.is_dir() else []:
                if _BUCKET.fullmatch(bucket.name):
                    yield [path.name for path in older(bucket, older_than_s) if _NAME.fullmatch(path.name)]

    def tidy(self, older_than_s: float) -> int:
        """See Place."""
        return remove_spools(Path(self._spools), older_than_s)

    def where(self, address: str) -> str:
        """See Place."""
        return self._path(address)

    def close(self) -> None:
        """See Place."""

    def _path(self, address: str) -> str:
        if not _NAME.fullmatch(address):
            raise FormatError(f"no address of a blob: {address[:100]!r}", address=address[:100])
        return f"{self._root}/{address[:2]}/{address}"


def _hashed_while(act: Callable[[], None], data: Data) -> str:
    """The hash of bytes; if they are many it is computed aside, while something else is done with them."""
    if len(data) < _ASIDE:
        act()
        return sha256(data).hexdigest()
    with ThreadPoolExecutor(1) as aside:
        hashing = aside.submit(sha256, data)
        act()
    return hashing.result().hexdigest()
