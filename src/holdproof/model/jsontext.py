"""JSON as compact text, as fast as the standard library can; canonical JSON is crypto/canonical.py."""

import json
from collections.abc import Callable
from typing import Any


def encoder(*, ascii: bool) -> Callable[[Any], str]:
    """Return a function that encodes a value as compact JSON text.

    It raises TypeError, ValueError or RecursionError for a value that JSON cannot represent, NaN among them.
    """
    plain = json.JSONEncoder(ensure_ascii=ascii, allow_nan=False, separators=(",", ":"))
    # `json.dumps` builds its C encoder anew for each call; building it once halves the time of small values.
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return plain.encode
    text = json.encoder.encode_basestring_ascii if ascii else json.encoder.encode_basestring
    encode = make(None, plain.default, text, None, ":", ",", False, False, False)
    return lambda value: "".join(encode(value, 0))


_PLAIN = encoder(ascii=False)
_ESCAPED = encoder(ascii=True)


def readable(value: Any) -> str:
    """Encode a value as JSON that people can read; a lone surrogate, which no database stores, is written escaped."""
    text = _PLAIN(value)
    # Most texts are: then there is no surrogate to look for.
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _ESCAPED(value)
    return text


def load_object(text: str | None) -> dict[str, Any]:
    """Return the mapping in a column; another value, left there by another program, becomes `{"text": value}`."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"text": value}


def load(text: str | None) -> Any:
    """Return the value of a JSON column; None for NULL."""
    return None if text is None else json.loads(text)
