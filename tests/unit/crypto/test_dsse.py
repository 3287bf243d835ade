"""DSSE: the standard's own vector, threshold rules, and strict reading."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import b64, dsse, signatures
from holdproof.crypto.dsse import Envelope, Signature
from holdproof.errors import FormatError, InvalidInputError, ProofError

from .material import JUDGE, LOG, STRANGER, WITNESS, one_of_each, p256, refuses, rejected

# secure-systems-lab/dsse, protocol.md, section "Test Vectors"
HELLO = "http://example.com/HelloWorld"
VECTOR_KEY = p256(97358161215184420915383655311931858321456579547487070936769975997791359926199)
VECTOR_SIG = "A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA=="

TEXTS = st.text(st.characters(codec="utf-8"))
SIGNATURES = st.builds(Signature, TEXTS, st.binary(min_size=1))
ENVELOPES = st.builds(Envelope, TEXTS, st.binary(), st.lists(SIGNATURES, min_size=1, max_size=4).map(tuple))


def test_pae_is_the_published_one() -> None:
    assert dsse.pae(HELLO, b"hello world") == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert dsse.pae("", b"") == b"DSSEv1 0  0 "
    assert dsse.pae("é", b"\xff") == "DSSEv1 2 é 1 ".encode() + b"\xff"


def test_the_published_signature_is_made_and_verified() -> None:
    envelope = dsse.sign(HELLO, b"hello world", VECTOR_KEY)
    assert b64.encode(signatures.to_raw(envelope.signatures[0].sig)) == VECTOR_SIG
    der = signatures.from_raw(b64.decode(VECTOR_SIG))
    published = Envelope(HELLO, b"hello world", (Signature("", der),))
    assert dsse.verify(published, [VECTOR_KEY.public], payload_type=HELLO) == (VECTOR_KEY.public,)


def test_the_published_envelope_is_read() -> None:
    data = (
        b'{"payload": "aGVsbG8gd29ybGQ=",\n "payloadType": "http://example.com/HelloWorld",\n'
        b' "signatures": [{"sig": "%b"}]}' % VECTOR_SIG.encode()
    )
    envelope = dsse.parse(data)
    assert (envelope.payload_type, envelope.payload) == (HELLO, b"hello world")
    assert envelope.signatures == (Signature("", b64.decode(VECTOR_SIG)),)


@given(st.tuples(TEXTS, st.binary()), st.tuples(TEXTS, st.binary()))
def test_two_different_pairs_never_share_their_signed_bytes(a: tuple[str, bytes], b: tuple[str, bytes]) -> None:
    assert (dsse.pae(*a) == dsse.pae(*b)) == (a == b)


@given(ENVELOPES)
def test_an_envelope_survives_its_encoding(envelope: Envelope) -> None:
    assert dsse.parse(dsse.encode(envelope)) == envelope


def test_every_algorithm_signs_envelopes() -> None:
    envelope = dsse.sign("a/b", b"body", *one_of_each())
    trusted = [key.public for key in one_of_each()]
    assert dsse.verify(envelope, trusted, payload_type="a/b", threshold=3) == tuple(trusted)


def test_a_changed_payload_type_or_payload_does_not_hold() -> None:
    good = dsse.sign("a/b", b"body", JUDGE)
    for bad in (Envelope("a/c", b"body", good.signatures), Envelope("a/b", b"bodY", good.signatures)):
        with pytest.raises(ProofError):
            dsse.verify(bad, [JUDGE.public], payload_type=bad.payload_type)


def test_another_payload_type_than_expected_is_refused_though_signed() -> None:
    with pytest.raises(ProofError, match="payload type"):
        dsse.verify(dsse.sign("a/b", b"", JUDGE), [JUDGE.public], payload_type="a/c")


def test_a_threshold_counts_distinct_keys_not_signatures() -> None:
    twice = dsse.sign("a/b", b"body", LOG, LOG)
    with pytest.raises(ProofError, match="too few"):
        dsse.verify(twice, [LOG.public, JUDGE.public], payload_type="a/b", threshold=2)
    both = dsse.sign("a/b", b"body", LOG, JUDGE)
    assert len(dsse.verify(both, [JUDGE.public, LOG.public], payload_type="a/b", threshold=2)) == 2


def test_one_key_given_twice_counts_once() -> None:
    twice = dsse.sign("a/b", b"body", LOG, LOG)
    with pytest.raises(ProofError):
        dsse.verify(twice, [LOG.public, LOG.public], payload_type="a/b", threshold=2)


def test_a_wrong_key_id_is_only_a_hint() -> None:
    made = dsse.sign("a/b", b"body", LOG)
    for hint in ("", "something else"):
        hinted = Envelope("a/b", b"body", (Signature(hint, made.signatures[0].sig),))
        assert dsse.verify(hinted, [JUDGE.public, LOG.public], payload_type="a/b") == (LOG.public,)


def test_a_key_id_of_a_trusted_key_narrows_the_search_to_that_one() -> None:
    [made] = dsse.sign("a/b", b"body", LOG).signatures
    hinted = Envelope("a/b", b"body", (Signature(JUDGE.keyid, made.sig),))
    with pytest.raises(ProofError, match="too few"):
        dsse.verify(hinted, [JUDGE.public, LOG.public], payload_type="a/b")


def test_bad_signatures_beside_a_good_one_do_no_harm() -> None:
    good = dsse.sign("a/b", b"body", LOG).signatures
    mixed = Envelope("a/b", b"body", (Signature(JUDGE.keyid, b"junk"), *good))
    assert dsse.verify(mixed, [JUDGE.public, LOG.public], payload_type="a/b") == (LOG.public,)


def test_strangers_are_not_trusted() -> None:
    with pytest.raises(ProofError):
        dsse.verify(dsse.sign("a/b", b"", STRANGER), [LOG.public, WITNESS.public], payload_type="a/b")
    with pytest.raises(ProofError):
        dsse.verify(dsse.sign("a/b", b"", STRANGER), [], payload_type="a/b")


def test_an_envelope_without_signer_or_threshold_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        dsse.sign("a/b", b"")
    with pytest.raises(InvalidInputError):
        dsse.verify(dsse.sign("a/b", b"", LOG), [LOG.public], payload_type="a/b", threshold=0)
    with pytest.raises(InvalidInputError):
        dsse.pae("\ud800", b"")


def envelope_json(**changes: Any) -> bytes:
    value = {"payload": "YQ==", "payloadType": "a/b", "signatures": [{"keyid": "k", "sig": "YQ=="}], **changes}
    return json.dumps({name: item for name, item in value.items() if item is not None}).encode()


def test_unknown_fields_and_the_other_alphabet_are_accepted() -> None:
    data = envelope_json(payload="-_8=", more=1, signatures=[{"sig": "_-8=", "cert": "…"}])
    assert dsse.parse(data) == Envelope("a/b", b"\xfb\xff", (Signature("", b"\xff\xef"),))


@pytest.mark.parametrize(
    "changes",
    [
        {"payload": None},
        {"payload": 1},
        {"payload": "YQ"},
        {"payload": "YR=="},
        {"payload": "+_8="},
        {"payloadType": None},
        {"payloadType": ["a/b"]},
        {"payloadType": "\ud800"},
        {"signatures": None},
        {"signatures": []},
        {"signatures": {}},
        {"signatures": ["YQ=="]},
        {"signatures": [{}]},
        {"signatures": [{"sig": ""}]},
        {"signatures": [{"sig": "YQ==", "keyid": 1}]},
        {"signatures": [{"sig": "YQ=="}] * 65},
    ],
    ids=str,
)
def test_a_malformed_envelope_is_refused(changes: dict[str, Any]) -> None:
    rejected(dsse.parse, envelope_json(**changes))


def test_as_many_signatures_are_read_and_judged_as_an_envelope_may_have_and_no_more() -> None:
    junk, good = Signature("", b"junk"), dsse.sign("a/b", b"body", LOG).signatures
    most = Envelope("a/b", b"body", (junk,) * 63 + good)
    assert dsse.parse(dsse.encode(most)) == most
    assert dsse.verify(most, [LOG.public], payload_type="a/b") == (LOG.public,)
    with pytest.raises(ProofError, match="too few"):
        dsse.verify(Envelope("a/b", b"body", (junk,) * 64 + good), [LOG.public], payload_type="a/b")


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b'{"payload":"","payload":""}', b"\xff"])
def test_what_is_no_envelope_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        dsse.parse(data)


@given(st.binary() | st.text().map(str.encode))
def test_arbitrary_bytes_are_an_envelope_or_a_format_error(data: bytes) -> None:
    refuses(dsse.parse, data)


@given(st.dictionaries(st.sampled_from(["payload", "payloadType", "signatures", "x"]), st.text() | st.lists(st.text())))
def test_arbitrary_objects_are_an_envelope_or_a_format_error(value: dict[str, Any]) -> None:
    refuses(dsse.parse, json.dumps(value).encode())
