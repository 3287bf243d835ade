"""How values cross a wire: as JSON (wire_encoding.py) and back, by their type, and the JSON Schema of both.

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
from abc import ABC, abstractmethod
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from holdproof.api.wire_encoding import BYTES, DEEPEST, LINK, dump
from holdproof.crypto.cid import CID, parse_argument
from holdproof.errors import InvalidInputError
from holdproof.validation import with_article

__all__ = ["Named", "Schema", "WireShape", "dump", "is_bytes", "shape"]

Schema = dict[str, Any]
Named = dict[str, Schema]
"""The schemas of named types, by name."""


class WireShape(ABC):
    """A type as it crosses a wire."""

    callback = False
    """Whether it is a function of the caller."""
    local = False
    """Whether it is a place on the disk of the store's machine."""
    scalar = False
    """Whether a plain text can say it, as in a query."""
    item: "WireShape | None" = None
    """The shape of each value, where it is a list."""

    def read(self, text: str, at: str) -> Any:
        """The value that a plain text stands for."""
        raise _wrong(at, f"cannot be said in a query: {text}")

    @abstractmethod
    def load(self, data: Any, at: str) -> Any:
        """The value that JSON stands for; `at` is where it stands, for the error."""

    @abstractmethod
    def schema(self, named: Named) -> Schema:
        """The JSON Schema of the type; what has a name of its own goes into `named`."""


def _wrong(at: str, what: str) -> InvalidInputError:
    return InvalidInputError(f"{at or 'it'}: {what}", at=at)


class _Any(WireShape):
    """Whatever JSON can say, bytes and links."""

    def load(self, data: Any, at: str) -> Any:
        """See WireShape."""
        return self._load(data, at, DEEPEST)

    def _load(self, data: Any, at: str, levels: int) -> Any:
        if not isinstance(data, list | dict):
            return data
        if not levels:
            raise _wrong(at.partition("[")[0].partition(".")[0], f"nested too deeply: more than {DEEPEST} levels")
        if isinstance(data, list):
            return [self._load(each, f"{at}[{n}]", levels - 1) for n, each in enumerate(data)]
        if data.keys() == {BYTES}:
            return _BYTE.load(data, at)
        if data.keys() == {LINK}:
            return _LINKED.load(data, at)
        return {
            key[1:] if key.startswith("$") else key: self._load(item, f"{at}.{key}", levels - 1)
            for key, item in data.items()
        }

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See WireShape."""
        return {}


def _floating(data: int, at: str) -> float:
    try:
        return float(data)
    except OverflowError as error:
        raise _wrong(at, "not a number that can be reckoned with") from error


class _Plain(WireShape):
    """A type that JSON has."""

    def __init__(self, kind: type, word: str) -> None:
        self._kind = kind
        self._word = word
        self.scalar = kind is not NoneType

    def read(self, text: str, at: str) -> Any:
        """See WireShape."""
        if self._kind is str:
            return text
        try:
            return self.load(json.loads(text), at)
        except ValueError as error:  # also numbers of more digits than Python reads
            raise _wrong(at, f"not {with_article(self._word)}") from error

    def load(self, data: Any, at: str) -> Any:
        """See WireShape."""
        # JSON writes 1.0 as 1 in many encoders. The type is compared exactly: for isinstance, True is an int.
        if self._kind is float and type(data) is int:
            return _floating(data, at)
        if type(data) is not self._kind:
            raise _wrong(at, f"not {with_article(self._word)}")
        return data

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See WireShape."""
        return {"type": self._word}


class _Bytes(WireShape):
    """Bytes, in base64."""

    def load(self, data: Any, at: str) -> bytes:
        """See WireShape."""
        if isinstance(data, dict) and data.keys() == {BYTES} and isinstance(data[BYTES], str):
            try:
                return b64decode(data[BYTES], validate=True)
            except (BadBase64, ValueError) as error:
                raise _wrong(at, "not base64") from error
        raise _wrong(at, f"bytes are written {{{BYTES!r}: base64}}")

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See WireShape."""
        text = {"type": "string", "contentEncoding": "base64"}
        return {"type": "object", "properties": {BYTES: text}, "required": [BYTES], "additionalProperties": False}


def is_bytes(schema: Schema) -> bool:
    """Say whether a schema is the one of bytes."""
    return BYTES in schema.get("properties", {})


class _Link(WireShape):
    """The name of a block."""

    def load(self, data: Any, at: str) -> CID:
        """See WireShape."""
        if isinstance(data, dict) and data.keys() == {LINK} and isinstance(data[LINK], str):
            return parse_argument(data[LINK])
        raise _wrong(at, f"a link is written {{{LINK!r}: cid}}")

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See WireShape."""
        properties = {LINK: {"type": "string"}}
        return {"type": "object", "properties": properties, "required": [LINK], "additionalProperties": False}


class _Path(_Plain):
    """A path on the disk of the store's machine, which no remote caller may name."""

    local = True

    def __init__(self) -> None:
        super().__init__(str, "string")

    def load(self, data: Any, at: str) -> Path:
        """See WireShape."""
        return Path(super().load(data, at))


class _Called(WireShape):
    """A function of the caller, which stays with it."""

    callback = True

    def load(self, data: Any, at: str) -> Any:  # noqa: ARG002
        """See WireShape."""
        raise _wrong(at, "a function cannot be sent")

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See WireShape."""
        return {"const": True, "description": "Call me back: the answer is a stream."}


class _OneOf(WireShape):
    """One of several words: a literal, or the members of an enumeration."""

    scalar = True

    def __init__(self, words: Mapping[str, Any]) -> None:
        self._words = dict(words)

    def read(self, text: str, at: str) -> Any:
        """See WireShape."""
        return self.load(text, at)

    def load(self, data: Any, at: str) -> Any:
        """See WireShape."""
        if not isinstance(data, str) or data not in self._words:
            raise _wrong(at, f"not one of {', '.join(self._words)}")
        return self._words[data]

    def schema(self, named: Named) -> Schema:  # noqa: ARG002
        """See WireShape."""
        return {"type": "string", "enum": list(self._words)}


class _Many(WireShape):
    """A list of one type; `make` is what it becomes."""

    def __init__(self, item: WireShape, make: Callable[[list[Any]], Any]) -> None:
        self.item = item
        self._load_item = item.load
        self._item_schema = item.schema
        self._make = make

    def load(self, data: Any, at: str) -> Any:
        """See WireShape."""
        if not isinstance(data, list):
            raise _wrong(at, "not a list")
        return self._make([self._load_item(each, f"{at}[{n}]") for n, each in enumerate(data)])

    def schema(self, named: Named) -> Schema:
        """See WireShape."""
        return {"type": "array", "items": self._item_schema(named)}


class _Row(WireShape):
    """A tuple of a fixed length."""

    def __init__(self, items: tuple[WireShape, ...]) -> None:
        self._items = items

    def load(self, data: Any, at: str) -> tuple[Any, ...]:
        """See WireShape."""
        if not isinstance(data, list) or len(data) != len(self._items):
            raise _wrong(at, f"not a list of {len(self._items)}")
        return tuple(shape.load(each, f"{at}[{n}]") for n, (shape, each) in enumerate(zip(self._items, data)))  # noqa: B905 (checked)

    def schema(self, named: Named) -> Schema:
        """See WireShape."""
        kinds: list[Schema] = []
        for each in self._items:
            if (kind := each.schema(named)) not in kinds:
                kinds.append(kind)
        # Which stands where is left open: readers of schemas do not agree on `prefixItems`.
        item = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        return {"type": "array", "items": item, "minItems": len(self._items), "maxItems": len(self._items)}


class _Map(WireShape):
    """Values of one type by name."""

    def __init__(self, item: WireShape) -> None:
        self._item = item

    def load(self, data: Any, at: str) -> dict[str, Any]:
        """See WireShape."""
        if not isinstance(data, dict):
            raise _wrong(at, "not an object")
        return {
            key[1:] if key.startswith("$") else key: self._item.load(item, f"{at}.{key}") for key, item in data.items()
        }

    def schema(self, named: Named) -> Schema:
        """See WireShape."""
        return {"type": "object", "additionalProperties": self._item.schema(named)}


class _Fields(WireShape):
    """A frozen value, by its fields; `arguments` are those of a generic one, in the order of its type variables."""

    def __init__(self, kind: type, arguments: tuple[Any, ...] = ()) -> None:
        self._kind = kind
        self._arguments = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=False))

    @cached_property  # at first use: a type may refer to itself
    def _shapes(self) -> dict[str, WireShape]:
        hints = get_type_hints(self._kind)
        return {each.name: shape(self._concrete(hints[each.name])) for each in fields(self._kind)}

    def _concrete(self, hint: Any) -> Any:
        """Return a field's type with the type variables of a generic value replaced by its arguments."""
        variables = getattr(hint, "__parameters__", ())
        if isinstance(hint, TypeVar):
            return self._arguments.get(hint, Any)
        return hint[tuple(self._arguments.get(each, Any) for each in variables)] if variables else hint

    def load(self, data: Any, at: str) -> Any:
        """See WireShape."""
        if not isinstance(data, dict):
            raise _wrong(at, f"not {with_article(self._kind.__name__)}")
        if unknown := data.keys() - self._shapes.keys():
            raise _wrong(at, f"{with_article(self._kind.__name__)} has no {min(unknown)}")
        if missing := self._required - data.keys():
            raise _wrong(at, f"{min(missing)} is missing")
        return self._kind(**{name: self._shapes[name].load(item, f"{at}.{name}") for name, item in data.items()})

    @cached_property
    def _required(self) -> set[str]:
        return {each.name for each in fields(self._kind) if each.default is MISSING and each.default_factory is MISSING}

    def schema(self, named: Named) -> Schema:
        """See WireShape."""
        name = self._kind.__qualname__ + "".join(getattr(each, "__name__", "Any") for each in self._arguments.values())
        if name not in named:
            named[name] = {}  # a type may hold itself: the second visit finds the name and returns the reference
            named[name] = {
                "type": "object",
                "description": " ".join((self._kind.__doc__ or "").split()),
                "properties": {each: one.schema(named) for each, one in self._shapes.items()},
                "required": sorted(self._required),
                "additionalProperties": False,
            }
        return {"$ref": f"#/components/schemas/{name}"}


class _Either(WireShape):
    """One of several types: the first that fits."""

    def __init__(self, shapes: tuple[WireShape, ...]) -> None:
        self._shapes = shapes
        self.callback = any(each.callback for each in shapes)
        self.local = any(each.local for each in shapes)
        values = [each for each in shapes if each is not _NOTHING]
        self.scalar = all(each.scalar for each in values)
        # Only where the other branch is None can the items be named: `list[str] | None` is still a list of texts.
        self.item = next(iter(values)).item if len(values) == 1 else None

    def read(self, text: str, at: str) -> Any:
        """See WireShape."""
        return self._first(lambda each: each.read(text, at), at)

    def load(self, data: Any, at: str) -> Any:
        """See WireShape."""
        return self._first(lambda each: each.load(data, at), at)

    def _first(self, convert: Callable[[WireShape], Any], at: str) -> Any:
        # All complaints are reported, each once: which of the types was meant cannot be known.
        words: list[str] = []
        for each in self._shapes:
            try:
                return convert(each)
            except InvalidInputError as error:
                words.append(error.message.removeprefix(f"{at}: "))
        raise _wrong(at, "; ".join(dict.fromkeys(words)))

    def schema(self, named: Named) -> Schema:
        """See WireShape."""
        kinds: list[Schema] = []
        for each in self._shapes:
            one = each.schema(named)
            if one not in kinds:
                kinds.append(one)
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


_ANY: Final = _Any()
_BYTE: Final = _Bytes()
_LINKED: Final = _Link()
_NOTHING: Final = _Plain(NoneType, "null")
_PLAIN: Final[dict[Any, WireShape]] = {
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
def shape(kind: Any) -> WireShape:
    """How a type crosses a wire; one that has no way to be told is anything."""
    if (plain := _PLAIN.get(kind)) is not None:
        return plain
    origin = get_origin(kind)
    if (make := _COMPOSED.get(origin)) is not None:
        return make(get_args(kind))
    if isinstance(origin, type) and is_dataclass(origin):  # a generic value such as Page[Flow]
        return _Fields(origin, get_args(kind))
    if not isinstance(kind, type):
        return _ANY
    if issubclass(kind, Enum):
        return _OneOf({dump(each): each for each in kind})
    return _Fields(kind) if is_dataclass(kind) else _ANY


def _either(parts: tuple[Any, ...]) -> WireShape:
    """The types of a union, a text before a place on the disk; anything takes all."""
    shapes = tuple(shape(each) for each in parts if not isinstance(each, TypeVar))
    if any(each is _ANY for each in shapes) and not any(each.callback for each in shapes):
        # A list of anything, or anything: still a list, which the command line reads item by item.
        specific = [each for each in shapes if each is not _ANY]
        return specific[0] if len(specific) == 1 and isinstance(specific[0], _Many) else _ANY
    return _Either(shapes)


def _tuple(parts: tuple[Any, ...]) -> WireShape:
    one = len(parts) == 2 and parts[1] is ...
    return _Many(shape(parts[0]), tuple) if one else _Row(tuple(map(shape, parts)))


def _list(parts: tuple[Any, ...]) -> WireShape:
    return _Many(shape(parts[0]), list)


def _map(parts: tuple[Any, ...]) -> WireShape:
    return _Map(shape(parts[1]))


_COMPOSED: Final[dict[Any, Callable[[tuple[Any, ...]], WireShape]]] = {
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
