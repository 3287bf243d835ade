"""What the commands of services share: opening their store, and streams in and out.

A command ends at once, so memory is no place to fall back to: a store that cannot be opened is an error, whatever its
`fallback` chain ends in. What runs on another durable type than its settings name is told on stderr.
"""

import builtins
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer

from holdproof import sync
from holdproof.cli import render
from holdproof.cli.bar import bar
from holdproof.cli.call import Call
from holdproof.content import disk
from holdproof.db import MEMORY
from holdproof.errors import InvalidInputError, NotFoundError, UnavailableError
from holdproof.importers import kgents

STDIO: Final = "-"
_PIECE: Final = 1 << 20
_LONGEST_LINE: Final = 64 << 20

Source = Annotated[str, typer.Argument(metavar="FILE", help="The file; - is stdin.")]
Target = Annotated[str, typer.Argument(metavar="FILE", help="Where to; - is stdout.")]


@contextmanager
def opened(call: Call, noun: str) -> Iterator[Any]:
    """The store of a noun; a first run and whatever is degraded are told on stderr."""
    with closing(sync.storage(call.home, call.url)) as stores:
        store, state = stores.open(noun), stores.state(noun)
        assert state is not None
        if state.where == MEMORY and state.degraded:
            raise UnavailableError(f"the store of {noun} cannot be opened: {state.degraded}", store=noun)
        if state.where == MEMORY:
            render.warn(f"the store of {noun} is in memory: nothing survives the end of this command")
        elif state.degraded:
            render.warn(f"the store of {noun} runs on {state.type}: {state.degraded}")
        for place in stores.first_run:
            render.aside(f"first run: a new storage was created; its data lives in {place}\n")
        if stores.first_run and (waiting := kgents.hint()) is not None:
            render.aside(f"note: {waiting}\n")
        for warning in kgents.returned():
            render.warn(warning)
        yield store


@contextmanager
def reading(source: str) -> Iterator[tuple[BinaryIO, int]]:
    """A file or stdin for bytes, and how many there are; 0 where nobody knows."""
    if source == STDIO:
        yield sys.stdin.buffer, 0
        return
    path = Path(source)
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file", path=str(path))
    with disk.translated(path), path.open("rb") as file:
        yield file, os.fstat(file.fileno()).st_size


def pieces(file: BinaryIO, total: int, tell: Callable[[str, int, int], None] | None) -> Iterator[bytes]:
    """The bytes of a file, told to a progress bar."""
    done = 0
    while piece := file.read(_PIECE):
        yield piece
        done += len(piece)
        if tell is not None:
            tell("bytes", done, total)


def documents(source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its line number; empty lines are passed over."""
    with reading(source) as (file, total), bar() as tell:
        done = 0
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
            done += len(line)
            if line.strip():
                yield number, _object(number, line)
            if tell is not None:
                tell("bytes", done, total)


def _object(number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"line {number} is no JSON: {error}", line=number) from error
    if not isinstance(found, dict):
        raise InvalidInputError(f"line {number} is no JSON object", line=number)
    return found


def parsed(text: str, field: str, kind: type) -> Any:
    """The JSON value of an argument."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{field} is no JSON: {error}", field=field) from error
    if not isinstance(found, kind):
        raise InvalidInputError(f"{field} is to be a JSON {'list' if kind is builtins.list else 'object'}", field=field)
    return found


def delivered(given: Iterable[bytes], target: str, as_json: bool) -> int:
    """Bytes to stdout, or to a file that is whole or not there; how many."""
    if target == STDIO:
        if as_json:
            raise InvalidInputError("bytes and JSON cannot share stdout: name a file", field="target")
        return sum(_poured(piece) for piece in given)
    return filed(given, Path(target))


def filed(given: Iterable[bytes], path: Path) -> int:
    """Bytes to a file that is whole or not there; how many."""
    with disk.translated(path):
        return disk.deliver(path, given)


def exported(what: str, found: Iterable[Any], target: str, *, total: int = 0, as_json: bool) -> dict[str, Any]:
    """Values as lines of JSON, one at a time, to stdout or to a file that is whole or not there; says how many."""
    number = 0
    with bar() as tell:

        def lines() -> Iterator[bytes]:
            nonlocal number
            for each in found:
                yield json.dumps(each.to_dict(), default=str).encode() + b"\n"
                number += 1
                if tell is not None and number % 100 == 0:
                    tell(what, number, total)

        delivered(lines(), target, as_json)
    if target == STDIO:
        raise typer.Exit
    return {"exported": number, "file": target}


def _poured(piece: bytes) -> int:
    render.pour(piece)
    return len(piece)
