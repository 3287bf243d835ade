"""`/v1/<noun>/<verb>`: every verb of the store that a stranger can use, made from the catalogue.

Rules:
- Every verb is a POST with one JSON object; one that reads and whose parameters fit a query is a GET too.
- What arrives is read by the type of its parameter; an unknown one is refused.
- `Idempotency-Key` makes a POST happen once: the same key with the same request gives the first answer again, also
  where it comes line by line. A verb that gives a secret takes none: secrets are shown once and kept nowhere.
- A value with a version has it as its ETag; `If-Match` is the version that a change expects.
- A verb that calls back, tells progress or answers bit by bit is answered line by line (exchange.py).
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from holdproof.api import wire
from holdproof.api.catalogue import MethodSpec, entries
from holdproof.api.problems import MEDIA_TYPE
from holdproof.api.wire import Named
from holdproof.client import Holdproof
from holdproof.errors import InvalidInputError, MethodError, StaleVersionError
from holdproof.executors import require_whole_store
from holdproof.server.exchange import Exchange, Exchanges
from holdproof.server.permissions import RESERVED_KEYS
from holdproof.server.problems import told
from holdproof.validation import position

LINES: Final = "application/jsonl"
_PRECONDITION_FAILED: Final = 412
_NOT_MODIFIED: Final = 304


@dataclass(frozen=True, slots=True)
class Granted:
    """What a caller may use: the store as they may see it, and who they are."""

    store: Holdproof
    who: str
    signed: Mapping[str, Any] = field(default_factory=dict)
    """What the door says in the caller's place, whatever they said."""
    agent_id: str | None = None
    """The agent that calls, if it is one."""


Guard = Callable[[Request, MethodSpec, Mapping[str, Any]], Awaitable[Granted]]
"""Lets a caller do something, or raises."""


class Verbs:
    """All verbs, before any other route: found by their address at once, however many there are."""

    def __init__(self, app: ASGIApp, guard: Guard, exchanges: Exchanges) -> None:
        self._app = app
        found: list[_Endpoint | _Whole] = [_Endpoint(entry, guard, exchanges) for entry in entries().values()]
        found += [_Whole(name, guard) for name in ("status", "check")]
        self._known = {each.path: each for each in found}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer for a verb; leave all else to the routes."""
        found = self._known.get(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = found
        answer = await found.answer(Request(scope, receive, send))
        await answer(scope, receive, send)


class _Whole:
    """What a store says of itself as a whole."""

    def __init__(self, name: str, guard: Guard) -> None:
        self._name, self._guard, self.path = name, guard, f"/v1/{name}"

    async def answer(self, request: Request) -> Response:
        """Ask the store."""
        granted = await self._guard(request, entries()["storage", "status"], {})
        require_whole_store(granted.store)
        return _shown(request, await getattr(granted.store, self._name)())


class _Endpoint:
    """One verb over HTTP."""

    def __init__(self, entry: MethodSpec, guard: Guard, exchanges: Exchanges) -> None:
        self._entry, self._guard, self._exchanges = entry, guard, exchanges
        self.path = _address(entry)

    async def answer(self, request: Request) -> Response:
        """A call that a JSON object says, or a query."""
        if request.method == "POST":
            return await self._answer(request, loaded(self._entry, await body(request)))
        if request.method not in self._methods:
            raise MethodError("this verb is called otherwise", allow=", ".join(self._methods))
        return await self._answer(request, _queried(self._entry, request))

    @property
    def _methods(self) -> tuple[str, ...]:
        return ("GET", "HEAD", "POST") if self._entry.plain_query else ("POST",)

    async def _answer(self, request: Request, given: dict[str, Any]) -> Response:
        entry = self._entry
        expects = _expected(entry, request, given)
        complete(entry, given)
        granted = await self._guard(request, entry, given)
        given |= granted.signed
        key = self._key(request)
        if entry.streams or any(name in given for name in entry.callbacks):
            return self._streamed(granted, request, key, given)
        try:
            value = await self._once(granted, key, given, given)
        except StaleVersionError as error:
            if not expects:
                raise
            facts = told(request.scope, error) | {"status": _PRECONDITION_FAILED}
            return JSONResponse(facts, _PRECONDITION_FAILED, media_type=MEDIA_TYPE)
        return _shown(request, value)

    def _key(self, request: Request) -> str | None:
        """The key under which the answer is kept, if there is one; what only reads needs none."""
        key = None if self._entry.reads else request.headers.get("Idempotency-Key")
        if key is not None and (self._entry.secret or self._entry.streams):
            said = "gives a secret, which is kept nowhere" if self._entry.secret else "answers bit by bit"
            raise InvalidInputError(f"no Idempotency-Key: {self._entry.name} {said}", parameter="Idempotency-Key")
        return key

    def _once(self, granted: Granted, key: str | None, given: Mapping[str, Any], called: Mapping[str, Any]) -> Any:
        """Call the verb, or wait for the answer that the key has; `called` is what was given, with its functions."""
        return self._perform(granted.store, called) if key is None else self._kept(granted, key, given, called)

    async def _kept(self, granted: Granted, key: str, given: Mapping[str, Any], called: Mapping[str, Any]) -> Any:
        async def perform() -> Any:
            return wire.dump(await self._perform(granted.store, called))

        asked = {"verb": self._entry.name, "given": wire.dump(given)}
        kept = await granted.store.idempotency.once(f"{RESERVED_KEYS}{granted.who}:{key}", asked, perform)
        return self._entry.answer.load(kept, "")

    def _perform(self, store: Holdproof, given: Mapping[str, Any]) -> Any:
        args, kwargs = self._entry.arguments(given)
        return getattr(getattr(store, self._entry.resource), self._entry.method)(*args, **kwargs)

    def _streamed(self, granted: Granted, request: Request, key: str | None, given: Mapping[str, Any]) -> Response:
        called = dict(given)
        with self._exchanges.begun(granted.who, partial(told, request.scope)) as exchange:
            for name in self._entry.callbacks:
                if name in given:
                    called[name] = exchange.tell if name == "progress" else exchange.caller(name)
            answer = self._once(granted, key, given, called)
            work = exchange.give(answer) if self._entry.streams else answer
            return streaming(self._exchanges, exchange, work)


def streaming(exchanges: Exchanges, exchange: Exchange, work: Awaitable[Any]) -> Response:
    """The answer of an exchange, to its end."""

    async def lines() -> AsyncIterator[bytes]:
        try:
            async for line in exchange.lines(work):
                yield line
        finally:
            exchanges.end(exchange)

    return StreamingResponse(lines(), media_type=LINES, headers={"Holdproof-Exchange": exchange.id})


async def body(request: Request) -> dict[str, Any]:
    """The one JSON object of a request; nothing is an empty one."""
    raw = await request.body()
    if not raw:
        return {}
    try:
        given = _READS.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the body is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise InvalidInputError("the body is not a JSON object")
    return given


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


_READS: Final = json.JSONDecoder(parse_constant=_refuse_constant)
_WRITES: Final = json.JSONEncoder(separators=(",", ":"))


def loaded(entry: MethodSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, by their types."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        parameter = entry.parameter(name)
        if parameter is None or not parameter.offered:
            raise InvalidInputError(f"{entry.resource} {entry.method} takes no {name}", parameter=name)
        if parameter.shape.callback:
            if value is not True:
                raise InvalidInputError(f"{name} is true, or left out", parameter=name)
            found[name] = True
        elif parameter.many:
            found[name] = wire.shape(list[Any]).load(value, name)
            found[name] = [parameter.shape.load(each, f"{name}[{n}]") for n, each in enumerate(found[name])]
        else:
            found[name] = parameter.shape.load(value, name)
    return found


def _queried(entry: MethodSpec, request: Request) -> dict[str, Any]:
    """The arguments of a query, by their types."""
    found: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        parameter = entry.parameter(name)
        if parameter is None or not parameter.offered:
            raise InvalidInputError(f"{entry.resource} {entry.method} takes no {name}", parameter=name)
        if parameter.many:
            found.setdefault(name, []).append(parameter.shape.read(text, name))
        elif name in found:
            raise InvalidInputError(f"{name} is given twice", parameter=name)
        else:
            found[name] = parameter.shape.read(text, name)
    return found


def complete(entry: MethodSpec, found: Mapping[str, Any], *, known: Collection[str] = ()) -> None:
    """Refuse a call that does not say all it has to, but for what is known already."""
    missing = [each.name for each in entry.parameters if each.required and each.name not in {*found, *known}]
    if missing:
        raise InvalidInputError(f"{entry.resource} {entry.method} needs {missing[0]}", parameter=missing[0])


def _expected(entry: MethodSpec, request: Request, given: dict[str, Any]) -> bool:
    """Take `If-Match` as the version that a change expects; whether there is one."""
    tag = request.headers.get("If-Match")
    if tag is None or tag == "*" or entry.parameter("expected_version") is None:
        return False
    try:
        given.setdefault("expected_version", position("If-Match", int(tag.strip('"'))))
    except ValueError as error:
        said = "If-Match is a version as the ETag of a value gives it"
        raise InvalidInputError(said, parameter="If-Match") from error
    return True


def _shown(request: Request, value: Any) -> Response:
    if isinstance(value, bytes):
        return Response(value, media_type="application/octet-stream")
    version = getattr(value, "version", None)
    headers = {"ETag": f'"{version}"'} if type(version) is int else {}
    if headers and request.method != "POST" and request.headers.get("If-None-Match") == headers["ETag"]:
        return Response(status_code=_NOT_MODIFIED, headers=headers)
    return Response(_WRITES.encode(wire.dump(value)), media_type="application/json", headers=headers)


# --- the document ------------------------------------------------------------------------------------------------


def paths() -> dict[str, Any]:
    """The addresses of all verbs, as OpenAPI describes them."""
    return {_address(each): _methods(each) for each in entries().values()}


def _methods(entry: MethodSpec) -> dict[str, Any]:
    posted = {"post": _described(entry, asked=False)}
    return {"get": _described(entry, asked=True), **posted} if entry.plain_query else posted


def _address(entry: MethodSpec) -> str:
    return f"/v1/{entry.resource}/{entry.method}"


def _described(entry: MethodSpec, *, asked: bool) -> dict[str, Any]:
    named: Named = {}
    found: dict[str, Any] = {
        "operationId": entry.name if asked or not entry.plain_query else f"{entry.name}_post",
        "summary": entry.summary,
        "tags": [entry.resource],
        "responses": {
            "200": {"description": "The answer.", "content": _content(entry, named)},
            "default": {"description": "What went wrong.", "content": _PROBLEM},
        },
    }
    if asked:
        found["parameters"] = [
            {"name": each.name, "in": "query", "required": each.required, "schema": each.schema(named)}
            for each in entry.parameters
            if each.offered
        ]
    else:
        taken = entry.schema(named, callbacks=True)
        found["requestBody"] = {"content": {"application/json": {"schema": taken}}, "required": bool(taken["required"])}
    return found


def _content(entry: MethodSpec, named: Named) -> dict[str, Any]:
    """In which forms a verb answers."""
    found: dict[str, Any] = {}
    if entry.streams or entry.callbacks:
        found[LINES] = {"schema": {}}
    if entry.answer in (wire.shape(bytes), wire.shape(bytes | None)):
        found["application/octet-stream"] = {"schema": {}}
    if not entry.streams and entry.answer is not wire.shape(bytes):
        found["application/json"] = {"schema": entry.answer.schema(named)}
    return found


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
