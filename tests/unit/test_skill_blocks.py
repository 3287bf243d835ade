"""Dividing a skill file: every byte is in a block, every change is another root, and the changed block is named."""

from hashlib import sha256

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdproof.errors import InvalidInputError
from holdproof.memory.skills.skill_blocks import MOST_TOLD, compare, divide, parts, root_of, rules_of

fixed = settings(derandomize=True, deadline=None)

RULES = ("org/1", "markdown/1", "python/1", "whole/1")
ORG = b"""#+TITLE: Deploy
* Overview
Some words.
** Build
#+begin_src lisp
(build)
#+end_src
After.
#+BEGIN_EXAMPLE
* not escaped, so a headline
#+END_EXAMPLE
* End
"""
MARKDOWN = b"""---
name: deploy
---
# Deploy

Words.

````markdown
```python
inner()
```
````

Setext
======
~~~
# no headline
```
~~~
## Last
"""
PYTHON = b'''"""Doc."""
import os

@decorated
@twice
def one(x):
    return x

async def two():
    pass
LIMIT = 3

class Three:
    def four(self): ...
'''


def shape(data: bytes, rules: str) -> list[tuple[str, str, int]]:
    return [(block.kind, block.title, block.line) for block in divide(data, rules).blocks]


def test_an_org_file_has_headlines_code_blocks_and_text() -> None:
    assert shape(ORG, "org/1") == [
        ("text", "", 1),
        ("headline", "Overview", 2),
        ("text", "", 3),
        ("headline", "Build", 4),
        ("code", "lisp", 5),
        ("text", "", 8),
        ("code", "", 9),
        ("headline", "not escaped, so a headline", 10),
        ("text", "", 11),
        ("headline", "End", 12),
    ]


def test_a_fence_inside_a_longer_fence_is_part_of_it() -> None:
    assert shape(MARKDOWN, "markdown/1") == [
        ("text", "front matter", 1),
        ("headline", "Deploy", 4),
        ("text", "", 5),
        ("code", "markdown", 8),
        ("text", "", 13),
        ("headline", "Setext", 14),
        ("code", "", 16),
        ("headline", "Last", 20),
    ]


def test_a_python_file_has_functions_and_classes_with_their_decorators() -> None:
    assert shape(PYTHON, "python/1") == [
        ("code", "module", 1),
        ("code", "one", 4),
        ("code", "two", 9),
        ("code", "module", 11),
        ("code", "Three", 13),
    ]


def test_any_other_file_is_one_block() -> None:
    assert shape(b"a\n* b\n", "whole/1") == [("text", "", 1)]
    assert [divide(b"", rules).blocks for rules in RULES] == [()] * 4


@pytest.mark.parametrize(
    ("path", "rules"),
    [
        *(("a.org", "org/1"), ("b/SKILL.MD", "markdown/1"), ("c.markdown", "markdown/1"), ("d.py", "python/1")),
        *(("e.txt", "whole/1"), ("Makefile", "whole/1"), (".org", "whole/1")),
    ],
)
def test_the_name_decides_which_rules_count(path: str, rules: str) -> None:
    assert rules_of(path) == rules


def test_rules_of_a_later_version_are_refused() -> None:
    with pytest.raises(InvalidInputError):
        divide(b"x", "org/2")


def test_the_root_can_be_computed_with_sha256_alone() -> None:
    """What docs/format.md says, done by hand."""
    data = b"* A\nx\n* B\n"
    leaves = [sha256(b"\x00" + part).digest() for part in (b"* A\n", b"x\n", b"* B\n")]
    two = sha256(b"\x01" + leaves[0] + leaves[1]).digest()
    assert divide(data, "org/1").root == sha256(b"\x01" + two + leaves[2]).hexdigest()
    assert divide(b"", "org/1").root == sha256(b"").hexdigest()
    assert root_of([leaf.hex() for leaf in leaves]) == divide(data, "org/1").root


lines = st.sampled_from(
    [
        *(b"* H\n", b"** H", b"# H\n", b"text\n", b"===\n", b"---\n", b"\n", b"```\n", b"````py\n", b"~~~\n", b"\r\n"),
        *(b"#+begin_src x\n", b"#+end_src\n", b"def f():\n", b"@d\n", b"  x\n", b"class C:\n", b"\xff\x00", b"x = 1\n"),
    ]
)
files = st.lists(lines | st.binary(max_size=6), max_size=12).map(b"".join)


@fixed
@given(files, st.sampled_from(RULES))
def test_the_blocks_put_together_are_the_file(data: bytes, rules: str) -> None:
    found = list(parts(data, rules))
    assert b"".join(part for _, part in found) == data
    assert all(part for _, part in found)
    assert sum(block.size for block in divide(data, rules).blocks) == len(data)


@fixed
@given(files, files, st.sampled_from(RULES))
@example(b"a", b"a\n", "org/1")
@example(b"* H\n", b"* H\r\n", "org/1")
@example(b"* A\n* B\n", b"* B\n* A\n", "org/1")
@example(b"x\n", b"x\n\n", "markdown/1")
def test_another_file_has_another_root_and_says_what_is_different(one: bytes, two: bytes, rules: str) -> None:
    a, b = divide(one, rules), divide(two, rules)
    assert (a.root == b.root) == (one == two)
    assert bool(compare(a.blocks, b.blocks)) == (one != two)


@pytest.mark.parametrize(
    ("tampered", "told"),
    [
        (ORG.replace(b"(build)", b"(evil)"), ["the code block 'lisp' at line 5 was changed"]),
        (ORG.replace(b"(build)", b"(build) "), ["the code block 'lisp' at line 5 was changed"]),
        (ORG.replace(b"* End", b"* Ende"), ["the headline 'End' at line 12 was changed"]),
        (ORG + b"tail", ["the text at line 13 was added"]),
        (ORG.replace(b"Some words.\n", b""), ["the text at line 3 is gone"]),
        (ORG.replace(b"** Build\n", b"** Build\n** More\n"), ["the headline 'More' at line 5 was added"]),
        (ORG + b"* End\n", ["the headline 'End' at line 13 was added"]),
    ],
)
def test_the_block_that_changed_is_named(tampered: bytes, told: list[str]) -> None:
    assert list(compare(divide(ORG, "org/1").blocks, divide(tampered, "org/1").blocks)) == told


def test_blocks_that_changed_places_are_named_as_moved() -> None:
    one, two = b"* A\n* B\n* C\n", b"* C\n* B\n* A\n"
    told = compare(divide(one, "org/1").blocks, divide(two, "org/1").blocks)
    assert told == ("the headline 'A' at line 1 was moved", "the headline 'C' at line 3 was moved")


def test_carriage_returns_change_every_block() -> None:
    told = compare(divide(ORG, "org/1").blocks, divide(ORG.replace(b"\n", b"\r\n"), "org/1").blocks)
    assert len(told) == len(divide(ORG, "org/1").blocks)


def test_a_crowd_of_changes_is_counted_and_not_listed() -> None:
    one = b"".join(b"* A%d\n" % number for number in range(100))
    told = compare(divide(one, "org/1").blocks, divide(one.replace(b"A", b"B"), "org/1").blocks)
    assert len(told) == MOST_TOLD + 1
    assert told[-1] == "and 80 more"


def test_a_title_can_be_shown_whatever_the_file_holds() -> None:
    [block] = divide(b"* \x1b[31m\xff" + b"x" * 1000, "org/1").blocks
    assert block.title.isprintable()
    assert len(block.title) <= 80


@pytest.mark.parametrize("unit", [b"* x\n", b"```\n", b"#+begin_src\n", b"@d\n", b"\n", b"x\n===\n", b"a", b"~~~~~"])
@pytest.mark.parametrize("rules", RULES)
def test_dividing_takes_linear_time(unit: bytes, rules: str) -> None:
    data = unit * (1 << 15)
    found = divide(data, rules)
    assert compare(found.blocks, divide(data + b"x", rules).blocks)
