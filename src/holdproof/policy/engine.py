"""The Cedar engine: policies compiled once, requests decided by them; pure.

Rules:
- Whatever is not clearly allowed is denied: no matching `permit`, a matching `forbid`, an error of the engine, inputs
  that it cannot read, or a `forbid` that could not be evaluated (Cedar itself would pass over that one).
- `@advice("ask")` on a statement that decides makes it *ask*. Of a `forbid` it lifts that statement only: what another
  one forbids, or nothing permits, stays denied.
- Statements are named by policy and `@id`, or by their place: `payments/limit`, `payments/2`. The engine knows them by
  plain names of our own (`s0`, `s1` …): it would print any other name escaped, which then means no statement.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from holdproof.errors import MissingExtraError, PolicySyntaxError
from holdproof.model.policies import ALLOW, ASK, DENY
from holdproof.policy.requests import PolicyRequest

LARGEST_TEXT: Final = 65_536
"""How long the text of a policy is at most, in characters."""
_ADVICE: Final = "advice"
_CUT_SHORT: Final = "unexpected end of input"
_NAMED: Final = re.compile(r"policy `(s[0-9]+)`: (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Ruling:
    """What policies decide about a request, and why: the statements that did, and what could not be evaluated."""

    decision: str
    statements: tuple[str, ...]
    problems: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """All of it, as people read it."""
        return (*self.statements, *self.problems)

    def without_values(self) -> "Ruling":
        """Return the ruling without messages of the engine, which may quote inputs."""
        return Ruling(self.decision, self.statements, tuple(each.partition(": ")[0] for each in self.problems))


def denied(problem: str) -> Ruling:
    """Return the ruling where policies could not be asked."""
    return Ruling(DENY, (), (problem,))


@lru_cache(maxsize=1)
def cedar() -> ModuleType:
    """Return the engine; MissingExtraError where it is not installed."""
    try:
        import cedarpy  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("policies need cedarpy: pip install 'holdproof[policies]'", extra="policies") from error
    return cedarpy


class CompiledPolicies:
    """A set of policies, ready to decide."""

    def __init__(self, policies: Iterable[tuple[str, str]]) -> None:
        """Compile policies, each a name and its text; PolicySyntaxError for one that is not Cedar."""
        statements: dict[str, Any] = {}
        for name, text in policies:
            statements |= _statements(name, text)
        self._names = {f"s{at}": name for at, name in enumerate(statements)}
        numbered = {key: statements[name] for key, name in self._names.items()}
        self._permits = {key for key, each in numbered.items() if each["effect"] == "permit"}
        self._asks = {key for key, each in numbered.items() if each.get("annotations", {}).get(_ADVICE) == ASK}
        lifted = self._asks - self._permits
        self._whole = _policy_set(numbered)
        self._unlifted = _policy_set({key: each for key, each in numbered.items() if key not in lifted})

    def decide(self, request: PolicyRequest) -> Ruling:
        """Decide about a request; never raises: what goes wrong denies."""
        try:
            return self._decide(request)
        except Exception as error:
            return denied(f"the policy engine failed: {type(error).__name__}: {error}")

    def _decide(self, request: PolicyRequest) -> Ruling:
        engine = cedar()
        question = request.cedar()
        entities = request.entities()
        answer = engine.is_authorized(question, self._whole, entities)
        problems, unevaluated = self._problems(answer.diagnostics.errors)
        decisive = {*answer.diagnostics.reasons}
        # A name that is not ours fails here, and what fails denies.
        reasons = tuple(sorted(self._names[key] for key in decisive))
        if answer.decision is engine.Decision.NoDecision or unevaluated:
            return Ruling(DENY, reasons, problems)
        if answer.allowed:
            return Ruling(ASK if self._asks & decisive else ALLOW, reasons, problems)
        if not reasons:
            return Ruling(DENY, (), ("no policy permits it", *problems))
        if not self._asks.issuperset(decisive):
            return Ruling(DENY, reasons, problems)
        # All that forbids it asks first: without these, would it be permitted?
        if engine.is_authorized(question, self._unlifted, entities).allowed:
            return Ruling(ASK, reasons, problems)
        return Ruling(DENY, reasons, ("no policy permits it", *problems))

    def _problems(self, errors: Iterable[str]) -> tuple[tuple[str, ...], bool]:
        """Return errors as people read them, and whether one keeps a `forbid`, or all, from being evaluated."""
        problems: list[str] = []
        unevaluated = False
        for error in errors:
            match = _NAMED.search(error)
            key, message = ("", error) if match is None else match.groups()
            if key in self._names:
                problems.append(f"{self._names[key]} could not be evaluated: {message}")
            else:
                problems.append(f"the policy engine failed: {error}")
            # A permit that fails permits nothing; everything else might have forbidden it.
            unevaluated = unevaluated or key not in self._permits
        return tuple(problems), unevaluated


def _policy_set(statements: Mapping[str, Any]) -> Any:
    document = {"staticPolicies": statements, "templates": {}, "templateLinks": []}
    return cedar().PolicySet.from_json_str(json.dumps(document))


def _statements(policy: str, text: str) -> dict[str, Any]:
    """Return the statements of a text by name, in the engine's JSON; PolicySyntaxError where it is not Cedar."""
    try:
        document = json.loads(cedar().policies_to_json_str(text))
    except ValueError as error:
        line = _line_of(text)
        raise PolicySyntaxError(f"line {line}: {error}", line=line, reason=str(error)) from error
    if document["templates"]:
        raise PolicySyntaxError(
            "a policy has no ?principal or ?resource: name them", line=_line_with(text, "?"), reason="template"
        )
    # The engine names them policy0, policy1 … in the order of the text.
    listed = sorted(document["staticPolicies"].items(), key=lambda item: int(item[0].removeprefix("policy")))
    statements: dict[str, Any] = {}
    for place, (_, statement) in enumerate(listed, 1):
        label = f"{policy}/{statement.get('annotations', {}).get('id') or place}"
        if label in statements:
            raise PolicySyntaxError(f"two statements are called {label}", line=_line_of(text), reason="duplicate @id")
        statements[label] = statement
    return statements


def check(text: str) -> None:
    """Refuse a text that is not Cedar, or says nothing; PolicySyntaxError names the line."""
    if len(text) > LARGEST_TEXT:
        raise PolicySyntaxError(f"a policy is a text of at most {LARGEST_TEXT} characters", line=1, reason="too long")
    statements = _statements("policy", text)
    if not statements:
        raise PolicySyntaxError("a policy has at least one permit or forbid", line=1, reason="empty")
    for statement in statements.values():
        advice = statement.get("annotations", {}).get(_ADVICE)
        if advice not in (None, ASK):
            raise PolicySyntaxError(
                f'@advice is "{ASK}", not "{advice}"', line=_line_with(text, f'"{advice}"'), reason="unknown advice"
            )


def _line_with(text: str, part: str) -> int:
    return text[: max(text.find(part), 0)].count("\n") + 1


def _line_of(text: str) -> int:
    """Return the line at which a text stops being Cedar.

    The engine names no place. A text that is cut before the mistake is merely incomplete, and one that is cut behind it
    is wrong in another way: so the shortest wrong beginning ends on its line.
    """
    lines = text.splitlines(keepends=True) or [""]
    first = 1
    last = len(lines)
    while first < last:
        middle = (first + last) // 2
        if _is_wrong("".join(lines[:middle])):
            last = middle
        else:
            first = middle + 1
    return first


def _is_wrong(text: str) -> bool:
    try:
        cedar().policies_to_json_str(text)
    except ValueError as error:
        return str(error) != _CUT_SHORT
    return False
