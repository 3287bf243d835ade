"""Files that commands are given, read in one way."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdproof.errors import FormatError, NotFoundError, UnavailableError


def load(name: str) -> Any:
    """The JSON value of a file, or of stdin for `-`; NaN is left to the operation to refuse."""
    try:
        return json.loads(read(name))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: not JSON: {error}", path=name) from error


def read(name: str) -> str:
    """The text of a file, or of stdin for `-`."""
    with _told(name):
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")


def read_bytes(path: Path, most: int) -> bytes:
    """The bytes of a file, so many at most."""
    with _told(str(path)), path.open("rb") as file:
        return file.read(most)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """What goes wrong with a file, as an error of ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"{name}: no such file", path=name) from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: not UTF-8 text", path=name) from error
    except OSError as error:
        raise UnavailableError(f"{name}: {error.strerror}", path=name) from error
