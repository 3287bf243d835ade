"""`holdproof tokens`: who may act at the server."""

from typing import Annotated

import typer

from holdproof.cli import draw
from holdproof.cli.call import After, Call, Limit, Since, command, options
from holdproof.model.access import AccessEvent, Login, NewLogin, NewToken, Token
from holdproof.model.page import Page
from holdproof.model.times import BEGINNING

app = typer.Typer(
    help="Say who may act at the server, and see who was refused.",
    epilog="Example: holdproof tokens create grafana --role auditor",
    no_args_is_help=True,
)
app.callback()(options)

_DAY_S = 86_400.0
TokenId = Annotated[str, typer.Argument(metavar="TOKEN_ID", help="The token's id.")]
Namespaces = Annotated[str, typer.Option("--ns", help="The namespace it is for; * for every one.")]
By = Annotated[str, typer.Option("--by", help="Who does this; kept with the token.")]


@command(app, example="holdproof tokens create grafana --role auditor --noun log --days 30")
def create(
    call: Call,
    *,
    name: Annotated[str, typer.Argument(help="What it is called.")],
    role: Annotated[str, typer.Option("--role", help="operator, auditor (reads only) or agent.")] = "operator",
    agent: Annotated[str | None, typer.Option("--agent", help="The agent, for the role agent.")] = None,
    noun: Annotated[
        list[str] | None,
        typer.Option("--noun", help="Only this noun, or for an agent this one too; may be repeated."),
    ] = None,
    days: Annotated[float, typer.Option("--days", help="How long it is valid; 0 until it is revoked.")] = 90.0,
    by: By = "operator",
    ns: Namespaces = "*",
) -> NewToken:
    """Make a token; shows its secret, this once."""
    ttl_s = days * _DAY_S or None
    with call.open() as store:
        return store.tokens.create(name, role=role, agent_id=agent, nouns=noun or None, ttl_s=ttl_s, by=by, ns=ns)


@command(
    app,
    example="holdproof tokens list --all",
    draw=draw.rows("items", "token_id", "name", "role", "agent_id", "ns", "expires_at", "revoked_at", "last_used_at"),
)
def list_(
    call: Call,
    all: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    after: After = "",
    limit: Limit = 100,
    ns: Namespaces = "*",
) -> Page[Token]:
    """List tokens, newest first, a page at a time."""
    with call.open() as store:
        return store.tokens.list(all=all, cursor=after or None, limit=limit, ns=ns)


@command(app, example="holdproof tokens revoke 0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --by ann")
def revoke(call: Call, token_id: TokenId, by: By = "operator", ns: Namespaces = "*") -> Token:
    """End a token, with every session that came from it."""
    with call.open() as store:
        return store.tokens.revoke(token_id, by=by, ns=ns)


@command(app, example="holdproof tokens link --name ann")
def link(
    call: Call,
    token: Annotated[str | None, typer.Option("--token", help="Log in as the holder of this token.")] = None,
    name: Annotated[str, typer.Option("--name", help="Who logs in; kept with what they decide.")] = "operator",
    role: Annotated[str, typer.Option("--role", help="operator or auditor.")] = "operator",
    minutes: Annotated[float, typer.Option("--minutes", help="How long the code can be used, 60 at most.")] = 10.0,
) -> NewLogin:
    """Make a code that opens the console once: at /login, or as /login?code=CODE."""
    with call.open() as store:
        return store.logins.create_link(token_id=token, name=name, role=role, ttl_s=minutes * 60)


@command(
    app,
    example="holdproof tokens logins --all",
    draw=draw.rows("items", "login_id", "kind", "name", "role", "ns", "token_id", "expires_at", "ended_at"),
)
def logins(
    call: Call,
    all: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    after: After = "",
    limit: Limit = 100,
    ns: Namespaces = "*",
) -> Page[Login]:
    """List links to log in by and sessions at the console, newest first, a page at a time."""
    with call.open() as store:
        return store.logins.list(all=all, cursor=after or None, limit=limit, ns=ns)


@command(app, example="holdproof tokens end 0198a7c2-9c1e-7a3b-8d4e-5f6071829304")
def end(
    call: Call,
    login_id: Annotated[str, typer.Argument(metavar="LOGIN_ID", help="The link's or the session's id.")],
    ns: Namespaces = "*",
) -> Login:
    """End a link or a session."""
    with call.open() as store:
        return store.logins.end(login_id, ns=ns)


@command(
    app,
    example="holdproof tokens events --event denied",
    draw=draw.rows(
        "items", "id", "created_at", "event", "status", "code", "caller", "address", "method", "path", "count"
    ),
)
def events(
    call: Call,
    event: Annotated[str | None, typer.Option("--event", help="denied, login, logout or flood.")] = None,
    since: Since = None,
    after: After = "",
    limit: Limit = 100,
) -> Page[AccessEvent]:
    """List what happened at the server's door, newest first."""
    with call.open() as store:
        return store.access_log.list(event=event, since=since or BEGINNING, cursor=after or None, limit=limit)
