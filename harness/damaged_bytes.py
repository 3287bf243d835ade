"""Damaged copies of good inputs: bits flipped, bytes changed, cut out, doubled, spliced, marks put in.

Pure, and the same for the same chance: what the tests of decoders and the fuzzer share.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Final

TELLING: Final = (0x00, 0x18, 0x1B, 0x40, 0x5F, 0x7F, 0x80, 0x9B, 0xA1, 0xBF, 0xD8, 0xF6, 0xFB, 0xFF)
"""Bytes that mean something to binary formats: heads, lengths, the ends of ranges."""

JSON_MARKS: Final = (b"null", b"{}", b"[]", b'""', b"-1", b"1e999", b"0.1", b"9" * 30, b'"\\ud800"', b"NaN", b"true")
LISP_MARKS: Final = (
    *(b"(", b")", b'"', b"|", b"\\", b"#", b"#.", b"#S(", b"#(", b"#C(", b"#*", b"'", b";", b".", b" . ", b":"),
    *(b"\x00", b"\xff", b"\xc3", b"1e9", b"/0", b"#\\", b"\n", b"9" * 50, b"((((", b"#+x", b"NIL", b'"h1"', b"T"),
)


def mutants(
    seeds: Sequence[bytes], count: int, *, marks: Sequence[bytes] = (), rng: random.Random | None = None
) -> Iterator[bytes]:
    """That many damaged copies; `marks` are words of the format. Without a chance of one's own always the same."""
    chance = rng or random.Random(42)
    for _ in range(count):
        yield mutant(seeds, marks, chance)


def mutant(seeds: Sequence[bytes], marks: Sequence[bytes], rng: random.Random) -> bytes:
    """One of them."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        _mutate(data, seeds, marks, rng)
    return bytes(data)


def _mutate(data: bytearray, seeds: Sequence[bytes], marks: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    until = min(len(data), at + rng.choice((1, 1, 2, 4, 9, 40)))
    how = rng.randrange(9 if marks else 7)
    if how == 0 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif how == 1 and at < len(data):
        data[at] = rng.choice(TELLING)
    elif how == 2:
        del data[at:until]
    elif how == 3:
        data[at:at] = data[at:until]
    elif how == 4:
        data[at:at] = rng.randbytes(rng.choice((1, 2, 8)))
    elif how == 5:
        other = rng.choice(seeds)
        data[at:] = other[rng.randrange(len(other) + 1) :]
    elif how > 6:
        data[at : until if how == 8 else at] = rng.choice(marks)
    else:
        del data[at:]
