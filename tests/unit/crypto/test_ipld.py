"""The 128 published codec fixtures and the AT Protocol's data model, through the norm and the accelerated codec.

Each fixture is one value in dag-cbor and dag-json, 17 of them in dag-pb, too. dag-cbor is decoded and encoded again;
dag-json is read by a small reader here, to check that it means the same value; dag-pb is only hashed (test_cid), since
nothing here writes it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdproof.crypto import b64, dagcbor, dagcbor_fast
from holdproof.crypto import cid as cids
from holdproof.crypto.dagcbor import Value
from holdproof.errors import FormatError
from tests.fixtures import fixture, load

from .blocks import same

Codec = tuple[Callable[[Value], bytes], Callable[[bytes], Value]]
CODECS: list[Codec] = [(dagcbor.encode, dagcbor.decode), (dagcbor_fast.encode, dagcbor_fast.decode)]
BOTH = pytest.mark.parametrize("codec", CODECS, ids=["norm", "fast"])


def folders() -> list[Path]:
    return sorted(path for path in fixture("ipld/fixtures").iterdir() if path.is_dir())


def only(folder: Path, ending: str) -> Path:
    (found,) = folder.glob(f"*.{ending}")
    return found


def from_json(value: Any, link: str = "/", data: str = "bytes") -> Value:
    """A value out of dag-json, or (with other names) out of the AT Protocol's JSON."""
    if isinstance(value, list):
        return [from_json(item, link, data) for item in value]
    if not isinstance(value, dict):
        return value  # type: ignore[no-any-return]
    if value.keys() == {link}:
        inner = value[link]
        return cids.parse_text(inner) if isinstance(inner, str) else unpadded(inner[data])
    if link != "/" and value.keys() == {data}:
        return unpadded(value[data])
    return {key: from_json(item, link, data) for key, item in value.items()}


def unpadded(text: str) -> bytes:
    return b64.decode(text + "=" * (-len(text) % 4))


@BOTH
def test_all_128_dag_cbor_fixtures_decode_and_encode_identically(codec: Codec) -> None:
    encode, decode = codec
    for folder in folders():
        path = only(folder, "dag-cbor")
        data = path.read_bytes()
        assert encode(decode(data)) == data, folder.name
        assert str(cids.of(data)) == path.stem, folder.name
    assert len(folders()) == 128


@BOTH
def test_all_128_mean_what_their_dag_json_says(codec: Codec) -> None:
    encode, decode = codec
    for folder in folders():
        meant = from_json(json.loads(only(folder, "dag-json").read_bytes()))
        data = only(folder, "dag-cbor").read_bytes()
        assert same(decode(data), meant), folder.name
        assert encode(meant) == data, folder.name


@BOTH
def test_the_negative_fixtures_are_refused(codec: Codec) -> None:
    cases = load("ipld/negative/dag-cbor/decode/duplicate-keys.json")
    for case in cases:
        with pytest.raises(FormatError, match="twice the same"):
            codec[1](bytes.fromhex(case["hex"]))
    assert cases


@BOTH
def test_no_dag_pb_block_passes_for_dag_cbor_unseen(codec: Codec) -> None:
    """Bytes of another codec are refused, or are by chance the one encoding of something."""
    for path in fixture("ipld/fixtures").glob("*/*.dag-pb"):
        data = path.read_bytes()
        try:
            value = codec[1](data)
        except FormatError:
            continue
        assert codec[0](value) == data


@BOTH
def test_the_atproto_records_have_the_published_bytes_and_names(codec: Codec) -> None:
    cases = load("atproto/data-model/data-model-fixtures.json")
    for case in cases:
        value = from_json(case["json"], "$link", "$bytes")
        data = codec[0](value)
        assert data == unpadded(case["cbor_base64"])
        assert str(cids.of(data)) == case["cid"]
        assert same(codec[1](data), value)
    assert len(cases) == 3


@BOTH
def test_the_valid_atproto_values_survive(codec: Codec) -> None:
    for case in load("atproto/data-model/data-model-valid.json"):
        value = from_json(case["json"], "$link", "$bytes")
        assert same(codec[1](codec[0](value)), value), case["note"]


def test_bogus_links_of_the_atproto_fixtures_are_refused() -> None:
    """The other invalid cases are rules of the AT Protocol's schema, which is not this layer's business."""
    case = next(c for c in load("atproto/data-model/data-model-invalid.json") if c["note"] == "link with bogus CID")
    with pytest.raises(FormatError):
        from_json(case["json"], "$link", "$bytes")
