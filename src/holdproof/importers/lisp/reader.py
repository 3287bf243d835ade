"""A reader for Lisp data that evaluates nothing.

Rules:
- Read are strings, symbols, keywords, integers, ratios, floats, lists, dotted pairs, and of everything that begins with
  `#` only `#\\` `#(` `#*` `#P"` `#C(` and `#S(`. Every other reader macro is refused: `#.` above all, but comments and
  quotes as well, which no printer writes.
- What is refused is refused by its line and column, both counted from 1.
- Nothing is looked up, interned, opened or called; a symbol is its name.
- Depth, length and the size of numbers are bounded; reading takes time in proportion to the text, and no recursion.
- Names are read in upper case unless they are escaped, as Lisp does; floats without a mark are single.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NoReturn

from holdproof.errors import InvalidInputError, LispError
from holdproof.importers.lisp import floats
from holdproof.model.lisp import KEYWORD, Bits, Char, Complex, Dotted, Float, Lisp, Pathname, Struct, Symbol, Vector

MOST_BYTES: Final = 256 << 20
MOST_DEPTH: Final = 100
MOST_DIGITS: Final = 4_000
MOST_NAME: Final = 1_024

_END: Final = r"""(?=[ \t\n\r\f()"';`,]|\Z)"""
_TOKEN: Final = re.compile(
    r"""[ \t\n\r\f]*+(?:
      (?P<open>  \( )
    | (?P<close> \) )
    | (?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
    | (?P<name>  (?:[^ \t\n\r\f()"';`,\\|\#]|\\.|\|[^|\\]*+(?:\\.[^|\\]*+)*+\|)
                 (?:[^ \t\n\r\f()"';`,\\|]|\\.|\|[^|\\]*+(?:\\.[^|\\]*+)*+\|)*+ )
    | (?P<char>  \#\\.[^ \t\n\r\f()"';`,\\|]*+ )
    | (?P<path>  \#[Pp]"[^"\\]*+(?:\\.[^"\\]*+)*+" )
    | (?P<bits>  \#\*[01]*+"""
    + _END
    + r""" )
    | (?P<vector>\#\( )
    | (?P<complex>\#[Cc]\( )
    | (?P<struct>\#[Ss]\( )
    | (?P<end>   \Z ))""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER: Final = re.compile(
    r"(?P<int>[+-]?[0-9]+\.?)|(?P<ratio>[+-]?[0-9]+/[0-9]+)"
    r"|(?P<float>[+-]?(?:[0-9]*\.[0-9]+(?:[esfdl][+-]?[0-9]+)?|[0-9]+(?:\.[0-9]*)?[esfdl][+-]?[0-9]+))",
    re.IGNORECASE | re.ASCII,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_PIECES: Final = re.compile(
    r"\\(?P<one>.)|\|(?P<many>[^|\\]*+(?:\\.[^|\\]*+)*+)\||(?P<colon>:)|(?P<plain>.)", re.DOTALL
)
_NUMERIC_NAME: Final = re.compile(r"U\+?([0-9A-F]{1,8})", re.IGNORECASE | re.ASCII)
CHARACTERS: Final = {
    "NEWLINE": "\n",
    "LINEFEED": "\n",
    "SPACE": " ",
    "TAB": "\t",
    "PAGE": "\f",
    "RETURN": "\r",
    "BACKSPACE": "\b",
    "RUBOUT": "\x7f",
    "NUL": "\0",
    "NULL": "\0",
    "ESC": "\x1b",
    "ESCAPE": "\x1b",
}


def read(text: str | bytes, *, most: int = MOST_BYTES, inner: list[int] | None = None) -> Iterator[tuple[int, Lisp]]:
    """Every form of a text with the offset where it begins; LispError at the first thing that is refused.

    `inner` is given the offsets of the brackets directly inside a form, as these are closed.
    """
    return _forms(_Source(decoded(text, most=most), [] if inner is None else inner))


def decoded(text: str | bytes, *, most: int = MOST_BYTES) -> str:
    """A text of bounded length that is Unicode, as `read` takes it."""
    if len(text) > most:
        raise LispError(f"more than {most} bytes are not read", most=most)
    try:
        if isinstance(text, bytes):
            return text.decode()
        text.encode()
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        refuse(before, len(before), "the bytes are not UTF-8")
    except UnicodeEncodeError as error:
        refuse(error.object, error.start, "the text is not Unicode")
    return text


def refuse(text: str, offset: int, why: str) -> NoReturn:
    """Raise the error that names the place."""
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    raise LispError(f"line {line}, column {column}: {why}", line=line, column=column)


@dataclass(slots=True)
class _Frame:
    """A bracket that is still open: its kind, where it began, what it holds, and whether a dot was seen."""

    kind: str
    start: int
    items: list[Lisp] = field(default_factory=list)
    dot: int = -1
    """How many items stand before the dot."""


@dataclass(slots=True)
class _Source:
    """The text that is read, and the names met before, which come again and again."""

    text: str
    inner: list[int]
    names: dict[str, Lisp] = field(default_factory=dict)

    def refuse(self, offset: int, why: str) -> NoReturn:
        refuse(self.text, offset, why)


def _forms(source: _Source) -> Iterator[tuple[int, Lisp]]:
    # A stack of its own instead of recursion: the depth of a file is limited by us, not by Python.
    text = source.text
    position = 0
    stack: list[_Frame] = []
    while True:
        match = _TOKEN.match(text, position)
        if match is None:
            _refuse_rest(source, position)
        kind = match.lastgroup
        position = match.end()
        start = match.start(kind)  # type: ignore[arg-type]
        if kind == "end":
            if stack:
                source.refuse(stack[-1].start, "the bracket is never closed")
            return
        if kind in _OPENING:
            if len(stack) == MOST_DEPTH:
                source.refuse(start, f"deeper than {MOST_DEPTH} brackets")
            stack.append(_Frame(str(kind), start))
            continue
        if kind == "close":
            start, value = _close(source, stack, start)
        elif (word := match[kind]) == ".":  # type: ignore[index]
            _dot(source, stack, start)
            continue
        else:
            value = _atom(source, str(kind), word, start)
        if stack:
            stack[-1].items.append(value)
        else:
            yield start, value


_OPENING: Final = frozenset({"open", "vector", "complex", "struct"})


def _refuse_rest(source: _Source, position: int) -> NoReturn:
    """Raise the error for a text that no token begins with."""
    text = source.text
    while text[position] in " \t\n\r\f":
        position += 1
    first = text[position]
    second = text[position + 1 : position + 2]
    if first == '"' or (first == "#" and second in ("P", "p") and text[position + 2 : position + 3] == '"'):
        source.refuse(position, "the string is never closed")
    if first == "#":
        source.refuse(position, f"the reader macro #{second if second.isprintable() else '?'} is refused")
    if first in "';`,":
        source.refuse(position, f"the reader macro {first} is refused")
    source.refuse(position, "the name is never ended")


def _dot(source: _Source, stack: list[_Frame], start: int) -> None:
    if not stack or stack[-1].kind != "open" or not stack[-1].items or stack[-1].dot >= 0:
        source.refuse(start, "a dot stands where no pair can be")
    stack[-1].dot = len(stack[-1].items)


# --- brackets ----------------------------------------------------------------------------------------------------


def _close(source: _Source, stack: list[_Frame], end: int) -> tuple[int, Lisp]:
    """Where the innermost bracket began, and what it is."""
    if not stack:
        source.refuse(end, "a bracket is closed that was never opened")
    frame = stack.pop()
    if len(stack) == 1:
        source.inner.append(frame.start)
    items = frame.items
    if frame.dot >= 0:
        if len(items) != frame.dot + 1:
            source.refuse(end, "one value follows a dot, and then the bracket")
        return frame.start, joined(tuple(items[:-1]), items[-1])
    if frame.kind == "open":
        return frame.start, tuple(items) or None
    if frame.kind == "vector":
        return frame.start, Vector(tuple(items))
    return frame.start, (_complex if frame.kind == "complex" else _struct)(source, frame)


def joined(items: tuple[Lisp, ...], tail: Lisp) -> Lisp:
    """The list of these items and then that tail, whatever the tail is."""
    if tail is None:
        return items
    if isinstance(tail, tuple):
        return items + tail
    if isinstance(tail, Dotted):
        return Dotted(items + tail.items, tail.tail)
    return Dotted(items, tail)


def _complex(source: _Source, frame: _Frame) -> Complex:
    if len(frame.items) != 2 or not all(map(_is_real, frame.items)):
        source.refuse(frame.start, "a complex number has two real parts")
    real, imaginary = frame.items
    return Complex(real, imaginary)  # type: ignore[arg-type]


def _is_real(value: Lisp) -> bool:
    return isinstance(value, int | Fraction | Float) and not isinstance(value, bool)


def _struct(source: _Source, frame: _Frame) -> Struct:
    name, *slots = frame.items or [None]
    if not isinstance(name, Symbol) or len(slots) % 2 or not all(isinstance(slot, Symbol) for slot in slots[::2]):
        source.refuse(frame.start, "a structure is a name, then names and values of slots")
    return Struct(name, tuple(zip(slots[::2], slots[1::2], strict=True)))  # type: ignore[arg-type]


# --- atoms -------------------------------------------------------------------------------------------------------


def _atom(source: _Source, kind: str, word: str, start: int) -> Lisp:
    if kind == "string":
        return _unescaped(word[1:-1])
    if kind == "name":
        # The same names come again and again. NIL is None, so that the source itself stands for "not cached".
        cached = source.names.get(word, source)
        if cached is source:
            cached = _name(source, word, start)
            if isinstance(cached, Symbol | bool | None):
                source.names[word] = cached
        return cached  # type: ignore[return-value]
    if kind == "bits":
        return Bits(word[2:])
    if kind == "path":
        return Pathname(_unescaped(word[3:-1]))
    return _character(source, word[2:], start)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def _character(source: _Source, name: str, start: int) -> Char:
    if len(name) == 1:
        return Char(name)
    character = CHARACTERS.get(name.upper())
    if character is None and (match := _NUMERIC_NAME.fullmatch(name)) is not None:
        code = int(match[1], 16)
        # Surrogates are not characters.
        character = chr(code) if code < 0xD800 or 0xDFFF < code < 0x110000 else None
    if character is None and len(name) <= MOST_NAME:
        try:
            character = unicodedata.lookup(name.replace("_", " "))
        except KeyError:
            character = None
    if character is None or len(character) != 1:
        source.refuse(start, "no character has this name")
    return Char(character)


def _name(source: _Source, word: str, start: int) -> Lisp:
    """A number, a keyword or a symbol."""
    number = _NUMBER.fullmatch(word)
    if number is not None:
        return _number(source, str(number.lastgroup), word, start)
    if len(word) > MOST_NAME:
        source.refuse(start, f"a name has at most {MOST_NAME} characters")
    if not word.strip("."):
        source.refuse(start, "dots alone are no name")
    if word.isascii() and word.isprintable() and not {"\\", "|", ":"} & set(word):
        return _symbol(word.upper(), None, False)
    return _qualified(source, word, start)


def _qualified(source: _Source, word: str, start: int) -> Lisp:
    parts = [""]
    colons = 0
    ended = False  # whether the run of colons is over
    for piece in _PIECES.finditer(word):
        kind = piece.lastgroup
        if kind == "colon":
            colons += 1
            if ended or colons > 2:
                source.refuse(start, "a name has one package at most")
            continue
        if colons and not ended:
            parts.append("")
            ended = True
        if kind == "plain" and not piece[0].isprintable():
            source.refuse(start, "a name holds a character that must be escaped")
        # Between bars everything is literal, after a backslash one character; the rest is read in upper case.
        literal = piece["one"] or ("" if kind == "many" else upper(piece[0]))
        parts[-1] += _unescaped(piece["many"]) if kind == "many" else literal
    if colons and not ended:
        source.refuse(start, "the name after the package is missing")
    if not colons:
        return _symbol(parts[0], None, False)
    if word.startswith(":"):
        if colons == 2:
            source.refuse(start, "a keyword has one colon")
        return Symbol(parts[1], KEYWORD)
    if parts[0] == KEYWORD:
        return Symbol(parts[1], KEYWORD)
    return _symbol(parts[1], parts[0], colons == 1)


def upper(char: str) -> str:
    """A character in upper case, where it has one that leads back to it."""
    raised = char.upper()
    return raised if len(raised) == 1 and raised.lower() == char else char


def _symbol(name: str, package: str | None, external: bool) -> Lisp:
    if package is None and name in ("NIL", "T"):
        return None if name == "NIL" else True
    return Symbol(name, package, external)


def _number(source: _Source, kind: str, word: str, start: int) -> Lisp:
    if len(word) > MOST_DIGITS:
        source.refuse(start, f"a number has at most {MOST_DIGITS} digits")
    if kind == "int":
        return int(word.rstrip("."))
    if kind == "ratio":
        over, under = map(int, word.split("/"))
        if under == 0:
            source.refuse(start, "a ratio over zero")
        ratio = Fraction(over, under)
        return ratio.numerator if ratio.denominator == 1 else ratio
    try:
        return floats.read(word)
    except InvalidInputError as error:
        source.refuse(start, error.message)
