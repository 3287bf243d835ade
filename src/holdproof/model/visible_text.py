"""Text as a person can see it: what shows nothing, or moves what is beside it, is named; pure.

A proposal of U+202E (right-to-left override) and `000.001` looks like `100.000`: who approves what they see would sign
another amount. So wherever text is shown to people, such characters stand there by their number.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final

# Format, control, private-use and unassigned characters, lone surrogates, line and paragraph separators.
_HIDDEN_CATEGORIES: Final = frozenset({"Cf", "Cc", "Co", "Cn", "Cs", "Zl", "Zp"})
# Letters and marks that show nothing, by Unicode's Default_Ignorable_Code_Point, and the blank pattern of Braille.
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_ORDINARY: Final = frozenset("\n\t")
# Scripts whose letters pass for each other's. Japanese mixes several others in one word, and means nothing by it.
_CONFUSABLE: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"})
_MOST_MARKS: Final = 20


def is_hidden(character: str) -> bool:
    """Whether a character shows nothing, or changes how its neighbours are shown."""
    # Most text is ASCII: no table is asked for that.
    if " " <= character <= "~":
        return False
    if character in _ORDINARY:
        return False
    return character in _BLANK or unicodedata.category(character) in _HIDDEN_CATEGORIES


def visible(text: str) -> str:
    """Return a text in which every hidden character stands as its number: `[U+202E]`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_name(each) if is_hidden(each) else each for each in text)


def visible_json(text: str) -> str:
    """Return JSON text in which every hidden character is an escape: it means the same, and can be edited."""
    return "".join(_escape(each) if is_hidden(each) else each for each in text)


def marks(value: Any) -> list[str]:
    """Say what of a value, texts and names inside it included, may not be what it looks like; empty for most."""
    findings: dict[str, None] = {}
    for text in _texts(value):
        for character in text:
            if is_hidden(character):
                findings[f"{_name(character)} {unicodedata.name(character, 'a character without a name').lower()}"] = (
                    None
                )
        for word in text.split():
            scripts = _scripts(word)
            if len(scripts) > 1:
                findings[f"“{visible(word[:60])}” mixes {' and '.join(sorted(scripts))} letters"] = None
    return list(findings)[:_MOST_MARKS]


def _texts(value: Any) -> Iterator[str]:
    # Not recursive: how deep it is nested is the sender's choice.
    open_values = [value]
    while open_values:
        each = open_values.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping):
            open_values += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple):
            open_values += each


def _scripts(word: str) -> set[str]:
    if word.isascii():
        return set()
    names = {unicodedata.name(each, "").partition(" ")[0] for each in word if each.isalpha()}
    return {name.capitalize() for name in names & _CONFUSABLE}


def _name(character: str) -> str:
    return f"[U+{ord(character):04X}]"


def _escape(character: str) -> str:
    # JSON knows escapes of sixteen bits only: beyond them a character is two.
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
