"""What a database URL becomes before libpq connects with it: its parts, bounded waits, and no password in clear."""

import re
from typing import Any, Final

from psycopg import Error, pq
from psycopg.conninfo import conninfo_to_dict

from holdproof.errors import ConfigError

_TIMEOUTS: Final = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
_ENCRYPTED: Final = frozenset({"require", "verify-ca", "verify-full"})
_LOCAL: Final = re.compile(r"localhost|127\.[0-9.]+|::1|/.*|@.*|", re.DOTALL)
_KNOWS_REQUIRE_AUTH: Final = 160000


def parse(url: str) -> dict[str, Any]:
    """Return the parts of a URL or connection string, with timeouts; ConfigError, without its words, if it has none."""
    try:
        parts: dict[str, Any] = conninfo_to_dict(url)
    except Error:  # its message would quote the URL with the password
        raise ConfigError("the database URL cannot be parsed; write it like postgresql://user@host/name") from None
    _refuse_cut_password(url, parts)
    return _TIMEOUTS | parts | _authentication(parts)


def _refuse_cut_password(url: str, parts: dict[str, Any]) -> None:
    """Refuse a URL whose password holds a character that ends it early.

    libpq would take the pieces for port and database, and quote them in its errors.
    """
    name = url.partition("://")[2].partition("/")[2].partition("?")[0] if "://" in url else ""
    ports = str(parts.get("port") or "").split(",")
    if "@" in name or any(port and not port.isdigit() for port in ports):
        raise ConfigError(
            "the database URL cannot be read: in a password write %2F for /, %3F for ?, %23 for # and %40 for @"
        )


def _authentication(parts: dict[str, Any]) -> dict[str, str]:
    """Refuse to send a password in clear over a network: any server could ask for that."""
    unencrypted = parts.get("sslmode") not in _ENCRYPTED
    if "require_auth" in parts or not unencrypted or is_local(parts) or pq.version() < _KNOWS_REQUIRE_AUTH:
        return {}
    return {"require_auth": "!password"}


def is_local(parts: dict[str, Any]) -> bool:
    """Return whether all hosts are on this machine: a socket, or an address of its own."""
    hosts = str(parts.get("hostaddr") or parts.get("host") or "").split(",")
    return all(_LOCAL.fullmatch(host) for host in hosts)
