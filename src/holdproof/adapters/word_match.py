"""How many of the words of a query a text has: for memories that are looked through, without an index.

Languages that put no space between words are searched as text.
"""

import itertools
import re
import unicodedata
from collections.abc import Collection, Iterator
from typing import Final

_WORD: Final = re.compile(r"\w+")


def words(text: str) -> set[str]:
    """Return the words of a query, in the form in which `score` looks for them."""
    return set(_WORD.findall(_normal(text)))


def score(terms: Collection[str], text: str) -> int:
    """Return how many of the words of a query a text has."""
    normal = _normal(text)
    # Cutting a text into words costs most, and few texts hold any of what is searched for.
    present = [word for word in terms if word in normal]
    if not present:
        return 0
    own = set(_WORD.findall(normal))
    own.update(run for word in tuple(own) if not word.isascii() for run in _runs(word))
    return sum(not word.isascii() or word in own for word in present)


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text).lower()


def _runs(word: str) -> Iterator[str]:
    """Return the parts of a word that are of Latin letters, and those that are not: a name amid Japanese is a word."""
    for _, letters in itertools.groupby(word, _is_latin):
        yield "".join(letters)


def _is_latin(letter: str) -> bool:
    return letter.isascii() or unicodedata.name(letter, "").startswith("LATIN")
