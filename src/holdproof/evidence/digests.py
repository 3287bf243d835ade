"""The hashing of an audit, by pages; also a program of its own, so that it can run on every core.

Only the standard library is imported: `python -I -S digests.py` is ready in a few milliseconds. It reads pages from
stdin and answers each on stdout: eight bytes of length, then the bytes.
"""

import sys
from hashlib import sha256
from typing import IO

WIDTH = 256
LEVELS = 8


def digest(leaves: bytes) -> tuple[bytes, bytes]:
    """Of leaves that stand one to a line: their RFC 6962 hashes, and the roots over every 256 of them."""
    row = [sha256(b"\x00" + leaf).digest() for leaf in leaves.split(b"\n")]
    hashes = b"".join(row)
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
    """Read one message; None at the end."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "big")
    data = stream.read(size)
    return data if len(data) == size else None


def main() -> None:
    """Answer until nobody asks any more."""
    while (leaves := receive(sys.stdin.buffer)) is not None:
        for part in digest(leaves):
            send(sys.stdout.buffer, part)


if __name__ == "__main__":
    main()
