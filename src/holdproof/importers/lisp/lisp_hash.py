"""What can be known of the hash that a Lisp memory gave its objects.

It is SHA-256 over the Latin-1 bytes of `ID:…|TYPE:…|ATTRS:…|CONTENT:…|CHILDREN:…`: the attributes as a list of pairs,
sorted by name, as the Lisp printer shows them (with its line breaks), then the hashes the children had at that moment.

Rules:
- MATCHES is said only where the bytes were found whose hash it is.
- DIFFERS is said only where there is one way to write these bytes, and it has another hash.
- Else it is UNCHECKED, with the reason: a printer may break lines elsewhere, a child may have changed since.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

from holdproof.errors import InvalidInputError
from holdproof.importers.lisp import writer
from holdproof.importers.lisp.reader import joined
from holdproof.model.lisp import Float, ForeignMemory, ForeignObject, HashCheck, HashVerdict, Lisp, Symbol

_WIDTHS: Final = (80, 79)
"""Where the printer may end a line."""

Versions = Mapping[str, Sequence[ForeignObject]]


def check(memory: ForeignMemory) -> tuple[HashCheck, ...]:
    """What is to be said of every object's hash, in the order of the objects."""
    versions: dict[str, list[ForeignObject]] = {}
    for each in memory.objects:
        versions.setdefault(each.id, []).append(each)
    return tuple(_check(each, versions) for each in memory.objects)


def _check(each: ForeignObject, versions: Versions) -> HashCheck:
    children, doubt = _children(each, versions)
    try:
        written = list(_written(each, children))
    except InvalidInputError as error:
        return HashCheck(each.id, each.hash, HashVerdict.UNCHECKED, error.message)
    if any(sha256(data).hexdigest() == each.hash for data in written):
        return HashCheck(each.id, each.hash, HashVerdict.MATCHES)
    if not doubt and (len(written) > 1 or not _is_certain(each)):
        doubt = "its attributes may have been printed otherwise"
    verdict = HashVerdict.UNCHECKED if doubt else HashVerdict.DIFFERS
    return HashCheck(each.id, each.hash, verdict, doubt or "the object has another hash")


def _written(each: ForeignObject, children: str) -> Iterator[bytes]:
    """The texts that Lisp may have hashed; raises InvalidInputError if none can be known."""
    if each.hash is None:
        raise InvalidInputError("it has none")
    if not isinstance(each.content, str | None):
        raise InvalidInputError("its content is not a text")
    start = f"ID:{each.id}|TYPE:{writer.write(each.type)}|ATTRS:"
    end = f"|CONTENT:{each.content or ''}|CHILDREN:"
    # The hash depends on the line width of the printer at the time: all usual ones are tried.
    for text in _attributes(each.attributes):
        try:
            yield f"{start}{text}{end}{children}".encode("latin-1")
        except UnicodeEncodeError as error:
            raise InvalidInputError("it has characters outside of Latin-1, which this hash does not cover") from error


def _children(each: ForeignObject, versions: Versions) -> tuple[str, str]:
    """The hashes that its children had when it was made, and why they may be others."""
    hashes = []
    doubt = ""
    for id in each.children:
        candidates = versions.get(id, ())
        # The child's version at that time is the newest that is not newer than the parent.
        then = [child for child in candidates if (child.version or 0) <= (each.version or 0)]
        if not then:
            doubt = f"its child {id!r} is not in the file as it was then"
            then = list(candidates)
        hashes.append(max(then, key=lambda child: child.version or 0).hash or "" if then else "")
    return "".join(hashes), doubt


def _attributes(pairs: tuple[tuple[Symbol, Lisp], ...]) -> Iterator[str]:
    """The attributes as a printer may write them: on one line, or wrapped at each usual width."""
    ordered = sorted(pairs, key=lambda pair: pair[0].name)
    items = [writer.write(joined((key,), value)) for key, value in ordered]
    flat = f"({' '.join(items)})" if items else "NIL"
    yield flat
    if len(flat) >= min(_WIDTHS):
        for width in _WIDTHS:
            yield _filled(items, width)


def _filled(items: list[str], width: int) -> str:
    text = "(" + items[0]
    column = len(text)
    for at, item in enumerate(items[1:], 2):
        closing = 1 if at == len(items) else 0
        if column + 1 + len(item) + closing > width:
            # The pretty printer breaks the line and indents by the width of the bracket.
            text += f"\n {item}"
            column = 1 + len(item)
        else:
            text += f" {item}"
            column += 1 + len(item)
    return text + ")"


def _is_certain(each: ForeignObject) -> bool:
    """Whether every printer writes type and attributes the same: only keywords, one-line texts and integers."""
    if not isinstance(each.type, Symbol) or each.type.package is None:
        return False
    parts = [part for pair in each.attributes for part in pair]
    while parts:
        part = parts.pop()
        if isinstance(part, tuple):
            parts += part
        elif isinstance(part, Symbol):
            if part.package is None:
                return False
        elif isinstance(part, Float) or not isinstance(part, str | int | None) or "\n" in str(part):
            return False
    return True
