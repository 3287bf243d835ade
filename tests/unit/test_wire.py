"""How values cross a wire: there and back, strictly, and what the schema says of it."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum, StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof import errors
from holdproof.api import problems, wire
from holdproof.crypto import cid as cids
from holdproof.errors import HoldproofError, InvalidInputError
from holdproof.model.flows import Flow, FlowTree
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding, Report
from holdproof.server.exchange import Exchanges

_TEXT = st.text(max_size=8)
_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT | st.sampled_from(["$bytes", "$link"]), inner),
    max_leaves=12,
)


def _trip(kind: Any, value: Any) -> Any:
    return wire.shape(kind).load(json.loads(json.dumps(wire.dump(value), allow_nan=False)), "value")


@given(_JSON)
def test_anything_comes_back_as_it_was(value: Any) -> None:
    assert _trip(Any, value) == value


def test_a_text_never_passes_for_bytes_or_a_link() -> None:
    for value in ({"$bytes": "eA=="}, {"$link": "x"}, {"$$bytes": 1}, [{"$": {"$bytes": "x"}}]):
        assert _trip(Any, value) == value
        assert _trip(dict[str, Any] if isinstance(value, dict) else list[Any], value) == value


class _Colour(StrEnum):
    RED = "red"


class _Deep(Enum):
    LOW = ("low", 1)


@dataclass(frozen=True, slots=True)
class _Whole:
    name: str
    parts: tuple[int, ...]
    pair: tuple[str, float]
    raw: bytes
    colour: _Colour
    deep: _Deep
    mode: Literal["a", "b"]
    more: dict[str, "_Whole"]
    free: Any = None
    maybe: int | None = None


def test_a_value_comes_back_as_the_type_it_was() -> None:
    inner = _Whole("i", (), ("x", 1.0), b"\0", _Colour.RED, _Deep.LOW, "a", {})
    value = _Whole("é", (1, 2), ("x", 2.5), b"\xff", _Colour.RED, _Deep.LOW, "b", {"$in": inner}, [b"x"], 3)
    back = _trip(_Whole, value)
    assert back == value
    assert type(back.pair) is tuple
    assert type(back.more["$in"].pair[1]) is float


def test_a_report_comes_back_with_its_verdicts() -> None:
    report = Report(Verdict.TAMPERED, "full", [Finding(Verdict.FORKED, "x", "y")], head={"size": 3})
    assert _trip(Report, report) == report


def test_arrays_and_places_and_links_are_told() -> None:
    link = cids.of(b"x")
    assert wire.dump(np.array([0.5, 1.0], dtype=np.float32)) == [0.5, 1.0]
    assert wire.dump(Path("/a/b")) == "/a/b"
    assert _trip(Any, {"at": link}) == {"at": link}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {"x": {1j}}])
def test_what_json_has_no_word_for_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError):
        wire.dump(value)


@pytest.mark.parametrize(
    ("kind", "given_"),
    [
        (int, "1"),
        (int, True),
        (int, 1.0),
        (str, 1),
        (bool, 1),
        (float, "1"),
        (bytes, "eA=="),
        (bytes, {"$bytes": "!"}),
        (bytes, {"$bytes": "eA==", "x": 1}),
        (list[int], {}),
        (list[int], [1, "x"]),
        (tuple[int, str], [1]),
        (Mapping[str, int], []),
        (Literal["a"], "b"),
        (_Colour, "blue"),
        (Flow, {}),
        (Finding, {"verdict": "VALID", "what": "x", "remedy": "y", "else": 1}),
        (int | None, "x"),
    ],
)
def test_what_is_of_another_type_is_refused_and_said_where(kind: Any, given_: Any) -> None:
    with pytest.raises(InvalidInputError, match="here"):
        wire.shape(kind).load(given_, "here")


def test_a_query_is_read_by_the_type() -> None:
    assert wire.shape(int).read("7", "n") == 7
    assert wire.shape(str).read("7", "n") == "7"
    assert wire.shape(bool).read("true", "n") is True
    assert wire.shape(float | None).read("7", "n") == 7.0
    assert wire.shape(Literal["a", "b"]).read("b", "n") == "b"
    for kind, text in ((int, "seven"), (int, "9" * 5000), (bool, "yes"), (Literal["a"], "x"), (list[int], "[1]")):
        with pytest.raises(InvalidInputError):
            wire.shape(kind).read(text, "n")


def test_a_schema_names_what_it_refers_to_and_ends_where_a_type_holds_itself() -> None:
    named: wire.Named = {}
    assert wire.shape(FlowTree).schema(named) == {"$ref": "#/components/schemas/FlowTree"}
    assert named.keys() == {"Flow", "FlowTree"}
    assert set(named["Flow"]["properties"]) == {each.name for each in fields(Flow)}
    assert wire.shape(Sequence[float]).schema({}) == {"type": "array", "items": {"type": "number"}}
    assert wire.shape(Iterable[str] | None).schema({})["anyOf"][1] == {"type": "null"}


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_comes_back_as_the_class_that_was_raised(name: str) -> None:
    kind: type[HoldproofError] = getattr(errors, name)
    raised = kind("it failed", resource="r", at=b"x", odd={1j})
    back = problems.error(json.loads(json.dumps(problems.problem(raised))))
    assert type(back) is kind
    assert back.message == "it failed"
    assert back.fields["resource"] == "r"
    assert back.fields["at"] == b"x"


def test_a_problem_of_a_newer_server_is_still_an_error() -> None:
    back = problems.error({"code": "conflict.of_tomorrow", "title": "Conflict", "fields": None})
    assert (type(back), back.message) == (HoldproofError, "Conflict")


def test_what_went_wrong_inside_is_told_only_to_those_who_may_know_it() -> None:
    defect, refusal = HoldproofError("disk /srv/x failed", path="/srv/x"), InvalidInputError("no such day", day="x")
    assert problems.problem(defect)["detail"] == "disk /srv/x failed"
    hidden = problems.problem(defect, "r7", inside=False)
    assert "/srv/x" not in json.dumps(hidden)
    assert hidden["detail"].endswith("under r7")
    assert problems.problem(refusal, inside=False)["fields"] == {"day": "x"}


def test_a_stream_tells_an_agent_nothing_of_the_inside() -> None:
    async def failing() -> None:
        raise HoldproofError("disk /srv/x failed")

    async def said() -> list[Any]:
        exchange = Exchanges().begin("agent:a", partial(problems.problem, inside=False))
        return [json.loads(line) async for line in exchange.lines(failing())]

    lines = asyncio.run(said())
    assert [line["failed"]["code"] for line in lines] == [HoldproofError.code]
    assert "/srv/x" not in json.dumps(lines)
