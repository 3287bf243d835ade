"""Bytes being read: those without the size and the SHA-256 of their row raise BlobCorruptError."""

from hashlib import sha256
from io import BytesIO

from holdproof.errors import BlobCorruptError
from holdproof.model.blobs import Blob
from holdproof.storage.blobs.blob_backend import BlobSource
from holdproof.storage.blobs.bodies import PIECE


class VerifiedReader:
    """Reads the bytes of a blob and verifies them at the end."""

    def __init__(self, blob: Blob, source: BlobSource) -> None:
        self._blob = blob
        self._source = source
        self.in_memory = isinstance(source, BytesIO)
        self._hash = sha256()
        self._size = 0

    @classmethod
    def from_bytes(cls, blob: Blob, data: bytes) -> "VerifiedReader":
        """A reader of bytes that came with their row."""
        return cls(blob, BytesIO(data))

    def piece(self, size: int = PIECE) -> bytes:
        """Return further bytes; none at the end, once all of them were verified."""
        piece = self._source.read(size)
        self._hash.update(piece)
        self._size += len(piece)
        # Too many bytes are noticed at once; too few, or others, only at the end.
        if self._size > self._blob.size or not (piece or self._right()):
            raise corrupt(self._blob, "altered")
        return piece

    def _right(self) -> bool:
        return self._size == self._blob.size and self._hash.hexdigest() == self._blob.sha256

    def read_all(self) -> bytes:
        """Return all bytes and close."""
        pieces = []
        try:
            while piece := self.piece(max(self._blob.size, 1)):
                pieces.append(piece)
        finally:
            self.close()
        # The usual case needs no copy.
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_through(self) -> None:
        """Read all of it, only to verify it, and close."""
        try:
            while self.piece():
                pass
        finally:
            self.close()

    def close(self) -> None:
        """Close it; may be called twice, from any thread."""
        self._source.close()


def corrupt(blob: Blob, what: str) -> BlobCorruptError:
    """Make the error for a blob whose bytes are `missing` or `altered`."""
    return BlobCorruptError(f"the bytes of {blob.key} are {what}", key=blob.key, what=what, place=blob.place)
