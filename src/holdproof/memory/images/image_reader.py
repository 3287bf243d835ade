"""Read objects from an image without loading it into a store."""

from collections.abc import Callable

from holdproof.crypto.mst import Get
from holdproof.errors import NotFoundError
from holdproof.memory.images.image_files import ImageManifest
from holdproof.memory.objects import commits, objects, records
from holdproof.memory.objects.records import OBJECT
from holdproof.memory.objects.tree_transaction import TreeReader
from holdproof.model.memory import Object
from holdproof.model.page import Page


class Image:
    """The newest state of an image; every block is hashed when it is read."""

    def __init__(self, manifest: ImageManifest, get: Get, close: Callable[[], None]) -> None:
        self.manifest = manifest
        self._close = close
        self._view = TreeReader(get, commits.parse(manifest.root))

    def get(self, id: str) -> Object:
        """Return an object as it is in the image."""
        key = records.key_of(id)
        if self._view.find(OBJECT + key) is None:
            raise NotFoundError(f"there is no object {id} in the image", listed_by="objects list", id=id)
        return objects.read(self._view, key, self.manifest.ns, hidden=False)

    def list(self, *, cursor: str | None = None, limit: int = 100) -> Page[Object]:
        """List the objects of the image, in the order of their keys."""
        return objects.page(self._view, cursor, limit, self.manifest.ns)

    def close(self) -> None:
        """Let the files go; may be called twice."""
        self._close()

    def __enter__(self) -> "Image":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
