"""`holdproof mcp`: the store as tools for models."""

import asyncio
from typing import Annotated

import typer

import holdproof
from holdproof.cli.call import Call, command
from holdproof.errors import InvalidInputError, MissingExtraError

app = typer.Typer()


@command(app, example="holdproof mcp --read-only")
def mcp(
    call: Call,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only what reads.")] = False,
    nouns: Annotated[
        list[str] | None, typer.Option("--noun", help="Offer every verb of this noun instead of the usual tools.")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Act as this agent: on its own flows only.")] = None,
    token: Annotated[
        str | None, typer.Option("--token", envvar="HOLDPROOF_TOKEN", help="Act as whoever this token says.")
    ] = None,
) -> None:
    """Offer the store as tools over standard input and output (Model Context Protocol), until the client goes away."""
    if agent is not None and token is not None:
        raise InvalidInputError("say either an agent or a token")
    try:
        from holdproof.server import mcp as tools  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("this needs the extra mcp: pip install 'holdproof[mcp]'") from error
    offer = tools.Offer(tools.nouns(nouns or ()), read_only)

    async def serve() -> None:
        async with holdproof.open(call.home, call.url) as store:
            caller = await tools.caller_for(store, token, agent, read_only=read_only)
            await tools.over_stdio(store, caller, offer)

    asyncio.run(serve())
    raise typer.Exit  # stdout is for the protocol, and for nothing else
