"""Files that commands are given, read in one way."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdproof.errors import FormatError, InvalidInputError, NotFoundError, UnavailableError

STDIO: Final = "-"
# Progress is drawn once per piece.
_PIECE: Final = 1 << 20


def load(name: str) -> Any:
    """Return the JSON value of a file, or of stdin for `-`; NaN is left to the operation to refuse."""
    try:
        return json.loads(read(name))
    # Deep nesting is bad input too, and no defect of the program.
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: not JSON: {error}", path=name) from error


def json_value(text: str, name: str) -> Any:
    """Return the JSON value of an argument."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{name} is not JSON: {error}; @FILE reads it from a file", parameter=name) from error


def read(name: str) -> str:
    """Return the text of a file, or of stdin for `-`."""
    with _translated(name):
        return sys.stdin.read() if name == STDIO else Path(name).read_text(encoding="utf-8")


def read_bytes(path: Path, most: int) -> bytes:
    """Return the bytes of a file, so many at most."""
    with _translated(str(path)), path.open("rb") as file:
        return file.read(most)


def read_pieces(name: str) -> Iterator[bytes]:
    """Yield the bytes of a file, or of stdin for `-`, piece by piece."""
    with opened_file(name.removeprefix("@")) as (file, _):
        yield from pieces(file, 0, None)


@contextmanager
def opened_file(name: str) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file or stdin for bytes, and say how many there are; 0 where nobody knows."""
    if name == STDIO:
        yield sys.stdin.buffer, 0
        return
    path = Path(name)
    # Opening a folder or a pipe would fail later, or wait for ever.
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file", path=str(path))
    with _translated(name), path.open("rb") as file:
        yield file, os.fstat(file.fileno()).st_size


def pieces(file: BinaryIO, total: int, tell: Callable[[str, int, int], None] | None) -> Iterator[bytes]:
    """Yield the bytes of a file, reported to a progress bar."""
    count = 0
    while piece := file.read(_PIECE):
        yield piece
        count += len(piece)
        if tell is not None:
            tell("bytes", count, total)


@contextmanager
def _translated(name: str) -> Iterator[None]:
    """Raise what goes wrong with a file as an error of ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"{name}: no such file", path=name) from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: not UTF-8 text", path=name) from error
    except OSError as error:
        raise UnavailableError(f"{name}: {error.strerror}", path=name) from error
