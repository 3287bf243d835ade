"""`python -m proof.page`: the figures of docs/internals/reliability.md, from what the proofs kept.

The words are written by hand; what stands between `<!-- NAME -->` and `<!-- /NAME -->` is made from
docs/internals/figures/NAME.json. A test holds the page against the files.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from proof.report import FIGURES

PAGE: Final = FIGURES.parent / "reliability.md"
_PART = re.compile(r"<!-- (\w+) -->\n(.*?)<!-- /\1 -->", re.DOTALL)


def main() -> None:
    """Write the figures into the page."""
    PAGE.write_text(filled(PAGE.read_text()))


def filled(page: str, figures: Path = FIGURES) -> str:
    """The page with the figures that are known."""

    def part(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- {name} -->\n{_part(json.loads((figures / f'{name}.json').read_text()))}<!-- /{name} -->"

    return _PART.sub(part, page)


def _part(found: Mapping[str, Any]) -> str:
    lines = [f"Seed {found['seed']}, {_took(found['took_s'])}.", "", "| | |", "|---|---:|"]
    lines += [f"| {what} | {count:,} |" for what, count in found["counts"].items()]
    lines += ["", *(f"- **Did not hold:** {line}" for line in found["broken"])]
    if found["rows"]:
        names = list(found["rows"][0])
        lines += ["", "| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
        lines += ["| " + " | ".join(_cell(row[name]) for name in names) + " |" for row in found["rows"]]
    return "\n".join(lines).rstrip() + "\n"


def _cell(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _took(seconds: int) -> str:
    return f"{seconds} seconds" if seconds < 120 else f"{round(seconds / 60)} minutes"


if __name__ == "__main__":
    main()
