"""URLs of databases: hide their passwords, and compare what they name."""

import re
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from holdproof.errors import InvalidInputError

_PORT: Final = "5432"
_HOST: Final = re.compile(r"(?:\[(?P<address>[^\]]*)\]|(?P<host>[^:]*))(?::(?P<port>\d*))?")
_PAIR: Final = re.compile(r"(?s)(?P<key>\w+)\s*=\s*(?:'(?P<quoted>(?:\\.|[^'\\])*)'|(?P<plain>(?:\\.|[^\s\\])*))")


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
    """Return whether two URLs or connection strings name the same database of the same server, by whatever login.

    They are compared by what libpq makes of them, not by their text. InvalidInputError if one cannot be read.
    """
    return _server_and_name(first) == _server_and_name(second)


def database_of(url: str) -> str:
    """Return the name of the database that a URL means."""
    return _server_and_name(url)[1]


def with_database(url: str, name: str) -> str:
    """Return the URL of another database of the same server, for the same login."""
    split = urlsplit(url)
    pairs = [(key, value) for key, value in parse_qsl(split.query, keep_blank_values=True) if key != "dbname"]
    return urlunsplit(split._replace(path=f"/{quote(name, safe='')}", query=urlencode(pairs, quote_via=quote)))


def has_password(url: str) -> bool:
    """Return whether a URL carries a password."""
    return redact(url) != url


def _server_and_name(url: str) -> tuple[frozenset[tuple[str, str]], str]:
    """Return every host with its port, and the name of the database."""
    parts = _url_parts(url) if "://" in url else _conninfo_parts(url)
    hosts = (parts.get("host") or parts.get("hostaddr") or "").split(",")
    ports = (parts.get("port") or _PORT).split(",")
    # A single port is meant for all hosts. A folder of sockets has case, a name on the network has none.
    addresses = frozenset(
        (host if host.startswith("/") else host.lower(), ports[number % len(ports)] or _PORT)
        for number, host in enumerate(hosts)
    )
    return addresses, parts.get("dbname") or parts.get("user") or ""


def _url_parts(url: str) -> dict[str, str]:
    try:
        split = urlsplit(url)
    except ValueError as error:
        raise InvalidInputError(
            f"the database URL cannot be read ({error}): an IPv6 address stands in brackets, as in"
            " postgresql://user@[::1]:5432/name"
        ) from error
    login, _, addresses = split.netloc.rpartition("@")
    # Each host with its port, if any: the colons inside brackets belong to the address.
    pairs = [_HOST.fullmatch(each) for each in addresses.split(",")]
    hosts = [
        unquote(pair["address"] or pair["host"] or "") if pair else each
        for pair, each in zip(pairs, addresses.split(","), strict=True)
    ]
    ports = [(pair["port"] or "") if pair else "" for pair in pairs]
    parts = {
        "user": unquote(login.partition(":")[0]),
        "host": ",".join(hosts),
        "port": ",".join(ports),
        "dbname": unquote(split.path.removeprefix("/")),
    }
    # libpq also takes them as parameters, which count before; that is how a socket's folder is named.
    return parts | dict(parse_qsl(split.query))


def _conninfo_parts(text: str) -> dict[str, str]:
    """Return the pairs of a string like `host=db dbname='my shop'`."""
    return {
        match["key"]: re.sub(r"\\(.)", r"\1", match["quoted"] if match["quoted"] is not None else match["plain"])
        for match in _PAIR.finditer(text)
    }
