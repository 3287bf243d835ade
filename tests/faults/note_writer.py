"""A process that puts notes as fast as it can and says what is acknowledged; made to be killed.

python -m tests.faults.note_writer HOME [URL]

It says `<caller> <turn>` once both notes of that turn, and their vectors, are durable.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from itertools import count

from langgraph.store.base import PutOp

import holdproof
from holdproof.adapters.langgraph import HoldproofStore


def _embed(texts: Sequence[str]) -> list[list[float]]:
    return [[1.0, float(len(text))] for text in texts]


async def _write(home: str, url: str | None) -> None:
    async with holdproof.open(home, url) as store:
        kept = HoldproofStore(store, index={"dims": 2, "embed": _embed, "fields": ["turn"]})

        async def caller(number: int) -> None:
            path = ("killed", str(number))
            last = await kept.aget(path, "one")
            for turn in count(0 if last is None else last.value["turn"] + 1):
                await kept.abatch([PutOp(path, key, {"turn": turn}) for key in ("one", "two")])
                os.write(1, f"{number} {turn}\n".encode())

        await asyncio.gather(*(caller(number) for number in range(4)))


if __name__ == "__main__":
    asyncio.run(_write(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
