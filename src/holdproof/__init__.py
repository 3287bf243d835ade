"""Holdproof: durable execution and a tamper-evident audit log for AI agents.

Names are loaded at their first use (PEP 562), so that `import holdproof` costs next to nothing and a program that only
verifies a record does not pay for HTTP clients, numeric libraries or database drivers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers and editors see every name; at run time `__getattr__` below supplies them
    from holdproof import errors, sync
    from holdproof.adapters.instrument import instrument
    from holdproof.client import Holdproof, OpenFlow, open
    from holdproof.db import Call, Migration, Read, Refused, Tx, Wait, Work, Write, ask
    from holdproof.db.sql import Query, sql
    from holdproof.errors import HoldproofError
    from holdproof.remote import connect
    from holdproof.version import VERSION as __version__

__all__ = [
    "Call",
    "Holdproof",
    "HoldproofError",
    "Migration",
    "OpenFlow",
    "Query",
    "Read",
    "Refused",
    "Tx",
    "Wait",
    "Work",
    "Write",
    "__version__",
    "ask",
    "connect",
    "errors",
    "instrument",
    "open",
    "sql",
    "sync",
]

# Where each public name comes from: (module, attribute). A submodule has no attribute.
_SOURCES: dict[str, tuple[str, str | None]] = {
    "Holdproof": ("holdproof.client", "Holdproof"),
    "OpenFlow": ("holdproof.client", "OpenFlow"),
    "open": ("holdproof.client", "open"),
    "HoldproofError": ("holdproof.errors", "HoldproofError"),
    "connect": ("holdproof.remote", "connect"),
    "instrument": ("holdproof.adapters.instrument", "instrument"),
    "__version__": ("holdproof.version", "VERSION"),
    "errors": ("holdproof.errors", None),
    "sync": ("holdproof.sync", None),
    **{
        name: ("holdproof.db", name)
        for name in ("Call", "Migration", "Query", "Read", "Refused", "Tx", "Wait", "Work", "Write", "ask", "sql")
    },
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use and keep it in this module's namespace."""
    if name not in _SOURCES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _SOURCES[name]
    value = import_module(module)
    if attribute is not None:
        value = getattr(value, attribute)
    # Kept as an ordinary attribute: `__getattr__` is not asked for this name again.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
