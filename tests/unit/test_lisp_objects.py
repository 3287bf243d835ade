"""Objects of a Lisp memory as records: there and back is the same object, whatever its slots hold."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import cid as cids
from holdproof.importers.lisp import lisp_objects, sexpr
from holdproof.memory.objects import records
from holdproof.model.lisp import KEYWORD, Float, ForeignObject, Lisp, Symbol, Vector
from holdproof.model.memory import Object, Tagged
from tests.fixtures import fixture
from tests.unit.test_lisp import values
from tests.unit.test_sexpr import fixed, names


def shown(kept: lisp_objects.StoredVersion) -> Object:
    """The object that a store gives back: through the bytes of its record and of its volatile fields."""
    made = records.encode(kept.record)
    whole = records.whole(records.decode(made[kept.cid]), made.get)
    _, meta = records.decode_meta(records.encode_meta(whole.id, kept.meta)[1])
    assert isinstance(meta, dict)
    facts: dict[str, Any] = whole._asdict()
    return Object(**facts, meta=meta, cid=str(kept.cid), ns="main")


def there_and_back(each: ForeignObject) -> ForeignObject:
    return lisp_objects.foreign(shown(lisp_objects.stored_version(each)))


symbols = st.builds(Symbol, names, st.just(KEYWORD) | st.none()).filter(
    lambda each: each.package is not None or each.name not in ("NIL", "T")
)
floats = st.floats(allow_nan=False, allow_infinity=False, width=32)
vectors = st.one_of(
    st.lists(floats, max_size=4).map(lambda found: Vector(tuple(Float(each) for each in found))),
    st.lists(floats, max_size=4).map(lambda found: Vector(tuple(Float(each, double=True) for each in found))),
    st.lists(floats, min_size=1, max_size=4).map(lambda found: tuple(Float(each, double=True) for each in found)),
)
objects = st.builds(
    ForeignObject,
    id=names,
    type=values,
    attributes=st.lists(st.tuples(symbols, values), max_size=4).map(tuple),
    content=values,
    parent=st.none() | names,
    children=st.lists(names, max_size=3).map(tuple),
    version=st.none() | st.integers(),
    last_sync=st.none() | st.integers(),
    vector=vectors | values,
    hash=st.none() | names,
)


@fixed
@given(objects)
def test_there_and_back_is_the_same_object(each: ForeignObject) -> None:
    assert sexpr.write([there_and_back(each)]) == sexpr.write([each])
    assert there_and_back(each) == each


@pytest.mark.parametrize(
    "name", ["archival.small.sexp", "archival.types.sexp", "memory-image.small.lisp", "memory-image.types.lisp"]
)
def test_every_sample_survives(name: str) -> None:
    found = sexpr.read(fixture(f"org-agent/{name}").read_bytes())
    assert tuple(there_and_back(each) for each in found.objects) == found.objects


def test_what_both_have_is_itself_and_the_rest_is_tagged() -> None:
    given = sexpr.read('((:ID "a" :TYPE :NOTE :ATTRIBUTES (:N 1 :D 0.5d0 :L (1 "x" T NIL) :R 1/3) :CONTENT "text"))')
    kept = lisp_objects.stored_version(given.objects[0])
    assert (kept.record.type, kept.record.content) == (":NOTE", "text")
    assert kept.record.attributes == {":N": 1, ":D": 0.5, ":L": [1, "x", True, None], ":R": Tagged("lisp", b"1/3")}


def test_a_vector_of_floats_is_a_list_of_them() -> None:
    given = sexpr.read('((:ID "a" :VECTOR #(0.5 -1.25)))').objects[0]
    assert lisp_objects.stored_version(given).meta["vector"] == [0.5, -1.25]


def test_a_property_list_that_has_a_name_twice_is_kept_whole() -> None:
    given = sexpr.read('((:ID "a" :ATTRIBUTES (:N 1 :N 2)))').objects[0]
    assert there_and_back(given) == given


def test_the_hash_counts_only_for_the_record_it_came_with() -> None:
    given = sexpr.read('((:ID "a" :TYPE :NOTE :CONTENT "x" :VERSION 7 :LAST-SYNC 8 :HASH "h"))').objects[0]
    kept = lisp_objects.stored_version(given)
    assert lisp_objects.foreign(shown(kept)).hash == "h"
    changed = kept.record._replace(content="y", version=8)
    after = kept._replace(record=changed, cid=next(reversed(records.encode(changed))))
    found = lisp_objects.foreign(shown(after))
    assert (found.hash, found.version, found.last_sync) == (None, 8, 8)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (False, None),
        ([], None),
        ({}, None),
        ({"odd name": 1}, (Symbol("odd name", KEYWORD), 1)),
        (b"\x01\x02", Vector((1, 2))),
        (1.5, Float(1.5, double=True)),
        (Tagged("else", b"\x00"), (Symbol("ELSE", KEYWORD), Vector((0,)))),
        (cids.of_raw(b""), str(cids.of_raw(b""))),
    ],
)
def test_what_lisp_has_no_type_for_becomes_what_is_nearest(value: Any, wanted: Lisp) -> None:
    made = Object("a", "note", value, {"odd": value}, None, (), 1, {}, "cid", "main")
    found = lisp_objects.foreign(made)
    assert (found.type, found.content) == (Symbol("note", KEYWORD), wanted)
    assert found.attributes == ((Symbol("odd", KEYWORD), wanted),)
    assert sexpr.read(sexpr.write([found])).objects == (found,)
