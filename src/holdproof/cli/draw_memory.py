"""Objects as trees, and what differs between two states, for people."""

from collections.abc import Iterator
from typing import Any, Final

from rich.text import Text

from holdproof.cli.draw import Facts, cell, following, guides

_WIDE: Final = 72
_SIGNS: Final = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow"), "meta": (".", "dim")}


def tree(value: Facts) -> Text:
    """Each object on a line with its type and the beginning of its content, those below it indented."""
    drawn = Text()
    for branch in value["trees"]:
        _branch(drawn, branch, "", "")
    return drawn if value["trees"] else Text("none\n")


def _branch(drawn: Text, branch: Facts, first: str, rest: str) -> None:
    tee, corner, bar, gap = guides()
    one = branch["object"]
    drawn.append(first).append(cell(one["id"]), style="bold").append("  ").append(cell(one["type"]), style="cyan")
    drawn.append(f"  v{one['version']}", style="dim")
    if one["content"] is not None:
        drawn.append(f"  {_brief(one['content'])}")
    drawn.append("\n")
    below: list[Facts | str] = [*branch["children"], *branch["missing"], *(["…"] if branch["cut"] else [])]
    for at, child in enumerate(below, 1):
        head, tail = (corner, gap) if at == len(below) else (tee, bar)
        if isinstance(child, str):
            note = "there is more below" if child == "…" else f"{cell(child)}  (not there)"
            drawn.append(rest + head).append(f"{note}\n", style="dim")
        else:
            _branch(drawn, child, rest + head, rest + tail)


def diff(value: Facts) -> Text:
    """Each object that differs under its sign: + new, - gone, ~ changed, . only what is volatile; then its fields."""
    drawn = Text()
    for each in value["differences"]:
        sign, style = _SIGNS[each["change"]]
        drawn.append(f"{sign} {cell(each['id'])}\n", style=style)
        for line, colour in _fields(each):
            drawn.append(f"    {line}\n", style=colour)
    return drawn.append(following(value)) if value["differences"] else Text("nothing differs\n")


def _fields(each: Facts) -> Iterator[tuple[str, str]]:
    for name, (old, new) in each["fields"].items():
        if isinstance(old, dict) and isinstance(new, dict):
            for key in (key for key in old | new if old.get(key) != new.get(key)):
                yield from _sides(f"{name}.{cell(key)}", old.get(key), new.get(key))
        else:
            yield from _sides(name, old, new)


def _sides(name: str, old: Any, new: Any) -> Iterator[tuple[str, str]]:
    if name == "version" or (old in (None, {}, []) and new in (None, {}, [])):
        return
    if old not in (None, {}, []):
        yield f"- {name}: {_brief(old)}", "red"
    if new not in (None, {}, []):
        yield f"+ {name}: {_brief(new)}", "green"


def _brief(value: Any) -> str:
    text = cell(value)
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 1]}…"
