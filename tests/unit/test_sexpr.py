"""Objects of a Lisp memory: the two formats, the three forms, the foreign hash, the times."""

import os
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.damaged_bytes import LISP_MARKS, mutants
from holdproof.errors import FormatError, InvalidInputError, LispError
from holdproof.importers.lisp import lisp_hash, sexpr
from holdproof.model.lisp import KEYWORD, Char, Float, ForeignMemory, ForeignObject, HashVerdict, Lisp, Symbol, Vector
from tests.fixtures import fixture

fixed = settings(derandomize=True, deadline=None)

MUTATIONS = int(os.environ.get("HOLDPROOF_MUTATIONS", "20000"))

HEADLINE = Symbol("HEADLINE", KEYWORD)
IMAGE = """(in-package :org-agent)

(SETF (GETHASH "h1" *HISTORY-STORE*)
        #S(ORG-OBJECT :ID "a" :TYPE :HEADLINE :ATTRIBUTES (:ID "a") :CONTENT "x" :VECTOR #(0.5) :HASH "h1"))
(SETF (GETHASH "h2" *HISTORY-STORE*)
        #S(ORG-OBJECT :ID "a" :TYPE :HEADLINE :ATTRIBUTES NIL :CONTENT "y" :VERSION 2 :HASH "h2"))
(SETF (GETHASH "a" *MEMORY*) (GETHASH "h2" *HISTORY-STORE*))
"""


def load(name: str) -> ForeignMemory:
    return sexpr.read(fixture(f"org-agent/{name}").read_bytes())


def refusal(text: str) -> LispError:
    with pytest.raises(LispError) as caught:
        sexpr.read(text)
    return caught.value


def verdicts(memory: ForeignMemory) -> dict[HashVerdict, int]:
    found: dict[HashVerdict, int] = {}
    for each in lisp_hash.check(memory):
        found[each.verdict] = found.get(each.verdict, 0) + 1
    return found


# --- the two formats ---------------------------------------------------------------------------------------------


def test_an_image_holds_every_version_and_says_which_is_current() -> None:
    found = sexpr.read(IMAGE)
    assert [(each.id, each.content, each.hash) for each in found.objects] == [("a", "x", "h1"), ("a", "y", "h2")]
    assert found.objects[0].vector == Vector((Float(0.5),))
    assert found.current == {"a": "h2"}


def test_a_printed_image_is_read_slot_by_slot() -> None:
    found = load("memory-image.small.lisp")
    assert (len(found.objects), len(found.current)) == (7, 6)
    root = next(each for each in found.objects if each.id == "root-1")
    assert root.content == ('Project "Atlas"\nBody line 1\nLine 2 with ; comment and #|pipes|# and #.(not-evaluated)')
    assert root.children == ("leaf-1", "para-1", "leaf-2")
    assert (root.version, root.last_sync, root.parent) == (3985000005, 3985000005, None)
    assert {key.name: value for key, value in root.attributes}["TAGS"] == ("a", "b")


def test_image_and_archive_of_one_memory_agree_about_what_is_current() -> None:
    image, archive = load("memory-image.small.lisp"), load("archival.small.sexp")
    found = {each.id: each for each in sexpr.current(image)}
    assert found == {each.id: each for each in archive.objects}
    assert sexpr.current(archive) == archive.objects
    assert sexpr.read(sexpr.write(sexpr.current(image))).current == image.current
    assert image.current == archive.current


@pytest.mark.parametrize("name", ["archival.small.sexp", "archival.types.sexp", "archival.10k.sexp"])
def test_an_archive_that_is_written_back_is_read_as_the_same(name: str) -> None:
    found = load(name)
    assert sexpr.read(sexpr.write(found.objects)) == found


def test_an_image_is_written_as_an_archive_with_its_vectors() -> None:
    found = load("memory-image.types.lisp")
    assert found.objects[0].vector is not None
    assert sexpr.read(sexpr.write(found.objects)) == found


names = st.text(st.characters(codec="utf-8"), max_size=8)
simple: st.SearchStrategy[Lisp] = st.one_of(
    st.none(), st.integers(), names, st.builds(Symbol, names, st.just(KEYWORD)), st.builds(Char, st.just("x"))
)
objects = st.builds(
    ForeignObject,
    id=names,
    type=simple,
    attributes=st.lists(st.tuples(st.builds(Symbol, names, st.just(KEYWORD)), simple), max_size=3).map(tuple),
    content=simple,
    parent=st.none() | names,
    children=st.lists(names, max_size=3).map(tuple),
    version=st.none() | st.integers(),
    last_sync=st.none() | st.integers(),
    vector=simple,
    hash=st.none() | names,
)


@fixed
@given(st.lists(objects, max_size=4, unique_by=lambda each: each.id))
def test_every_object_survives_the_archive(given: list[ForeignObject]) -> None:
    found = sexpr.read(sexpr.write(given))
    assert found.objects == tuple(given)
    assert found.current == {each.id: each.hash for each in given}


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        '(sb-ext:run-program "/bin/true" nil)',
        '(delete-file "x")',
        "(in-package :org-agent)",
        "(SETF X 1)",
        '(SETF (GETHASH "h" *OTHER*) #S(ORG-OBJECT :ID "a" :HASH "h"))',
        '(SETF (GETHASH "h" EVIL::*HISTORY-STORE*) #S(ORG-OBJECT :ID "a" :HASH "h"))',
        '(SETF (EVIL::GETHASH "h" *HISTORY-STORE*) #S(ORG-OBJECT :ID "a" :HASH "h"))',
        '(EVIL::SETF (GETHASH "h" *HISTORY-STORE*) #S(ORG-OBJECT :ID "a" :HASH "h"))',
        '(SETF (GETHASH "h" *HISTORY-STORE*) #S(PATHNAME :ID "a" :HASH "h"))',
        '(SETF (GETHASH "h" *HISTORY-STORE*) #S(EVIL::ORG-OBJECT :ID "a" :HASH "h"))',
        '(SETF (GETHASH "h" *HISTORY-STORE*) (progn 1))',
        '(SETF (GETHASH "h" *HISTORY-STORE*) #S(ORG-OBJECT :ID "a" :HASH "h") 1)',
        '(SETF (GETHASH (f) *HISTORY-STORE*) #S(ORG-OBJECT :ID "a" :HASH "h"))',
        '(SETF (GETHASH "h" *HISTORY-STORE*) #S(ORG-OBJECT :ID "a" :HASH "other"))',
        '(SETF (GETHASH "h1" *HISTORY-STORE*) #S(ORG-OBJECT :ID "a" :HASH "h1"))',
        '(SETF (GETHASH "a" *MEMORY*) (GETHASH "h1" *HISTORY-STORE*))',
        '(SETF (GETHASH "b" *MEMORY*) (GETHASH "h9" *HISTORY-STORE*))',
        '(SETF (GETHASH "b" *MEMORY*) (GETHASH "h1" *HISTORY-STORE*))',
        '(SETF (GETHASH "b" *MEMORY*) (GETHASH "h1" *MEMORY*))',
        "NIL",
        "1",
    ],
)
def test_a_form_that_no_image_has_is_refused_by_its_line(form: str) -> None:
    error = refusal(IMAGE + form)
    assert (error.fields["line"], error.fields["column"]) == (8, 1)


@pytest.mark.parametrize(
    ("slots", "why"),
    [
        (":TYPE :X", "no id"),
        (":ID 1", "no id"),
        (':ID "a" :ID "b"', "twice"),
        (':ID "a" :EVIL 1', "no object has a slot"),
        (':ID "a" FOO::HASH "x"', "no object has a slot"),
        (':ID "a" :HASH', "no property list"),
        (':ID "a" 1 2', "no property list"),
        (':ID "a" :PARENT-ID 1', "another type"),
        (':ID "a" :CHILDREN "b"', "another type"),
        (':ID "a" :CHILDREN ("b" 1)', "another type"),
        (':ID "a" :CHILDREN ("b" . "c")', "another type"),
        (':ID "a" :VERSION 1.5', "another type"),
        (':ID "a" :VERSION T', "another type"),
        (':ID "a" :LAST-SYNC "x"', "another type"),
        (':ID "a" :HASH :X', "another type"),
        (':ID "a" :ATTRIBUTES (:A)', "no property list"),
        (':ID "a" :ATTRIBUTES ("A" 1)', "no property list"),
        (':ID "a" :ATTRIBUTES "A"', "no property list"),
    ],
)
def test_a_slot_that_is_not_as_it_must_be_is_refused(slots: str, why: str) -> None:
    error = refusal(f"(({slots}))")
    assert why in error.message
    assert error.fields["line"] == 1


@pytest.mark.parametrize("text", ["", " \n", "1", '"x"', "#(1)", "(1)", "NIL NIL", '((:ID "a") (:ID "a"))', "(x . y)"])
def test_what_is_neither_image_nor_archive_is_refused(text: str) -> None:
    assert refusal(text).code == "format.lisp"


def test_a_bad_entry_is_named_by_its_own_line() -> None:
    error = refusal('((:ID "a" :ATTRIBUTES (:X (1 2)))\n (:ID "b")\n  (:ID "c" :VERSION "x"))')
    assert (error.fields["line"], error.fields["column"]) == (3, 3)


def test_an_archive_of_two_versions_is_refused_rather_than_written_wrong() -> None:
    with pytest.raises(InvalidInputError):
        sexpr.write([ForeignObject("a", hash="1"), ForeignObject("a", hash="2")])


def test_an_empty_archive_is_one() -> None:
    assert sexpr.read("NIL") == ForeignMemory((), {})
    assert sexpr.read(sexpr.write([])) == ForeignMemory((), {})


@pytest.mark.slow
def test_no_mutated_image_is_met_with_anything_but_a_typed_error() -> None:
    for text in mutants([IMAGE.encode()], MUTATIONS, marks=LISP_MARKS):
        try:
            found = sexpr.read(text)
        except FormatError:
            continue
        lisp_hash.check(found)


# --- the foreign hash --------------------------------------------------------------------------------------------


def test_hashes_of_a_printed_memory_are_found_again() -> None:
    assert verdicts(load("memory-image.small.lisp")) == {HashVerdict.MATCHES: 7}
    assert verdicts(load("archival.10k.sexp")) == {HashVerdict.MATCHES: 10_001}


def test_a_hash_over_an_earlier_version_of_a_child_is_reported_and_not_called_wrong() -> None:
    [doubtful] = [each for each in lisp_hash.check(load("archival.small.sexp")) if each.verdict != HashVerdict.MATCHES]
    assert (doubtful.id, doubtful.verdict) == ("root-1", HashVerdict.UNCHECKED)
    assert "leaf-1" in doubtful.why


def hashed(preimage: str, **slots: Lisp) -> ForeignObject:
    return ForeignObject(hash=sha256(preimage.encode("latin-1")).hexdigest(), **slots)  # type: ignore[arg-type]


def test_a_changed_object_is_told_from_one_that_cannot_be_checked() -> None:
    sound = hashed("ID:a|TYPE::HEADLINE|ATTRS:NIL|CONTENT:x|CHILDREN:", id="a", type=HEADLINE, content="x")
    changed = replace(sound, content="y")
    printed = replace(sound, attributes=((Symbol("F", KEYWORD), Float(0.5)),))
    orphan = replace(sound, content="y", children=("gone",))
    foreign_text = replace(sound, content="中文")
    odd = replace(sound, content=Symbol("X"))
    none = replace(sound, hash=None)
    expected = {
        sound: HashVerdict.MATCHES,
        changed: HashVerdict.DIFFERS,
        **dict.fromkeys((printed, orphan, foreign_text, odd, none), HashVerdict.UNCHECKED),
    }
    for each, verdict in expected.items():
        [found] = lisp_hash.check(ForeignMemory((each,), {"a": each.hash}))
        assert found.verdict == verdict, found
        assert found.hash == each.hash
        assert bool(found.why) == (verdict != HashVerdict.MATCHES)


def test_the_hash_is_carried_as_it_was_given() -> None:
    given = ForeignObject("a", hash="fake-hash-123")
    assert sexpr.read(sexpr.write([given])).objects == (given,)


# --- times -------------------------------------------------------------------------------------------------------


def test_universal_time_is_seconds_since_1900() -> None:
    assert sexpr.to_utc(0) == "1900-01-01T00:00:00.000000Z"
    assert sexpr.to_utc(2_208_988_800) == "1970-01-01T00:00:00.000000Z"
    assert sexpr.to_utc(3_985_000_001) == "2026-04-12T16:26:41.000000Z"
    assert sexpr.to_universal("2026-04-12T16:26:41.999999Z") == 3_985_000_001
    assert sexpr.to_universal("1899-12-31T23:59:59.500000Z") == -1


@fixed
@given(st.integers(-(10**10), 10**11))
def test_every_moment_of_universal_time_comes_back(universal: int) -> None:
    assert sexpr.to_universal(sexpr.to_utc(universal)) == universal


@pytest.mark.parametrize("universal", [10**15, -(10**15), 10**300])
def test_a_moment_that_no_calendar_holds_is_refused(universal: int) -> None:
    with pytest.raises(InvalidInputError):
        sexpr.to_utc(universal)
    with pytest.raises(InvalidInputError):
        sexpr.to_universal("yesterday")
