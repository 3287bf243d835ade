"""The stores of tenants behind one server: `/t/NAME/…` is the API of a tenant, opened at its first request.

Rules:
- A tenant has tokens of its own: one of the parent, or of another tenant, opens nothing here. Its log is for them, too,
  where that of the parent is public.
- At most so many are open at once. Another one takes the place of that which was used least recently, once its requests
  are answered; so a thousand tenants cost what those cost that are in use.
- What moves or deletes a tenant through this server finds it closed, and requests meanwhile are told to come again.
- Heads are recorded in rounds. A tenant that is found rolled back or forked is closed, and not opened again.
- Streams keep no tenant open: they end where it is to be closed for good, and with the server, as the parent's do.
"""

import asyncio
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote
from weakref import WeakValueDictionary

from fastapi import FastAPI
from starlette.middleware import Middleware as Layer
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdproof.client import Holdproof
from holdproof.errors import (
    BusyError,
    HoldproofError,
    InvalidInputError,
    NotFoundError,
    TenantFindingError,
    TenantNotFoundError,
    UnavailableError,
)
from holdproof.evidence import tenants
from holdproof.model.namespaces import TENANT_PATH
from holdproof.server import method_routes, otlp, tenant_metrics
from holdproof.server.app import create_app
from holdproof.server.authentication import AuthenticationMiddleware
from holdproof.server.metrics import MetricValue
from holdproof.server.middleware import Middleware
from holdproof.server.scrapes import SingleLook
from holdproof.server.settings import ServerSettings
from holdproof.server.state import ServerState
from holdproof.server.tenant_metrics import TenantMetrics
from holdproof.store.opening import open_place
from holdproof.store.tenants import heads, open_tenants
from holdproof.store.tenants.places import Parent, TenantPlace, refuse_unusable
from holdproof.store.tenants.unchanged import RoundMemory

_log = logging.getLogger("holdproof.server")

MOST_OPEN: Final = 16
_LOOK_S: Final = 5.0
"""How often the row of a tenant in use is looked at again."""
_ROUND_S: Final = 60.0
_REST: Final = 9.0
"""How many times as long as a round the pause after it lasts at least."""
_PARENTS: Final = ("login", "logout", "v1/tenants/")
"""What a server offers to callers of the parent only."""
_REFUSALS: Final = (TenantNotFoundError, TenantFindingError)
"""Why a tenant is open to nobody any more; anything else may pass."""
_PATIENCE_S: Final = 10.0
"""How long somebody who needs a tenant alone waits for the requests that are under way."""


@dataclass(slots=True)
class OpenTenant:
    """A tenant's store, its application, and who uses it now."""

    store: Holdproof
    app: FastAPI
    life: AbstractAsyncContextManager[object]
    looked_at: float
    users: int = 0

    @property
    def state(self) -> ServerState:
        """What the parts of its application share."""
        state: ServerState = self.app.state.holdproof
        return state


class TenantPool:
    """The tenants that a server has open; `part` adds them to its application, `run` works beside it."""

    def __init__(
        self, store: Holdproof, settings: ServerSettings, *, most: int = MOST_OPEN, round_s: float = _ROUND_S
    ) -> None:
        if most < 1:
            raise InvalidInputError("at least one tenant has to be open at once", field="open_tenants")
        self._store = store
        self._parent = Parent(store.context.paths, store.context.settings)
        # Logins by a proxy are those of the parent's console; a tenant is reached with its own tokens. The parent's log
        # may be public: those of tenants would tell everybody how much each customer does, and when.
        self._settings = replace(settings, proxy_login=None, witness=None, public_log=False)
        self._most = most
        self._round_s = round_s
        self._open: OrderedDict[str, OpenTenant] = OrderedDict()
        self._held: Counter[str] = Counter()
        self._opening = 0
        self._closing: dict[str, asyncio.Event] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.metrics = TenantMetrics()
        self._memory = RoundMemory()
        self._parent_numbers: SingleLook[list[MetricValue]] = SingleLook()
        self._is_ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def part(self, app: FastAPI) -> None:
        """Put the tenants before the authentication of the parent, behind its limits."""
        # Known only now: by which names the server goes, and whether by TLS. A tenant is reached as the parent is.
        chosen: ServerSettings = app.state.holdproof.settings
        self._settings = replace(self._settings, hosts=chosen.hosts, secure=chosen.secure)
        app.state.holdproof.tenant_numbers = self.numbers
        layers = app.user_middleware
        place = next(at for at, each in enumerate(layers) if each.cls is AuthenticationMiddleware)  # type: ignore[comparison-overlap]
        layers.insert(place, Layer(TenantRouter, pool=self))

    async def run(self, state: ServerState) -> None:
        """Record heads in rounds until the server ends, then close every tenant."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        ending = asyncio.create_task(self._end_with(state))
        try:
            with open_tenants.holding(self._hold):
                pause_s = self._round_s
                while True:
                    await asyncio.sleep(pause_s)
                    began = time.monotonic()
                    await self._round()
                    # Every tenant is looked at: where there are many, rounds take a tenth of the time at most.
                    pause_s = max(self._round_s, _REST * (time.monotonic() - began))
        finally:
            ending.cancel()
            await self.close()

    async def _end_with(self, parent: ServerState) -> None:
        """End the streams of every tenant once the server stops: it waits for requests before it ends its tasks."""
        await parent.stopping.wait()
        self._is_ended = True
        for each in self._open.values():
            each.state.end_streams()

    async def close(self) -> None:
        """Close every tenant."""
        self._is_ended = True
        self._parent_numbers.cancel()
        for name in [*self._open]:
            # One that cannot be closed keeps none of the others open.
            with suppress(HoldproofError):
                await self._close(name)

    @property
    def open(self) -> tuple[str, ...]:
        """The tenants that are open, the one used least recently first."""
        return tuple(self._open)

    async def numbers(self) -> list[MetricValue]:
        """Return what `/metrics` tells of the tenants: what was counted, what the parent knows, those that are open."""
        at_first = dict(self._open)
        states = {name: each.state for name, each in at_first.items()}
        stored, of_open = await asyncio.gather(self._of_parent(), tenant_metrics.of_open(states))
        # One that was closed meanwhile did not fail to answer, also where it was opened again.
        departures = {name for name, each in at_first.items() if self._open.get(name) is not each}
        of_open = [each for each in of_open if each.labels["tenant"] not in departures]
        open_now = MetricValue("holdproof_tenants_open", "Tenants that are open on this server.", len(self._open))
        most = MetricValue("holdproof_tenants_open_limit", "How many tenants may be open at once.", self._most)
        return [open_now, most, *self.metrics.numbers(), *stored, *of_open]

    async def _of_parent(self) -> list[MetricValue]:
        try:
            return await self._parent_numbers.ask(partial(self._store.read, lambda tx: [*tenant_metrics.of_parent(tx)]))
        except UnavailableError:
            return []

    # --- using one ---

    @asynccontextmanager
    async def using(self, name: str) -> AsyncIterator[FastAPI]:
        """Yield the application of a tenant, opened if it is not; it stays open inside the block."""
        tenant = await self._acquire(name)
        try:
            yield tenant.app
        finally:
            tenant.users -= 1

    async def _acquire(self, name: str) -> OpenTenant:
        self._refuse_held(name)
        tenant = self._open.get(name)
        is_recent = tenant is not None and time.monotonic() - tenant.looked_at <= _LOOK_S
        if tenant is None or not is_recent:
            # In turn for each: nobody waits for a tenant of somebody else whose database does not answer.
            async with self._turn(name):
                tenant = await self._look(name)
        # No other task runs between the look and the count.
        tenant.users += 1
        self._open.move_to_end(name)
        return tenant

    def _refuse_held(self, name: str) -> None:
        if self._held[name]:
            raise BusyError(f"the tenant {name} is being moved or deleted; try again in a moment", tenant=name)

    def _turn(self, name: str) -> asyncio.Lock:
        """Return the lock of a name, which is forgotten once nobody waits for it: anybody may ask for any name."""
        return self._turns.setdefault(name, asyncio.Lock())

    async def _look(self, name: str) -> OpenTenant:
        """Look at the tenant's row, and open it if it is not; called in turn."""
        self._refuse_held(name)
        tenant = self._open.get(name)
        try:
            place = await self._place(name)
        except HoldproofError as error:
            if tenant is not None and self._open.get(name) is tenant:
                if isinstance(error, _REFUSALS):
                    tenant.state.end_streams()
                if not tenant.users:
                    await self._close(name)
            raise
        if tenant is None or self._open.get(name) is not tenant:
            tenant = await self._begin(place)
        if not self._is_ended:
            # It may have been refused meanwhile, and was in use: now it is open to everybody again.
            tenant.state.stopping.clear()
        tenant.looked_at = time.monotonic()
        return tenant

    async def _place(self, name: str) -> TenantPlace:
        try:
            row = await self._store.read(partial(tenants.find, tenant=name))
        except InvalidInputError:
            row = None
        if row is None:
            # Without the names that are near, and without looking for them: whoever asks has shown no token yet.
            raise TenantNotFoundError("there is no such tenant here", tenant=name[:100])
        try:
            refuse_unusable(row)
        except HoldproofError as error:
            _log.warning("somebody asked for a tenant that is not open: %s", error.message)
            raise type(error)(f"the tenant {name} is not open to anybody now", tenant=name) from None
        return self._parent.place_of(row)

    async def _begin(self, place: TenantPlace) -> OpenTenant:
        """Open a tenant once there is room for it."""
        while (end := self._closing.get(place.name)) is not None:
            await end.wait()
        await self._make_room()
        self._opening += 1
        try:
            tenant = self._open[place.name] = await self._open_tenant(place)
        finally:
            self._opening -= 1
        if self._is_ended:
            await self._close(place.name)
            raise BusyError("the server ends")
        return tenant

    async def _make_room(self) -> None:
        while len(self._open) + len(self._closing) + self._opening >= self._most:
            idle = next((name for name, each in self._open.items() if not each.users), None)
            if idle is None:
                if ends := [*self._closing.values()]:
                    await ends[0].wait()
                    continue
                raise BusyError(
                    f"all {self._most} tenants that may be open at once are in use: try again in a moment, or start"
                    " the server with a larger --open-tenants"
                )
            try:
                await self._close(idle)
            except HoldproofError as error:
                # It is closed to the server all the same, and whoever waits for the place has nothing to do with it.
                _log.error("the tenant %s was not closed cleanly: %s", idle, error.message)

    async def _open_tenant(self, place: TenantPlace) -> OpenTenant:
        try:
            store = Holdproof(await asyncio.to_thread(partial(open_place, place, create=False, few=True)))
        except HoldproofError as error:
            # Whoever asks has shown no token yet: folders and servers are nothing to tell them.
            _log.error("the tenant %s cannot be opened: %s", place.name, error.message)
            raise BusyError(f"the tenant {place.name} cannot be opened now", tenant=place.name) from None
        app = create_app(store, self._settings, parts=(method_routes.part, otlp.part))
        life = app.router.lifespan_context(app)
        try:
            await life.__aenter__()
        except BaseException:
            await store.close()
            raise
        return OpenTenant(store, app, life, time.monotonic())

    async def _close(self, name: str) -> None:
        tenant = self._open.pop(name)
        end = self._closing[name] = asyncio.Event()
        try:
            try:
                await tenant.life.__aexit__(None, None, None)
            finally:
                await tenant.store.close()
        finally:
            del self._closing[name]
            end.set()

    # --- having one alone ---

    @contextmanager
    def _hold(self, home: Path) -> Iterator[None]:
        """Keep the tenant of a home closed inside the block; see `open_tenants.Holder`."""
        name = home.name
        if home.parent.parent != self._parent.paths.data or self._loop is None:
            yield
            return
        if threading.get_ident() == self._thread:
            raise BusyError("a tenant is moved or deleted by a call of the API, not on the server's event loop")
        asyncio.run_coroutine_threadsafe(self._suspend(name), self._loop).result()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._release, name)

    def _release(self, name: str) -> None:
        # Of two who want it alone, the one that ends first gives it back for itself only.
        self._held[name] -= 1
        self._held += Counter()

    async def _suspend(self, name: str) -> None:
        self._held[name] += 1
        try:
            await self._close_unused(name)
        except BaseException:
            self._release(name)
            raise

    async def _close_unused(self, name: str) -> None:
        # What is being opened is open after its turn, and what closes is closed.
        async with self._turn(name):
            await self._drain(name)

    async def _drain(self, name: str) -> None:
        """End the streams of a tenant and close it once its requests are answered; called in turn."""
        deadline = time.monotonic() + _PATIENCE_S
        while name in self._open or name in self._closing:
            tenant = self._open.get(name)
            if tenant is not None and not tenant.users:
                await self._close(name)
                continue
            if tenant is not None and not tenant.state.stopping.is_set():
                tenant.state.end_streams()
            if time.monotonic() > deadline:
                raise BusyError(f"the tenant {name} is in use", tenant=name)
            await asyncio.sleep(0.02)

    # --- rounds ---

    async def _round(self) -> None:
        began = time.monotonic()
        try:
            checks = await self._store.run(heads.record_changed(self._store.context, self._memory))
        except HoldproofError as error:
            _log.warning("heads of tenants could not be recorded: %s", error.message)
            return
        except Exception:
            # A defect that one of them brings up must not end the rounds, and with them the service of all.
            _log.exception("a round of heads of tenants failed")
            return
        self.metrics.round_s = time.monotonic() - began
        self.metrics.unreachable = sum(check.state == "unreachable" for check in checks)
        for check in checks:
            if check.state == "finding":
                _log.error("the tenant %s: %s", check.name, check.what)
                # One that is in use for longer is closed by the next round.
                with suppress(HoldproofError):
                    await self._close_unused(check.name)


class TenantRouter(Middleware):
    """Sends what is for a tenant to the tenant's application, with the address that this has on its own."""

    def __init__(self, app: ASGIApp, pool: TenantPool) -> None:
        super().__init__(app)
        self._pool = pool

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer for a tenant, or pass on what is for the parent."""
        if not scope["path"].startswith(TENANT_PATH):
            await self.app(scope, receive, send)
            return
        name, _, rest = scope["path"].removeprefix(TENANT_PATH).partition("/")
        # A session of the console is a cookie of the whole address, and so the parent's; as tenants are.
        if rest.startswith(_PARENTS):
            raise NotFoundError("there is nothing at this address of a tenant")
        name = unquote(name)
        began = time.monotonic()

        async def send_and_count(message: Message) -> None:
            # A stream goes on for as long as it is read: what a caller waits for is where the answer begins.
            if message["type"] == "http.response.start":
                self._pool.metrics.observe(name, message["status"], time.monotonic() - began)
            await send(message)

        async with self._pool.using(name) as app:
            path = f"/{rest}"
            # A scope of its own: what the tenant's layers note in it is none of the parent's.
            own = {**scope, "path": path, "raw_path": path.encode(), "state": {}, "root_path": ""}
            await app(own, receive, send_and_count)
