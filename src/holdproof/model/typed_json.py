"""Python values as JSON that gives them back: what flows, steps and messages record.

JSON's own types stand for themselves. Any other value is an object with one tag, a key that starts with `$`:

    {"$datetime": "2026-01-31T12:00:00+00:00"}    {"$decimal": "9.90"}    {"$tuple": [1, 2]}
    {"$object": {"fields": {"cents": 5}, "type": "shop:Receipt"}}    {"$enum": {"name": "RED", "type": "shop:Colour"}}

Rules:
- Only the types below are written and read: there is no pickle, and nothing is imported in order to read a value.
- Dataclasses, pydantic models and enums are named by module and class. They are read only where the program has loaded
  the module already and the name there is such a class; anything else is refused.
- A mapping whose keys are not all texts, or that has a key which starts with `$`, is written as pairs (`$dict`).
- Integers beyond 2^53-1, which JSON cannot carry exactly, are written as text (`$int`); so are floats that canonical
  JSON would write as integers, and those that it has no form for (`$float`).
- An object comes back as it was recorded, field by field: neither `__init__` nor a validator runs again, which could
  change it. Keys of mappings come back in the order of their names.
"""

import base64
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from holdproof.errors import ErasedError, UnrecordableError

_MAX_INT: Final = 2**53 - 1
_PLAIN: Final = (str, bool, type(None))
_DEEPEST: Final = 200
"""How deeply tagged JSON may be nested that comes from another program."""


@dataclass(frozen=True, slots=True)
class TaggedJson:
    """A value that another program encoded already; `encode` returns its JSON as it is."""

    json: Any


if TYPE_CHECKING:
    Recordable = Any
else:

    class Recordable:
        """The type of a parameter or answer that is any recordable value, and crosses a wire as tagged JSON."""


def encode(value: Any, what: str = "the value") -> Any:
    """Return a value as tagged JSON; UnrecordableError names the type that has no such form, and where it stands."""
    if type(value) is TaggedJson:
        return value.json
    try:
        return _encode(value, what)
    except RecursionError as error:
        raise UnrecordableError(f"{what} is nested too deeply to be recorded") from error


def _encode(value: Any, path: str) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -_MAX_INT <= value <= _MAX_INT else {"$int": str(value)}
    if kind is float:
        # 1.0 is not 1: their texts differ, and so would what the code does with them when it is run again.
        return {"$float": repr(value)} if not isfinite(value) or value.is_integer() else value
    if kind is list:
        return [_encode(item, f"{path}[{n}]") for n, item in enumerate(value)]
    if kind is dict:
        return _encode_dict(value, path)
    return _encode_other(value, path)


def _encode_dict(value: Mapping[Any, Any], path: str) -> Any:
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: _encode(item, f"{path}.{key}") for key, item in value.items()}
    return {"$dict": [[_encode(key, f"{path} key"), _encode(item, f"{path}[{key!r}]")] for key, item in value.items()]}


def _encode_other(value: Any, path: str) -> Any:
    kind = type(value)
    if isinstance(value, Enum):
        return {"$enum": {"name": value.name, "type": _name_of(value)}}
    if kind in _WRITERS:
        tag, write = _WRITERS[kind]
        return {tag: write(value)}
    if isinstance(value, PurePath):
        return {"$path": str(value)}
    if kind is tuple:
        return {"$tuple": [_encode(item, f"{path}[{n}]") for n, item in enumerate(value)]}
    if kind in (set, frozenset):
        return {f"${kind.__name__}": _sorted([_encode(item, f"{path} element") for item in value])}
    return _encode_object(value, path)


def _encode_object(value: Any, path: str) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
    elif _is_pydantic(type(value)):
        names = [*type(value).model_fields, *(value.model_extra or {})]
    else:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise UnrecordableError(f"{path} is a {kind}, which cannot be recorded", type=kind, value=path)
    encoded = {name: _encode(getattr(value, name), f"{path}.{name}") for name in names}
    return {"$object": {"fields": encoded, "type": _name_of(value)}}


def _sorted(items: list[Any]) -> list[Any]:
    # A set has no order of its own; the same set must give the same text.
    return sorted(items, key=lambda item: (type(item).__name__, str(item)))


_WRITERS: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    datetime: ("$datetime", datetime.isoformat),
    date: ("$date", date.isoformat),
    time: ("$time", time.isoformat),
    timedelta: ("$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    Decimal: ("$decimal", str),
    UUID: ("$uuid", str),
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode()),
}


# --- reading -----------------------------------------------------------------------------------------------------


def decode(value: Any) -> Any:
    """Return the Python value of tagged JSON; UnrecordableError where its class is not loaded here."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(tag, content)] = value.items()
        if tag.startswith("$"):
            return _decode_tagged(tag, content)
    return {key: decode(item) for key, item in value.items()}


def _decode_tagged(tag: str, content: Any) -> Any:
    reader = _READERS.get(tag)
    if reader is None:
        raise UnrecordableError(f"{tag} is no tag of a recorded value", tag=tag)
    return reader(content)


def _decode_dict(pairs: Any) -> dict[Any, Any]:
    return {decode(key): decode(item) for key, item in pairs}


def _decode_object(content: Any) -> Any:
    kind = _type_named(content["type"])
    values = {name: decode(item) for name, item in content["fields"].items()}
    if is_dataclass(kind):
        return _as_dataclass(kind, content["type"], values)
    if _is_pydantic(kind):
        _check_fields(content["type"], {name for name, each in kind.model_fields.items() if each.is_required()}, values)
        return kind.model_construct(**values)
    raise UnrecordableError(f"{content['type']} is neither a dataclass nor a pydantic model", type=content["type"])


def _as_dataclass(kind: Any, name: str, values: dict[str, Any]) -> Any:
    defaults: dict[str, Any] = {}
    for field in fields(kind):
        if field.default is not MISSING:
            defaults[field.name] = field.default
        elif field.default_factory is not MISSING:
            defaults[field.name] = field.default_factory()
    _check_fields(name, {field.name for field in fields(kind)} - defaults.keys(), values)
    instance = object.__new__(kind)
    for field in fields(kind):
        # Also of a frozen class: it was complete when it was recorded.
        object.__setattr__(instance, field.name, values.get(field.name, defaults.get(field.name)))
    return instance


def _check_fields(name: str, required: set[str], values: dict[str, Any]) -> None:
    """Refuse a value that was recorded before its class got a field without a default."""
    if missing := sorted(required - values.keys()):
        raise UnrecordableError(
            f"a recorded {name} has no {missing[0]}: give that field a default", type=name, field=missing[0]
        )


def _decode_enum(content: Any) -> Any:
    kind = _type_named(content["type"])
    if not issubclass(kind, Enum):
        raise UnrecordableError(f"{content['type']} is no enum", type=content["type"])
    return kind[content["name"]]


_ERASED: Final = "$erased"


def _refuse_erased(handle: Any) -> Any:
    raise ErasedError("the value was erased with the person it belongs to", subject=handle)


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$int": int,
    "$float": float,
    "$dict": _decode_dict,
    "$tuple": lambda items: tuple(decode(item) for item in items),
    "$set": lambda items: {decode(item) for item in items},
    "$frozenset": lambda items: frozenset(decode(item) for item in items),
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$timedelta": lambda parts: timedelta(*parts),
    "$decimal": Decimal,
    "$uuid": UUID,
    "$path": Path,
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$object": _decode_object,
    "$enum": _decode_enum,
    _ERASED: _refuse_erased,
}


def tagged(value: Any, what: str = "the value") -> TaggedJson:
    """Return JSON of another program as a value to record; UnrecordableError where it has a tag that nobody writes.

    What stands for content stored elsewhere (`$cid`, `$sealed`) is not among the tags: it would be read as if the
    program had been given that content.
    """
    _check_tags(value, what, _DEEPEST)
    return TaggedJson(value)


def _check_tags(value: Any, what: str, levels: int) -> None:
    if not isinstance(value, list | dict):
        return
    if not levels:
        raise UnrecordableError(f"{what} is nested too deeply to be recorded: more than {_DEEPEST} levels")
    if isinstance(value, dict):
        tags = [key for key in value if key.startswith("$")]
        if tags and (len(value) > 1 or tags[0] not in _READERS or tags[0] == _ERASED):
            raise UnrecordableError(f"{what} has the key {tags[0]}, which is no tag of a recorded value", tag=tags[0])
    for item in value.values() if isinstance(value, dict) else value:
        _check_tags(item, what, levels - 1)


# --- classes by name ---------------------------------------------------------------------------------------------


def _is_pydantic(kind: type) -> bool:
    # Never imported here: a value of that class can only exist where the program has imported pydantic itself.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def _main_name() -> str:
    """The name under which another program would import the running script; `__main__` where there is none."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    path = getattr(main, "__file__", None)
    return Path(path).stem if path else "__main__"


def _name_of(value: Any) -> str:
    kind = type(value)
    module = _main_name() if kind.__module__ == "__main__" else kind.__module__
    name = f"{module}:{kind.__qualname__}"
    # A class inside a function is another one at each call: nobody could find it again.
    if "<locals>" in kind.__qualname__:
        raise UnrecordableError(f"{name} is defined inside a function: define it at the top of its module", type=name)
    return name


def _type_named(name: str) -> Any:
    module_name, _, qualname = str(name).partition(":")
    module = sys.modules.get(module_name)
    if module is None and module_name == _main_name():
        module = sys.modules.get("__main__")
    kind: Any = module
    for part in qualname.split("."):
        kind = getattr(kind, part, None)
    if not isinstance(kind, type):
        raise UnrecordableError(
            f"the class {name} of a recorded value is not loaded: import {module_name} before the flow is run",
            type=name,
        )
    return kind
