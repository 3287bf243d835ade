"""The names and summaries of all commands, read from a file: help and completion import nothing else.

`methods.json` is generated from the catalogue and from the commands that are written by hand:
`python -m holdproof.cli.index` writes it anew, and a test compares it with both.
"""

import importlib
import json
from functools import cache
from pathlib import Path
from typing import Any, Final

_FILE: Final = Path(__file__).with_name("methods.json")
WRITTEN: Final = (
    "maintenance",
    "serve",
    "demo",
    "watch",
    "answer",
    "trust",
    "transfer",
    "worker",
    "trail",
    "hooks",
    "capture",
)
"""The modules of this package whose commands are written by hand."""
GROUPS: Final = ("Run", "Inspect", "Approve", "Prove", "Operate", "More")
"""The headings of `holdproof --help`, in their order."""
ALIAS_GROUPS: Final = {
    "export": "Write what a store holds for other people and other programs.",
    "import": "Take in files: what `export` wrote elsewhere, and other programs' data.",
}
"""What the groups do that only second names of commands stand in."""


@cache
def commands() -> dict[str, dict[str, Any]]:
    """Return every top-level name with its `group` and `summary`; of a group of commands also its `commands`.

    A command that is written by hand names its `module`, a second name of a generated one its `method`; every other is
    generated from the method of that name.
    """
    index: dict[str, dict[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return index


def build() -> dict[str, dict[str, Any]]:
    """Make the index anew, from the catalogue and from the modules of this package."""
    catalogue = importlib.import_module("holdproof.api.catalogue")
    index: dict[str, dict[str, Any]] = {}
    for name, resource in catalogue.declared_resources():
        summary = " ".join((resource.kind.__doc__ or "").split("\n\n")[0].split())
        index[name.replace("_", "-")] = {"group": resource.kind.group, "summary": summary, "commands": {}}
    for (resource, method), spec in catalogue.methods().items():
        if spec.exposure.command and not spec.exposure.internal:
            index[resource.replace("_", "-")]["commands"][method.replace("_", "-")] = {"summary": spec.summary}
            if spec.exposure.alias:
                group = index[resource.replace("_", "-")]["group"]
                _add(index, spec.exposure.alias, group, {"summary": spec.summary, "method": f"{resource} {method}"})
    # Last, since a command written by hand replaces the generated one of the same name.
    for module in WRITTEN:
        for words, command in importlib.import_module(f"holdproof.cli.{module}").COMMANDS.items():
            _add(index, words, command.group, {"summary": command.help, "module": module}, command.group_summary)
    return {name: _sorted(index[name]) for name in sorted(index)}


def _add(index: dict[str, dict[str, Any]], words: str, heading: str, facts: dict[str, str], summary: str = "") -> None:
    first, _, second = words.partition(" ")
    if not second:
        index[first] = {**index.get(first, {}), "group": heading, **facts}
        return
    alias_group = {"group": "Operate", "summary": ALIAS_GROUPS.get(first, "")}
    group = index.setdefault(first, {"group": heading, "summary": summary} if summary else alias_group)
    group.setdefault("commands", {})[second] = facts


def _sorted(entry: dict[str, Any]) -> dict[str, Any]:
    if "commands" in entry:
        return {**entry, "commands": dict(sorted(entry["commands"].items()))}
    return entry


if __name__ == "__main__":
    _FILE.write_text(json.dumps(build(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
