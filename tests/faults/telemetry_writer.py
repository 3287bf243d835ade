"""A process that appends telemetry as fast as it can and says which batches are acknowledged; made to be killed.

python -m tests.faults.telemetry_writer TARGET

It says `<batch> <size>`; batches of all sizes, so that rows, chunks and the way from one to the other are met.
"""

import asyncio
import os
import sys
import uuid

from holdproof.db import open_database
from holdproof.executors import AsyncExecutor
from holdproof.model.storage import TelemetryEvent
from holdproof.storage.telemetry import Telemetry

SIZES = (1, 30, 400, 1000, 1300)


async def _write(target: str) -> None:
    store = Telemetry(AsyncExecutor(open_database(target, space="telemetry")))

    async def caller(number: int) -> None:
        while True:
            for size in SIZES[number:] + SIZES[:number]:
                batch, now = uuid.uuid4().hex, f"2026-01-01T00:00:{number:02}Z"
                await store.append([TelemetryEvent("x", now, {"n": n, "of": size}, span_id=batch) for n in range(size)])
                os.write(1, f"{batch} {size}\n".encode())

    await asyncio.gather(*(caller(number) for number in range(4)))


if __name__ == "__main__":
    asyncio.run(_write(sys.argv[1]))
