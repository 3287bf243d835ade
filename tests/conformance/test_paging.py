"""Listings: every method with a cursor pages the same way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof import errors, paging, sync
from holdproof.api import catalogue
from tests.conformance.decisions import InMemory, OnStore

_REQUIRED = {"agent_id": "trader", "flow_id": "flow", "folder": ".", "id": "a", "name": "chat", "tenant": "acme"}
_REQUIRED |= {"session_id": "cli_none", "draft": "permit(principal, action, resource);"}


class Listings(OnStore):
    def test_every_listing_refuses_a_text_that_no_listing_returned(self, store: sync.Holdproof) -> None:
        store.agents.register("trader", version="1")
        store.flows.start("trader", flow_id="flow")
        listings = [spec for spec in catalogue.methods().values() if any(p.name == "cursor" for p in spec.parameters)]
        assert len(listings) >= 25
        for spec in listings:
            method = getattr(getattr(store, spec.resource), spec.method)
            arguments = {p.name: _REQUIRED[p.name] for p in spec.parameters if p.required}
            for wrong in ("", "x", "7", "a.b", paging.encode("a", "b", "c", "d")):
                with pytest.raises(errors.InvalidInputError) as refusal:
                    method(**arguments, cursor=wrong)
                assert refusal.value.fields["field"] == "cursor", spec.name


class TestListingsInMemory(InMemory, Listings):
    pass


@given(st.lists(st.integers(0, 2**53 - 1) | st.text(st.characters(exclude_characters="\0", codec="utf-8"))))
def test_a_cursor_returns_the_sort_key_it_was_made_of(key: list[int | str]) -> None:
    assert paging.decode(paging.encode(*key), *key) == tuple(key)


def test_the_longest_path_of_a_file_fits_into_a_cursor() -> None:
    path = "/" + "\u00e4" * 4_095
    assert paging.decode(paging.encode(path), "") == (path,)


def test_a_lone_surrogate_in_a_cursor_is_refused_and_not_an_encoding_error() -> None:
    with pytest.raises(errors.InvalidInputError):
        paging.decode(paging.encode("\ud800"), "")
