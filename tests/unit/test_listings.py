"""Listings: a method that returns several things returns a page, takes a limit, or is named here with its bound."""

from collections.abc import Mapping
from inspect import getmembers_static
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import pytest

from holdproof.api import catalogue
from holdproof.api.catalogue import MethodSpec
from holdproof.executors import Method
from holdproof.model.page import Page

LIMITS: Final = frozenset({"limit", "k"})
"""Parameters that say how many there are at most."""
BOUNDED: Final[Mapping[str, str]] = {
    "activity.stats": "buckets: 10,000 at most (runtime/activity.py)",
    "blobs.check": "findings: as many as blobs are damaged",
    "channels.list": "channels of the settings",
    "dreams.sources": "shapes that one dream names",
    "escalations.facets": "combinations: 10,000 at most (runtime/inbox.py)",
    "flows.list_published": "names that one flow published",
    "flows.messages": "messages to one flow",
    "flows.pace": "minutes: as many as are asked for, a day at most (runtime/flow_queries.py)",
    "flows.stats": "buckets: 10,000 at most (runtime/flow_search.py)",
    "flows.steps": "steps of one flow, which its function made",
    "flows.transitions": "changes of status of one flow",
    "image.beat": "images that were due: one for each namespace of the settings",
    "locks.acquire": "the resources that were asked for",
    "locks.release_all": "the locks of one flow",
    "locks.try_acquire": "the resources that were asked for",
    "log.find": "entries that one id names, a bounded number (upkeep/trail/finding.py)",
    "log.get_entry": "a pair",
    "log.prove_consistency": "hashes: the logarithm of the log's size",
    "log.verifier_keys": "keys that sign heads",
    "promises.list": "promises of one flow",
    "queues.lengths": "queues that have flows",
    "relational.fetch_all": "rows of the caller's own query, which says how many",
    "tenants.record_heads": "a check for each tenant of this parent",
    "values.get": "one value, as it was put",
    "values.slice": "from `start` to `end`",
    "witness.ask": "cosignatures: one for each witness",
}
"""What is bounded by its nature, and by what."""

ONLY_PAGES: Final[Mapping[str, str]] = {
    "retention.rules": "rules: one for each kind and namespace",
    "witness.list": "witnesses that somebody added",
}
"""What is a page for the sake of its form, and is never followed by another."""


def _methods() -> Mapping[str, tuple[MethodSpec, Any]]:
    """Return every method with the type of what it answers."""
    return {
        f"{name}.{method}": (
            catalogue.methods()[name, method],
            catalogue._answer(get_type_hints(declaration.fn).get("return", Any)),
        )
        for name, resource in catalogue.declared_resources()
        for method, declaration in getmembers_static(resource.kind)
        if isinstance(declaration, Method)
    }


def _is_listing(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(_is_listing(part) for part in get_args(hint))
    return get_origin(hint) in (list, tuple, set, frozenset)


def _listings() -> Mapping[str, MethodSpec]:
    return {name: spec for name, (spec, hint) in _methods().items() if _is_listing(hint) and not spec.streams}


def test_every_listing_is_a_page_or_takes_a_limit_or_is_named_with_its_bound() -> None:
    unlimited = {name for name, spec in _listings().items() if not LIMITS & {each.name for each in spec.parameters}}
    assert unlimited == BOUNDED.keys()


@pytest.mark.parametrize("name", sorted(name for name in _listings() if name not in BOUNDED))
def test_a_limit_of_a_listing_has_a_default_and_a_bound(name: str) -> None:
    limits = [each for each in _listings()[name].parameters if each.name in LIMITS]
    assert all(each.default is not None or each.name == "limit" for each in limits)
    assert any(each.bounds is not None or each.name == "k" for each in limits)


def test_every_page_that_is_read_takes_a_cursor_and_a_limit_or_is_the_only_one() -> None:
    without = {
        name
        for name, (spec, hint) in _methods().items()
        if spec.reads and (hint is Page or get_origin(hint) is Page)
        if not {"cursor", "limit"} <= {each.name for each in spec.parameters}
    }
    assert without == ONLY_PAGES.keys()


def test_a_read_takes_what_is_counted_together_from_its_caller() -> None:
    counting = {name for name, (spec, _) in _methods().items() if spec.reads and spec.parameter("by") is not None}
    assert counting == {"activity.stats", "flows.stats", "log.growth", "telemetry.usage"}
    for name in counting:
        parameter = _methods()[name][0].parameter("by")
        assert parameter is not None
        assert parameter.words, name
        assert not parameter.names_caller, name
