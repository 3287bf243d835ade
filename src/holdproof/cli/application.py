"""Programs of flows, as commands name them: `module`, or `module:attribute`.

A program has a function that gets a store and registers its flows on it, `register` by default; or it opened a store of
its own, with flows on it, as the guides do. Then that store is the one that is meant, and a command that names another
one is refused: flows that are enqueued there would never be run.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from holdproof import client, sync
from holdproof.api.worker import AsyncWorker, SyncWorker
from holdproof.cli.call import CommandContext
from holdproof.errors import InvalidInputError, WrongClientError

_REGISTER: Final = "register"
_CURE_REGISTER: Final = "have the module register its flows in `def register(store):`"
_CURE: Final = "write `def register(store):` with `@store.flow(…)` in it, or open a store in the module"


@dataclass(frozen=True, slots=True)
class Application:
    """A program of flows: the function that registers them, or the store that it opened for them."""

    name: str
    register: Callable[[Any], Any] | None = None
    store: sync.Holdproof | None = None

    @contextmanager
    def open(self, call: CommandContext, *, create: bool) -> Iterator[sync.Holdproof]:
        """Open the program's own store or that of the call, with the program's functions registered on it."""
        with self._opened(call, create=create) as store:
            self._register(store)
            yield store

    @contextmanager
    def open_worker(self, call: CommandContext, **options: Any) -> Iterator[SyncWorker | AsyncWorker]:
        """Open the store as `open` does, for a worker on it."""
        with self._opened(call, create=True) as store:
            yield self.worker_on(store, **options)

    def worker_on(self, store: sync.Holdproof, **options: Any) -> SyncWorker | AsyncWorker:
        """Return a worker on an open store, of the client that the program's functions are written for."""
        if self.store is not None and self.store is not store:
            self._require_same(store)
            store = self.store
        try:
            self._register(store)
        except WrongClientError:
            soft = client.Holdproof(store.core)
            self._register(soft)
            return soft.worker(**options)
        return store.worker(**options)

    def _opened(self, call: CommandContext, *, create: bool) -> AbstractContextManager[sync.Holdproof]:
        if self.store is None:
            return call.open(create=create)
        if call.remote is not None or call.home is not None or call.url is not None:
            raise InvalidInputError(
                f"{self.name} opens its own store, {self.store.core.label()}: leave out --home, --url and --server,"
                f" or {_CURE_REGISTER}",
                function=self.name,
            )
        return self.store

    def _register(self, store: Any) -> None:
        if self.register is not None:
            self.register(store)
        if not store.flows.held:
            raise InvalidInputError(f"{self.name} registers no flow: use `@store.flow(…)` on the store")

    def _require_same(self, served: sync.Holdproof) -> None:
        assert self.store is not None
        if self.store.status().store_id != served.status().store_id:
            raise InvalidInputError(
                f"{self.name} opens its own store, {self.store.core.label()}, but {served.core.label()} is served:"
                f" serve the program's (--home or --url), or {_CURE_REGISTER}",
                function=self.name,
            )


def find_application(name: str) -> Application:
    """Import a program of flows by `module` or `module:attribute`, also from the working folder."""
    # For good: flows import modules of the project while they run, and an installed program does not search there.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module_name, colon, attribute = name.partition(":")
    try:
        module = importlib.import_module(_no_path(module_name))
    except (ImportError, ValueError) as error:
        hint = f": a module has no .py, `{_module_of(module_name)}`" if module_name.endswith(".py") else ""
        raise InvalidInputError(f"there is no module {module_name} ({error}){hint}", function=name) from error
    if colon:
        return _application(name, getattr(module, attribute, None))
    if hasattr(module, _REGISTER):
        return _application(name, module.register)
    # Each once, whatever names it goes by.
    stores = [*{id(each): each for each in vars(module).values() if isinstance(each, sync.Holdproof)}.values()]
    if len(stores) > 1:
        raise InvalidInputError(f"{name} opens {len(stores)} stores: name one, as {name}:store", function=name)
    return _application(name, *stores)


def _no_path(module_name: str) -> str:
    """Return the name of a module; InvalidInputError for a path, which importing takes for a relative name."""
    if not module_name.startswith((".", "/")):
        return module_name
    instead = _module_of(module_name)
    hint = f"name the module, `{instead}`" if instead else "name a module, as `orders` or `shop.orders`"
    raise InvalidInputError(f"{module_name} is a path: {hint}", function=module_name)


def _module_of(path: str) -> str:
    """Return what a module at a path below the working folder is called."""
    return path.removesuffix(".py").replace("/", ".").strip(".")


def _application(name: str, target: Any = None) -> Application:
    if isinstance(target, sync.Holdproof):
        return Application(name, store=target)
    if isinstance(target, client.Holdproof):
        raise InvalidInputError(
            f"{name} is a store of the async client, which belongs to the loop that opened it: {_CURE_REGISTER}",
            function=name,
        )
    if callable(target):
        return Application(name, register=target)
    raise InvalidInputError(f"{name} names neither a function nor an open store: {_CURE}", function=name)
