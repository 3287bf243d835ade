"""A process that runs sessions as fast as it can and says what is acknowledged; made to be killed.

python -m tests.faults.session_writer TARGET

It says `start <session>`, `log <session> <number>` and `end <session>`, each once that is durable.
"""

import asyncio
import os
import sys
from itertools import cycle

from holdproof.db import open_database
from holdproof.executors import AsyncExecutor
from holdproof.storage.sessions import Sessions


async def _write(target: str) -> None:
    sessions = Sessions(AsyncExecutor(open_database(target, space="membrane")))

    async def caller(number: int) -> None:
        for length in cycle((0, 1, 7, 30)):
            session = await sessions.start_session("script", f"caller {number}")
            os.write(1, f"start {session.id}\n".encode())
            for step in range(length):
                await sessions.log_event(session.id, "step", "writer", str(step))
                os.write(1, f"log {session.id} {step}\n".encode())
            await sessions.end_session(session.id, tokens_used=length)
            os.write(1, f"end {session.id}\n".encode())

    await asyncio.gather(*(caller(number) for number in range(4)))


if __name__ == "__main__":
    asyncio.run(_write(sys.argv[1]))
