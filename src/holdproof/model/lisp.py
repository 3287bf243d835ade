"""Lisp data as frozen plain values, and the objects that another memory wrote in it.

What Lisp has and Python has is Python's: NIL is None, T is True, a string is `str`, a list a tuple, an integer `int`, a
ratio `Fraction`. The empty list is NIL, so no list is an empty tuple. The rest is here.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final, TypeAlias

from holdproof.model.value import Value

KEYWORD: Final = "KEYWORD"
"""The package of keywords."""


@dataclass(frozen=True, slots=True)
class Symbol(Value):
    """A symbol as it is named: nothing is looked up. `external` is one colon, `PACKAGE:NAME`."""

    name: str
    package: str | None = None
    external: bool = False


@dataclass(frozen=True, slots=True)
class Float(Value):
    """A float: single precision unless it is `double`."""

    value: float
    double: bool = False


@dataclass(frozen=True, slots=True)
class Char(Value):
    """One character."""

    value: str


@dataclass(frozen=True, slots=True)
class Bits(Value):
    """A bit vector, as its digits."""

    digits: str


@dataclass(frozen=True, slots=True)
class Pathname(Value):
    """A path that somebody wrote down; nothing is ever opened by it."""

    text: str


@dataclass(frozen=True, slots=True)
class Complex(Value):
    """A complex number, by its two real parts."""

    real: "int | Fraction | Float"
    imaginary: "int | Fraction | Float"


@dataclass(frozen=True, slots=True)
class Vector(Value):
    """A vector."""

    items: "tuple[Lisp, ...]"


@dataclass(frozen=True, slots=True)
class Dotted(Value):
    """A list whose end is no list: `(a b . c)`."""

    items: "tuple[Lisp, ...]"
    tail: "Lisp"


@dataclass(frozen=True, slots=True)
class Struct(Value):
    """A structure, as the names and values of its slots in the order they were written."""

    name: Symbol
    slots: "tuple[tuple[Symbol, Lisp], ...]"


Lisp: TypeAlias = (
    "bool | int | Fraction | str | Symbol | Float | Char | Bits | Pathname | Complex | Vector | Dotted | Struct"
    " | tuple[Lisp, ...] | None"
)
"""Everything that can be read and written."""


@dataclass(frozen=True, slots=True)
class ForeignObject(Value):
    """An object of another memory, slot by slot as it stood there; times are Lisp universal time."""

    id: str
    type: "Lisp" = None
    attributes: "tuple[tuple[Symbol, Lisp], ...]" = ()
    """A property list, in its own order."""
    content: "Lisp" = None
    parent: str | None = None
    children: tuple[str, ...] = ()
    version: int | None = None
    last_sync: int | None = None
    vector: "Lisp" = None
    hash: str | None = None
    """The hash of that memory, as it was given."""


class HashVerdict(StrEnum):
    """What can be said of a foreign hash."""

    MATCHES = "MATCHES"
    """It is the hash of this object."""
    DIFFERS = "DIFFERS"
    """It is not, and there is only one way to compute it."""
    UNCHECKED = "UNCHECKED"
    """It depends on what is not here: how it was printed, or earlier versions of children."""


@dataclass(frozen=True, slots=True)
class HashCheck(Value):
    """What was found out about the hash of one object, and why no more."""

    id: str
    hash: str | None
    verdict: HashVerdict
    why: str = ""


@dataclass(frozen=True, slots=True)
class ForeignMemory(Value):
    """Everything a file of another memory held: all versions of its objects, and which one is current by id."""

    objects: tuple[ForeignObject, ...]
    current: dict[str, str | None]
    """By id the hash of the current version; from an archive, that of its only version."""


@dataclass(frozen=True, slots=True)
class LispImported(Value):
    """What an import of a Lisp memory found and did; with `dry_run` what it would do."""

    source: str
    objects: int
    """How many objects the file has, current ones."""
    versions: int
    """How many versions of them, in all."""
    new: int
    """How many of these versions were not in the history here."""
    existing: int
    """How many were."""
    changed: int
    """How many objects are other than before."""
    snapshots: int
    head: str | None
    hashes: dict[str, int]
    """How many foreign hashes have each verdict."""
    doubts: tuple[HashCheck, ...]
    """Every hash that does not match, or cannot be checked, and why."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class LispExported(Value):
    """A Lisp archive that was written."""

    path: str
    objects: int
    bytes: int
