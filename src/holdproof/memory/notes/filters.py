"""Filters: which notes are wanted, by fields of their values. Pure: no filter ever becomes SQL.

    {"color": "red"}                     the field is equal
    {"price": {"$gte": 10, "$lt": 20}}   all of the operators hold: $eq $ne $gt $gte $lt $lte
    {"owner.name": "Ada"}                a field of an object within the value

Rules:
- Equal is what JSON calls equal: 1 and 1.0 are, 1 and true are not.
- A field that is missing is null. Null is equal to None and to nothing else; no other operator holds for it.
- Numbers are compared with numbers and texts with texts; a value of another kind is not found.
- A key is made of letters, digits, `_`, `-` and dots; anything else is refused, and so is an unknown operator.
"""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdproof.errors import InvalidInputError

_KEY: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)
_LONGEST: Final = 1_000
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}

Test = Callable[[Mapping[str, Any]], bool]


def compiled(filter: Mapping[str, Any] | None) -> Test | None:
    """Return what tells whether a value is wanted; None where all are."""
    tests = [test for key, condition in (filter or {}).items() for test in _tests(key, condition)]
    return (lambda value: all(test(value) for test in tests)) if tests else None


def _tests(key: Any, condition: Any) -> list[Test]:
    if not isinstance(key, str) or len(key) > _LONGEST or _KEY.fullmatch(key) is None:
        raise InvalidInputError(
            f"Invalid filter key: {str(key)[:100]!r}; letters, digits, _ and - with dots between", field="filter"
        )
    steps = key.split(".")
    # A bare value means equality, as in LangGraph's own stores.
    operators = condition if isinstance(condition, Mapping) else {"$eq": condition}
    return [_test(steps, name, operand) for name, operand in operators.items()]


def _test(steps: list[str], name: Any, operand: Any) -> Test:
    if name == "$eq":
        return lambda value: same(_at(value, steps), operand)
    if name == "$ne":
        return lambda value: (value_at := _at(value, steps)) is not None and not same(value_at, operand)
    order = _ORDERS.get(name)
    if order is None:
        raise InvalidInputError(f"Unsupported operator: {str(name)[:100]!r}", field="filter")
    kind = _kind(operand)
    if kind is None:
        raise InvalidInputError(f"{name} compares numbers or texts", field="filter")
    return lambda value: _kind(value_at := _at(value, steps)) is kind and order(value_at, operand)


def _at(value: Any, steps: list[str]) -> Any:
    """Return the field at the end of a path, None where there is none."""
    for step in steps:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value


def _kind(value: Any) -> type | None:
    """Return whether something is a number or a text; truth is neither."""
    if isinstance(value, str):
        return str
    return float if isinstance(value, int | float) and not isinstance(value, bool) else None


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON."""
    # In Python True == 1; in JSON it is not.
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
