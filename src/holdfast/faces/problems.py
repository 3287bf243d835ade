"""Errors across a wire: problem+json (RFC 9457) with our codes, and back to the class that was raised."""

import re
from collections.abc import Mapping
from typing import Any, Final

from holdfast import errors
from holdfast.errors import HoldfastError, InvalidInputError
from holdfast.faces import wire

MEDIA_TYPE: Final = "application/problem+json"
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_BY_CODE: Final[dict[str, type[HoldfastError]]] = {
    getattr(errors, name).code: getattr(errors, name) for name in errors.__all__
}


def problem(error: HoldfastError) -> dict[str, Any]:
    """An error as it is told."""
    return {
        "type": f"urn:holdfast:error:{error.code}",
        "title": _WORDS.sub(" ", type(error).__name__.removesuffix("Error")).capitalize(),
        "status": error.status,
        "detail": error.message,
        "code": error.code,
        "remedy": error.remedy,
        "fields": _fields(error.fields),
    }


def _fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in fields.items():
        try:
            found[name] = wire.dump(value)
        except InvalidInputError:  # a fact that no wire can carry is still a fact
            found[name] = str(value)
    return found


def error(told: Mapping[str, Any]) -> HoldfastError:
    """The error that a problem tells of."""
    kind = _BY_CODE.get(str(told.get("code")), HoldfastError)
    fields = told.get("fields")
    loaded = wire.shape(Any).load(fields, "fields") if isinstance(fields, Mapping) else {}
    return kind(str(told.get("detail", told.get("title", ""))), **loaded)
