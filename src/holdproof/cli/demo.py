"""`holdproof demo`: a story told on a real store."""

import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.text import Text

from holdproof.cli import render
from holdproof.cli.call import CommandContext, command
from holdproof.cli.draw import Facts
from holdproof.demo import LIVE_ACTS, Played, StoryEvent, play, require_own_store
from holdproof.model.visible_text import visible

COMMANDS: dict[str, click.Command] = {}


def _checks(value: Facts) -> Text:
    """What the reader can do now."""
    lines = Text("\nCheck it yourself; everything lies in ", style="bold").append(f"{value['home']}\n")
    for what, words in value["checks"].items():
        lines.append(f"\n  # {what}\n", style="dim").append(f"  {visible(words)}\n")
    return lines


@command(COMMANDS, "demo", example="holdproof --home ./demo demo", group="Run", reach="anywhere", draw=_checks)
def demo(call: CommandContext) -> Played:
    """Tell in a few seconds what a store does: decide, ask, survive kill -9, sign, remember, find a forgery, prove.

    Its store goes to --home, which has to be empty; without it to a new temporary folder.
    """
    home = tempfile.mkdtemp(prefix="holdproof-demo-") if call.home is None else call.home
    require_own_store(home, call.url)
    with quiet():
        return play(home, None if call.as_json else Teller(), program=_program())


def _program() -> str:
    """Return how this program is called, for commands that the reader can copy."""
    if shutil.which("holdproof") is not None:
        return "holdproof"
    return sys.argv[0] if Path(sys.argv[0]).name == "holdproof" else f"{sys.executable} -m holdproof"


class Teller:
    """Tells what happens as it happens, act by act."""

    def __init__(self) -> None:
        self._acts = {act.__name__: " ".join((act.__doc__ or "").split()) for act in LIVE_ACTS}
        self._last = ""

    def __call__(self, event: StoryEvent) -> None:
        """Print one event, under the heading of its act."""
        line = Text()
        if event.act != self._last:
            number = list(self._acts).index(event.act) + 1
            line.append(f"\n{number}. {event.act.capitalize()}\n", style="bold cyan")
            line.append(f"   {self._acts[event.act]}\n", style="dim")
            self._last = event.act
        render.say(line.append(f"   - {visible(event.text)}\n"))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings of the store: the story prints its lockdown itself."""
    # A logger without a handler prints warnings on stderr.
    logger = logging.getLogger("holdproof")
    handler = logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
