"""`holdproof contexts` and `holdproof state`: what a flow works with, and what is kept for an agent."""

from typing import Annotated, Any, get_args

import typer

from holdproof.cli import draw
from holdproof.cli.agents import AgentId
from holdproof.cli.call import After, Call, Limit, Namespace, command, options
from holdproof.cli.flows import FlowId
from holdproof.model.page import Page
from holdproof.model.records import Document, DocumentVersion


def _group(noun: str, what: str, key: Any, one: str) -> typer.Typer:
    """The commands of a noun whose documents are found by `key`, as `one` is."""
    _, argument = get_args(key)
    app = typer.Typer(
        help=f"Show {what}, and what the log knows of it.",
        epilog=f"Example: holdproof {noun} show {one}",
        no_args_is_help=True,
    )
    app.callback()(options)

    @command(app, example=f"holdproof {noun} show {one}")
    def show(call: Call, of: Annotated[str, argument], ns: Namespace = "main") -> Document:
        """Show it as it is now, and its version."""
        with call.open() as store:
            found: Document = getattr(store, noun).get(of, ns=ns)
            return found

    @command(
        app,
        example=f"holdproof {noun} versions {one}",
        draw=draw.rows("items", "ver", "at", "index", "commitment"),
    )
    def versions(
        call: Call,
        of: Annotated[str, argument],
        after: After = "",
        limit: Limit = 100,
        ns: Namespace = "main",
    ) -> Page[DocumentVersion]:
        """List its versions as the log knows them, the newest first, a page at a time."""
        with call.open() as store:
            found: Page[DocumentVersion] = getattr(store, noun).versions(of, cursor=after or None, limit=limit, ns=ns)
            return found

    return app


contexts = _group("contexts", "what a flow works with", FlowId, "0198a7c2-9c1e-7a3b-8d4e-5f6071829304")
state = _group("state", "what is kept for an agent", AgentId, "trader")
