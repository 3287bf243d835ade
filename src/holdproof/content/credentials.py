"""Addresses on the web, without what opens them: a URL is in logs and messages, a password is in neither."""

from urllib.parse import unquote, urlsplit, urlunsplit

from holdproof.config import redact

Credentials = tuple[str, str]
"""A name and a password."""


def split_credentials(url: str) -> tuple[str, Credentials | None]:
    """The URL without name and password, and these two, if it has them; one that is no URL comes back redacted."""
    try:
        parts = urlsplit(url)
        name, password = parts.username, parts.password
    except ValueError:
        return redact(url), None
    if name is None and password is None:
        return url, None
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return bare, (unquote(name or ""), unquote(password or ""))
