"""A process that adds vectors as fast as it can and says which are acknowledged; made to be killed.

python -m tests.faults.vector_writer TARGET CACHE NAME
"""

import asyncio
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from holdproof.db import open_database
from holdproof.executors import AsyncExecutor
from holdproof.storage.vectors import open_vectors

SIZE = 16


def vector(id: str) -> Sequence[float]:
    """The vector of an id, the same in every process."""
    return [float(byte) + 1 for byte in (id * SIZE).encode()[:SIZE]]


async def _write(target: str, cache: str, name: str) -> None:
    face = AsyncExecutor(open_database(target, space="membrane"))
    store = await face.run(open_vectors(face, dimensions=SIZE, cache=Path(cache)))

    async def caller(number: int) -> None:
        for at in itertools.count():
            id = f"{at}-{number}-{name}"
            await store.add(id, vector(id), {"writer": name})
            os.write(1, f"+{id}\n".encode())  # unbuffered: said only after it is durable, and said at once
            if at % 5 == 4:
                gone = f"{at - 1}-{number}-{name}"
                os.write(1, f"?{gone}\n".encode())
                await store.delete(gone)
                os.write(1, f"-{gone}\n".encode())
            if at % 40 == 39:
                await store.search(vector(id))
                await asyncio.to_thread(store.held.finder.replica.save)  # type: ignore[attr-defined]

    await asyncio.gather(*(caller(number) for number in range(16)))


if __name__ == "__main__":
    asyncio.run(_write(*sys.argv[1:4]))
