"""An oracle: told what was asked of a store and what was acknowledged, it says what must be there afterwards.

Rules:
- A fact is what an operation makes true: a probe, a key, and what the probe then answers.
- What was acknowledged is there, until an operation that came later and was begun may have changed it.
- An operation that raised, or was cut off, is there as a whole or not at all: all its facts hold, or none. One that
  takes several transactions says which states in between a store may be left in (`between`).
- Nothing else is possible: an answer that no operation could have led to is partial, one from before is lost.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from holdproof import sync
from proof.store_probes import PROBES

Key = tuple[str, str]
ABSENT: Final = None


@dataclass(frozen=True, slots=True)
class Fact:
    """What a probe answers about a key once an operation is done; `between` are answers half way that are legal."""

    probe: str
    key: str
    value: Any
    between: tuple[Any, ...] = ()

    @property
    def about(self) -> Key:
        """What it speaks of."""
        return self.probe, self.key


@dataclass(slots=True)
class _Attempt:
    """An operation that was begun and never acknowledged."""

    name: str
    facts: tuple[Fact, ...]
    number: int
    telling: tuple[Fact, ...] = ()
    """Those of its facts that could not have held before it."""


@dataclass(slots=True)
class _Known:
    """What may be answered about one key: what was acknowledged last, and what may have come since."""

    must: Any = ABSENT
    since: list[Any] = field(default_factory=list)
    before: list[Any] = field(default_factory=list)
    by: str = ""
    touched: int = 0
    """The number of the last operation that was begun about it."""

    def allows(self, value: Any) -> bool:
        return value == self.must or value in self.since


@dataclass(frozen=True, slots=True)
class Found:
    """What an oracle found: how much it asked, and one line for each thing lost or half there."""

    asked: int
    lost: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether everything is as it must be."""
        return not self.lost and not self.partial


class Oracle:
    """What was begun and acknowledged, in the order in which it was."""

    def __init__(self) -> None:
        self._known: dict[Key, _Known] = {}
        self._open: dict[str, _Attempt] = {}
        self._failed: list[_Attempt] = []
        self._count = self.acknowledged = 0

    def hear(self, line: Mapping[str, Any]) -> None:
        """One line of what a scenario says: `begun`, `done` or `failed`, and the facts."""
        facts = tuple(Fact(each["probe"], each["key"], each["value"], tuple(each["between"])) for each in line["facts"])
        if "begun" in line:
            self.begun(line["begun"], facts)
        elif "done" in line:
            self.done(line["done"], facts)
        else:
            self.failed(line["failed"])

    def begun(self, name: str, facts: Iterable[Fact]) -> None:
        """An operation is asked for: from now on its facts may hold."""
        self._count += 1
        attempt = self._open[name] = _Attempt(name, tuple(facts), self._count)
        every = [(fact, self._known.setdefault(fact.about, _Known())) for fact in attempt.facts]
        attempt.telling = tuple(fact for fact, known in every if not known.allows(fact.value))
        for fact, known in every:
            known.since += [fact.value, *fact.between]
            known.touched = self._count

    def done(self, name: str, learned: Iterable[Fact] = ()) -> None:
        """It was acknowledged: its facts hold, and those that only its answer told."""
        attempt = self._open.pop(name)
        self.acknowledged += 1
        for fact in (*attempt.facts, *learned):
            known = self._known.setdefault(fact.about, _Known())
            known.before += [known.must, *known.since]
            known.must, known.since, known.by = fact.value, [], name

    def failed(self, name: str) -> None:
        """It raised: nobody knows whether it is there."""
        self._failed.append(self._open.pop(name))

    def cut(self) -> None:
        """Whoever worked is gone: what was begun is left as it is."""
        for name in list(self._open):
            self.failed(name)

    def check(self, store: sync.Holdproof) -> Found:
        """Ask an open store about everything it was ever told."""
        answers = {about: plain(PROBES[about[0]](store, about[1])) for about in self._known}
        lost, partial = list[str](), list[str]()
        for about, known in self._known.items():
            if known.allows(answers[about]):
                continue
            line = f"{' '.join(about)}: {_short(answers[about])}, not {_short(known.must)} ({known.by or 'never done'})"
            (lost if answers[about] in [ABSENT, *known.before] else partial).append(line)
        partial += [line for attempt in self._failed if (line := self._half(attempt, answers))]
        return Found(len(answers), tuple(lost), tuple(partial))

    def _half(self, attempt: _Attempt, answers: Mapping[Key, Any]) -> str:
        """What is wrong with an operation that failed: some of it there and some not."""
        facts = [fact for fact in attempt.telling if self._known[fact.about].touched == attempt.number]
        if any(fact.between for fact in facts):
            return ""
        held = [answers[fact.about] == fact.value for fact in facts]
        return f"{attempt.name}: {sum(held)} of {len(held)} parts" if any(held) and not all(held) else ""


def plain(value: Any) -> Any:
    """A value as JSON has it, so that what was told over a pipe compares with what a store answers."""
    return json.loads(json.dumps(value))


def told(kind: str, name: str, facts: Iterable[Fact] = ()) -> dict[str, Any]:
    """A line for `hear`."""
    return {kind: name, "facts": [asdict(fact) for fact in facts]}


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 120 else f"{text[:117]}..."
