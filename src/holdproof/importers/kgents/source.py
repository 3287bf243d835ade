"""`Source`: what every kind of legacy file or folder can do, in the order in which the driver asks for it.

1. `read` reads all of it and changes nothing; damage is a typed error now.
2. `prepare` makes durable what must exist before the transaction: the bytes of blobs.
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
from holdproof.storage.open_stores import OpenStores

Report = Callable[[str, int, int], None]
"""Called with a step, how far it is, and of how much (0 if unknown)."""

MOST_JSON: Final = 256 << 20
"""A document is read into memory, so its size is limited."""


@dataclass
class Contents:
    """What is in a source: counts, a hash of everything, and counts of what cannot be imported."""

    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    _hash: Any = field(default_factory=sha256)

    def add(self, what: str, content: str) -> None:
        """Count one record and add it to the hash."""
        self.counts[what] += 1
        # NUL separates: no record can imitate the end of another.
        self._hash.update(f"{what}\0{content}\0".encode(errors="surrogatepass"))

    @property
    def fingerprint(self) -> str:
        """The hash of everything, in order."""
        return str(self._hash.hexdigest())


class LegacyData(ABC):
    """One legacy file or folder."""

    kind: ClassVar[str]
    rewritable: ClassVar[bool] = True
    """Whether writing the same content once more is harmless."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name

    @abstractmethod
    def read(self, report: Report) -> Contents:
        """Read all of it."""

    @abstractmethod
    def executor(self, stores: OpenStores) -> SyncExecutor:
        """The executor of the database it goes to."""

    def prepare(self, stores: OpenStores, report: Report) -> None:
        """Make durable what must exist before the transaction; nothing by default."""
        del stores, report

    @abstractmethod
    def write(self, tx: Tx) -> Counter[str]:
        """Write all of it; return how many records were new, by kind."""

    @abstractmethod
    def verify(self, stores: OpenStores, report: Report) -> None:
        """Read all of it back; raises FormatError on any difference."""


def differs(what: str) -> FormatError:
    """The error for a record that was read back with a difference."""
    return FormatError(
        f"{what} differs from the source after writing; compare them, and rename the source if that is right"
    )
