"""Objects of a Lisp memory, read from its two text formats and written back in one.

Rules:
- An image is `(in-package :org-agent)`, then `(setf (gethash HASH *history-store*) #S(ORG-OBJECT …))` for each version,
  and `(setf (gethash ID *memory*) (gethash HASH *history-store*))` for each current one. Every other form is refused,
  and nothing is evaluated.
- An archive is one list of property lists, one for each object.
- A slot is known by its name, stands once, and has the type it must have; what is missing is NIL.
- The foreign hash is carried as it was given (`foreign.py` says what can be known of it).
- Writing loses nothing: a vector, for which the format has no key, is written as `:VECTOR` where there is one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from holdproof.errors import InvalidInputError, LispError
from holdproof.importers.lisp import reader, writer
from holdproof.importers.lisp.reader import MOST_BYTES
from holdproof.model.lisp import KEYWORD, ForeignMemory, ForeignObject, Lisp, Struct, Symbol
from holdproof.model.times import to_micros, to_text

_PACKAGE: Final = "ORG-AGENT"
_SLOTS: Final = {
    "ID": "id",
    "TYPE": "type",
    "ATTRIBUTES": "attributes",
    "CONTENT": "content",
    "VECTOR": "vector",
    "PARENT-ID": "parent",
    "CHILDREN": "children",
    "VERSION": "version",
    "LAST-SYNC": "last_sync",
    "HASH": "hash",
}


def read(text: str | bytes, *, most: int = MOST_BYTES) -> ForeignMemory:
    """A memory from either format; LispError names line and column of what is refused."""
    source = reader.decoded(text, most=most)
    inner: list[int] = []
    forms = reader.read(source, most=most, inner=inner)
    first = next(forms, None)
    if first is None:
        raise LispError("line 1, column 1: the text holds nothing", line=1, column=1)
    if _is_call(first[1], "IN-PACKAGE") or _is_call(first[1], "SETF"):
        return _image(source, [first, *forms])
    entries = tuple(inner)
    for start, _ in forms:
        reader.refuse(source, start, "an archive is one list, and nothing after it")
    return _archive(source, *first, entries)


def write(objects: Iterable[ForeignObject]) -> str:
    """The archive of these objects: one line for each, and what the memory it came from would read."""
    lines: dict[str, str] = {}
    for each in objects:
        if each.id in lines:
            raise InvalidInputError("an archive holds one version of an object; choose which", id=each.id)
        lines[each.id] = writer.write(_plist(each))
    return "(" + "\n ".join(lines.values()) + ")\n" if lines else "NIL\n"


def current(memory: ForeignMemory) -> tuple[ForeignObject, ...]:
    """The current version of every object that has one: what an archive holds."""
    return tuple(each for each in memory.objects if each.id in memory.current and memory.current[each.id] == each.hash)


def _plist(each: ForeignObject) -> Lisp:
    attributes: Lisp = tuple(part for pair in each.attributes for part in pair) or None
    values: dict[str, Lisp] = {
        "ID": each.id,
        "TYPE": each.type,
        "ATTRIBUTES": attributes,
        "CONTENT": each.content,
        "PARENT-ID": each.parent,
        "CHILDREN": each.children or None,
        "VERSION": each.version,
        "LAST-SYNC": each.last_sync,
        "HASH": each.hash,
    }
    if each.vector is not None:
        values["VECTOR"] = each.vector
    return tuple(part for name, value in values.items() for part in (Symbol(name, KEYWORD), value))


# --- the two formats ---------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """Where something stands, to say what is wrong with it there."""

    source: str
    start: int

    def refuse(self, why: str) -> NoReturn:
        """Raise the error that names the place."""
        reader.refuse(self.source, self.start, why)


def _archive(source: str, start: int, form: Lisp, entries: tuple[int, ...]) -> ForeignMemory:
    if form is not None and not isinstance(form, tuple):
        _Place(source, start).refuse("neither an image nor an archive")
    current: dict[str, str | None] = {}
    objects = []
    for at, entry in enumerate(form or (), 1):
        # As long as all entries are lists, each has a bracket of its own, in the same order.
        place = _Place(source, entries[at - 1] if isinstance(entry, tuple) else start)
        if not isinstance(entry, tuple):
            place.refuse(f"entry {at} of the archive is no property list")
        foreign = _object(place, f"entry {at} of the archive", _pairs(place, f"entry {at} of the archive", entry))
        if foreign.id in current:
            place.refuse(f"entry {at} of the archive: the object {foreign.id!r} is there twice")
        current[foreign.id] = foreign.hash
        objects.append(foreign)
    return ForeignMemory(tuple(objects), current)


def _image(source: str, forms: list[tuple[int, Lisp]]) -> ForeignMemory:
    # An image files every version by its hash, and points from each id to its current one.
    history: dict[str, ForeignObject] = {}
    pointers: dict[str, tuple[str, _Place]] = {}
    for at, (start, form) in enumerate(forms):
        place = _Place(source, start)
        match form:
            case (Symbol("IN-PACKAGE"), Symbol(name)) if at == 0 and name == _PACKAGE and _plain(form[0]):
                continue
            case (Symbol("SETF"), target, Struct() as struct) if _plain(form[0]):
                _remember(place, _key(place, target, "*HISTORY-STORE*"), struct, history)
            case (Symbol("SETF"), target, (Symbol("GETHASH"), *_) as source_form) if _plain(form[0]):
                id = _key(place, target, "*MEMORY*")
                if id in pointers:
                    place.refuse(f"the object {id!r} is made current twice")
                pointers[id] = _key(place, source_form, "*HISTORY-STORE*"), place
            case _:
                place.refuse("a form that no image has; nothing was evaluated")
    for id, (hash, place) in pointers.items():
        # A pointer to nothing, or to another object: the file was edited by hand or is damaged.
        if hash not in history or history[hash].id != id:
            place.refuse(f"the current version of {id!r} is not in the image")
    return ForeignMemory(tuple(history.values()), {id: hash for id, (hash, _) in pointers.items()})


def _remember(place: _Place, hash: str, struct: Struct, history: dict[str, ForeignObject]) -> None:
    if struct.name.name != "ORG-OBJECT" or struct.name.package not in (None, _PACKAGE):
        place.refuse(f"a structure {struct.name.name[:40]}, where only ORG-OBJECT may be")
    foreign = _object(place, "the object", struct.slots)
    if hash in history:
        place.refuse(f"the hash {hash[:80]!r} is there twice")
    if foreign.hash != hash:
        place.refuse(f"the object {foreign.id!r} is filed under another hash than its own")
    history[hash] = foreign


def _key(place: _Place, form: Lisp, table: str) -> str:
    """The key of `(gethash KEY TABLE)`."""
    if not _is_call(form, "GETHASH") or not isinstance(form, tuple) or len(form) != 3 or not isinstance(form[1], str):
        place.refuse(f"a place in {table} was expected; nothing was evaluated")
    if not isinstance(form[2], Symbol) or form[2].name != table or not _plain(form[2]):
        place.refuse(f"a place in {table} was expected; nothing was evaluated")
    return form[1]


def _plain(symbol: Lisp) -> bool:
    """Whether a symbol stands without package, or in the one that an image is in."""
    return isinstance(symbol, Symbol) and symbol.package in (None, _PACKAGE)


def _is_call(form: Lisp, name: str) -> bool:
    return isinstance(form, tuple) and isinstance(form[0], Symbol) and form[0].name == name and _plain(form[0])


# --- slots -------------------------------------------------------------------------------------------------------

Pairs = tuple[tuple[Symbol, Lisp], ...]


def _pairs(place: _Place, what: str, items: Lisp) -> Pairs:
    """A property list as pairs."""
    if items is None:
        return ()
    if not isinstance(items, tuple) or len(items) % 2 or not all(isinstance(key, Symbol) for key in items[::2]):
        place.refuse(f"{what} is no property list")
    return tuple(zip(items[::2], items[1::2], strict=True))  # type: ignore[arg-type]


def _object(place: _Place, what: str, pairs: Pairs) -> ForeignObject:
    values: dict[str, Any] = {}
    for key, value in pairs:
        name = _SLOTS.get(key.name) if key.package == KEYWORD else None
        if name is None:
            place.refuse(f"{what}: no object has a slot {key.name[:40]}")
        if name in values:
            place.refuse(f"{what}: the slot {key.name} is there twice")
        values[name] = value
    if not isinstance(values.get("id"), str):
        place.refuse(f"{what} has no id")
    what = f"the object {values['id'][:80]!r}"
    values["attributes"] = _pairs(place, f"{what}: ATTRIBUTES", values.get("attributes"))
    values["children"] = values.get("children") or ()
    for name, allowed in _ALLOWED.items():
        if not allowed(values.get(name)):
            place.refuse(f"{what}: its slot {name} is of another type")
    return ForeignObject(**values)


def _is_text(value: Lisp) -> bool:
    return value is None or isinstance(value, str)


def _is_integer(value: Lisp) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


_ALLOWED: Final[Mapping[str, Callable[[Any], bool]]] = {
    "parent": _is_text,
    "hash": _is_text,
    "version": _is_integer,
    "last_sync": _is_integer,
    "children": lambda value: isinstance(value, tuple) and all(isinstance(each, str) for each in value),
}

# --- times -------------------------------------------------------------------------------------------------------

_UNIX_EPOCH: Final = 2_208_988_800
"""1970 in Lisp universal time, which counts seconds since 1900."""


def to_utc(universal: int) -> str:
    """A moment of Lisp universal time, as times are stored here."""
    try:
        return to_text((universal - _UNIX_EPOCH) * 1_000_000)
    except OverflowError as error:
        raise InvalidInputError("no calendar holds this universal time", value=str(universal)[:40]) from error


def to_universal(text: str) -> int:
    """Lisp universal time of a moment; parts of a second are dropped, as Lisp has none."""
    try:
        return to_micros(text) // 1_000_000 + _UNIX_EPOCH
    except ValueError as error:
        raise InvalidInputError(f"no time: {error}", value=text[:40]) from error
