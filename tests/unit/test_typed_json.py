"""Python values as tagged JSON: every type comes back equal and of its own class, and nothing else is taken in."""

import math
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, field_validator

from holdproof import errors
from holdproof.model import typed_json
from holdproof.runtime import recorded


class Colour(Enum):
    RED = "r"
    BLUE = "b"


@dataclass(frozen=True, slots=True)
class Receipt:
    order: str
    cents: int
    paid_at: datetime | None = None


@dataclass
class Doubling:
    """Its `__post_init__` would change it if it ran again."""

    number: int
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.number *= 2
        self.total = self.number + 1


class Address(BaseModel):
    model_config = ConfigDict(extra="allow")
    street: str = Field(alias="strasse")
    receipt: Receipt | None = None

    @field_validator("street")
    @classmethod
    def shouted(cls, street: str) -> str:
        return f"{street}!"


class Outer:
    @dataclass
    class Inner:
        x: int


class Pair(NamedTuple):
    a: int
    b: int


def again(value: Any) -> Any:
    """The value as a replay gets it: through its canonical text."""
    return typed_json.decode(recorded.parse(recorded.dump(typed_json.encode(value))))


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, and of the same classes all the way down; NaN is NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(item, other[key]) for key, item in one.items())
    return bool(one == other)


_ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
# Texts without lone surrogates: JSON in UTF-8 has no form for these.
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_HASHABLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    _TEXTS,
    st.binary(max_size=20),
    st.datetimes(timezones=st.none() | _ZONES),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.sampled_from(Colour),
    st.builds(Receipt, _TEXTS, st.integers(), st.none() | st.datetimes()),
    _TEXTS.filter(lambda text: "\0" not in text).map(Path),
)
_VALUES = st.recursive(
    _HASHABLE | st.floats() | st.builds(Outer.Inner, st.integers()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(_TEXTS, inner, max_size=4),
        st.dictionaries(_HASHABLE, inner, max_size=4),
        st.frozensets(_HASHABLE, max_size=4),
        st.sets(_HASHABLE, max_size=4),
    ),
    max_leaves=12,
)


@given(_VALUES)
def test_every_value_comes_back_equal_and_of_its_class(value: Any) -> None:
    assert same(again(value), value)


@given(_VALUES)
def test_the_same_value_gives_the_same_text(value: Any) -> None:
    text = recorded.dump(typed_json.encode(value))
    assert recorded.dump(typed_json.encode(again(value))) == text
    assert typed_json.tagged(recorded.parse(text), "it").json == recorded.parse(text)


@pytest.mark.parametrize(
    "value",
    [
        *(0.0, -0.0, 1.0, 1e16, 2.0**53, 1e21, 5e-324, 0.1, math.inf, -math.inf, math.nan),
        *(2**53 - 1, 2**53, -(2**53), 10**400, True, False, None, ""),
        *(b"", b"\xff\x00", (), [], {}, set(), frozenset(), Decimal("1.10"), Decimal("-0"), Decimal("1E+3")),
        *({"$int": 1}, {"$cid": "x"}, {"a": {"$sealed": "x"}}, {1: "a", "1": "b"}, {(1, 2): [3]}, {None: 0}),
        *(datetime(2026, 1, 31, 12, tzinfo=UTC), date(2026, 1, 31), time(1, 2, 3, 4), timedelta(-1, 5, 7)),
        *(UUID(int=7), Path("/a/b"), Colour.RED, Receipt("o", 5), Outer.Inner(3)),
    ],
    ids=repr,
)
def test_the_edges_of_each_type_come_back(value: Any) -> None:
    assert same(again(value), value)


def test_an_object_comes_back_without_being_made_anew() -> None:
    doubled = Doubling(3)
    assert (again(doubled).number, again(doubled).total) == (6, 7)
    there = Address(strasse="Main", floor=3, receipt=Receipt("o", 5))  # type: ignore[call-arg]
    back = again(there)
    assert (back, back.street, back.model_extra, type(back.receipt)) == (there, "Main!", {"floor": 3}, Receipt)


def test_mappings_come_back_in_the_same_order_every_time() -> None:
    assert [*again({"b": 1, "a": 2})] == ["a", "b"]
    assert [*again(again({"b": 1, "a": 2}))] == ["a", "b"]


def test_a_field_that_the_class_got_since_has_its_default_or_is_named() -> None:
    older = {"$object": {"fields": {"order": "o", "cents": 5}, "type": f"{__name__}:Receipt"}}
    assert typed_json.decode(older) == Receipt("o", 5)
    oldest = {"$object": {"fields": {"order": "o"}, "type": f"{__name__}:Receipt"}}
    with pytest.raises(errors.UnrecordableError, match="has no cents: give that field a default"):
        typed_json.decode(oldest)
    with pytest.raises(errors.UnrecordableError, match="has no street"):
        typed_json.decode({"$object": {"fields": {}, "type": f"{__name__}:Address"}})


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (object(), "it is a builtins.object"),
        ({"a": [1, object()]}, r"it\.a\[1\] is a builtins.object"),
        (Receipt("o", 1, object()), r"it\.paid_at is a builtins.object"),  # type: ignore[arg-type]
        ({1: print}, r"it\[1\] is a builtins.builtin_function_or_method"),
        (Text("x"), "it is a .*Text"),
        (Pair(1, 2), "it is a .*Pair"),
        (Receipt, "it is a builtins.type"),
        (1j, "it is a builtins.complex"),
    ],
)
def test_what_cannot_be_recorded_is_refused_by_type_and_place(value: Any, names: str) -> None:
    with pytest.raises(errors.UnrecordableError, match=names):
        typed_json.encode(value, "it")


def test_a_class_inside_a_function_and_a_value_without_end_are_refused() -> None:
    @dataclass
    class Local:
        x: int

    with pytest.raises(errors.UnrecordableError, match="define it at the top of its module"):
        typed_json.encode(Local(1))
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(errors.UnrecordableError, match="nested too deeply"):
        typed_json.encode(endless)


@pytest.mark.parametrize(
    ("recorded_value", "names"),
    [
        ({"$pickle": "gASVA"}, "no tag"),
        ({"$object": {"type": "not_loaded:Thing", "fields": {}}}, "import not_loaded before the flow is run"),
        ({"$object": {"type": "os:path", "fields": {}}}, "is not loaded"),
        ({"$object": {"type": "subprocess:Popen", "fields": {"args": "true"}}}, "neither a dataclass nor a pydantic"),
        ({"$enum": {"type": "subprocess:Popen", "name": "x"}}, "is no enum"),
    ],
)
def test_nothing_but_recorded_classes_is_read(recorded_value: Any, names: str) -> None:
    with pytest.raises(errors.UnrecordableError, match=names):
        typed_json.decode(recorded_value)


@pytest.mark.parametrize(
    "value", [{"$cid": "x"}, {"$sealed": "x"}, {"$fields": []}, [{"a": {"$erased": "x"}}], {"$int": "1", "b": 2}]
)
def test_what_only_the_store_writes_is_refused_of_others(value: Any) -> None:
    with pytest.raises(errors.UnrecordableError, match="no tag of a recorded value"):
        typed_json.tagged(value, "it")


_SCRIPT = """
from dataclasses import dataclass
from enum import Enum
from pydantic import BaseModel
from holdproof.model import typed_json

@dataclass
class Order:
    id: str

class Model(BaseModel):
    order: Order

class Side(Enum):
    BUY = 1

if __name__ == "__main__":
    value = [Model(order=Order("o")), Side.BUY]
    encoded = typed_json.encode(value)
    assert encoded[0]["$object"]["type"] == "shop:Model", encoded
    assert typed_json.decode(encoded) == value
    import sys
    sys.path.insert(0, ".")
    import shop
    again = typed_json.decode(encoded)
    assert type(again[0]) is shop.Model
"""


def test_classes_of_a_script_are_named_as_another_program_would_import_them(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_SCRIPT)
    subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, check=True)
