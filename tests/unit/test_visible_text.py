"""Text as people see it: nothing in it is hidden, and nothing looks like something else without being named."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.model.visible_text import is_hidden, marks, visible, visible_json

OVERRIDE = "\u202e"
ZERO_WIDTH = "\u200b"


@given(st.text())
def test_nothing_hidden_is_left_in_a_visible_text(text: str) -> None:
    assert not any(is_hidden(each) for each in visible(text))


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S"])))
def test_text_without_hidden_characters_stays_as_it_is(text: str) -> None:
    if not any(is_hidden(each) for each in text):
        assert visible(text) == text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_visible_json_means_the_same(text: str) -> None:
    written = visible_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(written) == [text]
    assert not any(is_hidden(each) for each in written)


@pytest.mark.parametrize("category", ["Cf", "Cc", "Co", "Cn"])
def test_every_character_of_a_hidden_category_is_named(category: str) -> None:
    some = [chr(point) for point in range(0x30000) if unicodedata.category(chr(point)) == category]
    assert some
    for each in some:
        assert visible(each) == (each if each in "\n\t" else f"[U+{ord(each):04X}]")


def test_an_amount_that_is_turned_round_shows_why() -> None:
    assert visible(f"{OVERRIDE}000.001") == "[U+202E]000.001"
    assert marks({"amount": f"{OVERRIDE}000.001"}) == ["[U+202E] right-to-left override"]


def test_marks_look_at_names_and_at_what_is_inside() -> None:
    assert marks({"list": [{f"a{ZERO_WIDTH}b": 1}]}) == ["[U+200B] zero width space"]
    assert marks([1, None, True, {"plain": ["text", "日本語のテスト", "Ελλάδα", "naïve"]}]) == []


def test_a_word_of_two_scripts_that_look_alike_is_named() -> None:
    cyrillic_a = "\u0430"
    assert marks(f"pay to p{cyrillic_a}ypal") == [f"“p{cyrillic_a}ypal” mixes Cyrillic and Latin letters"]


def test_there_are_never_more_marks_than_a_person_reads() -> None:
    assert len(marks("".join(map(chr, range(0xE000, 0xE100))))) == 20
