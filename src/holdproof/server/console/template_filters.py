"""How values look on a page: times as people say them, ids short, JSON readable. Everything is escaped."""

import json
from typing import Any, Final

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from holdproof.model.differences import FieldChange, ProposalPart
from holdproof.model.memory import plain
from holdproof.model.times import to_micros
from holdproof.model.visible_text import visible
from holdproof.server.console import text_diff

_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SHORT: Final = 13
_TONES: Final = {
    "good": {"COMPLETED", "APPROVED", "ACTIVE", "DONE", "VALID", "VERIFIED", "ok", "KEPT", "added"},
    "live": {"RUNNING", "CREATED", "PENDING", "STARTED", "INFO", "changed", "LOCAL"},
    "wait": {
        "WAITING_ESCALATION",
        "DEGRADED",
        "ESCALATION_ONLY",
        "UNKNOWN",
        "WARNING",
        "warning",
        "UNSIGNED",
        "ERASED",
    },
    "bad": {"FAILED", "REJECTED", "SUSPENDED", "TAMPERED", "FORKED", "ROLLED_BACK", "REVOKED_KEY", "ERROR", "error"}
    | {"CRITICAL", "UNLOGGED", "FOREIGN_WRITER", "INCOMPLETE", "removed", "HIGH_IMPACT", "DBOM_MISSING"},
    "back": {"COMPENSATING", "COMPENSATED", "CANCELLED", "RETIRED", "LOW_IMPACT", "meta", "DEBUG"},
}
_TONE: Final = {word: tone for tone, words in _TONES.items() for word in words}
_NOTHING: Final = Markup('<span class="faint">—</span>')
_COPY: Final = Markup('<button type="button" class="copy" data-copy="{0}" aria-label="Copy {0}"></button>')


def span(seconds: float) -> str:
    """A length of time in its largest unit: `3 min`."""
    for length, unit in _SPANS:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return "0 s"


def ago(at: str, now: str) -> str:
    """A moment as people say it: `3 min ago`, `in 2 h`."""
    passed = (to_micros(now) - to_micros(at)) / 1_000_000
    if abs(passed) < 1:
        return "now"
    return f"{span(passed)} ago" if passed > 0 else f"in {span(-passed)}"


@pass_context
def when(context: Context, at: str | None) -> Markup:
    """A moment, relative; the exact one is its title."""
    if not at:
        return _NOTHING
    try:
        text = ago(at, context["now"])
    except ValueError:  # rows of other programs may have any time
        return escape(at)
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(at, text)


def clock(at: str) -> Markup:
    """A moment of a story, where the order counts: its time of day; the whole is its title."""
    # Markup.format escapes its arguments: times come from rows that other programs may have written.
    return Markup('<time class="exact" datetime="{0}" title="{0}">{1}</time>').format(at, at[11:23])


def moment(at: str) -> str:
    """A moment as a chart names it: `11-15 13:17`."""
    return at[5:16].replace("T", " ")


def short(text: Any) -> str:
    """An id, its middle left out."""
    words = str(text)
    return words if len(words) <= _SHORT + 3 else f"{words[:6]}…{words[-6:]}"


def ident(text: Any, href: str = "") -> Markup:
    """An id, short, to be copied whole; a link where there is somewhere to go."""
    if not text:
        return _NOTHING
    code = Markup('<code title="{}">{}</code>').format(visible(str(text)), visible(short(text)))
    inner = Markup('<a href="{}">{}</a>').format(href, code) if href else code
    return Markup('<span class="id">{}{}</span>').format(inner, _COPY.format(text))


def badge(word: Any, text: str = "") -> Markup:
    """Show a state as a badge in its color; the word itself is always there, so the color carries nothing alone."""
    # A status may be followed by more words; the first one decides the color.
    tone = _TONE.get(str(word).split(" ")[0], "plain")
    return Markup('<span class="badge {}">{}</span>').format(tone, visible(text or str(word).replace("_", " ").lower()))


def pretty(value: Any) -> str:
    """A value as JSON on several lines."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, default=str)


def brief(value: Any, most: int = 120) -> str:
    """A value on one line, its end left out."""
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False, default=str)
    return text if len(text) <= most else text[: most - 1] + "…"


def oneline(value: Any) -> str:
    """A proposal as one line: `amount 4779 · to Ada`."""
    if not isinstance(value, dict):
        return brief(value, 100)
    return brief(" · ".join(f"{name} {brief(item, 40)}" for name, item in value.items()), 110)


def word_diff(part: ProposalPart) -> list[text_diff.Piece]:
    """A changed text, word by word."""
    return text_diff.words(part.current, part.proposed)


def line_diff(part: ProposalPart) -> list[text_diff.Piece]:
    """A changed text of several lines, line by line."""
    return text_diff.lines(part.current, part.proposed)


def text_pieces(change: FieldChange) -> list[text_diff.Piece]:
    """A text that changed in part, by words or, of several lines, by lines; nothing for any other change."""
    if change.kind != "changed" or not (isinstance(change.old, str) and isinstance(change.new, str)):
        return []
    compare = text_diff.lines if "\n" in change.old + change.new else text_diff.words
    pieces = compare(change.old, change.new)
    # Two texts that share nothing are read more easily beside each other.
    return pieces if any(each.kind == "same" and each.text.strip() for each in pieces) else []


def grown(part: ProposalPart) -> str:
    """By how much a number changes."""
    return text_diff.factor(part.current, part.proposed)


def as_table(value: Any) -> text_diff.TableDiff | None:
    """A list of objects as a table."""
    return text_diff.table(value)


def rows_diff(part: ProposalPart) -> text_diff.TableChange | None:
    """A changed list of objects, row by row."""
    return text_diff.rows(part.current, part.proposed)


def size(count: float | None) -> str:
    """Bytes as people say them."""
    if count is None:
        return "—"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def duration(seconds: float | None) -> str:
    """A short time: `2.5 ms`."""
    if seconds is None:
        return "—"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def drop_empty(query: dict[str, Any]) -> dict[str, Any]:
    """What of a query says something."""
    return {name: value for name, value in query.items() if value not in (None, "")}


FILTERS: Final = {
    each.__name__: each
    for each in (
        *(clock, drop_empty, when, short, ident, badge, pretty, brief, size, duration, span),
        *(oneline, word_diff, line_diff, text_pieces, grown, as_table, rows_diff),
    )
}
"""By the names that templates use."""
