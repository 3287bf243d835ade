"""Errors across a wire: problem+json (RFC 9457) with our codes, and back to the class that was raised."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from holdproof import errors
from holdproof.api import wire
from holdproof.errors import HoldproofError, InvalidInputError

MEDIA_TYPE: Final = "application/problem+json"
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_BY_CODE: Final[dict[str, type[HoldproofError]]] = {
    getattr(errors, name).code: getattr(errors, name) for name in errors.__all__
}


def problem(error: HoldproofError, number: str = "", *, inside: bool = True) -> dict[str, Any]:
    """An error as it is told, under the number of its request; what went wrong inside only if that may be told."""
    hidden = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not inside
    more = f"this could not be done; the server's log has more{f' under {number}' if number else ''}"
    return {
        "type": f"urn:holdproof:error:{error.code}",
        "title": _WORDS.sub(" ", type(error).__name__.removesuffix("Error")).capitalize(),
        "status": error.status,
        "detail": more if hidden else error.message,
        **({"instance": f"urn:holdproof:request:{number}"} if number else {}),
        "code": error.code,
        "remedy": error.remedy,
        "fields": {} if hidden else _fields(error.fields),
    }


def _fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in fields.items():
        try:
            found[name] = wire.dump(value)
        except InvalidInputError:  # a fact that no wire can carry is still a fact
            found[name] = str(value)
    return found


def error(told: Mapping[str, Any]) -> HoldproofError:
    """The error that a problem tells of."""
    kind = _BY_CODE.get(str(told.get("code")), HoldproofError)
    fields = told.get("fields")
    loaded = wire.shape(Any).load(fields, "fields") if isinstance(fields, Mapping) else {}
    return kind(str(told.get("detail", told.get("title", ""))), **loaded)
