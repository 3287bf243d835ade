"""`/v1/traces`: spans of any instrumented agent into the telemetry store, as OTLP/HTTP sends them."""

import asyncio
from functools import partial

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from holdproof.adapters.otel.receiver import receive
from holdproof.api.catalogue import entries
from holdproof.server.method_routes import guard


def part(app: FastAPI) -> None:
    """Add the receiver to a server; a caller that may append telemetry may send spans."""
    app.add_api_route("/v1/traces", traces, methods=["POST"], response_class=Response, include_in_schema=False)


async def traces(request: Request) -> Response:
    """Take spans in; the answer says how many were refused."""
    granted = await guard(request, entries()["telemetry", "append"], {})
    headers = request.headers
    content_type = headers.get("Content-Type", "")
    encoding = headers.get("Content-Encoding")
    read = partial(receive, await request.body(), content_type=content_type, content_encoding=encoding)
    received = await asyncio.to_thread(read)  # megabytes of it take seconds, and everybody else would wait
    await granted.store.telemetry.append(received.events)
    return Response(received.body, media_type=received.content_type)
