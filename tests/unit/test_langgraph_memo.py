"""What the LangGraph adapter remembers of lists: an element is known only if it is the same and as it was."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("langgraph.checkpoint.base", reason="langgraph is not installed")

from langchain_core.messages import AIMessage, HumanMessage

from holdfast.adapters.langgraph.memo import Line


def hashed(line: Line, elements: list[Any]) -> tuple[tuple[bytes, ...], list[Any]]:
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
    line, known = Line(), messages(5)
    assert len(hashed(line, known)[1]) == 5
    more = [*known, HumanMessage("new")]
    assert hashed(line, more)[1] == more[5:]
    assert hashed(line, more)[1] == []


@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize("change", ["content", "deep", "extra"])
def test_what_was_changed_in_place_is_encoded_again(at: int, change: str) -> None:
    line, known = Line(), messages(5)
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


def test_what_cannot_be_copied_is_always_encoded() -> None:
    line, known = Line(), [{"a": object()}, {"b": 1}]
    hashed(line, known)
    assert hashed(line, known)[1] == known


def test_a_run_goes_on_while_another_reads() -> None:
    line, mine = Line(), messages(3)
    hashed(line, mine)
    hashed(line, messages(3))
    assert hashed(line, [*mine, HumanMessage("on")])[1] == [HumanMessage("on")]


@given(st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=8))
def test_the_hashes_are_always_those_of_the_elements(turns: list[list[int]]) -> None:
    line, pool = Line(), [*messages(5), *({"n": [at]} for at in range(5))]
    for turn, places in enumerate(turns):
        elements = [pool[place] for place in places]
        if elements and turn % 3 == 2 and isinstance(elements[0], dict):
            elements[0]["n"].append(turn)
        assert hashed(line, elements)[0] == tuple(repr(each).encode() for each in elements)
