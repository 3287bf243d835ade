"""How values cross a wire: as JSON and back, by their type, and the JSON Schema of both.

Rules:
- What is sent is what is there: a value comes back equal, and as the type that is declared for it. In what may be
  anything, a tuple comes back as a list.
- JSON has no bytes and no links: they are `{"$bytes": base64}` and `{"$link": cid}`, as the AT Protocol writes them. A
  key that begins with `$` is sent with another `$` before it, so that no text passes for them.
- What arrives is read strictly, by the type: another kind of value, an unknown field or a missing one is refused, and
  the error says where.
"""

import collections.abc
import json
import math
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from holdproof.crypto import cid as cids
from holdproof.crypto.cid import CID
from holdproof.errors import InvalidInputError

Schema = dict[str, Any]
Named = dict[str, Schema]
"""The schemas of named types, by name."""

DEEPEST: Final = 200
"""How deeply a value may be nested that is taken in: it can be given out again, whatever stands around it."""
_AROUND: Final = 20
_BYTES: Final = "$bytes"
_LINK: Final = "$link"


class Shape(ABC):
    """A type as it crosses a wire."""

    callback = False
    """Whether it is a function of the caller."""
    local = False
    """Whether it is a place on the disk of the store's machine."""
    scalar = False
    """Whether a plain text can say it, as in a query."""
    item: "Shape | None" = None
    """The shape of each value, where it is a list."""

    def read(self, text: str, at: str) -> Any:
        """The value that a plain text stands for."""
        raise _wrong(at, f"cannot be said in a query: {text}")

    @abstractmethod
    def load(self, given: Any, at: str) -> Any:
        """The value that JSON stands for; `at` is where it stands, for the error."""

    @abstractmethod
    def schema(self, named: Named) -> Schema:
        """The JSON Schema of the type; what has a name of its own goes into `named`."""


def dump(value: Any) -> Any:
    """Any value of ours as JSON."""
    return _dump(value, DEEPEST + _AROUND)


def _dump(value: Any, left: int) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    for kinds, told in _TOLD:
        if isinstance(value, kinds):
            return told(value)
    if not left:
        raise InvalidInputError(f"nested too deeply to be sent: more than {DEEPEST} levels")
    if isinstance(value, Mapping):
        return _mapped(value, left - 1)
    if isinstance(value, collections.abc.Iterable):
        return [_dump(item, left - 1) for item in value]
    if is_dataclass(value):
        return {each.name: _dump(getattr(value, each.name), left - 1) for each in fields(value)}
    if hasattr(value, "tolist"):  # a number out of an array
        return _dump(value.tolist(), left)
    raise InvalidInputError(f"a {type(value).__name__} cannot be sent", type=type(value).__name__)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidInputError("JSON has no word for a number that is not finite")
    return float(value)


def _mapped(value: Mapping[Any, Any], left: int) -> dict[str, Any]:
    if odd := [key for key in value if not isinstance(key, str)]:
        raise InvalidInputError(f"a key is a text, not {odd[0]!r}")
    return {f"${key}" if key.startswith("$") else str(key): _dump(item, left) for key, item in value.items()}


_TOLD: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (float, _finite),
    (CID, lambda value: {_LINK: str(value)}),
    (Enum, lambda value: value.value if isinstance(value.value, str) else value.name),
    (int, int),
    ((str, PathLike), str),
    ((bytes, bytearray, memoryview), lambda value: {_BYTES: b64encode(value).decode()}),
)
"""How each kind of value that holds no other is told, the narrower before the wider."""


def _wrong(at: str, what: str) -> InvalidInputError:
    return InvalidInputError(f"{at or 'it'}: {what}", at=at)


class _Any(Shape):
    """Whatever JSON can say, bytes and links."""

    def load(self, given: Any, at: str) -> Any:
        """See Shape."""
        return self._load(given, at, DEEPEST)

    def _load(self, given: Any, at: str, left: int) -> Any:
        if not isinstance(given, list | dict):
            return given
        if not left:
            raise _wrong(at.partition("[")[0].partition(".")[0], f"nested too deeply: more than {DEEPEST} levels")
        if isinstance(given, list):
            return [self._load(each, f"{at}[{n}]", left - 1) for n, each in enumerate(given)]
        if given.keys() == {_BYTES}:
            return _BYTE.load(given, at)
        if given.keys() == {_LINK}:
            return _LINKED.load(given, at)
        return {
            key[1:] if key.startswith("$") else key: self._load(item, f"{at}.{key}", left - 1)
            for key, item in given.items()
        }

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See Shape."""
        return {}


def _floating(given: int, at: str) -> float:
    try:
        return float(given)
    except OverflowError as error:
        raise _wrong(at, "not a number that can be reckoned with") from error


class _Plain(Shape):
    """A type that JSON has."""

    def __init__(self, kind: type, word: str) -> None:
        self._kind, self._word = kind, word
        self.scalar = kind is not NoneType

    def read(self, text: str, at: str) -> Any:
        """See Shape."""
        if self._kind is str:
            return text
        try:
            return self.load(json.loads(text), at)
        except ValueError as error:  # also numbers of more digits than Python reads
            raise _wrong(at, f"not a {self._word}") from error

    def load(self, given: Any, at: str) -> Any:
        """See Shape."""
        if self._kind is float and type(given) is int:
            return _floating(given, at)
        if type(given) is not self._kind:
            raise _wrong(at, f"not a {self._word}")
        return given

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See Shape."""
        return {"type": self._word}


class _Bytes(Shape):
    """Bytes, in base64."""

    def load(self, given: Any, at: str) -> bytes:
        """See Shape."""
        if isinstance(given, dict) and given.keys() == {_BYTES} and isinstance(given[_BYTES], str):
            try:
                return b64decode(given[_BYTES], validate=True)
            except (BadBase64, ValueError) as error:
                raise _wrong(at, "not base64") from error
        raise _wrong(at, f"bytes are written {{{_BYTES!r}: base64}}")

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See Shape."""
        text = {"type": "string", "contentEncoding": "base64"}
        return {"type": "object", "properties": {_BYTES: text}, "required": [_BYTES], "additionalProperties": False}


def is_bytes(schema: Schema) -> bool:
    """Say whether a schema is the one of bytes."""
    return _BYTES in schema.get("properties", {})


class _Link(Shape):
    """The name of a block."""

    def load(self, given: Any, at: str) -> CID:
        """See Shape."""
        if isinstance(given, dict) and given.keys() == {_LINK} and isinstance(given[_LINK], str):
            return cids.parse_argument(given[_LINK])
        raise _wrong(at, f"a link is written {{{_LINK!r}: cid}}")

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See Shape."""
        text = {"type": "string"}
        return {"type": "object", "properties": {_LINK: text}, "required": [_LINK], "additionalProperties": False}


class _Path(_Plain):
    """A place on the disk of whoever reads it: nothing to be sent by a stranger."""

    local = True

    def __init__(self) -> None:
        super().__init__(str, "string")

    def load(self, given: Any, at: str) -> Path:
        """See Shape."""
        return Path(super().load(given, at))


class _Called(Shape):
    """A function of the caller, which stays with it."""

    callback = True

    def load(self, given: Any, at: str) -> Any:  # noqa: ARG002
        """See Shape."""
        raise _wrong(at, "a function cannot be sent")

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See Shape."""
        return {"const": True, "description": "Call me back: the answer is a stream."}


class _OneOf(Shape):
    """One of several words: a literal, or the members of an enumeration."""

    scalar = True

    def __init__(self, words: Mapping[str, Any]) -> None:
        self._words = dict(words)

    def read(self, text: str, at: str) -> Any:
        """See Shape."""
        return self.load(text, at)

    def load(self, given: Any, at: str) -> Any:
        """See Shape."""
        if not isinstance(given, str) or given not in self._words:
            raise _wrong(at, f"not one of {', '.join(self._words)}")
        return self._words[given]

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See Shape."""
        return {"type": "string", "enum": list(self._words)}


class _Many(Shape):
    """A list of one type; `make` is what it becomes."""

    def __init__(self, item: Shape, make: Callable[[list[Any]], Any]) -> None:
        self.item = item
        self._load_item = item.load
        self._item_schema = item.schema
        self._make = make

    def load(self, given: Any, at: str) -> Any:
        """See Shape."""
        if not isinstance(given, list):
            raise _wrong(at, "not a list")
        return self._make([self._load_item(each, f"{at}[{n}]") for n, each in enumerate(given)])

    def schema(self, named: Named) -> Schema:
        """See Shape."""
        return {"type": "array", "items": self._item_schema(named)}


class _Row(Shape):
    """A tuple of a fixed length."""

    def __init__(self, items: tuple[Shape, ...]) -> None:
        self._items = items

    def load(self, given: Any, at: str) -> tuple[Any, ...]:
        """See Shape."""
        if not isinstance(given, list) or len(given) != len(self._items):
            raise _wrong(at, f"not a list of {len(self._items)}")
        return tuple(shape.load(each, f"{at}[{n}]") for n, (shape, each) in enumerate(zip(self._items, given)))  # noqa: B905 (checked)

    def schema(self, named: Named) -> Schema:
        """See Shape."""
        kinds: list[Schema] = []
        for each in self._items:
            if (kind := each.schema(named)) not in kinds:
                kinds.append(kind)
        # Which stands where is left open: readers of schemas do not agree on `prefixItems`.
        item = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        return {"type": "array", "items": item, "minItems": len(self._items), "maxItems": len(self._items)}


class _Map(Shape):
    """Values of one type by name."""

    def __init__(self, item: Shape) -> None:
        self._item = item

    def load(self, given: Any, at: str) -> dict[str, Any]:
        """See Shape."""
        if not isinstance(given, dict):
            raise _wrong(at, "not an object")
        return {
            key[1:] if key.startswith("$") else key: self._item.load(item, f"{at}.{key}") for key, item in given.items()
        }

    def schema(self, named: Named) -> Schema:
        """See Shape."""
        return {"type": "object", "additionalProperties": self._item.schema(named)}


class _Fields(Shape):
    """A frozen value, by its fields; `arguments` are those of a generic one, in the order of its type variables."""

    def __init__(self, kind: type, arguments: tuple[Any, ...] = ()) -> None:
        self._kind = kind
        self._arguments = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=False))

    @cached_property
    def _shapes(self) -> dict[str, Shape]:
        hints = get_type_hints(self._kind)
        return {each.name: shape(self._concrete(hints[each.name])) for each in fields(self._kind)}

    def _concrete(self, hint: Any) -> Any:
        """Return a field's type with the type variables of a generic value replaced by its arguments."""
        variables = getattr(hint, "__parameters__", ())
        if isinstance(hint, TypeVar):
            return self._arguments.get(hint, Any)
        return hint[tuple(self._arguments.get(each, Any) for each in variables)] if variables else hint

    def load(self, given: Any, at: str) -> Any:
        """See Shape."""
        if not isinstance(given, dict):
            raise _wrong(at, f"not a {self._kind.__name__}")
        shapes = self._shapes
        if unknown := given.keys() - shapes.keys():
            raise _wrong(at, f"a {self._kind.__name__} has no {min(unknown)}")
        if missing := self._required - given.keys():
            raise _wrong(at, f"{min(missing)} is missing")
        return self._kind(**{name: shapes[name].load(item, f"{at}.{name}") for name, item in given.items()})

    @cached_property
    def _required(self) -> set[str]:
        return {each.name for each in fields(self._kind) if each.default is MISSING and each.default_factory is MISSING}

    def schema(self, named: Named) -> Schema:
        """See Shape."""
        name = self._kind.__qualname__ + "".join(getattr(each, "__name__", "Any") for each in self._arguments.values())
        if name not in named:
            named[name] = {}  # a type may hold itself
            named[name] = {
                "type": "object",
                "description": " ".join((self._kind.__doc__ or "").split()),
                "properties": {each: one.schema(named) for each, one in self._shapes.items()},
                "required": sorted(self._required),
                "additionalProperties": False,
            }
        return {"$ref": f"#/components/schemas/{name}"}


class _Either(Shape):
    """One of several types: the first that fits."""

    def __init__(self, shapes: tuple[Shape, ...]) -> None:
        self._shapes = shapes
        self.callback = any(each.callback for each in shapes)
        self.local = any(each.local for each in shapes)
        values = [each for each in shapes if each is not _NOTHING]
        self.scalar = all(each.scalar for each in values)
        self.item = values[0].item if len(values) == 1 else None

    def read(self, text: str, at: str) -> Any:
        """See Shape."""
        return self._first(lambda each: each.read(text, at), at)

    def load(self, given: Any, at: str) -> Any:
        """See Shape."""
        return self._first(lambda each: each.load(given, at), at)

    def _first(self, made: Callable[[Shape], Any], at: str) -> Any:
        words: list[str] = []
        for each in self._shapes:
            try:
                return made(each)
            except InvalidInputError as error:
                words.append(error.message.removeprefix(f"{at}: "))
        raise _wrong(at, "; ".join(dict.fromkeys(words)))

    def schema(self, named: Named) -> Schema:
        """See Shape."""
        found: list[Schema] = []
        for each in self._shapes:
            one = each.schema(named)
            if one not in found:
                found.append(one)
        return found[0] if len(found) == 1 else {"anyOf": found}


_ANY: Final = _Any()
_BYTE: Final = _Bytes()
_LINKED: Final = _Link()
_NOTHING: Final = _Plain(NoneType, "null")
_PLAIN: Final[dict[Any, Shape]] = {
    Any: _ANY,
    object: _ANY,
    None: _NOTHING,
    NoneType: _NOTHING,
    bool: _Plain(bool, "boolean"),
    int: _Plain(int, "integer"),
    float: _Plain(float, "number"),
    str: _Plain(str, "string"),
    bytes: _BYTE,
    bytearray: _BYTE,
    memoryview: _BYTE,
    CID: _LINKED,
    Path: _Path(),
    collections.abc.Callable: _Called(),
}


@cache
def shape(kind: Any) -> Shape:
    """How a type crosses a wire; one that has no way to be told is anything."""
    if (known := _PLAIN.get(kind)) is not None:
        return known
    origin, parts = get_origin(kind), get_args(kind)
    if (make := _MADE.get(origin)) is not None:
        return make(parts)
    if isinstance(origin, type) and is_dataclass(origin):  # a generic value such as Page[Flow]
        return _Fields(origin, parts)
    if not isinstance(kind, type):
        return _ANY
    if issubclass(kind, Enum):
        return _OneOf({dump(each): each for each in kind})
    return _Fields(kind) if is_dataclass(kind) else _ANY


def _either(parts: tuple[Any, ...]) -> Shape:
    """The types of a union, a text before a place on the disk; anything takes all."""
    shapes = tuple(shape(each) for each in parts if not isinstance(each, TypeVar))
    if any(each is _ANY for each in shapes) and not any(each.callback for each in shapes):
        known = tuple(each for each in shapes if each is not _ANY)
        return known[0] if len(known) == 1 and isinstance(known[0], _Many) else _ANY
    return _Either(shapes)


def _tuple(parts: tuple[Any, ...]) -> Shape:
    one = len(parts) == 2 and parts[1] is ...
    return _Many(shape(parts[0]), tuple) if one else _Row(tuple(map(shape, parts)))


def _list(parts: tuple[Any, ...]) -> Shape:
    return _Many(shape(parts[0]), list)


def _map(parts: tuple[Any, ...]) -> Shape:
    return _Map(shape(parts[1]))


_MADE: Final[dict[Any, Callable[[tuple[Any, ...]], Shape]]] = {
    Union: _either,
    UnionType: _either,
    Literal: lambda parts: _OneOf({str(each): each for each in parts}),
    collections.abc.Callable: lambda _: _PLAIN[collections.abc.Callable],
    PathLike: lambda _: _PLAIN[Path],
    tuple: _tuple,
    list: _list,
    collections.abc.Sequence: _list,
    collections.abc.Iterable: _list,
    dict: _map,
    collections.abc.Mapping: _map,
}
"""Types that are made of others."""
