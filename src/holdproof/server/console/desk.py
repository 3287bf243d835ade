"""One request at the console: who it is, which namespace they look at, and the store as far as they may use it.

Rules:
- Handlers reach the store through a desk only, and every verb asks whether the caller may.
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
from holdproof.server.jobs import Job
from holdproof.server.pages import page
from holdproof.server.permissions import Caller, may, permit
from holdproof.server.state import State, caller_of, state_of

PEOPLE: Final = frozenset({"operator", "auditor"})
FLASH: Final = "holdproof-flash"
SPACE: Final = "holdproof-ns"
_LONGEST: Final = 500
_UNSPACED: Final = frozenset({"tokens", "logins", "access_log"})
"""Nouns whose namespace is not the one that is looked at."""


class Desk:
    """A person's request, and the store behind it."""

    def __init__(self, request: Request) -> None:
        self.request, self.state, self.caller = request, state_of(request), caller_of(request)
        if self.caller.role not in PEOPLE:
            raise ForbiddenError("the console is for operators and auditors", role=self.caller.role)
        self.ns = self.caller.ns or request.cookies.get(SPACE, MAIN)[:_LONGEST] or MAIN
        self.store = cast("Holdproof", _Guarded(self.state, self.caller, self.ns))

    @property
    def now(self) -> str:
        """The moment, by the store's clock."""
        return self.state.now()

    def may(self, noun: str, verb: str) -> bool:
        """Whether the caller may use a verb: what they may not is not offered."""
        face = self.state.store_for(self.caller, noun)
        return may(self.caller, noun, verb) and (
            self.caller.ns is None or "ns" in inspect.signature(_bound(face, noun, verb)).parameters
        )

    def require(self, noun: str, verb: str) -> None:
        """ForbiddenError if the caller may not use a verb, for pages that show more than verbs give."""
        if not self.may(noun, verb):
            raise ForbiddenError(f"this page is not for this {self.caller.role}", resource=noun, method=verb)

    def start(self, kind: str, work: Callable[[Progress], Awaitable[Any]]) -> Job:
        """Begin long work, in the caller's name and namespace."""
        return self.state.jobs.start(kind, self.caller.who, self.caller.ns, work)

    def jobs(self) -> tuple[Job, ...]:
        """The jobs that the caller may know of, the newest first."""
        return self.state.jobs.list(self.caller.ns)

    async def render(self, template: str, shown: Mapping[str, Any], *, status: int = 200) -> Response:
        """A page of the console, with what every page tells: the lockdown, what waits, and what just happened."""
        waiting = await self.store.escalations.count() if self.may("escalations", "count") else None
        about = {
            "desk": self,
            "may": self.may,
            "now": self.now,
            "locked": await self.state.store.lockdown.status(),
            "waiting": waiting,
            "flash": _read(self.request.cookies.get(FLASH), self._mark),
        }
        answer = page(self.request, f"console/{template}", {**about, **shown}, status=status)
        if FLASH in self.request.cookies:
            answer.delete_cookie(FLASH, secure=self.state.settings.secure, httponly=True, samesite="strict")
        return answer

    def after(self, path: str, said: str = "", *, kind: str = "done", **query: Any) -> Response:
        """Go to another page, and tell there what happened."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        answer = RedirectResponse(f"{path}?{urlencode(given)}" if given else path, 303)
        if said:
            text = _written(kind, said, self._mark)
            answer.set_cookie(
                FLASH, text, max_age=60, secure=self.state.settings.secure, httponly=True, samesite="strict"
            )
        return answer

    @property
    def _mark(self) -> bytes:
        return sha256(f"flash {self.caller.csrf} {self.caller.who}".encode()).digest()


class _Guarded:
    """A store whose every verb asks first; it looks like the store itself."""

    def __init__(self, state: State, caller: Caller, ns: str) -> None:
        self._state, self._caller, self._ns = state, caller, ns

    def __getattr__(self, noun: str) -> "_Noun":
        return _Noun(self._state.store_for(self._caller, noun), self._caller, self._ns, noun)


class _Noun:
    def __init__(self, face: Holdproof, caller: Caller, ns: str, noun: str) -> None:
        self._executor, self._caller, self._ns, self._noun = face, caller, ns, noun

    def __getattr__(self, verb: str) -> Any:
        bound = _bound(self._executor, self._noun, verb)
        signature = inspect.signature(bound)

        async def ask(*args: Any, **kwargs: Any) -> Any:
            if "ns" in signature.parameters and self._noun not in _UNSPACED:
                kwargs.setdefault("ns", self._ns)
            given = signature.bind(*args, **kwargs).arguments
            await permit(self._executor, self._caller, self._noun, verb, given)
            return await bound(*args, **kwargs)

        return ask


def _bound(face: Holdproof, noun: str, verb: str) -> BoundMethod:
    return cast("BoundMethod", getattr(getattr(face, noun), verb))


async def kindly(asking: Any, otherwise: Any = None) -> Any:
    """An answer, or something else where the store has none to give: pages show what there is."""
    try:
        return await asking
    except HoldproofError:
        return otherwise


def _written(kind: str, said: str, mark: bytes) -> str:
    body = urlsafe_b64encode(json.dumps([kind, said[:_LONGEST]]).encode()).decode()
    return f"{body}.{_signed(body, mark)}"


def _read(text: str | None, mark: bytes) -> tuple[str, str] | None:
    body, _, signature = (text or "").partition(".")
    if not body or not hmac.compare_digest(_signed(body, mark).encode(), signature.encode()):
        return None
    kind, said = json.loads(urlsafe_b64decode(body))
    return str(kind), str(said)


def _signed(body: str, mark: bytes) -> str:
    return hmac.new(mark, body.encode(), sha256).hexdigest()
