"""Import a heavy third-party module at its first use instead of at the start of the program.

    if TYPE_CHECKING:
        import httpx
    else:
        httpx = lazy_module("httpx")

The module is loaded when one of its attributes is read, under Python's own import lock, so any number of threads may be
the first. Annotations that name the module must be quoted, or they would load it.
"""

from importlib import import_module
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    """Stand in for a module and load it when an attribute is read."""

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are not in this object yet; what was read once is an ordinary attribute after.
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def lazy_module(name: str) -> ModuleType:
    """Return a stand-in for the module `name` that imports it at the first attribute access.

    Raises ImportError at that access, not here, if the module is not installed.
    """
    return _LazyModule(name)
