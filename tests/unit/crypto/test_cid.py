"""Content identifiers."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import cid as cids
from holdproof.crypto import varint
from holdproof.crypto.cid import CID
from holdproof.errors import FormatError, ProofError
from tests.fixtures import fixture

from .blocks import CIDS, mutants, survives

V0 = "QmRgutAxd8t7oGkSm4wmeuByG6M51wcTso6cubDdQtuEfL"
TEXTS = [
    V0,
    "bafkqabiaaebagba",  # identity
    "bafkreiebzrnroamgos2adnbpgw5apo3z4iishhbdx77gldnbk57d4zdio4",
    "bafyreidj5idub6mapiupjwjsyyxhyhedxycv4vihfsicm2vt46o7morwlm",
    "bagcqcera73rupyla6bauseyk75rslfys3st25spm75ykhvgusqvv2zfqtucq",
    "bagyacvradn6dsgl6sw2jwoh7s3d37hq5wsu7g22wtdwnmaaaaaaaaaaaaaaa",
    "bafy2bzaced4ueelaegfs5fqu4tzsh6ywbbpfk3cxppupmxfdhbpbhzawfw5oy",  # blake2b-256
]


@pytest.mark.parametrize("text", TEXTS)
def test_published_cids_survive_text_and_bytes(text: str) -> None:
    found = cids.parse_text(text)
    assert str(found) == text
    assert cids.parse(found.raw) == found
    assert cids.parse_at(b"xx" + found.raw + b"yy", 2) == (found, 2 + len(found.raw))


@pytest.mark.parametrize(
    "text", ["zdj7Wd8AMwqnhJGQCbFxBVodGSBG84TM7Hs1rcJuQMwTyfEDS", "z8mWaJ1dZ9fH5EetPuRsj8jj26pXsgpsr"]
)
def test_base58_of_version_1_is_read_and_base32_written(text: str) -> None:
    found = cids.parse_text(text)
    assert found.version == 1
    assert cids.parse_text(str(found)) == found
    assert str(found).startswith("b")


@given(st.binary(max_size=50))
def test_the_cid_of_content_is_prefix_and_hash(data: bytes) -> None:
    digest = hashlib.sha256(data).digest()
    block, raw = cids.of(data), cids.of_raw(data)
    assert block.raw == b"\x01\x71\x12\x20" + digest
    assert raw.raw == b"\x01\x55\x12\x20" + digest
    assert (block.version, block.codec, block.digest, block.plain) == (1, cids.DAG_CBOR, digest, True)
    assert (raw.version, raw.codec, raw.digest, raw.plain) == (1, cids.RAW, digest, True)
    assert str(block) == "b" + base64.b32encode(block.raw).decode().rstrip("=").lower()
    assert block != raw
    cids.verify(block, data)
    cids.verify(raw, data)


@given(CIDS, CIDS)
def test_cids_are_equal_when_their_bytes_are_and_never_equal_to_bytes(left: CID, right: CID) -> None:
    assert (left == right) == (left.raw == right.raw)
    assert left == cids.parse(bytes(bytearray(left.raw)))
    assert hash(left) == hash(cids.parse(left.raw))
    assert left != left.raw  # type: ignore[comparison-overlap]
    assert (left < right) == (left.raw < right.raw)
    assert list(cids.trusted([left.raw, right.raw])) == [left, right]


@given(CIDS)
def test_text_and_bytes_are_two_forms_of_one(cid: CID) -> None:
    assert cids.parse_text(str(cid)) == cid
    assert repr(cid) == f"CID({cid})"
    with pytest.raises(AttributeError):
        cid.raw = b""  # type: ignore[misc]


@given(st.binary(min_size=32, max_size=32))
def test_the_text_is_base32(digest: bytes) -> None:
    raw = cids.CBOR_PREFIX + digest
    assert str(cids.parse(raw)) == "b" + base64.b32encode(raw).decode().rstrip("=").lower()


def test_version_0_is_read() -> None:
    found = cids.parse_text(V0)
    assert (found.version, found.codec, found.plain) == (0, cids.DAG_PB, False)
    assert found.raw == b"\x12\x20" + found.digest


@pytest.mark.parametrize(
    ("code", "digest"),
    [
        (0x12, hashlib.sha256(b"x").digest()),
        (0x13, hashlib.sha512(b"x").digest()),
        (0xB220, hashlib.blake2b(b"x", digest_size=32).digest()),
        (0x00, b"x"),
    ],
)
def test_content_is_verified_under_every_known_function(code: int, digest: bytes) -> None:
    made = cids.parse(b"\x01\x70" + varint.encode(code) + varint.encode(len(digest)) + digest)
    assert made.digest == digest
    cids.verify(made, b"x")
    with pytest.raises(ProofError):
        cids.verify(made, b"y")


def test_content_of_version_0_is_verified() -> None:
    made = cids.parse(b"\x12\x20" + hashlib.sha256(b"x").digest())
    cids.verify(made, b"x")
    with pytest.raises(ProofError):
        cids.verify(made, b"")


def test_content_under_an_unknown_function_is_refused() -> None:
    double = cids.parse(b"\x01\x71\x56\x20" + bytes(32))
    with pytest.raises(FormatError, match="not known"):
        cids.verify(double, b"")


PLAIN = b"\x01\x71\x12\x20" + bytes(32)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        PLAIN[:-1],
        PLAIN + b"\x00",
        b"\x00" + PLAIN,
        b"\x02" + PLAIN[1:],
        b"\x81\x00" + PLAIN[1:],  # a padded version
        b"\x01\xf1\x00" + PLAIN[2:],  # a padded codec
        b"\x01\x71\x12\x1f" + bytes(31),  # a sha2-256 of 31 bytes
        b"\x01\x71\x12\x21" + bytes(33),
        b"\x01\x71\x00\x81\x01" + bytes(129),  # longer than any digest
        b"\x12\x20" + bytes(31),
        b"\x12\x20" + bytes(33),
    ],
)
def test_malformed_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(FormatError):
        cids.parse(raw)


GOOD = str(cids.of(b""))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b",
        "z",
        "Q",
        ".",
        GOOD.upper(),
        "B" + GOOD[1:].upper(),
        GOOD[:-1],
        GOOD + "a",
        GOOD + "=",
        GOOD[:-1] + "b" if GOOD[-1] != "b" else GOOD[:-1] + "c",  # stray bits
        GOOD.replace("a", "A", 1),
        " " + GOOD,
        GOOD[1:],
        "m" + GOOD[1:],
        "z" + V0,  # version 0 in multibase
        "b" + base64.b32encode(cids.parse_text(V0).raw).decode().rstrip("=").lower(),
        V0 + "1",
        "b" + "a" * 400,
        "b1890",
        "b_" + GOOD[2:],
    ],
)
def test_malformed_texts_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        cids.parse_text(text)


@given(st.text("abfkreiqm234567zQ=", max_size=70))
def test_an_accepted_base32_text_is_the_only_one(text: str) -> None:
    try:
        found = cids.parse_text("b" + text)
    except FormatError:
        return
    assert str(found) == "b" + text


def test_mutated_cids_are_cids_or_refused() -> None:
    seeds = [cids.parse_text(text).raw for text in TEXTS]
    for data in mutants(seeds):
        if survives(cids.parse, data):
            assert cids.parse(data).raw == data
            assert cids.parse_text(str(cids.parse(data))).raw == data


def test_the_names_of_the_published_blocks_are_their_cids() -> None:
    count = 0
    for path in sorted(fixture("ipld/fixtures").glob("*/*.dag-*")):
        named = cids.parse_text(path.name.split(".")[0])
        cids.verify(named, path.read_bytes())
        codec = {"dag-cbor": cids.DAG_CBOR, "dag-pb": cids.DAG_PB, "dag-json": 0x0129}[path.name.split(".")[1]]
        assert named.codec == codec
        count += 1
    assert count == 128 + 128 + 17
