"""Differences between two values, and proposals in parts that can be authorised one by one; pure.

Rules:
- Objects are compared key by key, all the way down; lists as a whole.
- A part of a proposal is a value that is no object, or an empty one; what is authorised is put together from the parts
  that were chosen, so nothing gets in that was not on the page.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdproof.errors import InvalidInputError
from holdproof.model.visible_text import visible, visible_json

ABSENT: Final = object()
WHOLE: Final = "the whole proposal"
_DEEPEST: Final = 20
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """How one place differs: `added`, `removed`, `changed` or `same`."""

    path: str
    kind: str
    old: Any
    new: Any


def compare(old: Any, new: Any) -> list[FieldChange]:
    """What differs between two values, place by place, in the order of the newer."""
    was = dict(_leaves(old))
    now = dict(_leaves(new))
    _drop_empty(was, now)
    _drop_empty(now, was)
    places = [*now, *(path for path in was if path not in now)]
    return [_change(path, was.get(path, ABSENT), now.get(path, ABSENT)) for path in places]


def _drop_empty(one: dict[Path, Any], other: Mapping[Path, Any]) -> None:
    """Take out the empty objects that the other side has filled: what is in them is the difference."""
    filled = {path[:length] for path in other for length in range(len(path))}
    for path in [path for path, value in one.items() if path in filled and isinstance(value, Mapping) and not value]:
        del one[path]


def leaves(value: Any) -> list[tuple[str, Any]]:
    """The places of a value with what stands there, as people read them."""
    return [(named(path), item) for path, item in _leaves(value)]


def _change(path: Path, old: Any, new: Any) -> FieldChange:
    if old is ABSENT:
        return FieldChange(named(path), "added", None, new)
    if new is ABSENT:
        return FieldChange(named(path), "removed", old, None)
    return FieldChange(named(path), "same" if equal(old, new) else "changed", old, new)


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: True is not 1."""
    # The texts are compared too, because 1 == True and 1 == 1.0 hold deep inside equal containers.
    return type(one) is type(other) and bool(one == other) and _text(one) == _text(other)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def named(path: Path) -> str:
    """A place as people read it."""
    return ".".join(path) if path else WHOLE


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    # Deeper than this a page is unreadable, and recursion would be at the mercy of the proposal.
    if isinstance(value, Mapping) and value and len(path) < _DEEPEST:
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    else:
        yield path, value


# --- proposals ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProposalPart:
    """One part of a proposal beside what is there now; `source` says where that was found."""

    number: int
    path: Path
    proposed: Any
    current: Any
    source: str

    @property
    def name(self) -> str:
        """Its place as people read it."""
        return named(self.path)

    @property
    def kind(self) -> str:
        """`added` where nothing is there yet, `same` or `changed` where something is."""
        if not self.source:
            return "added"
        return "same" if equal(self.current, self.proposed) else "changed"

    @property
    def text(self) -> str:
        """The proposed value as it is edited."""
        return written(self.proposed)

    @property
    def input(self) -> str:
        """How it is edited: as a `number`, a `switch`, a `line`, a `text` of several lines, or as `json`."""
        match self.proposed:
            case bool():
                return "switch"
            case int() | float():
                return "number"
            case str():
                return "text" if len(self.text) > 60 or "\n" in self.text else "line"
        return "json"

    def edited(self, text: str) -> Any:
        """What somebody made of it: of the type that was proposed, or InvalidInputError."""
        # Browsers send line breaks of a form as CR LF, whatever the value had.
        typed = text.replace("\r\n", "\n")
        # An untouched field gives back the proposed value itself: a round trip through text could change its type.
        if typed == self.text.replace("\r\n", "\n"):
            return self.proposed
        if isinstance(self.proposed, str):
            return typed
        try:
            value = json.loads(typed, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"{self.name}: {typed[:60]!r} is no {self._wanted}", part=self.name) from error
        # The agent's code expects what it proposed: a number that became a list would fail there, after the answer.
        if _type(value) != _type(self.proposed) and self.proposed is not None:
            raise InvalidInputError(f"{self.name}: {typed[:60]!r} is no {self._wanted}", part=self.name)
        return value

    @property
    def _wanted(self) -> str:
        examples = {"number": "number, such as 1200.5", "switch": "true or false"}
        return examples.get(self.input, "JSON value of the type that was proposed")


def _type(value: Any) -> str:
    match value:
        case bool():
            return "switch"
        case int() | float():
            return "number"
    return type(value).__name__


def written(value: Any) -> str:
    """A value as it is edited: texts as they can be seen, all else as JSON."""
    return visible(value) if isinstance(value, str) else visible_json(json.dumps(value, ensure_ascii=False))


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def parts(proposal: Any, sources: Sequence[tuple[str, Any]]) -> list[ProposalPart]:
    """A proposal in parts; `sources` are what is there now, by name, the first that has a place is shown."""
    return [_part(number, path, value, sources) for number, (path, value) in enumerate(_leaves(proposal))]


def _part(number: int, path: Path, value: Any, sources: Sequence[tuple[str, Any]]) -> ProposalPart:
    for source, document in sources:
        current = _at(document, path)
        if current is not ABSENT and path:
            return ProposalPart(number, path, value, current, source)
    return ProposalPart(number, path, value, None, "")


def find(value: Any, path: Path) -> tuple[bool, Any]:
    """Whether a value has a place, and what is there."""
    current = _at(value, path)
    return (False, None) if current is ABSENT else (True, current)


def _at(value: Any, path: Path) -> Any:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return ABSENT
        value = value[key]
    return value


def assembled(chosen: Sequence[tuple[ProposalPart, Any]]) -> Any:
    """The proposal that the chosen parts make, with these values."""
    # A proposal that is no object has one part with an empty path: the value itself.
    if len(chosen) == 1 and not chosen[0][0].path:
        return chosen[0][1]
    proposal: dict[str, Any] = {}
    for part, value in chosen:
        place = proposal
        for key in part.path[:-1]:
            place = place.setdefault(key, {})
        place[part.path[-1]] = value
    return proposal
