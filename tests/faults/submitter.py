"""A process that submits battles as fast as it can and says which are acknowledged; made to be killed.

python -m tests.faults.submitter HOME URL NAME
"""

import asyncio
import os
import sys

import holdproof


async def _submit(home: str, url: str | None, name: str) -> None:
    async with holdproof.open(home, url) as store:

        async def caller(number: int) -> None:
            turn = 0
            while True:
                turn += 1
                # Half of them again and again for one battle, so that files are renamed while the end comes.
                evaluation_id = "again" if number % 2 else f"{name}-{number}-{turn}"
                evaluation = await store.evaluations.submit(
                    {"by": name, "turn": turn}, evaluation_id=evaluation_id, score=turn
                )
                os.write(
                    1, f"{evaluation.id}\n".encode()
                )  # unbuffered: said only after it is durable, and said at once

        await asyncio.gather(*(caller(number) for number in range(6)))


if __name__ == "__main__":
    asyncio.run(_submit(sys.argv[1], sys.argv[2] or None, sys.argv[3]))
