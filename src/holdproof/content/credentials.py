"""Separate credentials from URLs: a URL appears in logs and messages, a password must not."""

from urllib.parse import unquote, urlsplit, urlunsplit

from holdproof.config import redact

Credentials = tuple[str, str]
"""A name and a password."""


def split_credentials(url: str) -> tuple[str, Credentials | None]:
    """Return the URL without user and password, and these two if present; an invalid URL is returned redacted."""
    try:
        parts = urlsplit(url)
        name = parts.username
        password = parts.password
    except ValueError:
        return redact(url), None
    if name is None and password is None:
        return url, None
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return bare, (unquote(name or ""), unquote(password or ""))
