"""A store at one moment, for people."""

from rich.text import Text

from holdproof.cli.draw import Facts, cell, rows


def frame(value: Facts) -> Text:
    """What is wrong first, then questions, then flows, then the log."""
    drawn = Text(f"{cell(value['at'])}\n", style="dim")
    if value["locked"] is not None:
        since, why = cell(value["locked"]["locked_at"]), cell(value["locked"]["reason"])
        drawn.append(f"LOCKED since {since}: {why}\n", style="bold red")
    for reason in value["degraded"]:
        drawn.append(f"degraded: {cell(reason)}\n", style="yellow")
    drawn.append(f"\nquestions: {len(value['escalations'])}\n", style="bold")
    if value["escalations"]:
        drawn.append(rows("escalations", "id", "impact", "agent_id", "reason", "deadline", "flow_id")(value))
    told = ", ".join(f"{number} {status}" for status, number in value["counts"].items()) or "none"
    drawn.append(f"\nflows under way: {told}\n", style="bold")
    if value["flows"]:
        drawn.append(rows("flows", "flow_id", "status", "flow_type", "agent_id", "updated_at")(value))
    if value["ended"]:
        drawn.append("\nended lately:\n", style="bold")
        drawn.append(rows("ended", "flow_id", "status", "flow_type", "agent_id", "updated_at")(value))
    waiting = f", {value['pending']} pending" if value["pending"] else ""
    drawn.append(f"\nlog: {value['size']} entries{waiting}, root {cell(value['root'])[:16]}, ", style="bold")
    return drawn.append(f"{cell(value['origin'])}\n")
