"""URLs of databases: hide their passwords, and compare what they name."""

import re
from urllib.parse import parse_qsl, urlsplit


def redact(url: str) -> str:
    """Return a URL or connection string with every password hidden, even where it is malformed."""
    if "://" not in url:
        url = re.sub(r"(?is)(password\s*=\s*)('(?:\\.|[^'\\])*'?|(?:\\.|[^\s\\])+)", r"\1***", url)
        # A URL whose slashes were forgotten: `postgresql:user:password@host`.
        return re.sub(r"(?s)^(\w+:[^:@/]*):.*@", r"\1:***@", url)
    # Up to the last @: an unescaped / ? # or @ inside a password must not end the search early.
    url = re.sub(r"(?s)^([^:/@]*://[^:@/]*):.*@", r"\1:***@", url)
    # Without an @ the rest may still be a password, cut off from its host by a / that was not escaped. Only what
    # begins like a host with a port is none.
    url = re.sub(r"(?s)^([^:/@]*://[^:@/\[]*):(?!\*\*\*@|\d{1,5}(?:[,/?]|$)).*", r"\1:***", url)
    return re.sub(r"(?is)(password=)[^&]*", r"\1***", url)


def same_database(first: str, second: str) -> bool:
    """Return whether two URLs name the same database of the same server, by whatever login."""
    return _server_and_name(first) == _server_and_name(second)


def _server_and_name(url: str) -> tuple[str, str, str, str]:
    parts = urlsplit(url)
    # libpq also takes host and port as parameters, which is how a socket's folder is named.
    query = dict(parse_qsl(parts.query))
    address = parts.netloc.rpartition("@")[2]
    return address, query.get("host", ""), query.get("port", ""), parts.path
