"""Split user name and password off a URL, so that the URL can appear in logs and messages."""

from urllib.parse import unquote, urlsplit, urlunsplit

from holdproof.urls import redact

Credentials = tuple[str, str]
"""A name and a password."""


def split_credentials(url: str) -> tuple[str, Credentials | None]:
    """Return the URL without credentials, and the credentials if it has any; a malformed URL is returned redacted."""
    try:
        parts = urlsplit(url)
        name = parts.username
        password = parts.password
    except ValueError:
        return redact(url), None
    if name is None and password is None:
        return url, None
    # From the last @: a password may contain one.
    _, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), (unquote(name or ""), unquote(password or ""))
