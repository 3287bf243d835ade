"""Pages for people: templates that escape what they show, and the files beside them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi.templating import Jinja2Templates
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from holdproof.errors import RequestError
from holdproof.model.visible_text import visible
from holdproof.server import static_files
from holdproof.version import VERSION

HERE: Final = Path(__file__).parent
FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 1000


def _seen(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_CODE: Final = re.compile(r"`([^`]+)`")


def inline_code(text: str) -> Markup:
    """Return a text of the catalogue with what stands between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(visible(text)))))  # noqa: S704 (escaped before)


templates: Final = Jinja2Templates(
    env=Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Whatever a page shows, what cannot be seen is named there; `| e` is for what a form carries back.
        finalize=_seen,
    )
)
templates.env.filters["inline_code"] = inline_code
templates.env.globals["version"] = VERSION
templates.env.globals["static"] = static_files.address


def page(
    request: Request,
    template: str,
    values: Mapping[str, Any],
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A template filled in; it also knows the `request`, and the `caller` if there is one."""
    caller = request.scope.get("state", {}).get("caller")
    return templates.TemplateResponse(request, template, {"caller": caller, **values}, status, headers)


async def form(request: Request) -> dict[str, str]:
    """The fields of a plain form; of several with one name, the last."""
    return dict(await fields(request))


async def fields(request: Request) -> list[tuple[str, str]]:
    """The fields of a plain form, in their order."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise RequestError(f"send this as {FORM}")
    return parse(await request.body())


def json_object(fields: Mapping[str, str], name: str) -> dict[str, Any]:
    """The object that a field of a form has as JSON."""
    try:
        value = json.loads(fields.get(name, ""))
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the field {name} has to be JSON") from error
    if not isinstance(value, dict):
        raise RequestError(f"the field {name} has to be an object of JSON")
    return value


def parse(body: bytes) -> list[tuple[str, str]]:
    """The fields of a form's body."""
    try:
        return parse_qsl(
            body.decode(),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MOST_FIELDS,
            strict_parsing=bool(body),
        )
    except ValueError as error:
        raise RequestError("this is no form") from error
