"""Hash pages of leaves for an audit; also a program of its own, so that helper processes can use every core.

Only the standard library is imported, so `python -I -S digests.py` starts in a few milliseconds. It reads pages from
stdin and writes each result to stdout: eight bytes of length, then the bytes.
"""

import sys
from hashlib import sha256
from typing import IO

WIDTH = 256
LEVELS = 8


def digest(leaves: bytes) -> tuple[bytes, bytes]:
    """Return the RFC 6962 hashes of leaves, one a line, and the roots over every 256 of them."""
    # RFC 6962 prefixes leaves with 0 and inner nodes with 1, so that neither can pass for the other.
    row = [sha256(b"\x00" + leaf).digest() for leaf in leaves.split(b"\n")]
    hashes = b"".join(row)
    # Leaves of an unfinished tile have no root yet.
    del row[len(row) // WIDTH * WIDTH :]
    for _ in range(LEVELS):
        pairs = iter(row)
        row = [sha256(b"\x01" + first + second).digest() for first, second in zip(pairs, pairs, strict=True)]
    return hashes, b"".join(row)


def send(stream: IO[bytes], data: bytes) -> None:
    """Write one message."""
    stream.write(len(data).to_bytes(8, "big"))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """Read one message; None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "big")
    data = stream.read(size)
    return data if len(data) == size else None


def main() -> None:
    """Hash pages until stdin ends."""
    while (leaves := receive(sys.stdin.buffer)) is not None:
        for part in digest(leaves):
            send(sys.stdout.buffer, part)


if __name__ == "__main__":
    main()
