"""A serializer that writes what LangGraph's own does, as far as it is on a list, and reads nothing else.

LangGraph's reader imports and calls whatever a stored value names, or hands out the bare data of a type that it blocks.

Rules:
- Nothing is made that is not listed, and no other module is imported: UnsafeTypeError.
- Nothing is written that could not be read again: it is refused with the same error when it is put, not when a run
  resumes from it.
- Bytes that are no value are a FormatError.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdproof.errors import FormatError, UnsafeTypeError

Named = tuple[str, str]

_MESSAGES: Final = {
    "ai": "AIMessage AIMessageChunk",
    "base": "BaseMessage BaseMessageChunk",
    "chat": "ChatMessage ChatMessageChunk",
    "function": "FunctionMessage FunctionMessageChunk",
    "human": "HumanMessage HumanMessageChunk",
    "modifier": "RemoveMessage",
    "system": "SystemMessage SystemMessageChunk",
    "tool": "ToolMessage ToolMessageChunk",
}
_OTHERS: Final = {
    "langchain_core.agents": "AgentAction AgentActionMessageLog AgentFinish AgentStep",
    "builtins": "frozenset set",
    "collections": "deque",
    "datetime": "date datetime time timedelta timezone",
    "decimal": "Decimal",
    "ipaddress": "IPv4Address IPv4Interface IPv4Network IPv6Address IPv6Interface IPv6Network",
    "langchain_core.documents.base": "Document",
    "langgraph.store.base": "GetOp Item",
    "langgraph.types": "Command Interrupt Overwrite PregelTask Send StateSnapshot TimeoutPolicy",
    "pathlib": "Path PosixPath PurePath PurePosixPath",
    "pathlib._local": "Path PosixPath PurePath PurePosixPath",
    "re": "compile",
    "uuid": "UUID",
    "zoneinfo": "ZoneInfo",
}
ALLOWED: Final[frozenset[Named]] = frozenset(
    {(f"langchain_core.messages.{module}", name) for module, names in _MESSAGES.items() for name in names.split()}
    | {(module, name) for module, names in _OTHERS.items() for name in names.split()}
)
_METHODS: Final = frozenset({("datetime", "datetime", "fromisoformat")})
_NATIVE: Final = frozenset({str, int, float, bool})
_EXTENDS: Final = bytes([0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8])
"""The bytes with which an extension of MessagePack begins (ext 8, 16, 32; fixext 1, 2, 4, 8, 16)."""
_ONE, _MANY, _NAMED, _METHOD, _PYDANTIC1, _PYDANTIC2, _ARRAY, _DELTA = range(8)
"""The extension types of LangGraph's MessagePack."""


class SafeSerializer:
    """LangGraph's `SerializerProtocol`; `allow` are types of your own, or their module and name."""

    def __init__(self, allow: Iterable[type | Named] = ()) -> None:
        allow = tuple(allow)
        self.allow = frozenset(_named(each) for each in allow)
        self._known = ALLOWED | self.allow
        # Types that were passed as such need no import: they may be local to a function or a class.
        self._types = {_named(each): each for each in allow if isinstance(each, type)}
        self._writer = JsonPlusSerializer()
        self._makers: dict[tuple[int, str, str, str | None], Callable[[Any], Any]] = {}

    def with_more(self, allow: Iterable[Any]) -> "SafeSerializer":
        """Return the same with more types."""
        return SafeSerializer([*self.allow, *self._types.values(), *allow])

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return a value as bytes, and how they are to be read; UnsafeTypeError for a type that would not be."""
        kind, content = self._writer.dumps_typed(obj)
        # Most that is written names no type at all: where no byte can begin an extension, there is none.
        if kind == "msgpack" and type(obj) not in _NATIVE and len(content.translate(None, _EXTENDS)) < len(content):
            self._parse(content, self._check)
        return kind, content

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value of bytes; nothing is made that is not listed."""
        kind, content = data
        if kind == "msgpack":
            return self._unpack(content)
        if kind == "null":
            return None
        if kind == "bytes":
            return bytes(content)
        if kind == "bytearray":
            return bytearray(content)
        raise UnsafeTypeError(f"values written as {kind!r} are not read", kind=str(kind)[:100])

    def _unpack(self, data: bytes) -> Any:
        return self._parse(data, self._make)

    def _parse(self, data: bytes, make: Callable[[int, bytes], Any]) -> Any:
        """MessagePack; an error of ours passes through, though the parser has one of its own for it."""
        # The parser replaces what its hook raises by an error of its own; ours is kept aside to be raised instead.
        refused: list[FormatError] = []

        def hook(code: int, inner: bytes) -> Any:
            try:
                return make(code, inner)
            except FormatError as error:
                refused.append(error)
                raise

        try:
            return ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
        except (ValueError, TypeError, RecursionError) as error:
            raise (refused[0] if refused else FormatError(f"no value of LangGraph: {error}")) from error
        except FormatError as error:
            raise refused[0] from error

    def _check(self, code: int, data: bytes) -> None:
        """Refuse an extension that `_make` would refuse, without making anything of it."""
        parts = self._parse(data, self._check)
        if code == _ARRAY and _dtype(parts[0]).hasobject:
            raise UnsafeTypeError("an array of objects is not read: store a list", type="numpy.object")
        if code not in (_ARRAY, _DELTA):
            self._maker(code, parts)

    def _make(self, code: int, data: bytes) -> Any:
        """Return what an extension stands for."""
        parts = self._unpack(data)
        if code == _DELTA:
            return _DeltaSnapshot(parts)
        if not isinstance(parts, list | tuple) or len(parts) < 3:
            raise FormatError("no value of LangGraph: an extension without its parts", code=code)
        if code == _ARRAY:
            return _array(parts)
        make = self._maker(code, parts)
        try:
            return make(parts[2])
        except Exception as error:
            raise FormatError(f"{parts[0]}.{parts[1]} cannot be made of what is stored: {error}") from error

    def _maker(self, code: int, parts: Any) -> Callable[[Any], Any]:
        """Return how the type that a value names is made, if it may be."""
        module = str(parts[0])
        name = str(parts[1])
        method = str(parts[3]) if code == _METHOD and len(parts) > 3 else None
        if (cached := self._makers.get((code, module, name, method))) is not None:
            return cached
        allowed = (module, name) in self._known if method is None else (module, name, method) in _METHODS
        if not allowed or code > _PYDANTIC2:
            raise UnsafeTypeError(
                f"{module}.{name} is not on the list of types that are stored and read: allow it with"
                f" HoldproofSaver(…, allow=[{name}])",
                type=f"{module}.{name}",
            )
        target = self._target(module, name)
        if method is not None:
            target = getattr(target, method)
        ways: dict[int, Callable[[Any], Any]] = {
            _MANY: lambda args: _send(target, args) if name == "Send" else target(*args),
            _NAMED: lambda kwargs: target(**kwargs),
            _PYDANTIC1: lambda kwargs: _model(target, "construct", kwargs),
            _PYDANTIC2: lambda kwargs: _model(target, "model_construct", kwargs),
        }
        way: Callable[[Any], Any] = ways.get(code, target)
        self._makers[code, module, name, method] = way  # as many as the list has types
        return way

    def _target(self, module: str, name: str) -> Any:
        """Return the type of that name; reached only for names on the list, and nothing else is ever imported."""
        if (passed := self._types.get((module, name))) is not None:
            return passed
        try:
            target: Any = import_module(module)
            for part in name.split("."):
                target = getattr(target, part)
        except (ImportError, AttributeError) as error:
            raise UnsafeTypeError(
                f"{module} has no {name} that could be read again: pass the type itself, allow=[{name}], where it is"
                " defined inside a function or a class",
                type=f"{module}.{name}",
            ) from error
        return target


def _named(each: type | Named) -> Named:
    return (each.__module__, each.__name__) if isinstance(each, type) else (str(each[0]), str(each[1]))


def _send(target: Any, args: Any) -> Any:
    return target(*args) if len(args) == 2 else target(args[0], args[1], timeout=args[2])


def _model(target: Any, construct: str, kwargs: dict[str, Any]) -> Any:
    """Return a model, without validation where what it once gave out would not pass."""
    try:
        return target(**kwargs)
    except Exception:
        return getattr(target, construct)(**kwargs)


def _dtype(kind: Any) -> Any:
    return import_module("numpy").dtype(kind)


def _array(parts: Any) -> Any:
    """Return an array of numbers; a type of objects would be a way to make anything."""
    numpy = import_module("numpy")
    try:
        kind, shape, order, content = parts
        dtype = _dtype(kind)
        # Objects inside an array are pickles, and unpickling runs code.
        if dtype.hasobject:
            raise FormatError("an array of objects is not read")
        return numpy.frombuffer(content, dtype=dtype).reshape(shape, order=order)
    except (ValueError, TypeError) as error:
        raise FormatError(f"no array: {error}") from error
