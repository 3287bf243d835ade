"""The bounds of `limit` in schemas are those that the methods have."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdproof import sync
from holdproof.api.catalogue import MethodSpec, entries
from holdproof.errors import HoldproofError, InvalidInputError

LIMITED = [
    entry
    for entry in entries().values()
    if (parameter := entry.parameter("limit")) is not None and parameter.schema({}).get("type") == "integer"
]
ASKS_FOR_MORE = {"flows_cancel_many", "flows_delete_many", "flows_retry_many", "objects_nearest", "snapshots_diff"}
"""These refuse a call on an empty store, or without a filter, before they look at its limit."""


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    with sync.open(url=":memory:") as opened:
        yield opened


def _complaint(store: Any, entry: MethodSpec, limit: int) -> str:
    """What a method says of a limit; empty if it says nothing of that."""
    try:
        answer = getattr(getattr(store, entry.resource), entry.method)(limit=limit)
        if entry.streams:
            next(iter(answer))
    except InvalidInputError as error:
        return error.message if "limit" in (error.fields | {error.fields.get("field"): None}) else ""
    except HoldproofError:
        return ""
    return ""


@pytest.mark.parametrize(
    "entry",
    [e for e in LIMITED if e.name not in ASKS_FOR_MORE and not any(each.required for each in e.parameters)],
    ids=lambda entry: entry.name,
)
def test_a_limit_beyond_its_bounds_is_refused_and_one_within_them_is_not(store: Any, entry: MethodSpec) -> None:
    parameter = entry.parameter("limit")
    assert parameter is not None
    schema = parameter.schema({})
    for limit in (schema["minimum"], schema["maximum"]):
        assert _complaint(store, entry, limit) == "", entry.name
    for limit in (schema["minimum"] - 1, schema["maximum"] + 1):
        assert _complaint(store, entry, limit), (entry.name, limit)


def test_every_limit_has_bounds_and_every_parameter_is_described() -> None:
    assert len(LIMITED) > 60
    for entry in LIMITED:
        parameter = entry.parameter("limit")
        assert parameter is not None
        assert {"minimum", "maximum"} <= parameter.schema({}).keys(), entry.name
    undescribed = [
        f"{entry.name}: {each.name}"
        for entry in entries().values()
        for each in entry.parameters
        if each.offered and not each.description
    ]
    assert not undescribed
