"""The DBOM file: seven fields, strictly; the real ones of a Green Agent are read whole."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import dbom
from holdproof.crypto.dbom import Fields, SignedDbom
from holdproof.errors import InvalidInputError
from tests.fixtures import fixture

from .material import refuses, rejected

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
DBOMS = st.builds(
    SignedDbom,
    st.builds(
        Fields,
        evaluation_id=st.text(min_size=1),
        h_delta=st.binary(min_size=32, max_size=32).map(bytes.hex),
        v_intent=st.lists(NUMBERS, max_size=5).map(tuple),
        score_cis=NUMBERS,
        timestamp=st.just("2026-01-14T21:05:51.755118Z"),
        dbom_version=st.just("1.0"),
    ),
    st.text(),
)
GOOD: dict[str, Any] = {
    "dbom_version": "1.0",
    "battle_id": "b-1",
    "h_delta": "a" * 64,
    "v_intent": [0.5, -1, 2e-7],
    "score_cis": 0.75,
    "sigma_judge": "SIG_GREEN_b-1_aaaaaaaa",
    "timestamp": "2026-01-14T21:05:51Z",
}
FIELDS = Fields("b-1", "a" * 64, (0.5, -1.0, 2e-7), 0.75, "2026-01-14T21:05:51Z")


@given(DBOMS)
def test_a_dbom_survives_its_file(made: SignedDbom) -> None:
    assert dbom.parse(dbom.encode(made)) == made


def test_a_dbom_is_written_as_the_seed_writes_it() -> None:
    data = dbom.encode(SignedDbom(FIELDS, GOOD["sigma_judge"]))
    assert data == json.dumps({**GOOD, "v_intent": [0.5, -1.0, 2e-7]}, indent=2).encode()
    assert list(json.loads(data)) == list(GOOD)


def test_every_dbom_of_a_real_green_agent_is_read_and_written_byte_for_byte() -> None:
    paths = sorted(fixture("green-agent/dboms").glob("*.json"))
    assert paths
    for path in paths:
        found = dbom.parse(path.read_bytes())
        assert dbom.encode(found) == path.read_bytes().strip()


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_field_is_refused(name: str) -> None:
    rejected(dbom.parse, json.dumps({key: value for key, value in GOOD.items() if key != name}).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"battle_id": 5},
        {"dbom_version": 1.0},
        {"h_delta": None},
        {"timestamp": 1768424743},
        {"sigma_judge": []},
        {"score_cis": "0.5"},
        {"score_cis": True},
        {"score_cis": None},
        {"score_cis": math.nan},
        {"score_cis": 10**400},
        {"v_intent": "0.5"},
        {"v_intent": {}},
        {"v_intent": [0.5, "x"]},
        {"v_intent": [True]},
        {"v_intent": [[0.5]]},
        {"v_intent": [math.inf]},
        {"v_intent": [10**400]},
    ],
    ids=lambda change: repr(change)[:40],
)
def test_a_field_of_another_type_or_an_eighth_one_is_refused(change: dict[str, Any]) -> None:
    rejected(dbom.parse, json.dumps({**GOOD, **change}).encode())


def test_a_field_given_twice_is_refused() -> None:
    data = json.dumps(GOOD)[:-1] + ', "score_cis": 1.0}'
    rejected(dbom.parse, data.encode())


def test_good_fields_pass_the_check() -> None:
    dbom.check(FIELDS)
    dbom.check(Fields("b", "0" * 64, (), -1, "2026-01-14T21:05:51+00:00"))


@pytest.mark.parametrize(
    "fields",
    [
        Fields("", "a" * 64, (), 0.5, FIELDS.timestamp),
        Fields("b", "a" * 63, (), 0.5, FIELDS.timestamp),
        Fields("b", "A" * 64, (), 0.5, FIELDS.timestamp),
        Fields("b", "a" * 64, (math.nan,), 0.5, FIELDS.timestamp),
        Fields("b", "a" * 64, ("1",), 0.5, FIELDS.timestamp),  # type: ignore[arg-type]
        Fields("b", "a" * 64, (), math.inf, FIELDS.timestamp),
        Fields("b", "a" * 64, (), True, FIELDS.timestamp),
        Fields("b", "a" * 64, (), "1", FIELDS.timestamp),  # type: ignore[arg-type]
        Fields("b", "a" * 64, (), 0.5, "2026-01-14T21:05:51"),
        Fields("b", "a" * 64, (), 0.5, FIELDS.timestamp, ""),
    ],
    ids=repr,
)
def test_fields_that_no_judge_signs_are_named(fields: Fields) -> None:
    with pytest.raises(InvalidInputError) as caught:
        dbom.check(fields)
    assert caught.value.fields["field"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-14",
        "2026-01-14 21:05:51Z",
        "2026-01-14T21:05:51",
        "2026-01-14T21:05:51+01:00",
        "2026-01-14T21:05:51z",
        "2026-13-14T21:05:51Z",
        "2026-02-30T21:05:51Z",
        "2026-01-14T24:05:51Z",
        "2026-01-14T21:05:51.Z",
        "2026-01-14T21:05:51Z\n",
        "\u0662026-01-14T21:05:51Z",
        None,
        5,
    ],
)
def test_a_time_that_is_not_rfc_3339_in_utc_is_refused(text: object) -> None:
    assert not dbom.is_utc(text)


def test_a_dbom_with_a_number_json_cannot_hold_is_not_written() -> None:
    with pytest.raises(InvalidInputError):
        dbom.encode(SignedDbom(Fields("b", "a" * 64, (), math.nan, FIELDS.timestamp), "x"))


@given(
    st.binary()
    | st.dictionaries(st.sampled_from(list(GOOD)), st.text() | NUMBERS).map(lambda v: json.dumps(v).encode())
)
def test_arbitrary_bytes_are_a_dbom_or_a_format_error(data: bytes) -> None:
    refuses(dbom.parse, data)
