"""`/v1/<resource>/<method>`: every method of the store that remote callers can use, made from the catalogue.

Rules:
- Every method is a POST with one JSON object; one that reads and whose parameters fit a query is a GET too.
- What arrives is read by the type of its parameter; an unknown one is refused.
- `Idempotency-Key` makes a POST happen once: the same key with the same request gives the first answer again, also
  where it comes line by line. A method that gives a secret takes none: secrets are shown once and kept nowhere.
- A value with a version has it as its ETag; `If-Match` is the version that a change expects.
- A method that waits as long as it takes ends with the server: its caller is told to call again.
- A method that calls back, reports progress or streams its answer is answered line by line (exchange.py).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from holdproof.api import wire
from holdproof.api.catalogue import MethodSpec, entries
from holdproof.api.problems import MEDIA_TYPE
from holdproof.api.wire import Named
from holdproof.client import Holdproof
from holdproof.errors import InvalidInputError, MethodError, StaleVersionError, StoppingError
from holdproof.executors import require_whole_store
from holdproof.server.bodies import encode, read_as
from holdproof.server.exchange import Exchange, Exchanges
from holdproof.server.permissions import RESERVED_KEYS
from holdproof.server.problems import problem_details
from holdproof.server.state import state_of
from holdproof.validation import position

T = TypeVar("T")

LINES: Final = "application/jsonl"
_PRECONDITION_FAILED: Final = 412
_MOST_PUBLIC_BYTES: Final = 64 * 1024
"""How long the body of a call is that anybody may make."""
_NOT_MODIFIED: Final = 304


@dataclass(frozen=True, slots=True)
class Granted:
    """What a caller may use: the store as they may see it, and who they are."""

    store: Holdproof
    who: str
    signed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that the server sets, whatever the caller passed."""
    agent_id: str | None = None
    """The agent that calls, if it is one."""


Guard = Callable[[Request, MethodSpec, Mapping[str, Any]], Awaitable[Granted]]
"""Lets a caller do something, or raises."""
Admit = Callable[[Request, MethodSpec], None]
"""Lets a caller use a method at all, or raises: asked before the body is read."""


def admit_all(request: Request, entry: MethodSpec) -> None:
    """Leave the decision to the guard."""
    del request, entry


class MethodEndpoints:
    """All methods, in front of the router: looked up by path in one dictionary, however many there are."""

    def __init__(self, app: ASGIApp, guard: Guard, exchanges: Exchanges, admit: Admit = admit_all) -> None:
        self._app = app
        endpoints: list[_Endpoint | _Whole] = [
            _Endpoint(entry, guard, exchanges, admit) for entry in entries().values()
        ]
        # The two methods of the store itself; they belong to no resource, so the catalogue has no entry for them.
        endpoints += [_Whole(name, guard) for name in ("status", "check")]
        self._endpoints = {each.path: each for each in endpoints}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a method's path; pass everything else on to the router."""
        endpoint = self._endpoints.get(scope["path"]) if scope["type"] == "http" else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        # The metrics read the route's template from here, as the router would have set it.
        scope["route"] = endpoint
        answer = await endpoint.answer(Request(scope, receive, send))
        await answer(scope, receive, send)


class _Whole:
    """What a store says of itself as a whole."""

    def __init__(self, name: str, guard: Guard) -> None:
        self._name = name
        self._guard = guard
        self.path = f"/v1/{name}"

    async def answer(self, request: Request) -> Response:
        """Ask the store."""
        granted = await self._guard(request, entries()["storage", "status"], {})
        require_whole_store(granted.store)
        return await _shown(request, await getattr(granted.store, self._name)())


class _Endpoint:
    """One method over HTTP."""

    def __init__(self, entry: MethodSpec, guard: Guard, exchanges: Exchanges, admit: Admit) -> None:
        self._entry = entry
        self._admit = admit
        self._guard = guard
        self._exchanges = exchanges
        self.path = _address(entry)

    async def answer(self, request: Request) -> Response:
        """A call that a JSON object says, or a query."""
        # Before the body: nobody without the right to call makes the server read and parse megabytes.
        self._admit(request, self._entry)
        if request.method == "POST":
            most_bytes = _MOST_PUBLIC_BYTES if self._entry.exposure.public else None
            return await self._answer(request, await read_as(request, partial(loaded, self._entry), most_bytes))
        if request.method not in self._methods:
            raise MethodError("this method is called with another HTTP method", allow=", ".join(self._methods))
        return await self._answer(request, _queried(self._entry, request))

    @property
    def _methods(self) -> tuple[str, ...]:
        return ("GET", "HEAD", "POST") if self._entry.plain_query else ("POST",)

    async def _answer(self, request: Request, arguments: dict[str, Any]) -> Response:
        entry = self._entry
        # If-Match fills in `expected_version`, so it has to come before the arguments are checked and fingerprinted.
        expects = _expected(entry, request, arguments)
        complete(entry, arguments)
        granted = await self._guard(request, entry, arguments)
        # After the permission check, which judges what the caller sent and not what the server adds.
        arguments |= granted.signed
        key = self._key(request)
        if entry.streams or any(name in arguments for name in entry.callbacks):
            return self._streamed(granted, request, key, arguments)
        try:
            work = self._once(granted, key, arguments, arguments)
            value = await (until_the_end(state_of(request).stopping, work) if entry.waits else work)
        except StaleVersionError as error:
            if not expects:
                raise
            facts = problem_details(request.scope, error) | {"status": _PRECONDITION_FAILED}
            return JSONResponse(facts, _PRECONDITION_FAILED, media_type=MEDIA_TYPE)
        return await _shown(request, value)

    def _key(self, request: Request) -> str | None:
        """The key under which the answer is kept, if there is one; what only reads needs none."""
        # What is public is called by anybody: they write nothing before their right is proven, keys neither.
        unkeyed = self._entry.reads or self._entry.exposure.public
        key = None if unkeyed else request.headers.get("Idempotency-Key")
        if key is not None and (self._entry.secret or self._entry.streams):
            reason = "gives a secret, which is kept nowhere" if self._entry.secret else "streams its answer"
            raise InvalidInputError(f"no Idempotency-Key: {self._entry.name} {reason}", parameter="Idempotency-Key")
        return key

    def _once(self, granted: Granted, key: str | None, arguments: Mapping[str, Any], called: Mapping[str, Any]) -> Any:
        """Call the method, or wait for the answer under the key; `called` is `arguments` with callbacks filled in."""
        return (
            self._perform(granted.store, called) if key is None else self._perform_once(granted, key, arguments, called)
        )

    async def _perform_once(
        self, granted: Granted, key: str, arguments: Mapping[str, Any], called: Mapping[str, Any]
    ) -> Any:
        async def perform() -> Any:
            return wire.dump(await self._perform(granted.store, called))

        # These two names are part of stored fingerprints: renaming them would turn every known key into a conflict.
        fingerprint = {"verb": self._entry.name, "given": wire.dump(arguments)}
        answer = await granted.store.idempotency.once(f"{RESERVED_KEYS}{granted.who}:{key}", fingerprint, perform)
        return self._entry.answer.load(answer, "")

    def _perform(self, store: Holdproof, arguments: Mapping[str, Any]) -> Any:
        args, kwargs = self._entry.arguments(arguments)
        return getattr(getattr(store, self._entry.resource), self._entry.method)(*args, **kwargs)

    def _streamed(self, granted: Granted, request: Request, key: str | None, arguments: Mapping[str, Any]) -> Response:
        called = dict(arguments)
        # If the answer cannot even begin, leaving this block removes the exchange again.
        with self._exchanges.opened(granted.who, partial(problem_details, request.scope)) as exchange:
            for name in self._entry.callbacks:
                if name in arguments:
                    called[name] = exchange.tell if name == "progress" else exchange.caller(name)
            answer = self._once(granted, key, arguments, called)
            work = exchange.give(answer) if self._entry.streams else answer
            return streaming(self._exchanges, exchange, work)


async def until_the_end(stopping: asyncio.Event, work: Awaitable[T]) -> T:
    """Wait for work, or until the server stops: then it is cancelled."""
    working = asyncio.ensure_future(work)
    end = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({working, end}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise StoppingError("the server is stopping, and what this call waits for has not come")
    finally:
        end.cancel()
        working.cancel()
        await asyncio.gather(working, end, return_exceptions=True)


def streaming(exchanges: Exchanges, exchange: Exchange, work: Awaitable[Any]) -> Response:
    """The answer of an exchange, to its end."""

    async def lines() -> AsyncIterator[bytes]:
        try:
            async for line in exchange.lines(work):
                yield line
        finally:
            exchanges.end(exchange)

    return StreamingResponse(lines(), media_type=LINES, headers={"Holdproof-Exchange": exchange.id})


def loaded(entry: MethodSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, by their types."""
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        parameter = entry.parameter(name)
        if parameter is None or not parameter.offered:
            raise InvalidInputError(f"{entry.resource} {entry.method} takes no {name}", parameter=name)
        # A function cannot cross the wire: true asks the server to call back over the lines of the answer.
        if parameter.shape.callback:
            if value is not True:
                raise InvalidInputError(f"{name} is true, or left out", parameter=name)
            arguments[name] = True
        elif parameter.many:
            arguments[name] = wire.shape(list[Any]).load(value, name)
            arguments[name] = [parameter.shape.load(each, f"{name}[{n}]") for n, each in enumerate(arguments[name])]
        else:
            arguments[name] = parameter.shape.load(value, name)
    return arguments


def _queried(entry: MethodSpec, request: Request) -> dict[str, Any]:
    """The arguments of a query, by their types."""
    arguments: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        parameter = entry.parameter(name)
        if parameter is None or not parameter.offered:
            raise InvalidInputError(f"{entry.resource} {entry.method} takes no {name}", parameter=name)
        if parameter.many:
            arguments.setdefault(name, []).append(parameter.shape.read(text, name))
        elif name in arguments:
            raise InvalidInputError(f"{name} is given twice", parameter=name)
        else:
            arguments[name] = parameter.shape.read(text, name)
    return arguments


def complete(entry: MethodSpec, arguments: Mapping[str, Any]) -> None:
    """Refuse a call that does not say all it has to."""
    missing = [each.name for each in entry.parameters if each.required and each.name not in arguments]
    if missing:
        raise InvalidInputError(f"{entry.resource} {entry.method} needs {missing[0]}", parameter=missing[0])


def _expected(entry: MethodSpec, request: Request, arguments: dict[str, Any]) -> bool:
    """Take `If-Match` as the version that a change expects; whether there is one."""
    tag = request.headers.get("If-Match")
    if tag is None or tag == "*" or entry.parameter("expected_version") is None:
        return False
    try:
        arguments.setdefault("expected_version", position("If-Match", int(tag.strip('"'))))
    except ValueError as error:
        text = "If-Match is a version as the ETag of a value gives it"
        raise InvalidInputError(text, parameter="If-Match") from error
    return True


async def _shown(request: Request, value: Any) -> Response:
    if isinstance(value, bytes):
        return Response(value, media_type="application/octet-stream")
    version = getattr(value, "version", None)
    # A bool is an int to isinstance; only a real version makes an ETag.
    headers = {"ETag": f'"{version}"'} if type(version) is int else {}
    if headers and request.method != "POST" and request.headers.get("If-None-Match") == headers["ETag"]:
        return Response(status_code=_NOT_MODIFIED, headers=headers)
    return Response(await encode(value), media_type="application/json", headers=headers)


# --- the document ------------------------------------------------------------------------------------------------


def paths() -> dict[str, Any]:
    """Return the paths of all methods, as OpenAPI describes them."""
    return {_address(each): _methods(each) for each in entries().values()}


def _methods(entry: MethodSpec) -> dict[str, Any]:
    posted = {"post": _described(entry, query=False)}
    return {"get": _described(entry, query=True), **posted} if entry.plain_query else posted


def _address(entry: MethodSpec) -> str:
    return f"/v1/{entry.resource}/{entry.method}"


def _described(entry: MethodSpec, *, query: bool) -> dict[str, Any]:
    named: Named = {}
    operation: dict[str, Any] = {
        "operationId": entry.name if query or not entry.plain_query else f"{entry.name}_post",
        "summary": entry.summary,
        "tags": [entry.resource],
        **({"security": []} if entry.exposure.public else {}),
        "responses": {
            "200": {"description": "The answer.", "content": _content(entry, named)},
            "default": {"description": "What went wrong.", "content": _PROBLEM},
        },
    }
    if query:
        operation["parameters"] = [
            {"name": each.name, "in": "query", "required": each.required, "schema": each.schema(named)}
            for each in entry.parameters
            if each.offered and each.shape.scalar
        ]
    else:
        schema = entry.schema(named, callbacks=True)
        operation["requestBody"] = {
            "content": {"application/json": {"schema": schema}},
            "required": bool(schema["required"]),
        }
    return operation


def _content(entry: MethodSpec, named: Named) -> dict[str, Any]:
    """Return the media types in which a method answers."""
    forms: dict[str, Any] = {}
    if entry.streams or entry.callbacks:
        forms[LINES] = {"schema": {}}
    # Bytes travel as they are; an answer that may be None needs JSON as well.
    if entry.answer in (wire.shape(bytes), wire.shape(bytes | None)):
        forms["application/octet-stream"] = {"schema": {}}
    if not entry.streams and entry.answer is not wire.shape(bytes):
        forms["application/json"] = {"schema": entry.answer.schema(named)}
    return forms


_PROBLEM: Final = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


def components() -> Named:
    """The schemas of all named types that the routes speak of."""
    named: Named = {
        "Problem": {
            "type": "object",
            "description": "What went wrong, and what to do.",
            "properties": {
                **{name: {"type": "string"} for name in ("type", "title", "detail", "code", "remedy")},
                "status": {"type": "integer"},
            },
            "required": ["type", "title", "status", "detail", "code"],
        }
    }
    for entry in entries().values():
        entry.schema(named)
        entry.answer.schema(named)
    return named
