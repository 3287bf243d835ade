"""Claude Code's own transcript, compared with the events: calls that it made and no hook reported.

A hook that is switched off, or that the agent skips, takes no number, so that no hole in the numbers shows it. The
transcript is written by the agent itself and names every call.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_MARK: Final = b'"tool_use"'


@dataclass(frozen=True, slots=True)
class Comparison:
    """Calls that no event told of, and how much of the transcript was read."""

    unseen: list[dict[str, str]]
    read: int


def size(path: str) -> int | None:
    """Return how long a transcript is; None where there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def compare(path: str, start: int, calls: set[str]) -> Comparison | None:
    """Return the calls after `start` whose ids no event had; None where the transcript cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read()
    except OSError:
        return None
    # The last line may still be written.
    whole, newline, _ = data.rpartition(b"\n")
    unseen = [
        {"call": id, "name": name}
        for line in whole.split(b"\n")
        if _MARK in line
        for id, name in _calls(line)
        if id not in calls
    ]
    return Comparison(unseen, start + len(whole) + len(newline))


def _calls(line: bytes) -> Iterator[tuple[str, str]]:
    """Yield id and name of each call in a line of a transcript."""
    try:
        entry: Any = json.loads(line)
    except ValueError:
        return
    message = entry.get("message") if isinstance(entry, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use" and block.get("id"):
            yield str(block["id"]), str(block.get("name", ""))
