"""`holdproof doctor`: whether the store is healthy, and what to do where it is not."""

from typing import Any

import typer
from rich.text import Text

from holdproof import sync
from holdproof.cli.bar import pulse
from holdproof.cli.call import Call, command
from holdproof.cli.render import words
from holdproof.model.doctor import HealthReport

_ERROR = 8
_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}

app = typer.Typer()


def _draw(value: dict[str, Any]) -> Text:
    text = Text()
    width = max(len(each["about"]) for each in value["checks"])
    for each in value["checks"]:
        text.append(f"{each['level']:<7}  ", style=_STYLES[each["level"]])
        text.append(f"{each['about']:<{width}}  {words(each['what'])}\n")
        if each["remedy"]:
            text.append(f"{'':<{width + 11}}{words(each['remedy'])}\n", style="dim")
    return text


@command(app, example="holdproof doctor --json", exit_code=lambda report: 0 if report.ok else _ERROR, draw=_draw)
def doctor(call: Call) -> HealthReport:
    """Look at disk, folders, keys, clock, log and flows, and say what to do; exits with 8 if anything is an error."""
    with pulse("looking"):
        return sync.doctor(call.home, call.url)
