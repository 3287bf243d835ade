"""Objects of a Lisp memory as records, and back.

Rules:
- What Lisp and records both have is itself: texts, integers, NIL, T, lists, double floats. Everything else is tagged
  bytes, `$lisp`: the text that a Lisp reads.
- Type and names of attributes are written as Lisp writes them: `:HEADLINE`, `CUSTOM::FOO`.
- `last_sync`, `vector` and `foreign_hash` are volatile fields. So is `lisp`: what a record has no place for (the order
  of a property list, a version that is no count), and the CID of the record that it and the hash are about. Once an
  object is changed here, they count no more.
- There and back is the same object, slot by slot.
- Objects that were made here are written as well; what Lisp has no type for becomes what is nearest: false is NIL, a
  map a property list, bytes a vector of integers, a link its text.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdproof.crypto.cid import CID
from holdproof.errors import HoldproofError
from holdproof.importers.lisp import floats, reader, writer
from holdproof.memory.objects import records
from holdproof.memory.objects.records import MAX_INT, ObjectRecord
from holdproof.model.lisp import KEYWORD, Float, ForeignObject, Lisp, Symbol, Vector
from holdproof.model.memory import Object, Tagged

TAG: Final = "lisp"
VOLATILE: Final = ("last_sync", "vector", "foreign_hash", TAG)
"""The volatile fields that come from Lisp."""
_DEEP: Final = 32
"""Nested lists are lists of the record down to here; deeper ones are text."""
_TWICE: Final = ""
"""The name that stands for all attributes where a property list has one of them twice."""


class StoredVersion(NamedTuple):
    """An object as it is stored here: its record, the CID of that, and its volatile fields."""

    record: ObjectRecord
    cid: CID
    meta: dict[str, Any]


def stored_version(each: ForeignObject) -> StoredVersion:
    """Convert a foreign object."""
    counts = each.version is not None and 0 <= each.version <= MAX_INT
    attributes = _attributes(each)
    record = ObjectRecord(
        each.id,
        writer.write(each.type),
        _natural(each.content),
        attributes,
        each.parent,
        each.children,
        each.version if counts and each.version is not None else 0,
    )
    cid = next(reversed(records.encode(record)))
    about: dict[str, Any] = {"of": str(cid)}
    if not counts:
        about["version"] = each.version
    names = [writer.write(name) for name, _ in each.attributes]
    if _TWICE not in attributes and names != sorted(names):
        about["order"] = names
    meta = {"last_sync": each.last_sync, "vector": _vector(each.vector), "foreign_hash": each.hash, TAG: about}
    return StoredVersion(record, cid, {name: value for name, value in meta.items() if value is not None})


def foreign(each: Object) -> ForeignObject:
    """Convert an object to the form of a Lisp memory."""
    tag = each.meta.get(TAG)
    # The tag names the record it is about: after a change here it does not apply any more.
    about = tag if isinstance(tag, Mapping) and tag.get("of") == each.cid else None
    last_sync = each.meta.get("last_sync")
    hash = each.meta.get("foreign_hash")
    return ForeignObject(
        each.id,
        type=_named(each.type),
        attributes=_pairs(each.attributes, (about or {}).get("order")),
        content=_lisp(each.content),
        parent=each.parent,
        children=each.children,
        version=about["version"] if about is not None and "version" in about else each.version,
        last_sync=last_sync if type(last_sync) is int else None,
        vector=_lisp_vector(each.meta.get("vector")),
        hash=hash if about is not None and isinstance(hash, str) else None,
    )


# --- from Lisp ---------------------------------------------------------------------------------------------------


def _natural(value: Lisp, depth: int = 0) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Float) and value.double:
        return value.value
    if isinstance(value, tuple) and depth < _DEEP:
        return [_natural(item, depth + 1) for item in value]
    return _tagged(value)


def _tagged(value: Lisp) -> Tagged:
    return Tagged(TAG, writer.write(value).encode())


def _attributes(each: ForeignObject) -> dict[str, Any]:
    attributes = {writer.write(name): _natural(value) for name, value in each.attributes}
    if len(attributes) == len(each.attributes):
        return attributes
    # A property list may name a property twice, which a map cannot: then the list is stored as one text.
    return {_TWICE: _tagged(tuple(part for pair in each.attributes for part in pair))}


def _vector(value: Lisp) -> Any:
    """A vector of floats as a list of them, if that loses nothing."""
    if value is None:
        return None
    if isinstance(value, Vector) and value.items and all(isinstance(item, Float) for item in value.items):
        numbers = [item.value for item in value.items if isinstance(item, Float)]
        if writer.write(_lisp_vector(numbers)) == writer.write(value):
            return numbers
    return _tagged(value)


# --- to Lisp -----------------------------------------------------------------------------------------------------


def _lisp(value: Any) -> Lisp:
    form: Lisp
    match value:
        case None | False:
            form = None
        case True | str() | int():
            form = value
        case float():
            form = Float(value, double=True)
        case list():
            form = tuple(_lisp(item) for item in value) or None
        case dict():
            form = tuple(part for name, item in value.items() for part in (_name(name), _lisp(item))) or None
        case Tagged(tag, data):
            form = _read(data) if tag == TAG else (Symbol(tag.upper(), KEYWORD), Vector(tuple(data)))
        case bytes():
            form = Vector(tuple(value))
        case _:
            form = str(value)
    return form


def _read(data: bytes) -> Lisp:
    [(_, form)] = reader.read(data)
    return form


def _named(text: str) -> Lisp:
    """The form that a text writes, if Lisp would write it so; else a keyword of that name."""
    try:
        forms = [form for _, form in reader.read(text)]
    except HoldproofError:
        forms = []
    match forms:
        case [form] if writer.write(form) == text:
            return form
    return Symbol(text, KEYWORD)


def _name(text: str) -> Symbol:
    form = _named(text)
    return form if isinstance(form, Symbol) else Symbol(text, KEYWORD)


def _pairs(attributes: Mapping[str, Any], order: Any) -> tuple[tuple[Symbol, Lisp], ...]:
    if attributes.keys() == {_TWICE} and isinstance(both := _lisp(attributes[_TWICE]), tuple):
        names = [name for name in both[::2] if isinstance(name, Symbol)]
        if len(names) * 2 == len(both):
            return tuple(zip(names, both[1::2], strict=True))
    names_in_order = order if isinstance(order, list) and {*order} == {*attributes} else sorted(attributes)
    return tuple((_name(name), _lisp(attributes[name])) for name in names_in_order)


def _lisp_vector(value: Any) -> Lisp:
    if isinstance(value, list) and value and all(type(item) is float for item in value):
        double = any(floats.to_single(item) != item for item in value)
        return Vector(tuple(Float(item, double) for item in value))
    return _lisp(value)
