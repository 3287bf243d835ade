"""Answers that are sent again only when they changed, and as few bytes as they can be.

Rules:
- A page carries a mark of what it says (ETag). How long ago something was is no part of that: pages count it.
- What is compressed was complete before: a stream of events is passed on as it comes.
- Pages come with the session's cookie only from our own pages (SameSite=Strict), so their compressed length tells
  nobody else what stands in them.
"""

import gzip
import re
from hashlib import sha256
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from holdproof.server.middleware import Middleware

_LEAST: Final = 1024
_LEVEL: Final = 5
_PACKED_TYPES: Final = ("text/html", "text/csv", "text/plain", "application/json", "application/problem+json")
# What changes from second to second in a page that says the same: the text of relative times, and the moment itself.
_PASSING: Final = re.compile(rb'(<time datetime="[^"]*" title="[^"]*">)[^<]*|data-now="[^"]*"')


class CompressionMiddleware(Middleware):
    """Marks pages, answers 304 to who has one already, and compresses what is worth it."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hold back the head of an answer until its body is known."""
        start: Message | None = None

        async def sending(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if start is None:
                await send(message)
                return
            head = start
            start = None
            if message.get("more_body", False):
                await send(head)
                await send(message)
                return
            body = message.get("body", b"")
            # Most answers of the API are small: they go as they are, unless they are a page.
            if len(body) >= _LEAST or _is_page(head):
                body = _answered(scope, Headers(scope=scope), head, body)
                message = {**message, "body": body}
            await send(head)
            await send(message)

        await self.app(scope, receive, sending)


def _is_page(head: Message) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/html") for name, value in head["headers"])


def _answered(scope: Scope, request: Headers, head: Message, body: bytes) -> bytes:
    """Return the body as it is sent; `head` is changed to fit it."""
    headers = MutableHeaders(raw=head["headers"])
    kind = headers.get("content-type", "").partition(";")[0]
    if kind == "text/html" and scope["method"] == "GET" and head["status"] == 200:
        says = _PASSING.sub(rb"\1", body)
        etag = f'W/"{sha256(says).hexdigest()[:24]}"'
        headers["ETag"] = etag
        if request.get("if-none-match") == etag:
            head["status"] = 304
            del headers["content-length"]
            head["headers"] = headers.raw
            return b""
    if kind in _PACKED_TYPES and len(body) >= _LEAST and "content-encoding" not in headers:
        headers.add_vary_header("Accept-Encoding")
        if "gzip" in request.get("accept-encoding", ""):
            body = gzip.compress(body, _LEVEL, mtime=0)
            headers["Content-Encoding"] = "gzip"
            headers["Content-Length"] = str(len(body))
    head["headers"] = headers.raw
    return body
