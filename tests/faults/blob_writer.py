"""A process that puts blobs as fast as it can and says which are acknowledged; made to be killed.

python -m tests.faults.blob_writer TARGET FOLDER NAME
"""

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator
from hashlib import sha256

from holdproof.db import open_database
from holdproof.executors import AsyncExecutor
from holdproof.storage.blobs import Blobs, BlobStoreConfig, open_backend

SIZES = (100, 20_000, 40_000, 300_000, 3_000_000)


def content(seed: str, size: int) -> bytes:
    """Bytes that say themselves whether they are whole."""
    return (sha256(f"{seed}/{size}".encode()).digest() * (size // 32 + 1))[:size]


def whole(data: bytes) -> bool:
    return len(data) in SIZES and data == (data[:32] * (len(data) // 32 + 1))[: len(data)]


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 70_000):
        yield data[at : at + 70_000]


async def _write(target: str, folder: str, name: str) -> None:
    blobs = Blobs(AsyncExecutor(open_database(target, space="membrane")), BlobStoreConfig(open_backend(folder)))

    async def caller(number: int) -> None:
        for turn in itertools.count(number):
            size, key = SIZES[turn % len(SIZES)], f"{name}/{number}/{turn}"
            data = content(key, size)
            if turn % 2:
                await blobs.put(key, data)
            else:
                await blobs.open_write(key, _pieces(data))
            os.write(1, f"{key} {size}\n".encode())  # unbuffered: said only after it is durable, and said at once
            await blobs.put(f"hot/{turn % 3}", data)
            await blobs.put("shared", content("shared", SIZES[turn % len(SIZES)]))
            await blobs.delete(f"hot/{(turn + 1) % 3}")

    await asyncio.gather(*(caller(number) for number in range(6)))


if __name__ == "__main__":
    asyncio.run(_write(sys.argv[1], sys.argv[2], sys.argv[3]))
