"""Requests to policies: who wants to do what, on which inputs, in the terms of Cedar.

Rules:
- The principal is `Agent::"<agent_id>"` with `version`, `priority` and `contract`; the action one of `ACTIONS`; the
  resource has the type of its action, and of a flow's acts the flow type as its parent (`resource in Flow::"refund"`).
- The context is the inputs by name. Positional inputs have the name of the parameter that Python binds them to where
  the function is known here, else `arg1`, `arg2` ….
- Two inputs of one name, such as do not fit the function, and values that are not what their tag says are denied.
- Cedar has no null: what is None is absent. A number with at most four decimals is a `decimal`; any other that Cedar
  has no form for is its text, so that comparing it is an error, and an error in a `forbid` denies.
- A caller's key never means something to Cedar or to the store: one that begins with `$` or `__` gets one more `_`.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from holdproof.crypto import canonical
from holdproof.errors import InvalidInputError
from holdproof.model.policies import ACTIONS

_LARGEST: Final = 2**63 - 1
_DECIMALS: Final = 4
_ESCAPED: Final = re.compile(r"_*\$|__")
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """An act that policies decide about; all values are in Cedar's JSON."""

    agent_id: str
    action: str
    resource: str
    agent: Mapping[str, Any] = field(default_factory=dict)
    """The attributes of the principal."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The attributes of the resource."""
    context: Mapping[str, Any] = field(default_factory=dict)
    within: str | None = None
    """The type of the flow that the act belongs to."""
    keeps_inputs: bool = True
    """Whether its inputs may be recorded; else only their hash is."""
    problem: str | None = None
    """Why its inputs cannot be read, and no policy can permit it."""

    def text(self) -> str:
        """Return what is recorded of it beside its columns."""
        context = self.context if self.keeps_inputs and self.problem is None else None
        parts = {"agent": self.agent, "about": self.about, "context": context, "within": self.within}
        return canonical.dump_text(parts)

    @classmethod
    def parse(cls, agent_id: str, action: str, resource: str, parts: Mapping[str, Any]) -> "PolicyRequest":
        """Return a recorded request, given what `text` recorded."""
        return cls(agent_id, action, resource, parts["agent"], parts["about"], parts["context"], parts["within"])

    def inputs(self) -> str:
        """Return the text of the inputs, for their hash."""
        return canonical.dump_text(self.context)

    def cedar(self) -> dict[str, Any]:
        """Return the request as the engine takes it."""
        return {
            "principal": {"type": "Agent", "id": self.agent_id},
            "action": {"type": "Action", "id": self.action},
            "resource": {"type": ACTIONS[self.action], "id": self.resource},
            "context": json.dumps(self.context),
        }

    def entities(self) -> str:
        """Return the entities of the request, as the engine takes them."""
        kind = ACTIONS[self.action]
        parents = []
        if self.within is not None and kind != "Flow":
            parents = [{"type": "Flow", "id": self.within}]
        return json.dumps(
            [
                {"uid": {"type": "Agent", "id": self.agent_id}, "attrs": self.agent, "parents": []},
                {"uid": {"type": kind, "id": self.resource}, "attrs": self.about, "parents": parents},
            ]
        )


class Inputs(NamedTuple):
    """The inputs of an act as a record of Cedar; or why there is none."""

    context: Mapping[str, Any]
    problem: str | None = None


def inputs_of(read: Callable[[], Mapping[str, Any]]) -> Inputs:
    """Return the inputs that a function reads, by name, JSON or tagged JSON."""
    try:
        return Inputs(record_of(read()))
    except InvalidInputError as error:
        return Inputs({}, error.message)


def record_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of Cedar, given JSON or tagged JSON by name; InvalidInputError for what cannot be read."""
    try:
        converted = _unique((_key(name), _cedar(value)) for name, value in values.items())
    except RecursionError as error:
        raise InvalidInputError("the inputs are nested too deeply for a policy", field="context") from error
    return {name: value for name, value in converted.items() if value is not _ABSENT}


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return values by name; of two that have one name a policy would see one only."""
    by_name: dict[str, Any] = {}
    for name, value in pairs:
        if name in by_name:
            raise InvalidInputError(f"two inputs are called {name}", field="context")
        by_name[name] = value
    return by_name


def named_inputs(arguments: Mapping[str, Any], function: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Return recorded arguments, `{"args": […], "kwargs": {…}}`, by the names of the parameters.

    `function` is the one that is called with all of them. Raises InvalidInputError where two have one name.
    """
    positional: Sequence[Any] = arguments["args"]
    keywords: Mapping[str, Any] = arguments["kwargs"]
    signature = _signature(function)
    if signature is None:
        return _unique([*_numbered(positional, 0), *keywords.items()])
    try:
        bound = signature.bind_partial(*positional, **keywords)
    except TypeError as error:
        raise InvalidInputError("the arguments do not fit the function", field="context") from error
    named: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named += _numbered(value, len(positional) - len(value))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named += value.items()
        else:
            named.append((name, value))
    return _unique(named)


def _numbered(values: Sequence[Any], before: int) -> Iterator[tuple[str, Any]]:
    """Return positional inputs that have no parameter, by their place among all."""
    return ((f"arg{before + at}", value) for at, value in enumerate(values, 1))


def _signature(function: Callable[..., Any] | None) -> inspect.Signature | None:
    try:
        return None if function is None else inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions written in C have no signature.
        return None


def _key(name: Any) -> str:
    text = str(name)
    return f"_{text}" if _ESCAPED.match(text) else text


def _cedar(value: Any) -> Any:  # noqa: PLR0911 (a case for each type)
    if value is None:
        return _ABSENT
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        # A decimal of Python's writes numbers of any length.
        return value if -_LARGEST <= value <= _LARGEST else str(Decimal(value))
    if isinstance(value, float):
        return _decimal(repr(value))
    if isinstance(value, Mapping):
        return _tagged(value) if _is_tagged(value) else record_of(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [item for item in map(_cedar, value) if item is not _ABSENT]
    if isinstance(value, bytes | bytearray | memoryview):
        # A policy reads no bytes; whoever approved some of them has not approved others.
        return f"sha256:{canonical.sha256_hex(bytes(value))}"
    # A policy can tell that there is something, not what.
    return type(value).__name__


def _is_tagged(value: Mapping[str, Any]) -> bool:
    return len(value) == 1 and str(next(iter(value))).startswith("$")


def _tagged(value: Mapping[str, Any]) -> Any:
    """Return a value of model/typed_json.py: numbers as numbers, objects as records, the others as their text."""
    [(tag, content)] = value.items()
    if tag in _READERS:
        try:
            return _READERS[tag](content)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInputError(f"{tag} is not what its tag says", field="context") from error
    if isinstance(content, list):
        return _cedar(content)
    return content if isinstance(content, str) else canonical.dump_text(content)


def _pairs(pairs: Sequence[Sequence[Any]]) -> Any:
    return record_of(_unique((key if isinstance(key, str) else canonical.dump_text(key), item) for key, item in pairs))


def _name(content: Mapping[str, Any]) -> str:
    name = content["name"]
    if not isinstance(name, str):
        raise TypeError("the name of an enum's member is a text")
    return name


def _decimal(text: str) -> Any:
    """Return a decimal of Cedar; the text itself where one cannot hold it."""
    try:
        number = Decimal(text)
        exact = number.quantize(Decimal(1).scaleb(-_DECIMALS))
    except InvalidOperation:
        return text
    if exact != number or abs(exact) * 10**_DECIMALS > _LARGEST:
        return text
    return {"__extn": {"fn": "decimal", "arg": f"{exact:f}"}}


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "$int": lambda text: _cedar(int(text)),
    "$float": _decimal,
    "$decimal": _decimal,
    "$object": lambda content: record_of(content["fields"]),
    "$enum": _name,
    "$dict": _pairs,
}
