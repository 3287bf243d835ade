"""docs/reference/methods.md says of every resource and method what its code says.

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
_HEAD = """# Resources and methods

Generated from the code; `HOLDPROOF_UPDATE_DOCS=1 make docs` writes it anew.

`store.<resource>.<method>` on both clients: with `await` on a store from `holdproof.open` or `holdproof.connect`,
without on one from `holdproof.sync`. Over HTTP the same method is `/v1/<resource>/<method>`, on the command line
`holdproof <resource> <method>`. One marked *local* needs the process or the machine that has the store open. One marked
*reads* changes nothing; one marked *stream* answers item by item; agents may call one marked *agents*, on what is
their own.
"""


def _resources() -> Iterator[tuple[str, type[Any]]]:
    resources: Any = Resources(None)
    for name, resource in sorted(vars(resources).items()):
        if isinstance(resource, Resource):
            yield name, resource.kind


def _page() -> str:
    lines = [_HEAD]
    for name, kind in _resources():
        lines += [f"## {name}", "", _first(kind), ""]
        lines += [
            _method(name, method, each) for method, each in inspect.getmembers_static(kind) if isinstance(each, Method)
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _method(resource: str, name: str, method: Method[Any, Any]) -> str:
    signature = inspect.signature(method.fn)
    own = list(signature.parameters.values())[method.hidden :]
    shown = ", ".join(_parameters(own))
    entry = entries().get((resource, name))
    marks = ["local"] if entry is None else ["reads"] if entry.reads else []
    marks += ["stream"] if isinstance(method, StreamsWith) else []
    marks += ["agents"] if method.exposure.agent is not None else []
    text = f" *{', '.join(marks)}.*" if marks else ""
    return f"- `{name}({shown})`:{text} {_first(method.fn)}"


def _parameters(parameters: list[inspect.Parameter]) -> Iterator[str]:
    named = False
    for each in parameters:
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


def test_the_page_of_methods_is_current() -> None:
    if os.environ.get("HOLDPROOF_UPDATE_DOCS") == "1":
        PAGE.write_text(_page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == _page(), "write it anew: HOLDPROOF_UPDATE_DOCS=1 make docs"


def test_every_resource_and_method_says_what_it_is() -> None:
    for name, kind in _resources():
        assert kind.__doc__, name
        for method, each in inspect.getmembers_static(kind):
            assert not isinstance(each, Method) or each.fn.__doc__, f"{name}.{method}"
