"""A process that appends to transcripts as fast as it can and says what is acknowledged; made to be killed.

python -m tests.faults.transcript_writer HOME [URL]

It says `<caller> <turn>` once the two items of that turn are durable.
"""

import asyncio
import os
import sys
from itertools import count

import holdproof


async def _write(home: str, url: str | None) -> None:
    async with holdproof.open(home, url) as store:

        async def caller(number: int) -> None:
            name = f"chat/{number}"
            begun = len((await store.transcripts.list_items(name, limit=1000)).items) // 2
            for turn in count(begun):
                await store.transcripts.append(name, [[turn, "user"], [turn, "agent"]], state={"turns": turn + 1})
                os.write(1, f"{number} {turn}\n".encode())

        await asyncio.gather(*(caller(number) for number in range(4)))


if __name__ == "__main__":
    asyncio.run(_write(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
