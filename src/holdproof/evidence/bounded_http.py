"""One HTTP request to somebody else's service: the answer is bounded in time and size, redirects are not followed."""

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from holdproof.content.credentials import Credentials
from holdproof.errors import FormatError, UnreachableError
from holdproof.lazy import lazy_module

if TYPE_CHECKING:
    import httpx
else:  # loaded at the first request: it costs more than all the rest at start
    httpx = lazy_module("httpx")

MOST_BYTES: Final = 1 << 20


class Reply(NamedTuple):
    """The response of a service."""

    status: int
    kind: str
    body: bytes


def send(
    method: str,
    url: str,
    who: str,
    *,
    timeout_s: float,
    opens: Credentials | None = None,
    body: bytes | None = None,
    kind: str | None = None,
) -> Reply:
    """Send one request; `who` names the service in errors. UnreachableError where it does not answer in time."""
    data = bytearray()
    deadline = time.monotonic() + timeout_s
    headers = None if kind is None else {"content-type": kind}
    try:
        with httpx.stream(method, url, content=body, timeout=timeout_s, auth=opens, headers=headers) as answer:
            for part in answer.iter_bytes():
                data += part
                if len(data) > MOST_BYTES:
                    raise FormatError(f"{who} answers without end", url=url)
                if time.monotonic() > deadline:
                    raise UnreachableError(f"{who} answers too slowly", url=url)
            return Reply(answer.status_code, answer.headers.get("content-type", ""), bytes(data))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UnreachableError(f"{who} cannot be reached: {error}", url=url) from error
