"""docs/glossary.md stays short: a reader should be able to read all of it."""

import re
from pathlib import Path

import pytest

GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"
MOST_TERMS = 80
MOST_WORDS = 60


def definitions() -> dict[str, str]:
    """Each term with the text below its heading, up to the next heading."""
    text = GLOSSARY.read_text(encoding="utf-8")
    parts = re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    return {term: body.strip() for term, body in parts}


def test_the_glossary_has_at_most_eighty_terms_and_names_each_once() -> None:
    headings = re.findall(r"^### (.+)$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    assert 0 < len(headings) <= MOST_TERMS
    assert len(headings) == len({heading.lower() for heading in headings})


@pytest.mark.parametrize("term", definitions())
def test_a_term_is_defined_in_one_short_paragraph(term: str) -> None:
    body = definitions()[term]
    assert body, "it is defined"
    assert "\n\n" not in body, "in one paragraph"
    assert len(body.split()) <= MOST_WORDS
