"""What every command shares: the options that say which store is meant, and the way from a handler to its output.

A command works on a store that it opens, or with `--server` on one that a server has open: the remote client has the
same methods. What needs the files of a store refuses `--server`, and says where to run it.

A handler that is written by hand is a plain function of a `CommandContext` that returns a value; `command` gives it the
shared options and prints the value. The options may stand before or after any part of the command; the one nearest to
the end counts.
"""

import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin
from urllib.parse import urlsplit

import click

from holdproof.errors import ConfigError, InvalidInputError, ReadOnlyError, RemoteError
from holdproof.model.namespaces import tenant_address

if TYPE_CHECKING:
    from holdproof.store.tenants.places import Parent
    from holdproof.sync import Holdproof

SETTINGS: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_SHARED: Final = ("shared_home", "shared_url", "shared_tenant", "shared_server", "shared_token", "shared_json")
_URL: Final = "HOLDPROOF_DATABASE_URL"
_DIRECT: Final = "HOLDPROOF_DIRECT_URL"
_SERVER: Final = "HOLDPROOF_SERVER"
_TOKEN: Final = "HOLDPROOF_TOKEN"  # noqa: S105 (the variable's name)

Reach = Literal["store", "server", "anywhere"]
"""Where a command works: only beside the store's files, through a server as well, or without any store."""


@dataclass(frozen=True)
class CommandContext:
    """The shared options of one call."""

    home: str | None = None
    url: str | None = None
    server: str | None = None
    token: str | None = field(default=None, repr=False)
    as_json: bool = False
    tenant: str | None = None
    parent: "Parent | None" = None
    """The store that knows the tenant, once `home` and `url` are the tenant's own."""

    def at_tenant(self) -> "CommandContext":
        """Return the call with home and URL of its tenant, if it names one; a server finds its tenants itself."""
        if self.tenant is None or self.remote is not None:
            return self
        opening = importlib.import_module("holdproof.store.opening")
        places = importlib.import_module("holdproof.store.tenants.places")
        location = opening.locate(self.home, self.url)
        # Also one that is not to be used: its log can be looked at, verified and restored.
        parent = places.Parent(location.paths, location.settings)
        place = places.resolve(parent, self.tenant, usable=False)
        # They name the parent's database; this process works on the tenant only.
        os.environ.pop(_URL, None)
        os.environ.pop(_DIRECT, None)
        if place.direct_url is not None:
            os.environ[_DIRECT] = place.direct_url
        if opening.locate(str(place.home), place.url).target != place.target:
            raise ConfigError(
                f"settings of a project name another database than that of the tenant {self.tenant}: run this outside"
                " the project's folder"
            )
        return replace(self, home=str(place.home), url=place.url, parent=parent)

    @property
    def remote(self) -> str | None:
        """The address of the server whose store is meant; None for a store that is opened here.

        An option counts before the environment, so `--home` and `--url` mean a store here also where HOLDPROOF_SERVER
        is set.
        """
        here = self.parent is not None or self.home is not None or self.url is not None
        if self.server is not None and here:
            message = "--server excludes --home and --url: the server knows where its store is"
            raise InvalidInputError(message, parameter="server")
        address = self.server or (None if here else os.environ.get(_SERVER) or None)
        if address is None and self.token is not None:
            raise InvalidInputError("--token is for --server URL: name the server too", parameter="token")
        if address is not None and not address.startswith(("http://", "https://")):
            message = "a server's address begins with http:// or https://, as `holdproof up` prints it"
            raise InvalidInputError(message, parameter="server")
        return address if address is None else tenant_address(address, self.tenant)

    @property
    def secret(self) -> str | None:
        """The token to show, of the option or of the environment."""
        return self.token or os.environ.get(_TOKEN) or None

    def require_local(self, words: str, instead: str = "") -> None:
        """Refuse a command that needs the store's own files while a server is named."""
        if self.remote is not None:
            raise RemoteError(
                f"`holdproof {words}` needs the files of the store: run it on the machine of the server, without"
                f" --server and {_SERVER}{instead and f'; {instead}'}",
                command=words,
            )

    @contextmanager
    def open(self, *, create: bool) -> "Iterator[Holdproof]":
        """Open the store of this call, or connect to that of a server.

        A first run and whatever is degraded are printed on stderr. Without `create` a store that is not there is an
        error: a command that reads must not answer a wrong path with a new, empty store. One that cannot be written,
        as a copy on a medium of evidence, is then opened to read only, and said to be.
        """
        if (address := self.remote) is not None:
            # Imported late: its HTTP client is only for those who connect.
            remote = importlib.import_module("holdproof.remote")
            if self.secret is not None and sends_in_clear(address):
                click.echo(
                    f"warning: {urlsplit(address).hostname} is another machine, and http:// sends the token to it for"
                    " all on the way to read: use https://",
                    err=True,
                )
            with remote.connect_sync(address, self.secret) as connected:
                yield connected
            return
        # Imported late: help and completion need neither.
        sync = importlib.import_module("holdproof.sync")
        render = importlib.import_module("holdproof.cli.render")
        if self.parent is None or self.tenant is None:
            opening = partial(sync.open, self.home, self.url)
        else:
            # By the parent's settings as they were read: the environment names the tenant's database by now.
            opening = partial(_open_tenant, self.parent, self.tenant)
        with told_once():
            try:
                opened = opening(create=create)
            except ReadOnlyError:
                if create:
                    raise
                opened = opening(readonly=True)
        with opened as store:
            render.greet(store.status())
            yield store


def _open_tenant(parent: "Parent", tenant: str, *, create: bool = False, readonly: bool = False) -> "Holdproof":
    """Open the store of a tenant, which is never created by opening it."""
    del create
    sync = importlib.import_module("holdproof.sync")
    opening = importlib.import_module("holdproof.store.opening")
    opened: Holdproof = sync.Holdproof(opening.open_tenant(parent, tenant, readonly=readonly))
    return opened


def sends_in_clear(address: str) -> bool:
    """Whether what is sent to an address leaves this machine without encryption."""
    try:
        parts = urlsplit(address)
    except ValueError:  # refused with words of its own, before anything is sent
        return False
    host = parts.hostname or ""
    try:
        is_here = host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name
        is_here = False
    return parts.scheme == "http" and not is_here


def ask_or_refuse(question: str) -> None:
    """Ask on the terminal and abort unless the answer is yes; InvalidInputError where there is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInputError(f"{question} There is no terminal to ask on: pass --yes")
    click.confirm(question, abort=True, err=True)


@contextmanager
def told_once() -> Iterator[None]:
    """Leave the line that a store is locked to `greet`: opening logs it too, and logging would print it."""

    def is_other(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("LOCKED since")

    logger = logging.getLogger("holdproof")
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


def shared_options(own: Iterable[click.Parameter] = ()) -> list[click.Parameter]:
    """Make the options that every command and every group takes, but for those of which a command has its `own`."""
    flags = {flag for each in own for flag in each.opts}
    return [each for each in _all_shared() if not flags & {*each.opts}]


def _all_shared() -> list[click.Parameter]:
    return [
        click.Option(
            ["--home", "shared_home"], metavar="PATH", help="Keep everything under this folder (or HOLDPROOF_HOME)."
        ),
        click.Option(["--url", "shared_url"], metavar="URL", help="Use this database (or HOLDPROOF_DATABASE_URL)."),
        click.Option(
            ["--tenant", "shared_tenant"], metavar="NAME", help="Use the store of this tenant (`holdproof tenants`)."
        ),
        click.Option(
            ["--server", "shared_server"], metavar="URL", help=f"Use the store of this server (or {_SERVER})."
        ),
        click.Option(
            ["--token", "shared_token"],
            metavar="TOKEN",
            help=f"Show the server this token; {_TOKEN} keeps it out of the list of processes.",
        ),
        click.Option(["--json", "shared_json"], is_flag=True, help="Print one JSON document."),
    ]


def merge_options(ctx: click.Context, values: dict[str, Any]) -> CommandContext:
    """Take the shared options out of `values` and merge them into those of the commands around this one."""
    outer = ctx.obj if isinstance(ctx.obj, CommandContext) else CommandContext()
    home, url, tenant, server, token, as_json = (values.pop(name, None) for name in _SHARED)
    call = CommandContext(
        home=outer.home if home is None else home,
        url=outer.url if url is None else url,
        tenant=outer.tenant if tenant is None else tenant,
        server=outer.server if server is None else server,
        token=outer.token if token is None else token,
        as_json=outer.as_json or bool(as_json),
    )
    ctx.obj = call
    return call


@dataclass(frozen=True)
class Argument:
    """A parameter of a handler that stands by its place."""

    help: str = ""
    metavar: str | None = None
    complete: Callable[..., Any] | None = None


class Option:
    """A parameter of a handler that is named, with what `click.Option` takes."""

    def __init__(self, *flags: str, **settings: Any) -> None:
        self.flags = flags
        self.settings = settings


Namespace = Annotated[str, Option("--ns", help="The namespace.")]
Subject = Annotated[
    str | None,
    Option(
        "--subject",
        envvar="HOLDPROOF_SUBJECT",
        help="The person whose session it is: sealed, and erased with them.",
    ),
]
Limit = Annotated[int, Option("--limit", help="How many, at most.")]
Since = Annotated[str | None, Option("--since", help="From this time on.")]

Draw = Callable[[Any], Any]
"""Shows a plain value to people in a way of its own."""
Handler = Callable[..., Any]


class Described(click.Command):
    """A command whose help describes arguments too, which click leaves to the text above them."""

    descriptions: Sequence[tuple[str, str]] = ()
    """The arguments and what they mean."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click.Command."""
        if self.descriptions:
            with formatter.section("Arguments"):
                formatter.write_dl(self.descriptions)
        super().format_options(ctx, formatter)


class Written(Described):
    """A command that is written by hand."""

    group = "More"
    """The heading of `holdproof --help` that it stands under, if it is no part of a resource."""
    group_summary = ""
    """What the group of commands does that it stands in, if it is no resource."""


def command(
    commands: dict[str, click.Command],
    words: str,
    *,
    example: str,
    group: str = "More",
    group_summary: str = "",
    reach: Reach = "store",
    instead: str = "",
    exit_code: Callable[[Any], int] = lambda _: 0,
    draw: Draw | None = None,
) -> Callable[[Handler], Handler]:
    """Register a handler under its words; `exit_code` is read off its value, `draw` shows it.

    One that reaches the `store` only is refused where a server is named; `instead` says what one does there.
    """

    def register(handler: Handler) -> Handler:
        def run(**values: Any) -> None:
            call = merge_options(click.get_current_context(), values).at_tenant()
            if reach == "store":
                call.require_local(words, instead)
            finish(handler(call, **values), call, exit_code, draw)

        # Without the first parameter, the context.
        own = list(inspect.signature(handler, eval_str=True).parameters.values())[1:]
        parameters = [*map(_parameter, own)]
        written = Written(
            words.rpartition(" ")[2],
            callback=run,
            params=[*parameters, *shared_options(parameters)],
            help=inspect.cleandoc(handler.__doc__ or ""),
            epilog=f"Example: {example}",
            context_settings=SETTINGS,
        )
        written.descriptions = [*_descriptions(own)]
        written.group = group
        written.group_summary = group_summary
        commands[words] = written
        return handler

    return register


def _descriptions(parameters: Iterable[inspect.Parameter]) -> Iterator[tuple[str, str]]:
    for parameter in parameters:
        _, about = get_args(parameter.annotation)
        if isinstance(about, Argument):
            yield about.metavar or parameter.name.upper(), about.help


def finish(value: Any, call: CommandContext, exit_code: Callable[[Any], int], draw: Draw | None) -> None:
    """Print the value of a command and end with its exit code."""
    render = importlib.import_module("holdproof.cli.render")
    try:
        render.show(value, call.as_json, draw)
    except KeyboardInterrupt:
        if not isinstance(value, Generator):
            raise
        value.close()  # it has no end of its own, so this is how one ends it
        raise click.exceptions.Exit(0) from None
    raise click.exceptions.Exit(exit_code(value))


def _parameter(parameter: inspect.Parameter) -> click.Parameter:
    """Turn a parameter of a handler into one of click."""
    hint, about = get_args(parameter.annotation)
    required = parameter.default is parameter.empty
    # Even None counts as a default for click: what is required is given none at all.
    settings: dict[str, Any] = {"required": True} if required else {"default": parameter.default}
    kind, many = _kind(hint)
    if isinstance(about, Argument):
        metavar = about.metavar or parameter.name.upper()
        # With a metavar of its own, click marks neither what is optional nor what may be repeated.
        metavar = metavar if required or metavar.startswith("[") else f"[{metavar}]"
        settings |= {"metavar": metavar, "nargs": -1 if many else 1, "shell_complete": about.complete}
        return click.Argument([parameter.name], type=kind, **{"required": False, **settings})
    if hint is bool:
        settings["is_flag"] = True
    else:
        settings |= {"type": kind, "multiple": many}
    return click.Option([*about.flags, parameter.name], **{**settings, **about.settings})


def _kind(hint: Any) -> tuple[Any, bool]:
    """Return the click type of a hint, and whether it takes several values."""
    parts = [each for each in get_args(hint) if each is not NoneType]
    if get_origin(hint) is Literal:
        return click.Choice(parts), False
    if get_origin(hint) is list:
        return parts[0], True
    if len(parts) == 1:
        return _kind(parts[0])
    return hint, False


def find_function(name: str) -> Callable[..., Any]:
    """Return a function by `module:function`, also from the working folder."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise InvalidInputError("a function is named module:function", function=name)
    # An installed program does not search the working folder, where the functions of a project are.
    sys.path.insert(0, os.getcwd())
    try:
        function: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(f"there is no function {name}: {error}", function=name) from error
    finally:
        sys.path.pop(0)
    if not callable(function):
        raise InvalidInputError(f"{name} is not a function", function=name)
    return function  # type: ignore[no-any-return]
