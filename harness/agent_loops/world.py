"""What the scripted agents do to the world: each call is a line in a file.

A turn is a model call and the tool calls that it asks for. `charge` must not happen twice; `look` may. The last turn is
an answer. A run has 25 calls in ten turns; with HOLDPROOF_THOROUGH=1, or where a thousand kills are asked for, as
`make faults` does, it has 100 calls in forty.
"""

import os
import signal
from pathlib import Path
from typing import Any

LONG = os.environ.get("HOLDPROOF_THOROUGH") == "1" or int(os.environ.get("HOLDPROOF_KILLS", "0")) > 100
TURNS = 40 if LONG else 10
INSTRUCTIONS = "You keep the books of a shop. " * 20
PROMPT = "Go through the orders of today."


def tools_of(turn: int) -> list[str]:
    """The tools that the model asks for in a turn, all at once."""
    if turn == TURNS - 1:
        return []
    return ["look", "charge"] if turn % 2 == 0 or turn == 1 else ["charge"]


CALLS = [name for turn in range(TURNS) for name in (f"model {turn}", *(f"{tool} {turn}" for tool in tools_of(turn)))]
"""The calls of an undisturbed run, in their order."""


def turn_of(call: str) -> int:
    return int(call.split()[1])


def result_of(tool: str, turn: int) -> str:
    return f"{tool} {turn}: " + "abcdefghij" * 20


class World:
    """The file of what happened, and the call at which this process dies: before it had its effect, or after."""

    def __init__(self, path: Path, dies_at: str = "", when: str = "after") -> None:
        self.path = path
        self._dies_at = dies_at
        self._when = when

    def happen(self, call: str) -> None:
        """Have the effect of a call, unless this process dies of it."""
        # Of two calls at once the later may be over already: then the next turn is as far as the process comes.
        dies = self._dies_at != "" and (call == self._dies_at or turn_of(call) > turn_of(self._dies_at))
        if dies and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        with self.path.open("a") as lines:
            lines.write(f"{call}\n")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)

    def tool(self, tool: str, turn: int) -> str:
        self.happen(f"{tool} {turn}")
        return result_of(tool, turn)

    def happened(self, call: str) -> bool:
        return call in self.lines()

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


def final_answer(results: list[Any]) -> str:
    """What the agent says at the end: it has seen the results of all its tools."""
    return f"{len(results)} results, {sum(len(str(result)) for result in results)} characters"
