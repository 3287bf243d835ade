"""`holdproof doctor`: whether the store stands well, and what to do where it does not."""

from typing import Any

import typer
from rich.text import Text

from holdproof import sync
from holdproof.cli.bar import pulse
from holdproof.cli.call import Call, command
from holdproof.cli.render import words
from holdproof.model.doctor import Examined

_ILL = 8
_STYLES = {"well": "green", "note": "yellow", "ill": "bold red"}

app = typer.Typer()


def _drawn(value: dict[str, Any]) -> Text:
    drawn = Text()
    width = max(len(each["about"]) for each in value["symptoms"])
    for each in value["symptoms"]:
        drawn.append(f"{each['health']:<4}  ", style=_STYLES[each["health"]])
        drawn.append(f"{each['about']:<{width}}  {words(each['what'])}\n")
        if each["remedy"]:
            drawn.append(f"{'':<{width + 8}}{words(each['remedy'])}\n", style="dim")
    return drawn


@command(app, example="holdproof doctor --json", exit_code=lambda found: 0 if found.ok else _ILL, draw=_drawn)
def doctor(call: Call) -> Examined:
    """Look at disk, folders, keys, clock, log and flows, and say what to do; exits with 8 if anything is ill."""
    with pulse("looking"):
        return sync.doctor(call.home, call.url)
