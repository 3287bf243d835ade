"""Pages that are one list: each is a declaration (list_declarations.py), and this makes page, `.json` and `.csv` of it.

Rules:
- A page looks at a window of rows, up to a thousand, from the newest (or first) on or from a cursor. Filters that the
  method takes are asked of the store; the others, the search and the order are of the window.
- What is counted is what of the window fits; where the window is not all there is, the page says so and leads on.
- The rows for programs are those of the same address, all that fit of the window, in the same order.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdproof.errors import InvalidInputError
from holdproof.model.memory import plain
from holdproof.model.page import Page
from holdproof.model.times import BEGINNING, END
from holdproof.server.console import listing
from holdproof.server.console.desk import Desk
from holdproof.server.console.listing import TimeRange

_SHOWN: Final = 100
_LONGEST: Final = 500
_MOST_TEXT: Final = 10_000

Row = dict[str, Any]
"""An item as JSON shows it."""


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column: a place in the row (`approval.approved_by`), its name, and how it is shown (see list_page.html)."""

    place: str
    name: str
    kind: str = "text"
    sorts: bool = True
    """Whether the method says it of every row; what `complete` adds is known of shown rows only."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A field of the form: with `argument` the method is asked by it, else the window's rows whose value it is."""

    name: str
    label: str
    place: str = ""
    argument: str = ""
    load: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    placeholder: str = ""
    facet: bool = False
    """Whether its values are counted beside the list."""


@dataclass(frozen=True, slots=True)
class EmptyList:
    """What is said where there is nothing: a heading, a sentence, and how the first row comes about."""

    title: str
    text: str
    example: str


async def _no_facts(desk: Desk, rows: list[Row]) -> None:
    del desk, rows


def _as_it_is(row: Row) -> None:
    del row


@dataclass(frozen=True, slots=True)
class ListPage:
    """A list of the console: where it is, which method gives its rows, and how they are shown."""

    path: str
    title: str
    sub: str
    resource: str
    method: str
    columns: tuple[ListColumn, ...]
    empty: EmptyList
    filters: tuple[Filter, ...] = ()
    at: str = ""
    """The place of a row's time; without one there is no range of time."""
    asks_time: bool = False
    """Whether the method takes `since` and `until`; else the window is looked through."""
    paged: bool = True
    """Whether the method takes `cursor` and `limit`; else it gives all there is."""
    most_rows: int = listing.MOST_ROWS
    """How many rows a window has at most: fewer where one may be large."""
    newest_first: bool = True
    live: str = ""
    """The events that it is shown anew at; without them it is looked at by the clock."""
    arguments: Callable[[Desk], Mapping[str, Any] | None] = field(default=lambda _: {})
    """What the method is always asked with; None where there is nothing to ask."""
    join: Callable[[Desk, list[Row]], Awaitable[None]] = _no_facts
    """Adds to all rows of a window what the method does not say, before they are looked through."""
    shape: Callable[[Row], None] = _as_it_is
    """Makes of a row what is shown of it, before it is searched and put in order."""
    complete: Callable[[Desk, list[Row]], Awaitable[None]] = _no_facts
    """Adds what the method does not say to the rows that are shown."""
    facts: tuple[str, ...] = ()
    """What an item says of itself beside its fields: properties, which are columns too."""
    template: str = "list_page.html"
    """What draws it: a list on which rows are chosen has a page of its own."""
    links: tuple[tuple[str, str], ...] = ()
    """Lists that belong beside it: address and name."""

    @property
    def name(self) -> str:
        """What a file of it is called."""
        return self.path.strip("/").replace("/", "-")


class Window(NamedTuple):
    """What is looked at: the rows of it that fit, how many there were, and the cursor of what follows."""

    rows: list[Row]
    looked_at: int
    next_cursor: str | None
    facets: list[tuple[Filter, dict[str, int]]]


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What an address asks for."""

    fields: Mapping[str, str]
    span: TimeRange
    sort: str
    cursor: str
    number: int

    @property
    def values(self) -> dict[str, str]:
        """The query without the place in the list."""
        return {**self.fields, **self.span.query, "sort": self.sort}

    @property
    def used(self) -> frozenset[str]:
        """The fields that say something."""
        return frozenset(name for name, text in self.fields.items() if text)

    @property
    def filtered(self) -> bool:
        """Whether anything is left out."""
        return bool(self.used) or self.span.word != "all"


def router(declared: ListPage) -> APIRouter:
    """Return the routes of one list."""
    routes = APIRouter(include_in_schema=False)

    async def show(request: Request) -> Response:
        desk = Desk(request)
        desk.require(declared.resource, declared.method)
        query = read_query(declared, desk)
        window = await read_window(declared, desk, query)
        first = (query.number - 1) * _SHOWN
        rows = window.rows[first : first + _SHOWN]
        await declared.complete(desk, rows)
        values = {
            "list": declared,
            "query": query,
            "window": window,
            "shown": rows,
            "first": first,
            "more": len(window.rows) > first + _SHOWN,
            "is_configured": declared.arguments(desk) is not None,
            "sorts": [(each.place, each.name) for each in declared.columns if each.sorts],
            "ranges": listing.RANGES,
            "value_at": value_at,
        }
        return await desk.render(declared.template, values)

    async def export(request: Request, format: str) -> Response:
        desk = Desk(request)
        desk.require(declared.resource, declared.method)
        query = read_query(declared, desk)
        window = await read_window(declared, desk, query)
        await declared.complete(desk, window.rows)
        columns = [each.place for each in declared.columns]
        flat = [{**row, **{place: value_at(row, place) for place in columns}} for row in window.rows]
        answer = listing.export(declared.name, format, window.rows if format == "json" else flat, columns)
        if window.next_cursor:
            answer.headers["X-Next-Cursor"] = window.next_cursor
        return answer

    routes.add_api_route(declared.path, show, methods=["GET"])
    routes.add_api_route(declared.path + ".{format}", export, methods=["GET"])
    return routes


def read_query(declared: ListPage, desk: Desk) -> ListQuery:
    """Return what the address asks for; InvalidInputError for what is no order, no range and no page."""
    parameters = {name: text[:_LONGEST].strip() for name, text in desk.request.query_params.items()}
    names = ["q", *(each.name for each in declared.filters)]
    sort = parameters.get("sort", "")
    if sort.removeprefix("-") not in {"", *(each.place for each in declared.columns if each.sorts)}:
        raise InvalidInputError("sort names no column of this list", field="sort", value=sort)
    number = parameters.get("page", "1")
    if not (number.isascii() and number.isdigit() and 1 <= int(number) <= listing.MOST_ROWS):
        raise InvalidInputError("page is a number from 1 on", field="page", value=number)
    words = {name: parameters.get(name, "") for name in ("range", "since", "until")} if declared.at else {}
    span = listing.time_range(desk.now, **words, default="all")
    return ListQuery(
        {name: parameters.get(name, "") for name in names}, span, sort, parameters.get("cursor", ""), int(number)
    )


async def read_window(declared: ListPage, desk: Desk, query: ListQuery) -> Window:
    """Return the rows of a window that fit, in the order that is asked for."""
    arguments = declared.arguments(desk)
    if arguments is None:
        return Window([], 0, None, [])
    method = getattr(getattr(desk.store, declared.resource), declared.method)
    page: Page[Any] = await method(**arguments, **_paging(declared, query), **_asked(declared, query))
    rows = [{**plain(each.to_dict()), **{name: getattr(each, name) for name in declared.facts}} for each in page.items]
    await declared.join(desk, rows)
    for row in rows:
        declared.shape(row)
    fitting = [row for row in rows if _fits(declared, query, row)]
    facets = [(each, _counts(fitting, each)) for each in declared.filters if each.facet]
    return Window(_sorted(fitting, query.sort), len(rows), page.next_cursor, facets)


def _paging(declared: ListPage, query: ListQuery) -> dict[str, Any]:
    if not declared.paged:
        return {}
    return {"cursor": query.cursor or None, "limit": min(declared.most_rows, listing.MOST_ROWS)}


def _asked(declared: ListPage, query: ListQuery) -> dict[str, Any]:
    """Return the filters that the method takes."""
    arguments: dict[str, Any] = {}
    for each in declared.filters:
        text = query.fields[each.name]
        if each.argument and text:
            try:
                arguments[each.argument] = each.load(text)
            except (ValueError, KeyError) as error:
                raise InvalidInputError(f"{each.label}: {text[:60]!r} is none", field=each.name) from error
    if declared.asks_time:
        arguments["since"] = None if query.span.since == BEGINNING else query.span.since
        arguments["until"] = None if query.span.until == END else query.span.until
    return arguments


def _fits(declared: ListPage, query: ListQuery, row: Row) -> bool:
    q = query.fields["q"].casefold()
    if q and not any(q in text_of(value_at(row, each.place)).casefold() for each in declared.columns):
        return False
    for each in declared.filters:
        text = query.fields[each.name]
        if text and not each.argument and text_of(value_at(row, each.place)) != text:
            return False
    if not declared.at or declared.asks_time:
        return True
    at = value_at(row, declared.at)
    # What has no time, such as a backup that is damaged, is left out of no range.
    return not at or query.span.since <= at < query.span.until


def _counts(rows: list[Row], facet: Filter) -> dict[str, int]:
    counts = Counter(text_of(value_at(row, facet.place)) for row in rows)
    return {value: count for value, count in counts.most_common() if value}


def _sorted(rows: list[Row], sort: str) -> list[Row]:
    """Return rows by a column; what has no value comes last in both directions."""
    if not sort:
        return rows
    place = sort.removeprefix("-")
    with_value = [row for row in rows if value_at(row, place) is not None]
    others = [row for row in rows if value_at(row, place) is None]
    with_value.sort(key=lambda row: _order(value_at(row, place)), reverse=sort.startswith("-"))
    return with_value + others


def _order(value: Any) -> tuple[int, float, str]:
    is_number = isinstance(value, int | float)
    return (0, value, "") if is_number else (1, 0.0, text_of(value).casefold())


def value_at(row: Row, place: str) -> Any:
    """Return what stands at a place of a row; None where nothing does."""
    value: Any = row
    for name in place.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_of(value: Any) -> str:
    """Return a value as a search and a filter read it."""
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value)[:_MOST_TEXT]
