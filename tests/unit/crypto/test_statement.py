"""The in-toto Statement: one byte string, strict reading."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import statement
from holdproof.crypto.statement import ResourceDescriptor, Statement

from .material import refuses, rejected

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
DIGESTS = st.fixed_dictionaries({"sha256": st.binary(min_size=32, max_size=32).map(bytes.hex)})
SUBJECTS = st.builds(ResourceDescriptor, DIGESTS, TEXTS)
STATEMENTS = st.builds(
    Statement,
    st.lists(SUBJECTS, min_size=1, max_size=3).map(tuple),
    st.just("https://example.com/predicate/v1"),
    st.dictionaries(TEXTS, TEXTS | st.integers(-100, 100) | st.lists(st.booleans())),
)


@given(STATEMENTS)
def test_a_statement_survives_its_encoding(made: Statement) -> None:
    assert statement.parse(statement.encode(made)) == made


def test_a_statement_is_written_canonically() -> None:
    made = Statement((ResourceDescriptor({"sha256": "0" * 64}, "b"),), "urn:x:y", {"z": 1, "a": 0.5})
    assert statement.encode(made) == (
        b'{"_type":"https://in-toto.io/Statement/v1","predicate":{"a":0.5,"z":1},"predicateType":"urn:x:y",'
        b'"subject":[{"digest":{"sha256":"' + b"0" * 64 + b'"},"name":"b"}]}'
    )


def test_a_subject_without_a_name_is_written_without_one() -> None:
    made = Statement((ResourceDescriptor({"sha256": "0" * 64}),), "urn:x:y")
    assert b'"name"' not in statement.encode(made)
    assert statement.parse(statement.encode(made)) == made


def statement_json(**changes: Any) -> bytes:
    value = {
        "_type": statement.TYPE,
        "subject": [{"name": "x", "digest": {"sha256": "a" * 64}}],
        "predicateType": "urn:x:y",
        "predicate": {},
        **changes,
    }
    return json.dumps({name: item for name, item in value.items() if item is not None}).encode()


def test_unknown_fields_are_ignored_and_a_predicate_may_be_missing() -> None:
    made = statement.parse(statement_json(more=1, predicate=None))
    assert made == Statement((ResourceDescriptor({"sha256": "a" * 64}, "x"),), "urn:x:y", {})


@pytest.mark.parametrize(
    "changes",
    [
        {"_type": None},
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"subject": None},
        {"subject": []},
        {"subject": ["x"]},
        {"subject": [{"name": "x"}]},
        {"subject": [{"digest": {}}]},
        {"subject": [{"digest": {"sha256": "a" * 63}}]},
        {"subject": [{"digest": {"sha256": "A" * 64}}]},
        {"subject": [{"digest": {"sha512": ""}}]},
        {"subject": [{"digest": {"gitCommit": 1}}]},
        {"subject": [{"name": 1, "digest": {"sha256": "a" * 64}}]},
        {"predicateType": None},
        {"predicateType": "not a uri"},
        {"predicate": []},
    ],
    ids=str,
)
def test_a_malformed_statement_is_refused(changes: dict[str, Any]) -> None:
    rejected(statement.parse, statement_json(**changes))


@given(st.binary())
def test_arbitrary_bytes_are_a_statement_or_a_format_error(data: bytes) -> None:
    refuses(statement.parse, data)
    refuses(statement.parse, b'{"_type":"https://in-toto.io/Statement/v1","subject":[' + data + b"]}")
