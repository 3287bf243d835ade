"""What people type that a method would not take: how long ago, a day, a state in small letters, a part of an id.

Only the command line takes it: `since="1h"` in a program would be another moment at every call.
"""

import re
from typing import Any, Final

from holdproof import validation
from holdproof.api.catalogue import MethodSpec, Parameter
from holdproof.cli import times
from holdproof.cli.columns import has_part, is_part
from holdproof.errors import InvalidInputError
from holdproof.model.times import to_text

_MOMENTS: Final = frozenset({"since", "until", "due_before"})
_SPAN: Final = re.compile(r"[0-9]{1,6}[smhdw]")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_STATES: Final = {
    "agents": frozenset({"status"}),
    "audit": frozenset({"severity"}),
    "escalations": frozenset({"status", "impact"}),
    "feedback": frozenset({"status"}),
    "flows": frozenset({"status", "to", "expected_status"}),
}
"""Parameters whose words are written in capitals, by resource."""
_OPENING: Final = frozenset({("flows", "enqueue"), ("flows", "start")})
"""Methods to which a flow's id is that of a new one."""
_PAGE: Final = 1_000
_PAGES: Final = 10


def word(spec: MethodSpec, parameter: Parameter, text: str) -> str:
    """Return what a word on the command line stands for."""
    if parameter.name in _MOMENTS:
        return moment(text, parameter.name)
    if parameter.name in _STATES.get(spec.resource, ()):
        return text.upper().replace("-", "_").replace(" ", "_")
    return text


def moment(text: str, name: str) -> str:
    """Return a moment: one that was written out, how long ago it was, or the beginning of a day in UTC."""
    if _SPAN.fullmatch(text):
        return validation.moment_or_span(name, text, to_text(round(times.now().timestamp() * 1_000_000)))
    return f"{text}T00:00:00Z" if _DAY.fullmatch(text) else text


def whole_ids(store: Any, values: dict[str, Any], spec: MethodSpec | None = None) -> None:
    """Put a whole id in the place of its end, as lists show it, or of its beginning, where the store made it.

    The id of a flow that the method opens stays as it is. InvalidInputError where several begin or end so.
    """
    part = values.get("flow_id")
    if not isinstance(part, str) or not is_part(part):
        return
    if spec is not None and (spec.resource, spec.method) in _OPENING:
        return
    scope = {"ns": values["ns"]} if "ns" in values else {}
    cursor = None
    matches: list[str] = []
    for _ in range(_PAGES):
        page = store.flows.list(cursor=cursor, limit=_PAGE, **scope)
        ids = [each.flow_id for each in page.items]
        if part in ids:
            return
        matches += [each for each in ids if has_part(each, part)]
        cursor = page.next_cursor
        if cursor is None:
            break
    if len(matches) > 1:
        message = f"{part} is a part of {len(matches)} ids: {', '.join(matches[:5])}; give more of it, or its end"
        raise InvalidInputError(message, flow_id=part)
    if matches:
        values["flow_id"] = matches[0]
