"""A skill file, divided into headlines, code blocks and the text between; pure.

Rules:
- The blocks are the file: put together they are its bytes, whatever these are. So nothing lies outside the hashes, be
  it a space, a carriage return or what follows the end.
- A block's hash is that of an RFC 6962 leaf over its bytes, the file's root the RFC 6962 root over its blocks in their
  order: another byte, another order or another block is another root.
- How a file is divided only decides what is named when it has changed, never whether that is noticed.
- Rules have a version and never change; an approval keeps the ones it was made with.
- Only lines count: it takes time in proportion to the file, and no parser of anybody's language.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from holdproof.crypto import merkle
from holdproof.errors import InvalidInputError
from holdproof.model.skills import Block, Fingerprint

MOST_TOLD: Final = 20
_MOST_TITLE: Final = 80

Lines = Sequence[bytes]


class Mark(NamedTuple):
    """Where a block begins."""

    at: int
    kind: str
    title: bytes = b""


_LINE: Final = re.compile(rb"[^\n]*\n|[^\n]+")

# --- rules -------------------------------------------------------------------------------------------------------

_ORG_HEADLINE: Final = re.compile(rb"\*+[ \t]+(.*)")
_ORG_BEGIN: Final = re.compile(rb"[ \t]*#\+begin_(src|example|export)\b[ \t]*(.*)", re.IGNORECASE)
_ORG_END: Final = re.compile(rb"[ \t]*#\+end_([a-z]+)[ \t\r]*$", re.IGNORECASE)


def _org(lines: Lines) -> Iterator[Mark]:
    """Divide Org: a headline is a line; a code block goes to its end, or to the next headline, as Org has it."""
    inside = b""
    fresh = True
    for at, line in enumerate(lines):
        if headline := _ORG_HEADLINE.match(line):
            yield Mark(at, "headline", headline[1])
            inside = b""
            fresh = True
        elif inside:
            end = _ORG_END.match(line)
            if end is not None and end[1].lower() == inside:
                inside = b""
                fresh = True
        elif begin := _ORG_BEGIN.match(line):
            yield Mark(at, "code", begin[2])
            inside = begin[1].lower()
            fresh = False
        elif fresh:
            yield Mark(at, "text")
            fresh = False


_FENCE: Final = re.compile(rb"[ \t]*(?:(`{3,})([^`\n]*)|(~{3,})([^\n]*))\n?$")
_ATX: Final = re.compile(rb" {0,3}#{1,6}(?:[ \t]+(.*))?[\r\n]*$")
_SETEXT: Final = re.compile(rb" {0,3}(?:=+|-+)[ \t\r]*\n?$")
_DASHES: Final = re.compile(rb"---[ \t\r]*\n?$")


def _markdown(lines: Lines) -> Iterator[Mark]:
    """Divide Markdown; a fence is closed by its own kind and length at least, so it may stand inside a longer one."""
    marks: list[Mark] = []
    fence = b""
    fresh = True
    start = _front_matter(lines)
    if start:
        marks.append(Mark(0, "text", b"front matter"))
    for at, line in enumerate(lines[start:], start):
        if fence:
            stripped = line.strip()
            if len(stripped) >= len(fence) and not stripped.strip(fence[:1]):
                fence = b""
                fresh = True
        elif opened := _FENCE.match(line):
            fence = opened[1] or opened[3]
            fresh = False
            marks.append(Mark(at, "code", opened[2] or opened[4] or b""))
        elif headline := _ATX.match(line):
            marks.append(Mark(at, "headline", headline[1] or b""))
            fresh = True
        # An underline makes a headline of the line before it, which was marked as text already.
        elif not fresh and _SETEXT.match(line) and lines[at - 1].strip():
            if marks[-1].at == at - 1:
                marks.pop()
            marks.append(Mark(at - 1, "headline", lines[at - 1]))
            fresh = True
        elif fresh:
            marks.append(Mark(at, "text"))
            fresh = False
    return iter(marks)


def _front_matter(lines: Lines) -> int:
    """Return how many lines of metadata a file begins with."""
    if not lines or not _DASHES.match(lines[0]):
        return 0
    return next((at + 1 for at in range(1, len(lines)) if _DASHES.match(lines[at])), 0)


_DEFINED: Final = re.compile(rb"(?:async[ \t]+)?(?:def|class)[ \t]+([^\s(:\[]+)")
_INNER: Final = b" \t\r\n\f#)]}\"'"


def _python(lines: Lines) -> Iterator[Mark]:
    """Divide Python: functions and classes of the module with their decorators, and what stands between."""
    marks: list[Mark] = []
    decorated = defined = False
    for at, line in enumerate(lines):
        if definition := _DEFINED.match(line):
            if decorated:
                marks[-1] = marks[-1]._replace(title=definition[1])
            else:
                marks.append(Mark(at, "code", definition[1]))
            decorated = False
            defined = True
        elif line.startswith(b"@"):
            if not decorated:
                marks.append(Mark(at, "code", b"module"))
            decorated = True
        elif not marks or (defined and line[:1] not in _INNER):
            marks.append(Mark(at, "code", b"module"))
            defined = False
    return iter(marks)


def _whole(lines: Lines) -> Iterator[Mark]:
    """Leave any other file whole, as one block."""
    return iter([Mark(0, "text")] if lines else [])


_RULES: Final[Mapping[str, Callable[[Lines], Iterator[Mark]]]] = {
    "org/1": _org,
    "markdown/1": _markdown,
    "python/1": _python,
    "whole/1": _whole,
}
_SUFFIXES: Final = {".org": "org/1", ".md": "markdown/1", ".markdown": "markdown/1", ".py": "python/1"}


def rules_of(path: str) -> str:
    """Return the rules for a file, by its name."""
    return _SUFFIXES.get(PurePath(path).suffix.lower(), "whole/1")


# --- blocks ------------------------------------------------------------------------------------------------------


def parts(data: bytes, rules: str) -> Iterator[tuple[Mark, bytes]]:
    """Yield every block with its bytes, in their order."""
    if rules not in _RULES:
        raise InvalidInputError(f"this version does not know the rules {rules!r}", rules=rules)
    lines = _LINE.findall(data)
    marks = list(_RULES[rules](lines))
    ends = [mark.at for mark in marks[1:]] + [len(lines)][: len(marks)]
    for mark, end in zip(marks, ends, strict=True):
        yield mark, b"".join(lines[mark.at : end])


def divide(data: bytes, rules: str) -> Fingerprint:
    """Return what a file is by its blocks."""
    blocks = tuple(
        Block(mark.kind, _title(mark.title), mark.at + 1, len(part), merkle.leaf_hash(part).hex())
        for mark, part in parts(data, rules)
    )
    return Fingerprint(rules, root_of([block.hash for block in blocks]), len(data), blocks)


def root_of(hashes: Sequence[str]) -> str:
    """Return the root over the hashes of blocks."""
    return merkle.root([bytes.fromhex(each) for each in hashes]).hex()


def _title(title: bytes) -> str:
    """Return a title that can be shown and kept whatever the file holds."""
    text = title.strip().decode(errors="replace")[:_MOST_TITLE]
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


# --- what has changed --------------------------------------------------------------------------------------------


def compare(approved: Sequence[Block], current: Sequence[Block]) -> tuple[str, ...]:
    """Return what is not as it was approved, block by block, a line each; the first few."""
    start = 0
    while start < min(len(approved), len(current)) and approved[start].hash == current[start].hash:
        start += 1
    end = 0
    while end < min(len(approved), len(current)) - start and approved[-1 - end].hash == current[-1 - end].hash:
        end += 1
    old = approved[start : len(approved) - end]
    new = current[start : len(current) - end]
    lines = list(_tell(old, new))
    more = [f"and {len(lines) - MOST_TOLD} more"] if len(lines) > MOST_TOLD else []
    return tuple(lines[:MOST_TOLD] + more)


def _tell(old: Sequence[Block], new: Sequence[Block]) -> Iterator[str]:
    """Between what is the same before and after: changed in place, gone, added, or only moved."""
    was = {block.hash for block in old}
    now = {block.hash for block in new}
    # By hash, so that a block that only moved is neither removed nor added.
    removed = [block for block in old if block.hash not in now]
    added = [block for block in new if block.hash not in was]
    for before, after in zip(removed, added, strict=False):
        place = f", now at line {after.line}" if after.line != before.line else ""
        yield f"{_named(before)} was changed{place}"
    for block in removed[len(added) :]:
        yield f"{_named(block)} is gone"
    for block in added[len(removed) :]:
        yield f"{_named(block)} was added"
    if not removed and not added:
        for before, after in zip(old, new, strict=False):
            if before.hash != after.hash:
                yield f"{_named(before)} was moved"
        if len(old) != len(new):
            yield f"{_named((*new, *old)[0])} is there {'more' if len(new) > len(old) else 'less'} often"


_WORDS: Final = {"headline": "the headline", "code": "the code block", "text": "the text"}


def _named(block: Block) -> str:
    title = f" {block.title!r}" if block.title else ""
    return f"{_WORDS.get(block.kind, block.kind)}{title} at line {block.line}"
