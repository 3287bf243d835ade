"""Import modules at their first use instead of at the start of the program.

    if TYPE_CHECKING:
        import httpx
    else:
        httpx = lazy_module("httpx")

`lazy_functions` does the same for the functions that declarations name: a store declares some 350 methods, and a
program that uses ten of them pays for ten. Type checkers, editors and the linter of layers see the ordinary import.

A module is loaded when one of its attributes is read, under Python's own import lock, so any number of threads may be
the first. Annotations that name it must be quoted, or they would load it.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    """Stand in for a module and load it when an attribute is read."""

    def __getattr__(self, name: str) -> Any:
        # Not kept here: a test or a program that replaces the attribute in the module means every user of it.
        return getattr(import_module(self.__name__), name)


class _LazyFunctions(ModuleType):
    """Stand in for a module whose functions are only named for now."""

    def __getattr__(self, name: str) -> Any:
        # Special names are asked for by the import system and by `inspect`; they are no functions.
        if name.startswith("__"):
            raise AttributeError(name)
        return LazyFunction(self.__name__, name)


class LazyFunction:
    """A function by its name; loaded when it is called, or when a declaration needs it."""

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def load(self) -> Callable[..., Any]:
        """Import its module and return the function itself."""
        function: Callable[..., Any] = getattr(import_module(self._module), self._name)
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Load the function and call it."""
        return self.load()(*args, **kwargs)


def lazy_exports(module: str, sources: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose names come from its modules: `{"Name": "package.module"}`.

    See PEP 562. A name that was asked for once is an ordinary attribute of the package after.
    """

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(sources[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[module]), *sources})


def lazy_module(name: str) -> ModuleType:
    """Return a stand-in for the module `name` that imports it at the first attribute access.

    Raises ImportError at that access, not here, if the module is not installed.
    """
    return _LazyModule(name)


def lazy_functions(package: str, names: str) -> dict[str, ModuleType]:
    """Return stand-ins for modules of a package, by name: their attributes are functions that are not loaded yet."""
    return {name: _LazyFunctions(f"{package}.{name}") for name in names.split()}
