"""What every kind of legacy source can do, in the order the driver asks for it.

1. `read` looks at all of it and changes nothing; whatever is damaged is a typed error now.
2. `prepare` makes durable what goes before the transaction: bytes at their place.
3. `write` is the transaction: everything or nothing.
4. `verify` reads everything back and compares.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Final

from holdproof.db import Tx
from holdproof.errors import FormatError
from holdproof.executors import SyncExecutor
from holdproof.storage.lazy_stores import LazyStores

Tell = Callable[[str, int, int], None]
"""Told which step is how far, of how much (0 if nobody knows)."""

MOST_JSON: Final = 256 << 20
"""A document is read whole, so there is an end to what is one."""


@dataclass
class Contents:
    """What is in a source: counts, a hash that tells it from any other, and what has no place here."""

    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    _hash: Any = field(default_factory=sha256)

    def add(self, what: str, content: str) -> None:
        """One thing was found."""
        self.counts[what] += 1
        self._hash.update(f"{what}\0{content}\0".encode(errors="surrogatepass"))

    @property
    def fingerprint(self) -> str:
        """The hash of everything, in order."""
        return str(self._hash.hexdigest())


class Source(ABC):
    """One legacy file or folder."""

    kind: ClassVar[str]
    again: ClassVar[bool] = True
    """Whether writing the same content once more is harmless."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    @abstractmethod
    def read(self, tell: Tell) -> Contents:
        """Look at all of it."""

    @abstractmethod
    def face(self, stores: LazyStores) -> SyncExecutor:
        """The database it goes to."""

    def prepare(self, stores: LazyStores, tell: Tell) -> None:
        """Make durable what goes before the transaction; nothing where a transaction is all."""
        del stores, tell

    @abstractmethod
    def write(self, tx: Tx) -> Counter[str]:
        """Write all of it; how much of it was new, by what it is."""

    @abstractmethod
    def verify(self, stores: LazyStores, tell: Tell) -> None:
        """Read all of it back; FormatError where anything is not as it was."""


def differs(what: str) -> FormatError:
    """What was written is not what is there."""
    return FormatError(f"{what} was written, and is not there as it was: look, and rename the source if that is right")
