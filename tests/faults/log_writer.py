"""A process that writes stamped rows as fast as it can and says which are acknowledged; made to be killed.

python -m tests.faults.log_writer HOME [URL]

It says `<handle>` for an acknowledged row, and `head <size>` for a head that was published.
"""

import asyncio
import os
import sys

import holdproof
from holdproof.crypto import checkpoint
from tests.conformance.logs import MIGRATIONS, put


def say(text: str) -> None:
    """Unbuffered: said only once it is true, and said at once."""
    os.write(1, f"{text}\n".encode())


async def _write(home: str, url: str | None) -> None:
    async with holdproof.open(home, url, migrations=MIGRATIONS) as store:

        def publish(head: str) -> None:
            say(f"head {checkpoint.parse(head.encode()).checkpoint.size}")

        store.context.log.listeners.insert(0, publish)

        async def caller() -> None:
            while True:
                say(await store.write(put))

        await asyncio.gather(*(caller() for _ in range(16)))


if __name__ == "__main__":
    asyncio.run(_write(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
