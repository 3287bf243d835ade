"""Bytes on their way out: what does not have the size and the SHA-256 of its row is an error, never an answer."""

from hashlib import sha256
from io import BytesIO

from holdproof.errors import BlobCorruptError
from holdproof.model.blobs import Blob
from holdproof.storage.blobs.blob_backend import BlobSource
from holdproof.storage.blobs.bodies import PIECE


class Verified:
    """The bytes of a blob, verified at their end."""

    def __init__(self, blob: Blob, source: BlobSource) -> None:
        self._blob, self._source = blob, source
        self.here = isinstance(source, BytesIO)
        self._hash, self._size = sha256(), 0

    @classmethod
    def of(cls, blob: Blob, data: bytes) -> "Verified":
        """Bytes that came with their row."""
        return cls(blob, BytesIO(data))

    def piece(self, size: int = PIECE) -> bytes:
        """Further bytes; none at the end, where all of them have been right."""
        piece = self._source.read(size)
        self._hash.update(piece)
        self._size += len(piece)
        if self._size > self._blob.size or not (piece or self._right()):
            raise corrupt(self._blob, "altered")
        return piece

    def _right(self) -> bool:
        return self._size == self._blob.size and self._hash.hexdigest() == self._blob.sha256

    def whole(self) -> bytes:
        """All of it."""
        pieces = []
        try:
            while piece := self.piece(max(self._blob.size, 1)):
                pieces.append(piece)
        finally:
            self.close()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def walk(self) -> None:
        """Read all of it, for its verification only."""
        try:
            while self.piece():
                pass
        finally:
            self.close()

    def close(self) -> None:
        """Let go of it; may be called twice, from any thread."""
        self._source.close()


def corrupt(blob: Blob, what: str) -> BlobCorruptError:
    """The error for a blob whose bytes are `missing` or `altered`."""
    return BlobCorruptError(f"the bytes of {blob.key} are {what}", key=blob.key, what=what, place=blob.place)
