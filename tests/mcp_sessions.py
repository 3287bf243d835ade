"""Sessions of the official client with `holdproof mcp`: processes of their own, forked ones (harness/forked.py)."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from harness import forked


async def _client(
    home: Path, words: tuple[str, ...], then: Callable[[Any], Awaitable[Any]], program: Sequence[str] | None
) -> Any:
    import mcp  # noqa: PLC0415 (tests that use this are skipped without the extra)

    async with (
        mcp.stdio_client(_command(mcp, home, words, program)) as (reading, writing),
        mcp.ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        return await then(session)


def talk(home: Path, *words: str, then: Callable[[Any], Awaitable[Any]], program: Sequence[str] | None = None) -> Any:
    """Start `holdproof mcp` with these options, and do something in a session with it.

    `program` are the words that start `holdproof`, where it is to be started and not forked.
    """
    return asyncio.run(_client(home, words, then, program))


def talk_over_http(address: str, token: str, *, then: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
    """Do something with the tools of a server: a session of the newest protocol that the client knows.

    `options` are those of `mcp.Client`, as `mode="legacy"` for the protocols that begin with a handshake.
    """
    return asyncio.run(_web_client(address, token, then, options))


async def _web_client(address: str, token: str, then: Callable[[Any], Awaitable[Any]], options: dict[str, Any]) -> Any:
    import mcp  # noqa: PLC0415 (tests that use this are skipped without the extra)
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 (the same)

    http: Any = httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
    async with http, mcp.Client(streamable_http_client(f"{address}/mcp/", http_client=http), **options) as client:
        return await then(client)


def talk_by_client(home: Path, *words: str, then: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
    """Start `holdproof mcp` with these words, and do something by a client of the newest protocol; see `mcp.Client`."""
    return asyncio.run(_stdio_client(home, words, then, options))


async def _stdio_client(
    home: Path, words: tuple[str, ...], then: Callable[[Any], Awaitable[Any]], options: dict[str, Any]
) -> Any:
    import mcp  # noqa: PLC0415 (the same)

    async with mcp.Client(_command(mcp, home, words), **options) as client:
        return await then(client)


def _command(mcp: Any, home: Path, words: tuple[str, ...], program: Sequence[str] | None = None) -> Any:
    first, *more = program or forked.command()
    args = [*more, "--home", str(home), "mcp", *words]
    return mcp.StdioServerParameters(command=first, args=args, env=dict(os.environ))
