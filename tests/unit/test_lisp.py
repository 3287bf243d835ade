"""The reader and writer of Lisp data: every type there and back, every reader macro refused by its place."""

import os
import sys
import threading
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.damaged_bytes import LISP_MARKS, mutants
from holdproof.errors import FormatError, InvalidInputError, LispError
from holdproof.importers.lisp import floats, reader, writer
from holdproof.importers.lisp.reader import MOST_DEPTH, MOST_DIGITS, MOST_NAME
from holdproof.model.lisp import KEYWORD, Bits, Char, Complex, Dotted, Float, Lisp, Pathname, Struct, Symbol, Vector
from tests.fixtures import fixture

fixed = settings(derandomize=True, deadline=None)

MUTATIONS = int(os.environ.get("HOLDPROOF_MUTATIONS", "20000"))


def read(text: str | bytes) -> Lisp:
    """The only form of a text."""
    [(_, value)] = reader.read(text)
    return value


def refusal(text: str | bytes) -> LispError:
    with pytest.raises(LispError) as caught:
        list(reader.read(text))
    return caught.value


def key(name: str) -> Symbol:
    return Symbol(name, KEYWORD)


# --- every type --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NIL", None),
        ("()", None),
        ("nil", None),
        ("|NIL|", None),
        ("T", True),
        (":NIL", key("NIL")),
        ("42", 42),
        ("+42.", 42),
        ("-7", -7),
        ("1000000000000000000000000000000", 10**30),
        ("1/3", Fraction(1, 3)),
        ("-4/6", Fraction(-2, 3)),
        ("4/2", 2),
        ("1.5", Float(1.5)),
        ("0.1", Float(floats.to_single(0.1))),
        ("2.5d0", Float(2.5, double=True)),
        ("1.0d-20", Float(1e-20, double=True)),
        (".5", Float(0.5)),
        ("1e3", Float(1000.0)),
        ("1F3", Float(1000.0)),
        ("1L3", Float(1000.0, double=True)),
        ("-0.0", Float(-0.0)),
        ('""', ""),
        ('"q\\"\\\\z"', 'q"\\z'),
        ('"a\n\tb"', "a\n\tb"),
        ('"; not a comment #.(nor this)"', "; not a comment #.(nor this)"),
        ("foo", Symbol("FOO")),
        ("|mixed Case|", Symbol("mixed Case")),
        (":|odd Key|", key("odd Key")),
        ("a|b C|d", Symbol("Ab CD")),
        (r"a\bc", Symbol("AbC")),
        (r"|a\|b|", Symbol("a|b")),
        ("||", Symbol("")),
        ("custom::foo", Symbol("FOO", "CUSTOM")),
        ("sb-ext:run", Symbol("RUN", "SB-EXT", external=True)),
        ("keyword:foo", key("FOO")),
        ("|a:b|", Symbol("a:b")),
        ("1+", Symbol("1+")),
        ("a#b", Symbol("A#B")),
        ("straße", Symbol("STRAßE")),
        (r"#\a", Char("a")),
        (r"#\A", Char("A")),
        (r"#\(", Char("(")),
        (r"#\;", Char(";")),
        (r"#\Newline", Char("\n")),
        (r"#\space", Char(" ")),
        (r"#\LATIN_SMALL_LETTER_E_WITH_ACUTE", Char("é")),
        (r"#\U1F600", Char("😀")),
        (r"#\u+e9", Char("é")),
        ("#*1011", Bits("1011")),
        ("#*", Bits("")),
        ('#P"/tmp/x.org"', Pathname("/tmp/x.org")),
        ("#C(1 2)", Complex(1, 2)),
        ("#(1 2 3)", Vector((1, 2, 3))),
        ("#()", Vector(())),
        ("(1 (2 . 3) x)", (1, Dotted((2,), 3), Symbol("X"))),
        ("(1 . (2 . (3 . nil)))", (1, 2, 3)),
        ("(1 . (2 . 3))", Dotted((1, 2), 3)),
        ("(a.b)", (Symbol("A.B"),)),
        ("#S(ORG-OBJECT :ID 1)", Struct(Symbol("ORG-OBJECT"), ((key("ID"), 1),))),
    ],
)
def test_each_type_is_read_as_lisp_means_it(text: str, value: Lisp) -> None:
    assert read(text) == value
    assert repr(read(text)) == repr(value)
    assert read(writer.write(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Float(1.5), "1.5"),
        (Float(floats.to_single(0.1)), "0.1"),
        (Float(floats.to_single(1e10)), "1.0e10"),
        (Float(1e7), "1.0e7"),
        (Float(0.001, double=True), "0.001d0"),
        (Float(0.0001, double=True), "1.0d-4"),
        (Float(123456.75, double=True), "123456.75d0"),
        (Float(-0.0), "-0.0"),
        (Symbol("FOO-BAR*"), "FOO-BAR*"),
        (Symbol("foo"), "|foo|"),
        (Symbol("12"), "|12|"),
        (Symbol("."), "|.|"),
        (Symbol("A:B", "X Y"), "|X Y|::|A:B|"),
        (Char("\n"), "#\\Newline"),
        (Char("\x01"), "#\\U1"),
        ((1, 2), "(1 2)"),
        (Dotted((1, 2), "x"), '(1 2 . "x")'),
    ],
)
def test_values_are_written_as_a_lisp_prints_them(value: Lisp, text: str) -> None:
    assert writer.write(value) == text
    assert repr(read(text)) == repr(value)


@pytest.mark.parametrize("name", ["archival.types.sexp", "memory-image.types.lisp", "merkle.preimages.txt"])
def test_everything_a_lisp_printed_round_trips(name: str) -> None:
    forms = [value for _, value in reader.read(fixture(f"org-agent/{name}").read_bytes())]
    assert [read(writer.write(value)) for value in forms] == forms


characters = st.characters(codec="utf-8")
texts = st.text(characters, max_size=12)
atoms: st.SearchStrategy[Lisp] = st.one_of(
    st.none(),
    st.just(True),
    st.integers(),
    st.fractions().filter(lambda ratio: ratio.denominator != 1),
    texts,
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: Float(number, double=True)),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(Float),
    st.builds(Symbol, texts.filter(lambda name: name not in ("NIL", "T"))),
    st.builds(Symbol, texts, st.just(KEYWORD)),
    st.builds(Symbol, texts, texts.filter(lambda name: name not in ("", KEYWORD)), st.booleans()),
    st.builds(Char, characters),
    st.builds(Bits, st.text("01", max_size=9)),
    st.builds(Pathname, texts),
    st.builds(Complex, st.integers(), st.integers()),
)
values: st.SearchStrategy[Lisp] = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(lambda items: Vector(tuple(items))),
        st.builds(
            Dotted, st.lists(inner, min_size=1, max_size=3).map(tuple), atoms.filter(lambda tail: tail is not None)
        ),
        st.builds(
            Struct, st.just(Symbol("ORG-OBJECT")), st.lists(st.tuples(st.just(key("ID")), inner), max_size=2).map(tuple)
        ),
    ),
    max_leaves=20,
)


@fixed
@given(values)
def test_what_is_written_is_read_back_as_it_was(value: Lisp) -> None:
    again = read(writer.write(value))
    assert again == value
    assert writer.write(again) == writer.write(value)


@fixed
@given(st.lists(values, max_size=4))
def test_forms_are_read_one_after_the_other_with_their_places(forms: list[Lisp]) -> None:
    written = [writer.write(form) for form in forms]
    found = list(reader.read("\n ".join(written)))
    assert [value for _, value in found] == forms
    text = "\n ".join(written)
    for (start, _), each in zip(found, written, strict=True):
        assert text[start:].startswith(each)


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "macro",
    [
        *('#.(delete-file "x")', "#+sbcl 1", "#-sbcl 1", "#'car", "#:free", "#1=(a)", "#1#", "#b101", "#o17", "#xFF"),
        *("#2r101", "#2A((1))", "#3(1 2)", "#4*1", "#<HASH>", "#|comment|#", "#", "# (1)", "#)", "#~", '#"x"', "#S1"),
        *("'quoted", "`(a ,b)", ",x", "; comment", "#p(1)", "#\u0661(1)"),
    ],
)
def test_every_other_reader_macro_is_refused_by_line_and_column(macro: str) -> None:
    error = refusal(f'(1 "a\nb"\n  {macro})')
    assert (error.fields["line"], error.fields["column"]) == (3, 3)
    assert "line 3, column 3: the reader macro" in error.message
    assert error.code == "format.lisp"


def test_the_hostile_image_is_refused_where_it_would_have_been_evaluated(tmp_path: Path) -> None:
    error = refusal(fixture("org-agent/memory-image.hostile.lisp").read_bytes())
    assert (error.fields["line"], error.fields["column"]) == (4, 40)
    assert "#." in error.message
    assert not Path("pwned.txt").exists()


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("(1\n (2", (2, 2), "never closed"),
        (")", (1, 1), "never opened"),
        ('(1 "abc', (1, 4), "string is never closed"),
        ('"a\\"', (1, 1), "string is never closed"),
        ('#P"abc', (1, 1), "string is never closed"),
        ("|abc", (1, 1), "never ended"),
        ("abc\\", (1, 4), "never ended"),
        ("(. 1)", (1, 2), "dot"),
        ("(1 . )", (1, 6), "follows a dot"),
        ("(1 . 2 3)", (1, 9), "follows a dot"),
        ("(1 . . 2)", (1, 6), "dot"),
        ("#(1 . 2)", (1, 5), "dot"),
        (".", (1, 1), "dot"),
        ("...", (1, 1), "dots"),
        ("1/0", (1, 1), "over zero"),
        ("1e99", (1, 1), "precision"),
        ("1e-99", (1, 1), "precision"),
        ("1d999999999", (1, 1), "precision"),
        ("1d-999999999", (1, 1), "precision"),
        ("a:b:c", (1, 1), "one package"),
        ("a:::b", (1, 1), "one package"),
        ("::a", (1, 1), "one colon"),
        ("a:", (1, 1), "missing"),
        (":", (1, 1), "missing"),
        ("a\x00b", (1, 1), "escaped"),
        ("a\u00a0b", (1, 1), "escaped"),
        (r"#\nosuchname", (1, 1), "no character"),
        (r"#\ud800", (1, 1), "no character"),
        (r"#\uFFFFFFFF", (1, 1), "no character"),
        ("#*102", (1, 1), "reader macro"),
        ("#C(1)", (1, 1), "two real parts"),
        ("#C(1 x)", (1, 1), "two real parts"),
        ("#C(1 T)", (1, 1), "two real parts"),
        ("#S()", (1, 1), "structure"),
        ("#S(X :A)", (1, 1), "structure"),
        ("#S(X 1 2)", (1, 1), "structure"),
        (b'("abc\n\xff")', (2, 1), "UTF-8"),
        ('("abc\n\ud800")', (2, 1), "Unicode"),
    ],
)
def test_what_is_not_lisp_data_is_refused_by_line_and_column(
    text: str | bytes, place: tuple[int, int], why: str
) -> None:
    error = refusal(text)
    assert (error.fields["line"], error.fields["column"]) == place
    assert why in error.message


def test_depth_is_bounded_and_costs_no_recursion() -> None:
    assert read("(" * MOST_DEPTH + "1" + ")" * MOST_DEPTH) is not None
    for opening in ("(", "#(", "#S(a :b ", "(a . "):
        error = refusal(opening * 1_000_000)
        assert error.fields["column"] == len(opening) * MOST_DEPTH + 1
    deep: Lisp = 1
    for _ in range(MOST_DEPTH + 1):
        deep = (deep,)
    with pytest.raises(InvalidInputError):
        writer.write(deep)


def test_numbers_names_and_texts_are_bounded() -> None:
    assert read("9" * MOST_DIGITS) == 10**MOST_DIGITS - 1
    assert read(writer.write(10**MOST_DIGITS - 1)) == 10**MOST_DIGITS - 1
    for text in ("9" * (MOST_DIGITS + 1), "1/" + "9" * MOST_DIGITS, "1." + "0" * MOST_DIGITS, "a" * (MOST_NAME + 1)):
        assert "at most" in refusal(text).message
    with pytest.raises(LispError):
        list(reader.read("(1 2 3)", most=6))


@pytest.mark.parametrize(
    "value",
    [
        *((), False, Symbol("NIL"), Symbol("T"), Float(float("inf")), Float(float("nan"), double=True), Float(0.1)),
        *(Char("ab"), Char(""), Bits("12"), Dotted((), 1), Dotted((1,), None), Dotted((1,), (2,)), Fraction(4, 2)),
        *(
            10**MOST_DIGITS,
            "\ud800",
            Symbol("\udfff"),
            Symbol("x" * MOST_NAME, "y"),
            Char("\ud800"),
            1.5,
            [1],
            {"a": 1},
        ),
    ],
)
def test_what_has_no_text_is_refused_rather_than_written_wrong(value: Lisp) -> None:
    with pytest.raises(InvalidInputError):
        writer.write((1, value))


@pytest.mark.parametrize("unit", ['"', "|", "\\", "(1 . ", "#\\", "a:", "#*1", '"\\', "|\\", "1/", "#P", " ", ";"])
def test_no_text_takes_more_than_linear_time(unit: str) -> None:
    """A quadratic reader would run into the limit of the test."""
    with suppress(LispError):
        list(reader.read(unit * 400_000))


_ALL_TYPES = """((:ID "types" :TYPE CUSTOM::FOO :ATTRIBUTES (:INT 42 :BIG 1000000000000000000000 :RATIO 1/3 :SINGLE 1.5
  :DOUBLE 2.5d0 :EXP 1.0d-20 :CHAR #\\a :NL #\\Newline :SYM BAR :KW :|odd Key| :S "q\\"\\\\z" :NESTED (1 (2 . 3) "x")
  :VEC #(1 2 3) :BITS #*1011 :NIL NIL :T T :EMPTY "" :PATHNAME #P"/tmp/x.org" :COMPLEX #C(1 2)) :CONTENT "é\tend"
  :PARENT-ID NIL :CHILDREN ("a" "b") :VERSION 3985000001 :LAST-SYNC 3985000001 :HASH "h1"))"""
_IMAGE = """(in-package :org-agent)
(SETF (GETHASH "h" *HISTORY-STORE*) #S(ORG-OBJECT :ID "x" :CONTENT "evil" :VECTOR #(0.1 -0.2) :HASH "h"))
(SETF (GETHASH "x" *MEMORY*) (GETHASH "h" *HISTORY-STORE*))
"""


@pytest.mark.slow
def test_no_mutation_of_real_data_is_met_with_anything_but_a_typed_error() -> None:
    seeds = [_ALL_TYPES.encode(), _IMAGE.encode()]
    outcomes = {"read": 0, "refused": 0}
    for data in mutants(seeds, MUTATIONS, marks=LISP_MARKS):
        try:
            forms = [value for _, value in reader.read(data)]
        except FormatError:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
            assert [read(writer.write(value)) for value in forms] == forms
    assert min(outcomes.values()) > 1_000, outcomes


def test_the_reader_needs_hardly_any_stack() -> None:
    """At the depth that is allowed a thread with little stack, or a caller deep in recursion, is enough."""
    text = "#(" * MOST_DEPTH + ")" * MOST_DEPTH
    found: list[Lisp] = []
    thread = threading.Thread(target=lambda: found.append(read(text)))
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(60)
    try:
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(before)
    assert len(found) == 1
