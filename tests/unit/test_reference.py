"""docs/reference/methods.md says of every noun and verb what its code says.

`HOLDPROOF_UPDATE_DOCS=1` writes it anew instead of comparing it.
"""

import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdproof.api import Resources
from holdproof.api.catalogue import entries
from holdproof.executors import Method, Resource, StreamsWith

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "methods.md"
_HEAD = """# Nouns and verbs

Made from the code; `HOLDPROOF_UPDATE_DOCS=1 make docs` writes it anew.

`store.<noun>.<verb>` on both clients: with `await` on a store from `holdproof.open` or `holdproof.connect`, without on
one from `holdproof.sync`. Over HTTP the same verb is `/v1/<noun>/<verb>`; one marked *here* needs the process that has
the store open. One marked *reads* changes nothing; one marked *many* answers bit by bit.
"""


def _nouns() -> Iterator[tuple[str, type[Any]]]:
    nouns: Any = Resources(None)
    for name, noun in sorted(vars(nouns).items()):
        if isinstance(noun, Resource):
            yield name, noun.kind


def _page() -> str:
    lines = [_HEAD]
    for name, kind in _nouns():
        lines += [f"## {name}", "", _first(kind), ""]
        lines += [
            _verb(name, verb, found) for verb, found in inspect.getmembers_static(kind) if isinstance(found, Method)
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _verb(noun: str, name: str, verb: Method[Any, Any]) -> str:
    signature = inspect.signature(verb.fn)
    taken = list(signature.parameters.values())[verb.hidden :]
    shown = ", ".join(_parameters(taken))
    entry = entries().get((noun, name))
    marks = ["here"] if entry is None else ["reads"] if entry.reads else []
    marks += ["many"] if isinstance(verb, StreamsWith) else []
    said = f" *{', '.join(marks)}.*" if marks else ""
    return f"- `{name}({shown})`:{said} {_first(verb.fn)}"


def _parameters(taken: list[inspect.Parameter]) -> Iterator[str]:
    named = False
    for each in taken:
        if each.kind is each.KEYWORD_ONLY and not named:
            named = True
            yield "*"
        if each.kind is each.VAR_POSITIONAL:
            named = True
        stars = "*" if each.kind is each.VAR_POSITIONAL else ""
        default = "" if each.default is each.empty else f"={each.default!r}"
        yield f"{stars}{each.name}{default}"


def _first(of: Any) -> str:
    text = " ".join((inspect.getdoc(of) or "").split("\n\n")[0].split())
    return re.sub(r"\|", r"\\|", text)


def test_the_page_of_verbs_is_current() -> None:
    if os.environ.get("HOLDPROOF_UPDATE_DOCS") == "1":
        PAGE.write_text(_page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == _page(), "write it anew: HOLDPROOF_UPDATE_DOCS=1 make docs"


def test_every_noun_and_verb_says_what_it_is() -> None:
    for name, kind in _nouns():
        assert kind.__doc__, name
        for verb, found in inspect.getmembers_static(kind):
            assert not isinstance(found, Method) or found.fn.__doc__, f"{name}.{verb}"
