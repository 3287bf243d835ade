"""CAR files, version 1."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import car, dagcbor, varint
from holdproof.crypto import cid as cids
from holdproof.crypto.car import Block, Limits
from holdproof.crypto.cid import CID
from holdproof.crypto.dagcbor import Value
from holdproof.errors import FormatError, ProofError
from tests.fixtures import fixture, load

from .blocks import CIDS, MUTATIONS, mutants
from .car_reader import Reader
from .test_ipld import unpadded

GOOD = {
    "fixtures.car": 273,
    "sample-v1-noidentity.car": 1043,
    "simple-unixfs.car": 22,
    "wikipedia-cryptographic-hash-function.car": 5,
}
BAD = (
    "badheaderlength.car",
    "badsectionlength.car",
    "sample-corrupt-pragma.car",
    "sample-v1-tailing-corrupt-section.car",
)


def block(text: str) -> Block:
    data = dagcbor.encode({"text": text})
    return cids.of(data), data


BLOCKS = st.lists(st.builds(block, st.text(max_size=20)), max_size=8)
SAMPLE = [block("a"), block("b" * 300), (cids.of_raw(b"raw"), b"raw")]
FILE = car.dump([SAMPLE[0][0]], SAMPLE)


def section(cid: CID, data: bytes) -> bytes:
    return varint.encode(len(cid.raw) + len(data)) + cid.raw + data


def header(value: Value) -> bytes:
    data = dagcbor.encode(value)
    return varint.encode(len(data)) + data


def read_all(data: bytes) -> list[Block]:
    """The blocks through the reader; the whole-file reader must come to the same end."""
    try:
        archive: car.CarFile | FormatError = car.load(data)
    except FormatError as error:
        archive = error
    if isinstance(archive, FormatError):
        with pytest.raises(type(archive)):
            list(Reader(io.BytesIO(data)))
        raise archive
    blocks = list(Reader(io.BytesIO(data)))
    assert archive.blocks == dict(blocks)
    return blocks


@pytest.mark.parametrize("name", GOOD)
def test_the_good_files_are_read_and_written_back_identically(name: str) -> None:
    data = fixture(f"car/good/{name}").read_bytes()
    archive = car.load(data)
    assert len(archive.blocks) == GOOD[name]
    assert read_all(data) == list(archive.blocks.items())
    assert car.dump(archive.roots, archive.blocks.items()) == data


@pytest.mark.parametrize("name", BAD)
def test_the_bad_files_are_refused(name: str) -> None:
    with pytest.raises(FormatError):
        read_all(fixture(f"car/bad/{name}").read_bytes())


def test_the_published_atproto_file_is_written_byte_for_byte() -> None:
    (case,) = load("atproto/car-file-fixtures.json")
    blocks = [(cids.parse_text(entry["cid"]), unpadded(entry["bytes"])) for entry in case["blocks"]]
    data = unpadded(case["car"])
    assert car.dump([cids.parse_text(case["root"])], blocks) == data
    archive = car.load(data)
    assert (archive.roots, dict(archive.blocks)) == ((cids.parse_text(case["root"]),), dict(blocks))


@given(st.lists(CIDS, max_size=3), BLOCKS)
def test_every_archive_survives(roots: list[CID], blocks: list[Block]) -> None:
    data = car.dump(roots, blocks)
    archive = car.load(data)
    assert archive.roots == tuple(roots)
    assert list(archive.blocks.items()) == list(dict(blocks).items())
    assert read_all(data) == list(archive.blocks.items())
    assert Reader(data).roots == tuple(roots)


@given(BLOCKS)
def test_the_writer_writes_each_block_once_where_it_first_comes(blocks: list[Block]) -> None:
    assert car.dump([], blocks + blocks) == car.dump([], blocks)
    assert b"".join(car.write([], iter(blocks))) == car.dump([], dict(blocks).items())


def test_a_repeated_section_is_tolerated_on_reading() -> None:
    twice = FILE + section(*SAMPLE[1])
    assert list(Reader(twice)) == [*SAMPLE, SAMPLE[1]]
    assert car.load(twice).blocks == dict(SAMPLE)


def test_a_flipped_bit_never_passes_for_the_same_archive() -> None:
    """Roots and codecs are not hashed: a change there gives other names, which a walk from the root misses."""
    whole = (Reader(FILE).roots, SAMPLE)
    passed = 0
    for at in range(len(FILE)):
        for bit in range(8):
            bad = bytearray(FILE)
            bad[at] ^= 1 << bit
            try:
                found = (Reader(bytes(bad)).roots, read_all(bytes(bad)))
            except FormatError:
                continue
            assert found != whole
            assert [data for _, data in found[1]] == [data for _, data in SAMPLE]
            passed += 1
    assert passed < 8 * 40


def test_a_wrong_block_is_a_proof_error() -> None:
    for bad in (section(SAMPLE[0][0], SAMPLE[1][1]), section(cids.of_raw(b"x"), b"y")):
        with pytest.raises(ProofError):
            read_all(FILE + bad)


def test_a_file_cut_between_sections_reads_as_a_shorter_file() -> None:
    """CARv1 has no trailer: whoever needs everything walks from the roots."""
    ends = [len(car.dump([SAMPLE[0][0]], SAMPLE[:count])) for count in range(len(SAMPLE) + 1)]
    for cut in range(len(FILE)):
        if cut in ends:
            assert read_all(FILE[:cut]) == SAMPLE[: ends.index(cut)]
        else:
            with pytest.raises(FormatError):
                read_all(FILE[:cut])


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x00",
        b"\x80",
        bytes.fromhex("0aa16776657273696f6e02"),  # the pragma of CARv2
        header({"roots": [], "version": 2}),
        header({"roots": [], "version": True}),
        header({"roots": [], "version": 1.0}),
        header({"roots": []}),
        header({"version": 1}),
        header({"roots": None, "version": 1}),
        header({"roots": [], "version": 1, "more": 0}),
        header({"roots": [SAMPLE[0][0].raw], "version": 1}),
        header({"roots": [None], "version": 1}),
        header([]),
        header("x"),
        b"\x12\xa2\x67version\x01\x65roots\x80"[:19],  # keys out of order
        b"\x91\x00" + header({"roots": [], "version": 1})[1:],  # a padded length
    ],
)
def test_a_malformed_header_is_refused(bad: bytes) -> None:
    with pytest.raises(FormatError):
        read_all(bad)


@pytest.mark.parametrize(
    "bad",
    [
        b"\x00",  # padding is no section
        b"\x01\x01",
        b"\x24" + cids.of(b"").raw[:-1] + b"\x00",  # a hash that is not that of nothing
        b"\x0a" + cids.of(b"").raw,  # a CID that reaches beyond its section
        b"\x23" + cids.of_raw(b"").raw,
        b"\xa4\x00" + cids.of(b"").raw,  # a padded length
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        section(cids.parse(b"\x01\x71\x56\x20" + bytes(32)), b""),  # a function that nobody can check
    ],
)
def test_a_malformed_section_is_refused(bad: bytes) -> None:
    with pytest.raises(FormatError):
        read_all(FILE + bad)


def test_the_limits_are_kept() -> None:
    fits = Limits(header=len(header({"roots": [SAMPLE[0][0]], "version": 1})), section=400, total=len(FILE))
    assert dict(Reader(FILE, fits)) == car.load(FILE, fits).blocks == dict(SAMPLE)
    for tight in (replace(fits, header=20), replace(fits, section=300), replace(fits, total=len(FILE) - 1)):
        with pytest.raises(FormatError, match="limit"):
            list(Reader(FILE, tight))
        with pytest.raises(FormatError, match="limit"):
            car.load(FILE, tight)


class Greedy(io.RawIOBase):
    """A file that must never be asked for much, and answers with little."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        assert 0 < size < 2**22
        return self.data.read(min(size, 7))


def test_an_announced_length_is_not_believed_before_it_is_checked() -> None:
    with pytest.raises(FormatError, match="limit"):
        list(Reader(Greedy(FILE + varint.encode(2**40))))


def test_short_reads_and_real_files_are_read_alike(tmp_path: Path) -> None:
    assert list(Reader(Greedy(FILE))) == SAMPLE
    path = tmp_path / "a.car"
    path.write_bytes(FILE)
    with path.open("rb") as file:
        reader = Reader(file)
        assert reader.roots == (SAMPLE[0][0],)
        assert list(reader) == SAMPLE


def test_mutated_files_are_read_or_refused() -> None:
    for data in mutants([FILE, car.dump([], SAMPLE[1:])], MUTATIONS // 2):
        try:
            blocks = read_all(data)
        except FormatError:
            continue
        for cid, content in blocks:
            cids.verify(cid, content)
