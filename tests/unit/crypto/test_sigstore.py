"""Sigstore bundles: the fields of v0.3, nothing that was not signed, one signature."""

import json

import pytest

from holdproof.crypto import attest, dsse, sigstore
from holdproof.crypto.dbom import Fields
from holdproof.crypto.dsse import Envelope
from holdproof.errors import InvalidInputError

from .material import JUDGE, LOG

FIELDS = Fields("battle-1", "ab" * 32, (0.25,), 0.875, "2026-01-14T21:05:51Z")


def test_a_bundle_is_the_envelope_with_a_hint_of_its_key_and_nothing_else() -> None:
    envelope = attest.to_envelope(attest.sign(FIELDS, JUDGE))
    assert json.loads(sigstore.encode(envelope)) == {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": JUDGE.keyid}, "tlogEntries": []},
        "dsseEnvelope": json.loads(dsse.encode(envelope)),
    }
    assert sigstore.encode(envelope) == sigstore.encode(envelope)


def test_two_signatures_or_none_make_no_bundle() -> None:
    for envelope in (dsse.sign("text/x", b"x", JUDGE, LOG), Envelope("text/x", b"x", ())):
        with pytest.raises(InvalidInputError):
            sigstore.encode(envelope)
