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
    """Return an error as a problem document, with the number of its request.

    Without `inside`, what went wrong within the server stays in its log.
    """
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
    plain: dict[str, Any] = {}
    for name, value in fields.items():
        try:
            plain[name] = wire.dump(value)
        except InvalidInputError:  # a fact that no wire can carry is still a fact
            plain[name] = str(value)
    return plain


def error(body: Mapping[str, Any]) -> HoldproofError:
    """Return the error that a problem document describes."""
    # A newer server may send a code that this version does not know: then it is the base class, not a failure.
    kind = _BY_CODE.get(str(body.get("code")), HoldproofError)
    fields = body.get("fields")
    loaded = wire.shape(Any).load(fields, "fields") if isinstance(fields, Mapping) else {}
    # Fields are facts of the error: none of them may pass for the remedy.
    loaded.pop("remedy", None)
    remedy = body.get("remedy")
    return kind(str(body.get("detail", body.get("title", ""))), remedy=str(remedy) if remedy else None, **loaded)
