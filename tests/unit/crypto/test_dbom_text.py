"""The text of a DBOM is `json.dumps(dbom, indent=2)`, however it is made."""

import json

from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import dbom
from holdproof.crypto.dbom import Fields, SignedDbom

_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
_TEXT = st.text() | st.sampled_from(['"v_intent": [\n    0.0\n  ]', '\\"v_intent\\"'])


@given(_TEXT, st.lists(_NUMBERS, max_size=9), _NUMBERS, _TEXT, _TEXT)
def test_the_fast_way_writes_what_json_does(
    name: str, vector: list[float], score: float, sigma: str, version: str
) -> None:
    fields = Fields(name, "ab" * 32, tuple(vector), score, "2026-01-14T21:05:51Z", version)
    value = {
        "dbom_version": version,
        "battle_id": name,
        "h_delta": "ab" * 32,
        "v_intent": vector,
        "score_cis": score,
        "sigma_judge": sigma,
        "timestamp": "2026-01-14T21:05:51Z",
    }
    assert dbom.encode(SignedDbom(fields, sigma)).decode() == json.dumps(value, indent=2)
