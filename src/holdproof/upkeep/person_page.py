"""The page of a person's file: all that person.json says, to read, a section for each table or resource.

Rules:
- Nothing is loaded from elsewhere, and no script runs; content is text, whatever it contains.
- The same JSON gives the same page, so that a page that shows something else is noticed.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%;margin:0 0 1.5rem}"
    "th,td{border-bottom:1px solid #ccc;padding:.25rem .5rem;text-align:left;vertical-align:top}"
    "th{width:14rem;font-weight:600}td{white-space:pre-wrap;overflow-wrap:anywhere}"
)


def render(subject: str, about: Mapping[str, Any]) -> str:
    """Return the page to read: what is held, section by section, a table for each record."""
    title = html.escape(f"What is stored about {subject}")
    sections = about["sections"]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>",
        f"<p>As of {html.escape(about['made_at'])}. The same for programs is in person.json; proofs.json shows for",
        " each record of the log that it stands there. Names of other people are replaced.</p><ul>",
        *(f'<li><a href="#{name}">{_heading(name)}</a>: {len(rows)}</li>' for name, rows in sections.items()),
        "</ul>",
    ]
    for name, rows in sections.items():
        parts.append(f'<h2 id="{name}">{_heading(name)}</h2>')
        parts += [f"<table>{''.join(_lines(row))}</table>" for row in rows]
    return "".join([*parts, "</body></html>"])


def is_of_this_version(page: bytes, about: Mapping[str, Any]) -> bool:
    """Whether a page shows exactly what the JSON says, as this version writes it."""
    title = _TITLE.search(page.decode(errors="replace"))
    return title is not None and render(html.unescape(title[1]), about).encode(errors="backslashreplace") == page


_TITLE: Final = re.compile("<title>What is stored about (.*?)</title>", re.DOTALL)


def _heading(name: str) -> str:
    return html.escape(_HEADINGS.get(name, name.replace("_", " ")))


_HEADINGS: Final = {
    "accesses": "who was given this content",
    "battles": "evaluations",
    "decision_audit_events": "events of flows",
    "decision_flows": "flows",
    "flow_transitions": "what became of the flows",
}


def _lines(row: Mapping[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        if value is None or value in ("", [], {}):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)
        yield f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
