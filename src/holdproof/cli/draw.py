"""Lists as columns, and flows as trees and timelines, for people. Colours come off where nobody sees them."""

import json
import re
import shlex
import sys
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from holdproof.cli.columns import aligned
from holdproof.cli.columns import rows as column_rows
from holdproof.cli.render import Draw, plain_table, words
from holdproof.model.times import to_micros

_GREEN: Final = dict.fromkeys(("ACTIVE", "APPROVED", "COMPLETED", "DONE"), "green")
_RED: Final = dict.fromkeys(("CRITICAL", "ERROR", "FAILED", "REJECTED", "SUSPENDED"), "red")
_YELLOW: Final = dict.fromkeys(("HIGH_IMPACT", "PENDING", "UNKNOWN", "WAITING_ESCALATION", "WARNING"), "yellow")
_CYAN: Final = dict.fromkeys(("COMPENSATING", "RUNNING", "STARTED"), "cyan")
_SESSIONS: Final = {"active": "cyan", "completed": "green", "failed": "red", "interrupted": "yellow", "running": "cyan"}
_STYLES: Final = _GREEN | _RED | _YELLOW | _CYAN | _SESSIONS
_GUIDES: Final = ("├─ ", "└─ ", "│  ", "   ")
# For terminals and files whose encoding has no box characters.
_ASCII_GUIDES: Final = ("|- ", "`- ", "|  ", "   ")
_SHORT: Final = 8

Facts = Mapping[str, Any]


def rows(name: str, *columns: str) -> Draw:
    """Draw the list of that name in columns."""
    return lambda value: table(columns, value[name])


def answer(columns: Sequence[str], value: Any) -> Text:
    """Draw an answer: a list or a page in columns, with the cursor of the next page; else its fields."""
    items = page_items(value)
    columns = columns or _columns_of(items or ())
    if items is None:
        return plain_table(value)
    more = following(value)
    if not items and more:
        # A search looks at so many at a time: "none" would say that there are none at all.
        return Text("none so far\n").append(more)
    # Values without fields, such as keys, stand a line each.
    text = table(columns, items) if columns else plain_table(items)
    return text.append(more)


def _columns_of(items: Sequence[Any]) -> list[str]:
    """Return the columns of a list whose declaration names none: the fields that fit a cell in every value."""
    if not items or not all(isinstance(item, Mapping) for item in items):
        return []
    # How a row is covered by the log is evidence, not content; `--json` has it.
    fields = [name for name in items[0] if not name.startswith("leaf_")]
    return [name for name in fields if all(_fits(item.get(name)) for item in items)] or fields


def _fits(value: Any) -> bool:
    return not isinstance(value, Mapping | list | tuple) and len(cell(value)) <= _WIDE


def page_items(value: Any) -> Sequence[Any] | None:
    """Return the values of a list or of a page; None for anything else."""
    if isinstance(value, list):
        return value
    # A page is known by its cursor; the list is under another name in each answer.
    if isinstance(value, Mapping) and "next_cursor" in value:
        return next((each for each in value.values() if isinstance(each, list)), None)
    return None


def table(columns: Sequence[str], items: Sequence[Any]) -> Text:
    """Draw values in columns; a value without a field has an empty cell."""
    return _aligned([column.upper() for column in columns], column_rows(columns, items, cell))


def document(field: str, value: Facts) -> Text:
    """Draw the one field of an answer that is a document."""
    content = value[field]
    if isinstance(content, Mapping):  # bytes as JSON has them, which may not be text
        content = b64decode(content["$bytes"]).decode(errors="replace")
    return Text(words(content).removesuffix("\n") + "\n")


def escalation(value: Facts) -> Text:
    """Draw an escalation with its outcome instead of the code that DIR's column has for it."""
    others = {name: value[name] for name in value if name not in {"human_decision", "outcome"}}
    return plain_table({"id": value["id"], "outcome": value["outcome"], **others})


def following(value: Any) -> Text:
    """Draw where the next page begins, as a shell reads it; nothing at the end."""
    at = value.get("next_cursor") if isinstance(value, Mapping) else None
    return Text("" if at is None else f"more: --cursor {shlex.quote(cell(at))}\n", style="dim")


def timeline(value: Facts) -> Text:
    """A flow with what it delegated, each with its steps, then what happened, in order."""
    text = Text()
    short = _shortened(list(_ids(value["tree"])))
    _branch(text, value["tree"], value["steps"], "", "")
    text.append(_call(value)).append("\n")
    lines = [
        [cell(each["at"]), short[each["flow_id"]], each["kind"], cell(each["what"]), cell(each["note"] or "")]
        for each in value["events"]
    ]
    text.append(_aligned(["AT", "FLOW", "", "WHAT", ""], lines))
    return text.append(following(value))


def _call(value: Facts) -> str:
    """What the flow's function was called with, and what came of it; empty for a plain block of code."""
    call = value["call"]
    if call is None:
        return ""
    outcome = value["outcome"]
    ending = f" = {_shortened_json(outcome['result'])}" if outcome["status"] == "COMPLETED" else ""
    forked = f"  forked from {cell(call['forked_from'])}, effects {call['effects']}" if call["forked_from"] else ""
    return f"{cell(call['name'])}{cell(_arguments(call['arguments']))}{cell(ending)}{forked}\n"


def session(value: Facts) -> Text:
    """A session with its agents and artifacts, then what happened, in order."""
    tee, corner, *_ = guides()
    about = value["session"]
    text = Text(cell(about["id"]), style="bold").append("  ").append(_styled(cell(about["state"])))
    text.append(f"  {cell(about['session_type'])}  {cell(about['name'])}", style="default")
    text.append(f"{_took(about['started_at'], about['ended_at'])}\n", style="dim")
    parts = [*map(_agent, value["agents"]), *map(_artifact, value["artifacts"])]
    for at, part in enumerate(parts, 1):
        text.append(corner if at == len(parts) else tee).append(part).append("\n")
    text.append("\n")
    lines = [
        [*(cell(each[name]) for name in ("timestamp", "event_type", "source", "message")), cell(each["data"] or "")]
        for each in value["events"]
    ]
    return text.append(_aligned(["AT", "TYPE", "SOURCE", "MESSAGE", ""], lines)).append(following(value))


def _agent(agent: Facts) -> Text:
    line = Text(f"{cell(agent['name'])}  {cell(agent['genus'])}  ").append(_styled(cell(agent["status"])))
    if agent["error"]:
        line.append(f"  {cell(agent['error'])}")
    return line.append(_took(agent["started_at"], agent["completed_at"]), style="dim")


def _artifact(artifact: Facts) -> Text:
    place = f"  {cell(artifact['path'])}" if artifact["path"] else ""
    line = Text(f"{cell(artifact['name'])}  {cell(artifact['artifact_type'])}{place}")
    return line.append(f"  {artifact['size_bytes']} bytes" if artifact["size_bytes"] else "", style="dim")


def _branch(text: Text, tree: Facts, steps: Sequence[Facts], first: str, rest: str) -> None:
    """One flow, its steps and the flows below it; `first` and `rest` stand before its own line and all others."""
    tee, corner, bar, gap = guides()
    flow = tree["flow"]
    text.append(first).append(cell(flow["flow_id"]), style="bold").append("  ").append(_styled(flow["status"]))
    text.append(f"  {cell(flow['flow_type'])} {cell(flow['flow_version'])} by {cell(flow['agent_id'])}")
    text.append(f"{_took(flow['started_at'], flow['completed_at'])}\n", style="dim")
    own = [step for step in steps if step["flow_id"] == flow["flow_id"]]
    for at, below in enumerate((*own, *tree["children"]), 1):
        last = at == len(own) + len(tree["children"])
        head = rest + (corner if last else tee)
        tail = rest + (gap if last else bar)
        if "flow" in below:
            _branch(text, below, steps, head, tail)
        else:
            text.append(head).append(_step(below))


def guides() -> tuple[str, str, str, str]:
    """What trees are text with: before a branch, before the last one, and before what is below each of them."""
    return _GUIDES if _unicode() else _ASCII_GUIDES


def _step(step: Facts) -> Text:
    again = f" ({step['n']})" if step["n"] > 1 else ""
    line = Text(f"{cell(step['name'])}{again}  ").append(_styled(step["state"]))
    line.append(f"  {cell(_values(step))}")
    if step["error"]:
        line.append(f"  {cell(step['error'])}")
    return line.append(f"{_took(step['started_at'], step['finished_at'])}\n", style="dim")


_LONGEST_VALUE: Final = 100


def _values(step: Facts) -> str:
    """What a step's function was called with, and what it returned, on one line."""
    arguments = step["arguments"]
    result = "" if step["state"] != "DONE" or step["compensates"] else f" = {_shortened_json(step['result'])}"
    return f"{'' if arguments is None else _arguments(arguments)}{result}"


def _arguments(arguments: Facts) -> str:
    # What belonged to a person who was erased has no arguments any more.
    if "args" not in arguments:
        return f"({_shortened_json(arguments)})"
    named = (f"{name}={_shortened_json(value)}" for name, value in arguments["kwargs"].items())
    return f"({', '.join((*map(_shortened_json, arguments['args']), *named))})"


def _shortened_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=not _unicode())
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def replays(value: Sequence[Facts]) -> Text:
    """Draw each replayed flow on a line, what differs below it."""
    text = Text()
    for each in value:
        same = not each["differences"]
        text.append("same  " if same else "DIFFERENT  ", style="green" if same else "red")
        text.append(f"{cell(each['flow_id'])}  {cell(each['name'])} {cell(each['version'])}  {each['steps']} steps")
        text.append(f", up to {cell(each['ends_at'])}\n" if each["ends_at"] else "\n", style="dim")
        for difference in each["differences"]:
            text.append(f"    {cell(difference)}\n")
    different = sum(bool(each["differences"]) for each in value)
    return text.append(f"{len(value)} replayed, {different} different\n")


def _took(start: str | None, end: str | None) -> str:
    try:
        return "" if start is None or end is None else f"  {(to_micros(end) - to_micros(start)) / 1e6:.3f} s"
    except ValueError:  # times that another program wrote in its own way
        return ""


def _ids(tree: Facts) -> Iterable[str]:
    yield tree["flow"]["flow_id"]
    for child in tree["children"]:
        yield from _ids(child)


def _shortened(flow_ids: Sequence[str]) -> dict[str, str]:
    """The ends of ids, where these tell them apart."""
    # Ids begin with the time, so that flows of one tree share their beginning, not their end.
    ends = {cell(flow_id)[-_SHORT:] for flow_id in flow_ids}
    return {flow_id: cell(flow_id)[-_SHORT:] if len(ends) == len(flow_ids) else cell(flow_id) for flow_id in flow_ids}


def _aligned(heads: list[str], lines: Sequence[Sequence[str]]) -> Text:
    return aligned(heads, lines, _styled)


def _styled(text: str) -> Text:
    """A word in its colour, if it has one; `DONE` also as the last word of `quote DONE`."""
    return Text(text, style=_STYLES.get(text) or _STYLES.get(text.rpartition(" ")[2], ""))


def cell(value: Any) -> str:
    """A value on one line."""
    return words(value).replace("\n", "\\n")


def _unicode() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")


_WIDE: Final = 72
_SIGNS: Final = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow"), "meta": (".", "dim")}


def tree(value: Facts) -> Text:
    """Draw each object on a line with its type and the beginning of its content, those below it indented."""
    text = Text()
    _object_branch(text, value, "", "")
    return text


def _object_branch(text: Text, branch: Facts, first: str, rest: str) -> None:
    tee, corner, bar, gap = guides()
    one = branch["object"]
    text.append(first).append(cell(one["id"]), style="bold").append("  ").append(cell(one["type"]), style="cyan")
    text.append(f"  v{one['version']}", style="dim")
    if one["content"] is not None:
        text.append(f"  {_brief(one['content'])}")
    text.append("\n")
    below: list[Facts | str] = [*branch["children"], *branch["missing"], *(["…"] if branch["cut"] else [])]
    for at, child in enumerate(below, 1):
        head, tail = (corner, gap) if at == len(below) else (tee, bar)
        if isinstance(child, str):
            note = "there is more below" if child == "…" else f"{cell(child)}  (not there)"
            text.append(rest + head).append(f"{note}\n", style="dim")
        else:
            _object_branch(text, child, rest + head, rest + tail)


def diff(value: Facts) -> Text:
    """Each object that differs under its sign: + new, - gone, ~ changed, . only what is volatile; then its fields."""
    text = Text()
    for each in value["differences"]:
        sign, style = _SIGNS[each["change"]]
        text.append(f"{sign} {cell(each['id'])}\n", style=style)
        for line, line_style in _fields(each):
            text.append(f"    {line}\n", style=line_style)
    return text.append(following(value)) if value["differences"] else Text("nothing differs\n")


def _fields(each: Facts) -> Iterator[tuple[str, str]]:
    for name, (old, new) in each["fields"].items():
        if isinstance(old, dict) and isinstance(new, dict):
            for key in (key for key in old | new if old.get(key) != new.get(key)):
                yield from _sides(f"{name}.{cell(key)}", old.get(key), new.get(key))
        else:
            yield from _sides(name, old, new)


def _sides(name: str, old: Any, new: Any) -> Iterator[tuple[str, str]]:
    # Every change increments the version, so that it tells nothing.
    if name == "version" or (old in (None, {}, []) and new in (None, {}, [])):
        return
    if old not in (None, {}, []):
        yield f"- {name}: {_brief(old)}", "red"
    if new not in (None, {}, []):
        yield f"+ {name}: {_brief(new)}", "green"


def _brief(value: Any) -> str:
    text = cell(value)
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 1]}…"


def frame(value: Facts) -> Text:
    """What is wrong first, then questions, then flows, then the log."""
    text = Text(f"{cell(value['at'])}\n", style="dim")
    if value["locked"] is not None:
        since = cell(value["locked"]["locked_at"])
        why = cell(value["locked"]["reason"])
        text.append(f"LOCKED since {since}: {why}\n", style="bold red")
    for reason in value["degraded"]:
        text.append(f"degraded: {cell(reason)}\n", style="yellow")
    text.append(f"\nescalations: {len(value['escalations'])}\n", style="bold")
    if value["escalations"]:
        text.append(
            rows("escalations", "id", "impact", "agent_id", "reason", "deadline", "on_deadline", "flow_id")(value)
        )
    counts = ", ".join(f"{number} {status}" for status, number in value["counts"].items()) or "none"
    text.append(f"\nflows under way: {counts}\n", style="bold")
    if value["flows"]:
        text.append(rows("flows", "flow_id", "status", "flow_type", "agent_id", "updated_at")(value))
    if value["ended"]:
        text.append("\nended lately:\n", style="bold")
        text.append(rows("ended", "flow_id", "status", "flow_type", "agent_id", "updated_at")(value))
    waiting = f", {value['pending']} pending" if value["pending"] else ""
    text.append(f"\nlog: {value['size']} entries{waiting}, root {cell(value['root'])[:16]}\n", style="bold")
    return text.append(f"{cell(value['origin'])}\n", style="dim")


def store_status(value: Facts) -> Text:
    """Draw a store's status: a line for the schema and one for each of the four stores; `--json` has all of it."""
    migrations = value["migrations"]
    schema = f"{len(migrations)}, the newest {migrations[-1]}" if migrations else "none"
    storage = value["storage"]
    stores = {name: _kept(each) for name, each in storage["stores"].items()}
    troubles = {name: storage[name] for name in ("under_way", "degraded", "warnings") if storage[name]}
    return plain_table({**value, "migrations": schema, "storage": {**stores, **troubles}})


def _kept(store: Facts) -> str:
    """Say what one of the four stores runs on, where, and what is in it; what it has none of is left out."""
    counts = [f"{number:,} {name}" for name, number in store["holds"].items() if number and name != "dimensions"]
    stored = ", ".join(counts) or "empty"
    line = f"{store['type']}, {store['where']}: {stored}"
    return f"{line}; degraded: {store['degraded']}" if store["degraded"] else line


def skills(value: Any) -> Text:
    """Draw skills with the root that was approved, and why the others are locked."""
    lines = [
        {
            "path": each["path"],
            "state": each["state"],
            "root": (each["approval"] or {}).get("root", "")[:16],
            "approved_by": (each["approval"] or {}).get("approved_by", ""),
            "why": (each["lockdown"] or {}).get("reason", each["flaw"]),
        }
        for each in page_items(value) or ()
    ]
    return table(("path", "state", "root", "approved_by", "why"), lines).append(following(value))


def verification(value: Any, *, verbose: bool = False) -> Text:
    """Draw a report on a store: the verdict, each finding with its cure, and what was and was not looked at.

    What no entry covers is the same in every run, and would hide the findings: it is counted, and named if `verbose`.
    """
    if "checked" not in value:  # a report on a bundle
        return _bundle_verification(value)
    head = value["head"]
    counts = [f"{name} {count}" for name, count in value["checked"].items() if count]
    verdict = f"{value['verdict']} ({value['mode']})"
    report = {
        "checked": f"{value['place']}: {', '.join(counts) or 'nothing'}".removeprefix(": "),
        "verdict": verdict,
        "since": value["since"],
        "trusted by": value["trusted_by"],
        "findings": [_finding(each) for each in value["findings"]],
        "more findings": value["left_off"],
        "head": f"size {head['size']}, root {head['root']}, {head['origin']}, {value['level']}" if head else "",
        "not checked": value["not_checked"],
        "not covered": value["not_covered"] if verbose else _count_uncovered(value["not_covered"]),
        "lockdown": value["locked"],
    }
    return _ending_with(verdict, report)


_COLUMN_NAMES: Final = re.compile(r" \([^)]*\)")


def _count_uncovered(lines: Sequence[str]) -> str:
    """Count what no entry covers: tables, where only some columns are meant too, and files."""
    # Each line says of what, and why; columns stand in brackets.
    names = [name for line in lines for name in _COLUMN_NAMES.sub("", line.partition(": ")[0]).split(", ")]
    files = [name for name in names if name.startswith("`")]
    tables = len({*names}) - len({*files})
    return f"{tables} tables in whole or in part, {', '.join(files)} (which and why: --verbose)" if names else ""


def _bundle_verification(value: Any) -> Text:
    """Draw a report on a bundle in the same order: what it is of, the verdict, under whose keys, the findings."""
    head = value["head"]
    report = {
        "checked": f"{'' if value['kind'] == 'archive' else 'bundle of '}{value['kind']} {value['subject']}",
        "verdict": value["verdict"],
        "trusted by": "the root key that you passed" if value["trusted"] else "its own keys: compare them (--root)",
        "keys": value["keys"],
        "findings": [_finding(each) for each in value["findings"]],
        "head": f"size {head['size']}, root {head['root']}, {head['origin']}" if head else "",
        "notes": value["notes"],
    }
    return _ending_with(value["verdict"], report)


def _ending_with(verdict: str, report: Facts) -> Text:
    """Draw the fields that say something, and the verdict once more at the end, where a long list stops."""
    text = plain_table({name: each for name, each in report.items() if each})
    return text.append(f"\n{verdict}\n", style="bold")


def _finding(facts: Facts) -> str:
    table_name = f"table {facts['table']}" if facts["table"] else ""
    row = f"row {facts['row']}" if facts["row"] else ""
    place = " ".join(filter(None, (facts["file"], table_name, row)))
    return f"{facts['verdict']} {place}: {facts['what']}\n  cure: {facts['remedy']}"


DRAWINGS: Final[Mapping[str, Draw]] = {
    "timeline": timeline,
    "escalation": escalation,
    "session": session,
    "tree": tree,
    "diff": diff,
    "frame": frame,
    "skills": skills,
    "verification": verification,
}
"""The drawings that declarations name."""
