"""Lists as columns, and flows as trees and timelines, for people. Colours come off where nobody sees them."""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from holdproof.cli.render import Draw, words
from holdproof.model.times import to_micros

_GREEN: Final = dict.fromkeys(("ACTIVE", "APPROVED", "COMPLETED", "DONE"), "green")
_RED: Final = dict.fromkeys(("CRITICAL", "ERROR", "FAILED", "REJECTED", "SUSPENDED"), "red")
_YELLOW: Final = dict.fromkeys(("HIGH_IMPACT", "PENDING", "UNKNOWN", "WAITING_ESCALATION", "WARNING"), "yellow")
_CYAN: Final = dict.fromkeys(("COMPENSATING", "RUNNING", "STARTED"), "cyan")
_SESSIONS: Final = {"active": "cyan", "completed": "green", "failed": "red", "interrupted": "yellow", "running": "cyan"}
_STYLES: Final = _GREEN | _RED | _YELLOW | _CYAN | _SESSIONS
_GUIDES: Final = ("├─ ", "└─ ", "│  ", "   ")
_ASCII_GUIDES: Final = ("|- ", "`- ", "|  ", "   ")
_SHORT: Final = 8

Facts = Mapping[str, Any]


def rows(name: str, *columns: str, more: str = "--after") -> Draw:
    """Draws the list of that name in columns, and with which option the next page begins."""

    def draw(value: Facts) -> Text:
        lines = [[cell(item[column]) for column in columns] for item in value[name]]
        return _aligned([column.upper() for column in columns], lines).append(following(value, more))

    return draw


def following(value: Facts, option: str = "--after") -> Text:
    """Where the next page begins, as a shell is told; nothing at the end."""
    at = value.get("next")
    return Text("" if at is None else f"more: {option} {shlex.quote(cell(at))}\n", style="dim")


def timeline(value: Facts) -> Text:
    """A flow with what it delegated, each with its steps, then what happened, in order."""
    drawn = Text()
    short = _shortened(list(_ids(value["tree"])))
    _branch(drawn, value["tree"], value["steps"], "", "")
    drawn.append("\n")
    lines = [
        [cell(each["at"]), short[each["flow_id"]], each["kind"], cell(each["what"]), cell(each["note"] or "")]
        for each in value["happened"]
    ]
    drawn.append(_aligned(["AT", "FLOW", "", "WHAT", ""], lines))
    return drawn.append(following(value))


def session(value: Facts) -> Text:
    """A session with its agents and artifacts, then what happened, in order."""
    tee, corner, *_ = guides()
    told = value["session"]
    drawn = Text(cell(told["id"]), style="bold").append("  ").append(_styled(cell(told["state"])))
    drawn.append(f"  {cell(told['session_type'])}  {cell(told['name'])}", style="default")
    drawn.append(f"{_took(told['started_at'], told['ended_at'])}\n", style="dim")
    parts = [*map(_agent, value["agents"]), *map(_artifact, value["artifacts"])]
    for at, part in enumerate(parts, 1):
        drawn.append(corner if at == len(parts) else tee).append(part).append("\n")
    drawn.append("\n")
    lines = [
        [*(cell(each[name]) for name in ("timestamp", "event_type", "source", "message")), cell(each["data"] or "")]
        for each in value["events"]
    ]
    return drawn.append(_aligned(["AT", "TYPE", "SOURCE", "MESSAGE", ""], lines)).append(following(value))


def _agent(agent: Facts) -> Text:
    line = Text(f"{cell(agent['name'])}  {cell(agent['genus'])}  ").append(_styled(cell(agent["status"])))
    if agent["error"]:
        line.append(f"  {cell(agent['error'])}")
    return line.append(_took(agent["started_at"], agent["completed_at"]), style="dim")


def _artifact(artifact: Facts) -> Text:
    place = f"  {cell(artifact['path'])}" if artifact["path"] else ""
    line = Text(f"{cell(artifact['name'])}  {cell(artifact['artifact_type'])}{place}")
    return line.append(f"  {artifact['size_bytes']} bytes" if artifact["size_bytes"] else "", style="dim")


def _branch(drawn: Text, tree: Facts, steps: Sequence[Facts], first: str, rest: str) -> None:
    """One flow, its steps and the flows below it; `first` and `rest` stand before its own line and all others."""
    tee, corner, bar, gap = guides()
    flow = tree["flow"]
    drawn.append(first).append(cell(flow["flow_id"]), style="bold").append("  ").append(_styled(flow["status"]))
    drawn.append(f"  {cell(flow['flow_type'])} {cell(flow['flow_version'])} by {cell(flow['agent_id'])}")
    drawn.append(f"{_took(flow['started_at'], flow['completed_at'])}\n", style="dim")
    own = [step for step in steps if step["flow_id"] == flow["flow_id"]]
    for at, below in enumerate((*own, *tree["children"]), 1):
        last = at == len(own) + len(tree["children"])
        head, tail = rest + (corner if last else tee), rest + (gap if last else bar)
        if "flow" in below:
            _branch(drawn, below, steps, head, tail)
        else:
            drawn.append(head).append(_step(below))


def guides() -> tuple[str, str, str, str]:
    """What trees are drawn with: before a branch, before the last one, and before what is below each of them."""
    return _GUIDES if _unicode() else _ASCII_GUIDES


def _step(step: Facts) -> Text:
    again = f" ({step['n']})" if step["n"] > 1 else ""
    line = Text(f"{cell(step['name'])}{again}  ").append(_styled(step["state"]))
    if step["error"]:
        line.append(f"  {cell(step['error'])}")
    return line.append(f"{_took(step['started_at'], step['finished_at'])}\n", style="dim")


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
    ends = {cell(flow_id)[-_SHORT:] for flow_id in flow_ids}
    return {flow_id: cell(flow_id)[-_SHORT:] if len(ends) == len(flow_ids) else cell(flow_id) for flow_id in flow_ids}


def _aligned(heads: list[str], lines: Sequence[Sequence[str]]) -> Text:
    if not lines:
        return Text("none\n")
    widths = [max(len(cell) for cell in column) for column in zip(heads, *lines, strict=True)]
    drawn = Text()
    head = "  ".join(cell.ljust(width) for cell, width in zip(heads, widths, strict=True))
    drawn.append(f"{head.rstrip()}\n", style="dim")
    for line in lines:
        drawn_line = Text()
        for cell, width in zip(line, widths, strict=True):
            drawn_line.append(_styled(cell)).append(" " * (width - len(cell) + 2))
        drawn_line.rstrip()
        drawn.append(drawn_line).append("\n")
    return drawn


def _styled(text: str) -> Text:
    """A word in its colour, if it has one; `DONE` also as the last word of `quote DONE`."""
    return Text(text, style=_STYLES.get(text) or _STYLES.get(text.rpartition(" ")[2], ""))


def cell(value: Any) -> str:
    """A value on one line."""
    return words(value).replace("\n", "\\n")


def _unicode() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")
