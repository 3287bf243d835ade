"""Sessions of the official client with `holdproof mcp`, in a process of its own."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any


async def _client(home: Path, *words: str, then: Callable[[Any], Awaitable[Any]]) -> Any:
    import mcp  # noqa: PLC0415 (tests that use this are skipped without the extra)

    command = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "holdproof", "--home", str(home), "mcp", *words],
        env=dict(os.environ),
    )
    async with mcp.stdio_client(command) as (reading, writing), mcp.ClientSession(reading, writing) as session:
        await session.initialize()
        return await then(session)


def talk(home: Path, *words: str, then: Callable[[Any], Awaitable[Any]]) -> Any:
    """Start `holdproof mcp` with these options, and do something in a session with it."""
    return asyncio.run(_client(home, *words, then=then))
