"""Lisp data as text, on one line but for newlines inside strings; what the reader reads back as the same value.

Rules:
- A name stands bare only if no reader could take it for anything else; otherwise between bars.
- What has no text (an infinite float, an empty tuple, a symbol named NIL) is refused before anything is written.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from types import NoneType
from typing import Any, Final

from holdproof.errors import InvalidInputError
from holdproof.importers.lisp import floats
from holdproof.importers.lisp.reader import CHARACTERS, MOST_DEPTH, MOST_DIGITS, MOST_NAME
from holdproof.model.lisp import KEYWORD, Bits, Char, Complex, Dotted, Float, Lisp, Pathname, Struct, Symbol, Vector

_BARE: Final = re.compile(r"(?![+-]?\.?[0-9])(?!\.+\Z)[A-Z0-9+*/<>=!?$%&_~^@.-]+")
_MOST_INTEGER: Final = 10**MOST_DIGITS
_NAMES: Final = {char: name.capitalize() for name, char in reversed(CHARACTERS.items())}
_SHORT: Final = 60


def write(value: Lisp) -> str:
    """The text of a value."""
    written: list[str] = []
    # What is still to be written, the next at the end: texts as they are, values in a box with their depth.
    rest: list[str | tuple[Lisp, int]] = [(value, 0)]
    while rest:
        following = rest.pop()
        if isinstance(following, str):
            written.append(following)
            continue
        each, depth = following
        parts = _parts(each)
        if parts is None:
            written.append(_atom(each))
            continue
        if depth == MOST_DEPTH:
            raise InvalidInputError(f"deeper than {MOST_DEPTH} brackets")
        start, items, end = parts
        written.append(start)
        rest.append(end)
        for at, item in enumerate(reversed(items)):
            if at:
                rest.append(" ")
            rest.append((item, depth + 1) if item is not _DOT else ".")
    return "".join(written)


_DOT: Final = Symbol(".", ".")
"""Stands for the dot of a pair among the parts of a list; told by identity."""


def _parts(value: Lisp) -> tuple[str, tuple[Lisp, ...], str] | None:
    """How a value with brackets begins, what it holds and how it ends; None for an atom."""
    match value:
        case ():
            raise InvalidInputError("the empty list is NIL, which is None")
        case tuple():
            return "(", value, ")"
        case Dotted(items, tail):
            if not items or tail is None or isinstance(tail, tuple | Dotted):
                raise InvalidInputError("a dotted list has items, and a tail that is no list")
            return "(", (*items, _DOT, tail), ")"
        case Vector(items):
            return "#(", items, ")"
        case Complex(real, imaginary):
            return "#C(", (real, imaginary), ")"
        case Struct(name, slots):
            return "#S(", (name, *(part for slot in slots for part in slot)), ")"
        case _:
            return None


def _atom(value: Lisp) -> str:
    return _ATOMS.get(type(value), _refuse)(value)


def _integer(value: int) -> str:
    return str(value) if -_MOST_INTEGER < value < _MOST_INTEGER else _refuse("an integer of too many digits")


def _refuse(value: object) -> str:
    raise InvalidInputError(f"no Lisp data: {repr(value)[:_SHORT]}")


def quoted(text: str) -> str:
    """A string between quotes; newlines stand as they are."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _refuse("a text that is not Unicode")
    # Lisp escapes nothing but these two; a newline is itself.
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _ratio(value: Fraction) -> str:
    if value.denominator == 1:
        return _refuse("a ratio that is an integer")
    text = f"{_atom(value.numerator)}/{_atom(value.denominator)}"
    return text if len(text) <= MOST_DIGITS else _refuse("a ratio of too many digits")


def _symbol(value: Symbol) -> str:
    if value.package is None and value.name in ("NIL", "T"):
        return _refuse("a symbol named NIL or T is None or True")
    if value.package == KEYWORD:
        text = ":" + _named(value.name)
    elif value.package is None:
        text = _named(value.name)
    else:
        text = _named(value.package) + (":" if value.external else "::") + _named(value.name)
    return text if len(text) <= MOST_NAME else _refuse("a name of too many characters")


def _named(name: str) -> str:
    if _BARE.fullmatch(name):
        return name
    quoted(name)
    return "|" + name.replace("\\", "\\\\").replace("|", "\\|") + "|"


def _character(char: str) -> str:
    if len(char) != 1:
        return _refuse("a character is one")
    quoted(char)
    if char in _NAMES:
        return _NAMES[char]
    return char if char.isprintable() else f"U{ord(char):X}"


_ATOMS: Final[dict[type, Callable[[Any], str]]] = {
    NoneType: lambda _: "NIL",
    bool: lambda value: "T" if value else _refuse(value),
    int: _integer,
    Fraction: _ratio,
    str: quoted,
    Symbol: _symbol,
    Float: floats.write,
    Char: lambda value: f"#\\{_character(value.value)}",
    Bits: lambda value: _refuse(value) if value.digits.strip("01") else f"#*{value.digits}",
    Pathname: lambda value: f"#P{quoted(value.text)}",
}
