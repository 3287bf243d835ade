"""The `Storage` of Strands: bytes under keys, each the document of a transcript.

Rules:
- A key is a path: runs of slashes are one, and `..` and backslashes are refused.
- What was written is durable when the call returns; of two writers the last one counts, whole.
"""

import re
from base64 import b64decode, b64encode
from typing import Final

from strands.storage import Storage
from strands.types.exceptions import StorageError

from holdproof.adapters import documents
from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where, shield_until_done
from holdproof.errors import InvalidInputError, NotFoundError

PREFIX: Final = "strands-storage/"


class HoldproofStorage(StoreAdapter, Storage):
    """Bytes on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `subject` names the person whose bytes these are: `store.erase.subject(name)` then removes them.
    """

    def __init__(self, where: Where = None, *, subject: str | None = None, ns: str | None = None) -> None:
        self._shared = SharedStore(where, ns=ns)
        self._subject = subject

    async def write(self, key: str, data: bytes) -> None:
        """Write bytes under a key, in the place of what is there."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidInputError(f"what is stored must be bytes, not {type(data).__name__}", field="data")
        value = {"data": b64encode(data).decode()}
        name = documents.joined(PREFIX, _path(key))
        store = await self._shared.store()
        put = store.transcripts.put_state
        await shield_until_done(put(name, value, subject=self._subject, **self._within()))

    async def read(self, key: str) -> bytes | None:
        """Return the bytes under a key, None where there are none."""
        name = documents.joined(PREFIX, _path(key))
        store = await self._shared.store()
        try:
            transcript = await store.transcripts.get(name, **self._within())
        except NotFoundError:
            return None
        return b64decode(transcript.state["data"])

    async def delete(self, key: str) -> None:
        """Remove the bytes under a key; nothing where there are none."""
        name = documents.joined(PREFIX, _path(key))
        store = await self._shared.store()
        await shield_until_done(store.transcripts.delete(name, **self._within()))

    async def list(self, query: str = "") -> list[str]:
        """Return the keys that begin with a prefix, sorted."""
        # Quoting goes character by character, so a quoted prefix is the prefix of quoted keys.
        prefix = documents.joined(PREFIX, _checked(query).lstrip("/"))
        within = self._within()
        store = await self._shared.store()
        names = await store.read(lambda tx: [each.name for each in documents.every(tx, prefix, **within)])
        return sorted(documents.parted(PREFIX, name)[0] for name in names)


def _checked(path: str) -> str:
    """Return a path with runs of slashes made one; StorageError for what no path may hold."""
    if "\\" in path:
        raise StorageError(f"Invalid storage key '{path}': backslashes are not allowed")
    normal = re.sub(r"/+", "/", path)
    if ".." in normal.split("/"):
        raise StorageError(f"Invalid storage key '{path}': '..' path segments are not allowed")
    return normal


def _path(key: str) -> str:
    normal = _checked(key).strip("/")
    if not normal:
        raise StorageError("Storage key must not be empty")
    return normal
