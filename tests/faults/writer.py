"""A process that writes pairs of rows as fast as it can and says which are acknowledged; made to be killed.

python -m tests.faults.writer TARGET NAME
"""

import asyncio
import os
import sys

from holdproof.db import Migration, Tx, open_database, sql
from holdproof.executors import AsyncExecutor

MIGRATIONS = [
    Migration(
        "0001_pairs",
        "CREATE TABLE lefts (id TEXT PRIMARY KEY, writer TEXT NOT NULL, body TEXT NOT NULL);"
        "CREATE TABLE rights (id TEXT PRIMARY KEY REFERENCES lefts (id), at @time NOT NULL);",
    )
]
_LEFT = sql("INSERT INTO lefts (id, writer, body) VALUES (:id, :writer, :body)")
_RIGHT = sql("INSERT INTO rights (id, at) VALUES (:id, :at)")


def pair(tx: Tx, writer: str) -> str:
    """Two rows that must live or die together."""
    key = tx.new_id()
    tx.execute(_LEFT, id=key, writer=writer, body="x" * 300, expect=1)
    tx.execute(_RIGHT, id=key, at=tx.now, expect=1)
    return key


async def _write(target: str, name: str) -> None:
    face = AsyncExecutor(open_database(target, migrations=MIGRATIONS))

    async def caller() -> None:
        while True:
            key = await face.write(lambda tx: pair(tx, name))
            os.write(1, f"{key}\n".encode())  # unbuffered: said only after it is durable, and said at once

    await asyncio.gather(*(caller() for _ in range(16)))


if __name__ == "__main__":
    asyncio.run(_write(sys.argv[1], sys.argv[2]))
