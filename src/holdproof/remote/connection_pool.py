"""The connections of a wire: HTTP clients with one connection each, the one used last first.

One client with many connections looks at every one of them before and after every request: with 64 calls under way that
costs ten times what a request does. A client with one has nothing to look for.
"""

import ssl
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import httpx

from holdproof.content.credentials import split_credentials
from holdproof.errors import ClosedError, InvalidInputError

C = TypeVar("C", bound=httpx.AsyncClient | httpx.Client)

TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0, read=None)
"""An answer may take as long as its work: a lock, a person. A server that is gone breaks the connection."""
_MAX_CONNECTIONS: Final = 256
_MAX_IDLE: Final = 64


class ConnectionPool(Generic[C]):
    """Clients of one connection; `httpx_options` are further options of httpx, as `verify`."""

    def __init__(self, kind: Callable[..., C], url: str, token: str | None, httpx_options: dict[str, Any]) -> None:
        limits = httpx_options.pop("limits", httpx.Limits())
        self.most = limits.max_connections or _MAX_CONNECTIONS
        shared = "transport" in httpx_options  # one way for all: nobody closes it under the others
        self._max_idle = self.most if shared else limits.max_keepalive_connections or _MAX_IDLE
        # Each client holds a single connection; how many there are, this pool decides.
        one = httpx.Limits(max_connections=1, keepalive_expiry=limits.keepalive_expiry)
        bare, opens = split_credentials(url)
        _refuse_impossible(bare, token)
        credentials: dict[str, Any] = {"headers": {"Authorization": f"Bearer {token}"}} if token else {"auth": opens}
        options = {"base_url": bare, **credentials, "timeout": TIMEOUT, "limits": one}
        options |= httpx_options | {"verify": _trusted(url, httpx_options)}
        self._kind = kind
        self._options = options
        self._free: list[C] = []
        self._open: set[C] = set()
        self._ended = False

    def take(self) -> C:
        """A client that nobody uses; ClosedError once all are closed."""
        if self._ended:
            raise ClosedError("the connections to the server are closed")
        try:
            # Last in, first out: few connections stay warm, and the idle ones expire on the server's side.
            return self._free.pop()
        except IndexError:
            client = self._kind(**self._options)
            self._open.add(client)
            return client

    def give(self, client: C) -> C | None:
        """Give it back; the answer is one too many, to be closed."""
        # Beyond the idle limit the client is handed back, because closing it is a coroutine for the async client only.
        if len(self._free) < self._max_idle:
            self._free.append(client)
            return None
        self._open.discard(client)
        return client

    def end(self) -> list[C]:
        """Every client that is open, to be closed."""
        ended = [*self._open]
        self._ended = True
        self._open.clear()
        self._free.clear()
        return ended


def _refuse_impossible(url: str, token: str | None) -> None:
    """Raise InvalidInputError for what is no address of a server, or no token: HTTP would repeat it in its error."""
    try:
        parsed = httpx.URL(url)
        is_address = parsed.scheme in {"http", "https"} and bool(parsed.host) and " " not in url
    except httpx.InvalidURL:
        is_address = False
    if not is_address:
        message = f"{url!r} is no address of a server: it is one like https://store.example:8420"
        raise InvalidInputError(message, parameter="url")
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        message = "a token has no spaces, line breaks or accents: copy it as `holdproof tokens create` printed it"
        raise InvalidInputError(message, parameter="token")


def _trusted(url: str, httpx_options: dict[str, Any]) -> ssl.SSLContext:
    """Whom to trust: read once for all connections, and not at all where there is nothing to be trusted."""
    cert = httpx_options.pop("cert", None)
    verify = httpx_options.pop("verify", True)
    environment = httpx_options.get("trust_env", True)
    if isinstance(verify, ssl.SSLContext):
        return verify
    if url.startswith("http://"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, should anything lead away from here
    return httpx.create_ssl_context(verify, cert, environment)
