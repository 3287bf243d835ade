"""Where every error becomes an answer: problem details (RFC 9457) for programs, a page for people.

Rules:
- An error of ours keeps its code, status, remedy and fields. What went wrong inside is told to operators and auditors
  only; everybody else gets the number under which the server's log has it.
- An error that is not ours is a defect: 500, a number, nothing else.
- A refusal is written to the access log before the answer goes out.
"""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdproof.api.problems import MEDIA_TYPE, problem
from holdproof.errors import (
    AuthenticationError,
    ForbiddenError,
    HoldproofError,
    InvalidInputError,
    MethodError,
    NamespaceError,
    NotFoundError,
    RateLimitedError,
    RequestError,
    SlowRequestError,
    TooLargeError,
    UnauthenticatedError,
)
from holdproof.model.access import AccessEvent
from holdproof.server import proxy_login
from holdproof.server.middleware import charge
from holdproof.server.pages import page
from holdproof.server.state import caller_in, state_in

_log = logging.getLogger("holdproof.server")

REFUSALS: Final = (
    UnauthenticatedError,
    AuthenticationError,
    ForbiddenError,
    NamespaceError,
    RateLimitedError,
    RequestError,
)
"""Errors that are written to the access log."""


class DefectError(HoldproofError):
    """This is a defect of Holdproof: report it with the number, under which the server's log has the rest."""

    code = "internal"


class Errors:
    """Around everything else: whatever is raised before an answer began becomes one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the rest, and answer for it if it fails."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            return
        except Exception as raised:
            # The status line is out: break the connection, so that nobody takes half an answer for the whole.
            if started:
                _log.exception("an answer broke off")
                raise
            await (await answer(scope, raised))(scope, receive, send)


async def answer(scope: Scope, raised: Exception) -> Response:
    """Return the answer to an error, and write refusals to the access log."""
    error = translated(raised)
    number = scope.get("state", {}).get("request_id", "")
    if isinstance(error, DefectError) or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("request %s failed: %s", number, error.message, exc_info=raised)
    await note(scope, error)
    return _response(scope, error)


def translated(raised: Exception) -> HoldproofError:
    """Any error as one of ours."""
    match raised:
        case HoldproofError():
            return raised
        case RequestValidationError():
            wrong = [{"at": list(each["loc"]), "what": each["msg"]} for each in raised.errors()]
            return InvalidInputError("the request does not fit its description", errors=wrong)
        case HTTPException(status_code=404):
            return NotFoundError("there is nothing at this address")
        case HTTPException(status_code=405):
            return MethodError("this address knows other methods", allow=(raised.headers or {}).get("Allow", ""))
        case HTTPException(status_code=status) if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return RequestError(str(raised.detail))
    return DefectError("something failed that should not")


async def note(scope: Scope, error: HoldproofError) -> None:
    """Write a refusal to the access log; other errors are not written."""
    if not isinstance(error, REFUSALS) or isinstance(error, MethodError):
        return
    state = state_in(scope)
    caller = caller_in(scope)
    # Refused requests cost more than others: guessing secrets exhausts the address's bucket quickly.
    address = charge(scope)
    event = AccessEvent(
        0,
        "denied",
        error.status,
        error.code,
        caller.who if caller else "",
        address,
        scope["method"],
        scope["path"],
        error.message,
        1,
        "",
    )
    await state.access_log.note(event)


def problem_details(scope: Scope, error: HoldproofError) -> dict[str, Any]:
    """Return the problem details of an error, as far as the caller may see them."""
    caller = caller_in(scope)
    number = scope.get("state", {}).get("request_id", "")
    return problem(error, number, inside=caller is not None and caller.inside)


def _response(scope: Scope, error: HoldproofError) -> Response:
    facts = problem_details(scope, error)
    headers = _headers(error)
    if wants_page(scope):
        values = {"problem": facts, "code": "", "next": _where(scope), "proxy": proxy_login.admitted(scope)}
        return page(Request(scope), "problem.html", values, status=error.status, headers=headers)
    return Response(json.dumps(facts), error.status, headers, media_type=MEDIA_TYPE)


def _where(scope: Scope) -> str:
    """Return the page that somebody was on: the one they asked for, or that with the form they sent."""
    if scope["method"] == "GET":
        query = scope["query_string"].decode("latin-1")
        return f"{scope['path']}?{query}" if query else str(scope["path"])
    # Forms are sent to an address below the page they stand on.
    return str(scope["path"]).rpartition("/")[0]


def _headers(error: HoldproofError) -> dict[str, str]:
    headers = {}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="holdproof"'
    if "retry_after_s" in error.fields:
        headers["Retry-After"] = str(max(1, ceil(error.fields["retry_after_s"])))
    if isinstance(error, MethodError) and error.fields.get("allow"):
        headers["Allow"] = error.fields["allow"]
    if isinstance(error, TooLargeError | SlowRequestError):
        headers["Connection"] = "close"  # what is left of a body that nobody reads must not pass for a request
    return headers


def wants_page(scope: Scope) -> bool:
    """Whether a person looks at the answer: a browser, anywhere but at the API."""
    accepts: Mapping[str, str] = Headers(scope=scope)
    return not scope["path"].startswith("/v1/") and "text/html" in accepts.get("accept", "")
