"""Blobs as files: `<root>/<first two digits>/<sha256>-<16 digits>`, temporary ones below `<root>/.tmp`.

Rules:
- A file appears whole or not at all: temporary file, fsync, rename, fsync of the folder.
- A name is made of digits only, and an address that is not such a name is refused: nothing lies outside the root.
"""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from holdfast.content import disk
from holdfast.errors import FormatError
from holdfast.storage.blobs.bodies import Body, Data, Spool, older, remove_spools
from holdfast.storage.blobs.places import Source

_NAME: Final = re.compile(r"[0-9a-f]{64}-[0-9a-f]{16}")
_BUCKET: Final = re.compile(r"[0-9a-f]{2}")


class Files:
    """A folder of files; see Place."""

    kind, pins = "files", False

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root.expanduser()))
        self._spools = self.root / ".tmp"

    def take(self, data: Data) -> Body:
        """See Place. The bytes are hashed while they are written."""
        spool = self.spool()
        try:
            with ThreadPoolExecutor(1) as aside:
                hashing = aside.submit(sha256, data)
                spool.write(data)
                spool.sync()
        except BaseException:
            spool.drop()
            raise
        return Body(len(data), hashing.result().hexdigest(), spool=spool)

    def spool(self) -> Spool:
        """See Place."""
        return Spool(self._spools)

    def keep(self, body: Body, name: str) -> str:
        """See Place."""
        assert body.spool is not None
        target = self._path(name)
        with disk.translated(target):
            if not target.parent.is_dir():
                disk.make_folder(target.parent)
                disk.sync_folder(self.root)
            body.spool.move(target)
        return name

    def pin(self, address: str) -> None:
        """See Place. A file stays."""

    def open(self, address: str) -> Source:
        """See Place."""
        path = self._path(address)
        try:
            return path.open("rb")
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
            path.unlink()

    def listed(self, older_than_s: float) -> Iterator[list[str]]:
        """See Place."""
        with disk.translated(self.root):
            for bucket in sorted(self.root.iterdir()) if self.root.is_dir() else []:
                if _BUCKET.fullmatch(bucket.name):
                    yield [path.name for path in older(bucket, older_than_s) if _NAME.fullmatch(path.name)]

    def tidy(self, older_than_s: float) -> int:
        """See Place."""
        return remove_spools(self._spools, older_than_s)

    def where(self, address: str) -> str:
        """See Place."""
        return str(self._path(address))

    def close(self) -> None:
        """See Place."""

    def _path(self, address: str) -> Path:
        if not _NAME.fullmatch(address):
            raise FormatError(f"no address of a blob: {address[:100]!r}", address=address[:100])
        return self.root / address[:2] / address
