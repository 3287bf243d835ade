"""Base64, both alphabets, strictly: one byte string has exactly one accepted text."""

import base64
import binascii

from holdproof.errors import FormatError


def encode(data: bytes) -> str:
    """Encode in the standard alphabet, padded (RFC 4648 section 4)."""
    return base64.b64encode(data).decode("ascii")


def decode(text: str) -> bytes:
    """Decode a padded text in the standard alphabet; FormatError unless it is canonical."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"not base64: {error}", length=len(text)) from error
    # The decoder ignores bits after the last byte: a second text for the same bytes.
    if encode(data) != text:
        raise FormatError("not base64: stray bits after the last byte", length=len(text))
    return data


def encode_url(data: bytes) -> str:
    """Encode in the URL-safe alphabet, without padding (RFC 4648 section 5)."""
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def decode_url(text: str) -> bytes:
    """Decode an unpadded text in the URL-safe alphabet; FormatError unless it is canonical."""
    if "+" in text or "/" in text or "=" in text:
        raise FormatError("not base64url: standard alphabet or padding", length=len(text))
    return decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4))


def decode_either(text: str) -> bytes:
    """Decode a padded text in either alphabet, as DSSE requires of readers, but not in a mixture of both."""
    if ("-" in text or "_" in text) and "+" not in text and "/" not in text:
        text = text.replace("-", "+").replace("_", "/")
    return decode(text)
