"""One request at the console: who it is, which namespace they look at, and the store as far as they may use it.

Rules:
- Handlers reach the store through a desk only, and every method checks whether the caller may.
- What changes something is a POST that ends in a redirect; what became of it is told on the page after that, once.
- A message on its way to the next page carries the mark of its session: nobody else puts words on our pages.
"""

import hmac
import inspect
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, Final, cast
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdproof.client import Holdproof
from holdproof.errors import ForbiddenError, HoldproofError
from holdproof.executors import BoundMethod
from holdproof.model.namespaces import MAIN
from holdproof.model.progress import Progress
from holdproof.runtime import gauges
from holdproof.server.console import navigation
from holdproof.server.jobs import ServerJob
from holdproof.server.pages import page
from holdproof.server.permissions import Caller, may, permit
from holdproof.server.state import ServerState, caller_of, state_of

PEOPLE: Final = frozenset({"operator", "auditor"})
FLASH: Final = "holdproof-flash"
SPACE: Final = "holdproof-ns"
_LONGEST: Final = 500
_UNSPACED: Final = frozenset({"tokens", "logins", "access_log"})
"""Resources whose namespace is not the one that is looked at."""


class Desk:
    """A person's request, and the store behind it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.state = state_of(request)
        self.caller = caller_of(request)
        if self.caller.role not in PEOPLE:
            raise ForbiddenError("the console is for operators and auditors", role=self.caller.role)
        # The cookie is the caller's own wish and may hold anything; it counts only for callers bound to no namespace.
        self.ns = self.caller.ns or request.cookies.get(SPACE, MAIN)[:_LONGEST] or MAIN
        self.store = cast("Holdproof", _Guarded(self.state, self.caller, self.ns))

    @property
    def now(self) -> str:
        """The moment, by the store's clock."""
        return self.state.now()

    def may(self, resource: str, method: str) -> bool:
        """Say whether the caller may use a method; pages offer no other."""
        store = self.state.store_for(self.caller, resource)
        # A caller bound to a namespace can use only methods that take one.
        return may(self.caller, resource, method) and (
            self.caller.ns is None or "ns" in inspect.signature(_bound(store, resource, method)).parameters
        )

    def require(self, resource: str, method: str) -> None:
        """Raise ForbiddenError if the caller may not use a method; for pages that show more than methods return."""
        if not self.may(resource, method):
            raise ForbiddenError(f"this page is not for this {self.caller.role}", resource=resource, method=method)

    def start(self, kind: str, work: Callable[[Progress], Awaitable[Any]]) -> ServerJob:
        """Begin long work, in the caller's name and namespace."""
        return self.state.jobs.start(kind, self.caller.who, self.caller.ns, work)

    def jobs(self) -> tuple[ServerJob, ...]:
        """The jobs that the caller may know of, the newest first."""
        return self.state.jobs.list(self.caller.ns)

    async def namespaces(self) -> list[str]:
        """The namespaces to choose from, the one that is looked at among them."""
        if self.caller.ns is not None:
            return [self.ns]
        return sorted({MAIN, self.ns, *await self.state.store.read(gauges.namespaces)})

    async def render(self, template: str, values: Mapping[str, Any], *, status: int = 200) -> Response:
        """A page of the console, with what every page tells: the lockdown, what waits, and what just happened."""
        waiting = await self.store.escalations.count() if self.may("escalations", "count") else None
        about = {
            "desk": self,
            "may": self.may,
            "now": self.now,
            "locked": await self.state.store.lockdown.status(),
            "waiting": waiting,
            "flash": _read(self.request.cookies.get(FLASH), self._mark),
            "navigation": navigation.groups(self.request, self.may),
            "is_current": navigation.current,
            "namespaces": await self.namespaces(),
        }
        answer = page(self.request, f"console/{template}", {**about, **values}, status=status)
        # Shown once: the page that shows a message also removes it.
        if FLASH in self.request.cookies:
            answer.delete_cookie(FLASH, secure=self.state.settings.secure, httponly=True, samesite="strict")
        return answer

    def after(self, path: str, message: str = "", *, kind: str = "done", **query: Any) -> Response:
        """Go to another page, and tell there what happened."""
        parameters = {name: value for name, value in query.items() if value not in (None, "")}
        answer = RedirectResponse(f"{path}?{urlencode(parameters)}" if parameters else path, 303)
        if message:
            text = _written(kind, message, self._mark)
            answer.set_cookie(
                FLASH, text, max_age=60, secure=self.state.settings.secure, httponly=True, samesite="strict"
            )
        return answer

    @property
    def _mark(self) -> bytes:
        # Derived from the session's CSRF secret: a new session invalidates messages of the old one.
        return sha256(f"flash {self.caller.csrf} {self.caller.who}".encode()).digest()


class _Guarded:
    """A store that checks the caller's permission before every method; it looks like the store itself."""

    def __init__(self, state: ServerState, caller: Caller, ns: str) -> None:
        self._state = state
        self._caller = caller
        self._ns = ns

    def __getattr__(self, resource: str) -> "_GuardedResource":
        return _GuardedResource(self._state.store_for(self._caller, resource), self._caller, self._ns, resource)


class _GuardedResource:
    def __init__(self, store: Holdproof, caller: Caller, ns: str, resource: str) -> None:
        self._store = store
        self._caller = caller
        self._ns = ns
        self._resource = resource

    def __getattr__(self, method: str) -> Any:
        bound = _bound(self._store, self._resource, method)
        signature = inspect.signature(bound)

        async def ask(*args: Any, **kwargs: Any) -> Any:
            if "ns" in signature.parameters and self._resource not in _UNSPACED:
                # The namespace chosen on the page applies wherever one is taken, unless the page names another.
                kwargs.setdefault("ns", self._ns)
            # Permissions are decided on named arguments, so positional ones are bound to their names first.
            arguments = signature.bind(*args, **kwargs).arguments
            await permit(self._store, self._caller, self._resource, method, arguments)
            return await bound(*args, **kwargs)

        return ask


def _bound(store: Holdproof, resource: str, method: str) -> BoundMethod:
    return cast("BoundMethod", getattr(getattr(store, resource), method))


async def or_default(asking: Any, otherwise: Any = None) -> Any:
    """An answer, or something else where the store has none to give: pages show what there is."""
    try:
        return await asking
    except HoldproofError:
        return otherwise


def _written(kind: str, message: str, mark: bytes) -> str:
    body = urlsafe_b64encode(json.dumps([kind, message[:_LONGEST]]).encode()).decode()
    return f"{body}.{_signed(body, mark)}"


def _read(text: str | None, mark: bytes) -> tuple[str, str] | None:
    body, _, signature = (text or "").partition(".")
    # The cookie is unauthenticated input: without the session's signature its words are not shown.
    if not body or not hmac.compare_digest(_signed(body, mark).encode(), signature.encode()):
        return None
    kind, message = json.loads(urlsafe_b64decode(body))
    return str(kind), str(message)


def _signed(body: str, mark: bytes) -> str:
    return hmac.new(mark, body.encode(), sha256).hexdigest()
