"""What the LangGraph adapter remembers of lists: an element is known only if it is the same and as it was."""

from copy import deepcopy
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("langgraph.checkpoint.base", reason="langgraph is not installed")

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdproof.adapters.langgraph.decode_cache import CachedStates, DecodeCache
from holdproof.adapters.langgraph.encode_cache import LineCache


def hashed(line: LineCache, elements: list[Any]) -> tuple[tuple[bytes, ...], list[Any]]:
    """The hashes of elements, and those that were encoded for it."""
    encoded: list[Any] = []

    def encode(element: Any) -> bytes:
        encoded.append(element)
        return repr(element).encode()

    return line.digests("c", elements, encode), encoded


def messages(count: int) -> list[Any]:
    kinds = (HumanMessage, AIMessage)
    return [kinds[at % 2](f"m{at}", id=str(at), additional_kwargs={"deep": [{"x": at}]}) for at in range(count)]


def test_only_what_is_new_is_encoded() -> None:
    line, known = LineCache(), messages(5)
    assert len(hashed(line, known)[1]) == 5
    more = [*known, HumanMessage("new")]
    assert hashed(line, more)[1] == more[5:]
    assert hashed(line, more)[1] == []


@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize("change", ["content", "deep", "extra"])
def test_what_was_changed_in_place_is_encoded_again(at: int, change: str) -> None:
    line, known = LineCache(), messages(5)
    hashed(line, known)
    if change == "content":
        known[at].content = "other"
    elif change == "deep":
        known[at].additional_kwargs["deep"][0]["x"] = -1
    else:
        known[at].more = "extra"
    found, encoded = hashed(line, known)
    assert known[at] in encoded
    assert found == tuple(repr(each).encode() for each in known)
    assert hashed(line, known)[1] == []


@pytest.mark.parametrize(("before", "after"), [(0, False), (1, 1.0), (True, 1), (0.0, 0)])
def test_a_number_that_became_one_of_another_kind_is_encoded_again(before: Any, after: Any) -> None:
    line, known = LineCache(), [{"n": before}, before, [before]]
    hashed(line, known)
    known[0]["n"] = known[2][0] = after
    found, _ = hashed(line, [known[0], after, known[2]])
    assert found == tuple(repr(each).encode() for each in (known[0], after, known[2]))


def test_keys_that_are_no_texts_are_not_believed() -> None:
    line, known = LineCache(), [{0: "x"}]
    hashed(line, known)
    known[0][False] = known[0].pop(0)
    assert hashed(line, known)[0] == (b"{False: 'x'}",)


def test_what_cannot_be_copied_is_always_encoded() -> None:
    line, known = LineCache(), [{"a": object()}, {"b": 1}]
    hashed(line, known)
    assert hashed(line, known)[1] == known


def test_a_run_goes_on_while_another_reads() -> None:
    line, mine = LineCache(), messages(3)
    hashed(line, mine)
    hashed(line, messages(3))
    assert hashed(line, [*mine, HumanMessage("on")])[1] == [HumanMessage("on")]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=8))
def test_the_hashes_are_always_those_of_the_elements(turns: list[list[int]]) -> None:
    line, pool = LineCache(), [*messages(5), *({"n": [at]} for at in range(5))]
    for turn, places in enumerate(turns):
        elements = [pool[place] for place in places]
        if elements and turn % 3 == 2 and isinstance(elements[0], dict):
            elements[0]["n"].append(turn)
        assert hashed(line, elements)[0] == tuple(repr(each).encode() for each in elements)


def test_what_a_reader_does_to_an_element_does_not_reach_the_next_one() -> None:
    templates, made = DecodeCache(), AIMessage("m", id="1", additional_kwargs={"deep": [{"x": 1}]})
    for element in (made, {"plain": [1, {"x": 2}]}):
        digest, decoded = repr(element).encode(), iter([deepcopy(element)])
        first, _ = templates.element(digest, b"bytes", lambda _: next(decoded))  # noqa: B023
        second, taken = templates.element(digest, b"bytes", lambda _: pytest.fail("it is decoded twice"))
        assert type(first) is type(second)
        assert first == second == element
        assert first is not second
        if isinstance(second, AIMessage):
            second.additional_kwargs["deep"][0]["x"] = -1
            second.content = "other"
            assert (second.model_fields_set, second.model_extra) == (first.model_fields_set, first.model_extra)
        else:
            second["plain"][1]["x"] = -1
        assert templates.element(digest, b"bytes", repr)[0] == first
        assert taken is not None


def test_what_a_reader_does_to_a_snapshot_does_not_reach_the_next_one() -> None:
    cache, data = DecodeCache(), b"snapshot" * 100
    made = AIMessage("m", id="1", additional_kwargs={"deep": [{"x": 1}]})
    cache.value(data, lambda _: _DeltaSnapshot([deepcopy(made)]))
    second = cache.value(data, lambda _: pytest.fail("it is decoded twice"))
    assert second == _DeltaSnapshot([made])
    second.value[0].additional_kwargs["deep"][0]["x"] = -1
    second.value.append("more")
    assert cache.value(data, repr) == _DeltaSnapshot([made])
    assert not cache.states([sha256(data).digest()]), "a snapshot is no element"


def test_a_snapshot_weighs_what_it_takes_in_memory_and_not_what_is_stored() -> None:
    decoded = 0

    def decode(_: bytes) -> Any:
        nonlocal decoded
        decoded += 1
        return _DeltaSnapshot([HumanMessage("m", id=str(number)) for number in range(50)])

    cache = DecodeCache(most=100_000)
    for name in (b"a", b"b", b"b", b"a"):
        cache.value(name * 600, decode)
    assert decoded == 3, "two of 50 messages are more than 100 kB, whatever they were deflated to"


def test_what_a_read_was_told_is_cached_stays_for_it() -> None:
    cache = DecodeCache(most=3_000)
    cache.element(b"a", b"a" * 100, lambda _: ["a"])
    states = CachedStates(cache)
    assert [*states.find([b"a", b"b"])] == [b"a"]
    for name in (b"b", b"c", b"d"):
        cache.element(name, name * 100, lambda data: [data[:1].decode()])
    assert not cache.states([b"a"])
    assert states.found[b"a"].copy() == ["a"]


def test_elements_are_kept_up_to_so_many_bytes_and_odd_ones_never() -> None:
    templates, decoded = DecodeCache(most=3_000), list[bytes]()

    def decode(data: bytes) -> Any:
        decoded.append(data[:1])
        return {"set": {1}} if data[:1] == b"s" else [data[:1].decode()]

    for name in (b"a", b"b", b"a", b"c", b"a", b"b", b"s", b"s"):
        templates.element(name, name * 100, decode)
    assert decoded == [b"a", b"b", b"c", b"b", b"s", b"s"]
