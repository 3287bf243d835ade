"""Records: one object, one byte string; whatever JSON or Lisp has comes back as it was; nothing passes for a tag."""

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof import errors
from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor
from holdproof.crypto.mst_node import check_key
from holdproof.memory.objects import commits, records
from holdproof.memory.objects.commits import CommitNote
from holdproof.memory.objects.records import ObjectRecord, Sealed
from holdproof.model.memory import Tagged
from tests.unit.crypto.blocks import mutants

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | TEXT
    | st.binary(max_size=20)
    | st.builds(lambda data: cids.of(data), st.binary(max_size=3))
    | st.builds(Tagged, st.sampled_from(["lisp", "ratio", "x-1"]), st.binary(max_size=9))
)
KEYS = TEXT | st.sampled_from(["$", "$$", "$float", "$int", "$text", "$link", "$$int"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def made(**more: Any) -> ObjectRecord:
    fields: dict[str, Any] = {"id": "a", "type": "note", "content": None, "attributes": {}, "parent": None}
    return ObjectRecord(**{**fields, "children": (), "version": 1, **more})


def block(record: ObjectRecord) -> bytes:
    return [*records.encode(record).values()][-1]


@given(VALUES, st.dictionaries(KEYS, VALUES, max_size=3))
def test_what_goes_in_comes_out(content: Any, attributes: dict[str, Any]) -> None:
    record = made(content=content, attributes=attributes, children=("b", "c"), parent="p")
    data = block(record)
    assert records.decode(data) == record
    assert block(records.decode(data)) == data


@given(VALUES, st.dictionaries(KEYS, VALUES, max_size=3), st.lists(TEXT, max_size=3), TEXT | st.none())
def test_a_record_put_together_by_hand_is_what_the_codec_writes(
    content: Any, attributes: dict[str, Any], children: list[str], parent: str | None
) -> None:
    record = made(content=content, attributes=attributes, children=tuple(children), parent=parent, version=2**53 - 1)
    fields: dict[str, Any] = {
        "v": 1,
        **record._asdict(),
        "content": records.lower(content),
        "attributes": records.lower(attributes),
    }
    fields["children"] = children
    del fields["subject"]  # it is only in what is sealed
    assert block(record) == dagcbor.encode(fields)


class Text(str):
    """A text that is not one to DAG-CBOR."""

    __slots__ = ()


@pytest.mark.parametrize("wrong", [{"id": Text("a")}, {"type": Text("t")}, {"id": "\ud800"}])
def test_a_field_of_another_kind_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInputError):
        block(made(**wrong))


@given(VALUES)
def test_no_record_holds_a_float_or_a_large_integer(value: Any) -> None:
    waiting = [dagcbor.decode(dagcbor.encode(records.lower(value)))]
    while waiting:
        item = waiting.pop()
        assert type(item) is not float
        assert type(item) is not int or abs(item) <= records.MAX_INT
        waiting += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()


def test_every_float_is_kept_to_the_bit() -> None:
    for value in (0.0, -0.0, math.inf, -math.inf, 5e-324, 0.1):
        assert struct.pack(">d", records.lift(records.lower(value))) == struct.pack(">d", value)
    assert math.isnan(records.lift(records.lower(math.nan)))


def test_a_vector_is_bytes() -> None:
    assert records.lower([0.5, 1.0]) == {"$floats": struct.pack(">2d", 0.5, 1.0)}
    assert records.lower([0.5]) == [{"$float": struct.pack(">d", 0.5)}]


@pytest.mark.parametrize("wrong", [(1, 2), {1}, {1: 2}, bytearray(b"x"), object(), "\ud800", {"\ud800": 1}])
def test_a_value_that_has_no_place_is_refused(wrong: Any) -> None:
    with pytest.raises(errors.InvalidInputError):
        records.encode(made(content=wrong))


def test_what_is_nested_too_deeply_is_refused() -> None:
    value: Any = None
    for _ in range(5_000):
        value = [value]
    with pytest.raises(errors.InvalidInputError):
        records.encode(made(content=value))


WRONG: dict[str, Any] = {
    "a plain float": 1.5,
    "a large integer": 2**60,
    "unpacked floats": [{"$float": bytes(8)}, {"$float": bytes(8)}],
    "a short float": {"$float": bytes(7)},
    "an int that needs no tag": {"$int": b"\x01"},
    "an int that is not shortest": {"$int": b"\x00" * 9 + b"\x01" * 9},
    "a tag without bytes": {"$lisp": "x"},
    "a tag beside another key": {"$lisp": b"x", "b": 1},
    "a reserved tag": {"$text": b"x"},
    "pieces that are none": {"$text": [1, 2]},
    "one piece": {"$text": [cids.of_raw(b"x")]},
    "a tag with a bad name": {"$A": b"x"},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_second_way_to_say_the_same_is_refused(name: str) -> None:
    found = dagcbor.decode(block(made()))
    assert isinstance(found, dict)
    found["content"] = WRONG[name]
    with pytest.raises(errors.FormatError):
        records.decode(dagcbor.encode(found))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("v", 2),
        ("id", 1),
        ("type", None),
        ("parent", 1),
        ("children", "a"),
        ("children", [1]),
        ("version", -1),
        ("version", True),
        ("attributes", []),
        ("extra", 1),
    ],
)
def test_a_record_of_another_shape_is_refused(field: str, value: Any) -> None:
    found = dagcbor.decode(block(made()))
    assert isinstance(found, dict)
    with pytest.raises(errors.FormatError):
        records.decode(dagcbor.encode({**found, field: value}))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (records.decode, records.decode_meta):
        with pytest.raises(errors.FormatError):
            read(data)


def read_record(data: bytes) -> bytes:
    found = records.decode(data)
    return data if isinstance(found.content, records.Pieces) else block(found)


def read_meta(data: bytes) -> bytes:
    return records.encode_meta(*records.decode_meta(data))[1]


def read_note(data: bytes) -> bytes:
    return commits.encode_note(*commits.decode_note(data))[1]


def again(data: bytes) -> bytes | None:
    """What reading and writing makes of a block; None where it is refused."""
    for read in (read_record, read_meta, read_note):
        try:
            return read(data)
        except errors.FormatError:
            continue
    return None


def test_mutated_blocks_are_refused_or_say_one_thing_in_one_way() -> None:
    """Records, sealed ones and ones in pieces, volatile fields, notes: what is read is written as the same bytes."""
    envelope = b"HFS\x01" + bytes(range(60))
    rich = {"$odd": 2**80, "f": 0.5, "v": [0.25, 1.5], "deep": [{"x": None, "l": cids.of(b"x")}], "b": b"\x00"}
    seeds = [
        block(made(content="text", attributes=rich)),
        block(made(content=Tagged("symbol", b"KEYWORD:X"), children=("a", "b"), parent="p")),
        block(made(content="x" * 300_000)),
        block(made(content=Sealed(envelope))),
        block(made(content=Sealed(envelope * 6_000))),
        records.encode_meta("a", {"vector": [0.1, 0.2], "last_sync": 2**64})[1],
        records.encode_meta("a", Sealed(envelope))[1],
        commits.encode_note(cids.of(b"c"), CommitNote("ada", "first", "why", cids.of(b"m")))[1],
    ]
    assert [again(seed) for seed in seeds] == seeds
    outcomes = {"read": 0, "refused": 0}
    for data in mutants(seeds):
        found = again(data)
        assert found in (None, data)
        outcomes["refused" if found is None else "read"] += 1
    assert min(outcomes.values()) > 300, outcomes


# --- long content ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["ä" * 400_000, b"\x01" * 600_000, "x" * (records.PIECE + 1)])
def test_long_content_is_cut_into_blocks_and_put_together_again(content: Any) -> None:
    record = made(content=content)
    blocks = records.encode(record)
    assert len(blocks) > 2
    assert max(map(len, blocks.values())) <= records.PIECE
    read = records.decode([*blocks.values()][-1])
    assert isinstance(read.content, records.Pieces)
    assert records.whole(read, blocks.get) == record
    missing = next(iter(blocks))
    with pytest.raises(errors.ProofError):
        records.whole(read, {**blocks, missing: b"x"}.get)
    with pytest.raises(errors.ProofError):
        records.whole(read, lambda cid: None if cid == missing else blocks[cid])


def test_short_content_is_one_block() -> None:
    assert len(records.encode(made(content="x" * records.PIECE))) == 1


# --- keys --------------------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_an_id_has_one_key_and_a_key_one_id(id: str) -> None:
    key = records.key_of(id)
    check_key(records.OBJECT + key)
    assert records.id_of(key) == id
    assert records.key_of(key) == key or key.startswith("~")


@pytest.mark.parametrize("id", ["note-1", "a.b:c_d~e", "x" * 1017])
def test_a_plain_id_is_its_own_key(id: str) -> None:
    assert records.key_of(id) == id


@pytest.mark.parametrize("id", ["~a", ".", "..", "a b", "ä", "a/b", "a\n", "\0"])
def test_any_other_id_is_base32(id: str) -> None:
    assert records.key_of(id).startswith("~")


@pytest.mark.parametrize("id", ["", 1, None, "x" * 1018, "ä" * 400, "\ud800"])
def test_an_id_that_has_no_key_is_refused(id: Any) -> None:
    with pytest.raises(errors.InvalidInputError):
        records.key_of(id)


@pytest.mark.parametrize("key", ["~", "~1", "~mfra====", "~nzxxizjngE", "~nzxxizjnge"])
def test_a_key_that_no_id_has_is_refused(key: str) -> None:
    with pytest.raises(errors.FormatError):
        records.id_of(key)


def test_volatile_fields_are_a_record_of_their_own() -> None:
    cid, data = records.encode_meta("a", {"vector": [0.1, 0.2], "last_sync": 2**64, "hash": None})
    assert cids.of(data) == cid
    assert records.decode_meta(data) == ("a", {"vector": [0.1, 0.2], "last_sync": 2**64, "hash": None})


@given(st.text(st.sampled_from("ab/~.é "), min_size=1, max_size=9), st.text(st.sampled_from("ab/~.é "), max_size=5))
def test_the_ranges_of_a_prefix_have_the_keys_of_exactly_the_ids_that_begin_with_it(id: str, prefix: str) -> None:
    key = records.key_of(id)
    inside = [start <= key < end for start, end in records.key_ranges(prefix)]
    assert inside.count(True) == (1 if id.startswith(prefix) else 0)


@pytest.mark.parametrize("prefix", [None, 5, b"a", ["a"], "\ud800", "a" * 1_025, "é" * 5_000_000])
def test_a_prefix_that_no_id_can_have_is_refused_before_it_is_encoded(prefix: Any) -> None:
    with pytest.raises(errors.InvalidInputError, match="a prefix is"):
        records.key_ranges(prefix)
