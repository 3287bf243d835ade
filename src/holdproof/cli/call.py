"""What every command shares: the options `--home`, `--url` and `--json`, and the way from a handler to its output.

A handler is a plain function of a `Call` that returns a value; `command` gives it the shared options and prints the
value. The options may stand before or after any part of the command; the one nearest to the end counts.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from holdproof import sync
from holdproof.cli import render
from holdproof.errors import InvalidInputError
from holdproof.model.page import Page

P = ParamSpec("P")
R = TypeVar("R")

Home = Annotated[
    str | None,
    typer.Option("--home", metavar="PATH", help="Keep everything under this folder (or HOLDPROOF_HOME)."),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Use this database (or HOLDPROOF_DATABASE_URL)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

# What many commands take, each in its own place.
Namespace = Annotated[str, typer.Option("--ns", help="The namespace.")]
Limit = Annotated[int, typer.Option("--limit", help="How many, at most.")]
After = Annotated[str, typer.Option("--after", help="The `next` of the page before.")]
AfterNumber = Annotated[int, typer.Option("--after", help="The `next` of the page before.")]
Before = Annotated[str, typer.Option("--before", help="The `next` of the page before.")]
BeforeNumber = Annotated[int | None, typer.Option("--before", help="The `next` of the page before.")]
Since = Annotated[str | None, typer.Option("--since", help="From this time on.")]


@dataclass(frozen=True)
class Call:
    """The shared options of one call."""

    home: str | None = None
    url: str | None = None
    as_json: bool = False

    @contextmanager
    def open(self) -> Iterator[sync.Holdproof]:
        """The store this call is about; a first run and whatever is degraded are told on stderr."""
        with sync.open(self.home, self.url) as store:
            render.greet(store.status())
            yield store


def options(ctx: typer.Context, home: Home = None, url: Url = None, as_json: Json = False) -> Call:
    """Merge the options at this place into those further left; also the callback of every group."""
    left = ctx.obj if isinstance(ctx.obj, Call) else Call()
    merged = Call(
        home=left.home if home is None else home,
        url=left.url if url is None else url,
        as_json=left.as_json or as_json,
    )
    ctx.obj = merged
    return merged


def command(
    app: typer.Typer,
    *,
    example: str,
    name: str | None = None,
    exit_code: Callable[[Any], int] = lambda _: 0,
    draw: render.Draw | None = None,
) -> Callable[[Callable[Concatenate[Call, P], R]], Callable[Concatenate[Call, P], R]]:
    """Register a handler under its own name, or another; `exit_code` is read off its value, `draw` shows it."""

    def register(handler: Callable[Concatenate[Call, P], R]) -> Callable[Concatenate[Call, P], R]:
        shared = inspect.signature(options).parameters

        def run(**given: Any) -> None:
            call = options(**{name: given.pop(name) for name in shared})
            value = handler(call, **given)  # type: ignore[call-arg]
            try:
                render.show(value, call.as_json, draw)
            except KeyboardInterrupt:
                if not isinstance(value, Generator):
                    raise
                value.close()  # it has no end of its own, so this is how one ends it
                raise typer.Exit(0) from None
            raise typer.Exit(exit_code(value))

        _, *own = inspect.signature(handler).parameters.values()
        # Keywords only: then those with a default may come first.
        parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in (*own, *shared.values())]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        called = name or handler.__name__.rstrip("_").replace("_", "-")
        app.command(called, help=handler.__doc__, epilog=f"Example: {example}")(run)
        return handler

    return register


def page(name: str, found: Sequence[Any], limit: int, key: str) -> dict[str, Any]:
    """Values as a page of that name; `next` is the key of its last one, None where nothing follows."""
    follows = getattr(found[-1], key) if found and len(found) == limit else None
    return {name: [each.to_dict() for each in found], "next": follows}


def items(name: str, listed: Page[Any]) -> dict[str, Any]:
    """Return the items of a page under a name of their own."""
    told = listed.to_dict()
    return {name: told["items"], "next": told["next_cursor"]}


def find_function(name: str) -> Callable[..., Any]:
    """A function by `module:function`, also from the working folder."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise InvalidInputError("a function is named module:function", function=name)
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(f"there is no function {name}: {error}", function=name) from error
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise InvalidInputError(f"{name} is not a function", function=name)
    return found  # type: ignore[no-any-return]
