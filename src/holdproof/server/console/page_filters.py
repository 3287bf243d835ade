"""How single pages show values, beside the filters of every page: whole moments, lengths, links that keep a query."""

from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from holdproof.model.times import to_micros
from holdproof.server.console import axes
from holdproof.server.console.template_filters import ago, brief, drop_empty, size


@pass_context
def stamp(context: Context, at: str | None) -> Markup:
    """A moment, absolute with its zone and relative."""
    if not at:
        return Markup('<span class="faint">—</span>')
    try:
        relative = ago(at, context["now"])
    except ValueError:  # rows of other programs may have any time
        return escape(at)
    text = f"{at[:10]} {at[11:19]} UTC"
    return Markup(
        '<span class="stamp"><time class="exact" datetime="{0}">{1}</time>'
        ' <time class="faint" datetime="{0}">{2}</time></span>'
    ).format(at, text, relative)


def took(start: str | None, end: str | None) -> str:
    """How long something took; nothing where it has not ended."""
    if not start or not end:
        return "—"
    return axes.length(max(to_micros(end) - to_micros(start), 0) / 1_000_000)


def seconds(start: str | None, end: str | None) -> str:
    """How long something took, as a number that a column is sorted by; nothing where it has not ended."""
    if not start or not end:
        return ""
    return f"{max(to_micros(end) - to_micros(start), 0) / 1_000_000:.6f}"


def query(values: dict[str, Any], **changes: Any) -> str:
    """A query with some of its values changed, without what is empty; `?` where nothing is left."""
    return "?" + urlencode(drop_empty({**values, **changes}))


def called(arguments: Any) -> Any:
    """What a function was called with, as its code has it: `parcel 17, weight=2`; the whole where it is no call."""
    if not isinstance(arguments, dict) or arguments.keys() != {"args", "kwargs"}:
        return arguments
    parts = [brief(each, 200) for each in arguments["args"]]
    parts += [f"{name}={brief(each, 200)}" for name, each in arguments["kwargs"].items()]
    return ", ".join(parts) if parts else None


def grouped(count: int) -> str:
    """A count with its thousands apart: `12 345`."""
    return f"{count:,}".replace(",", "\u202f")


def amounts(counts: dict[str, int]) -> str:
    """How much there is of each kind: `12 blobs · 3.4 MiB`."""
    return " · ".join(size(count) if name == "bytes" else f"{grouped(count)} {name}" for name, count in counts.items())


FILTERS: Final = {each.__name__: each for each in (stamp, took, seconds, query, called, grouped, amounts)} | {
    "length_of": axes.length
}
"""By the names that templates use."""
