"""What commands share that open only one store of services, and streams in and out.

A command ends at once, so memory is no place to fall back to: a store that cannot be opened is an error, whatever its
`fallback` chain ends in. One that runs on another durable type than its settings name is reported on stderr.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdproof import sync
from holdproof.api import wire
from holdproof.api.storage import ON_TABLES
from holdproof.cli import render
from holdproof.cli.bar import bar
from holdproof.cli.call import CommandContext
from holdproof.cli.files import STDIO, opened_file
from holdproof.content import disk
from holdproof.db import MEMORY
from holdproof.errors import InvalidInputError, UnavailableError
from holdproof.lazy import lazy_module

if TYPE_CHECKING:
    from holdproof.importers import kgents
else:
    kgents = lazy_module("holdproof.importers.kgents")

# A file without line ends must not fill the memory.
_LONGEST_LINE: Final = 64 << 20


@contextmanager
def opened(call: CommandContext, resource: str, *, create: bool) -> Iterator[Any]:
    """Open the store of a resource; a first run and whatever is degraded are printed on stderr."""
    if call.remote is not None:
        with call.open(create=False) as store:
            yield getattr(store, resource)
        return
    if resource in ON_TABLES:  # they are rows of the relational store that settings name
        with ExitStack() as stack:
            tables = stack.enter_context(opened(call, "relational", create=create))
            vectors = partial(_open_later, stack, call, create=create)
            yield ON_TABLES[resource](tables.held, vectors)
        return
    with closing(sync.storage(call.home, call.url, create=create)) as stores:
        store = stores.open(resource)
        state = stores.state(resource)
        assert state is not None, "it was just opened"
        if state.where == MEMORY and state.degraded:
            raise UnavailableError(f"the store of {resource} cannot be opened: {state.degraded}", store=resource)
        if state.where == MEMORY:
            render.warn(f"the store of {resource} is in memory: nothing survives the end of this command")
        elif state.degraded:
            render.warn(f"the store of {resource} runs on {state.type}: {state.degraded}")
        for place in stores.first_run:
            render.aside(f"first run: a new storage was created; its data lives in {place}\n")
        if stores.first_run and (waiting := kgents.hint()) is not None:
            render.aside(f"note: {waiting}\n")
        for warning in kgents.returned():
            render.warn(warning)
        yield store


def _open_later(stack: ExitStack, call: CommandContext, *, create: bool) -> Any:
    return stack.enter_context(opened(call, "vectors", create=create))


def documents(source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file of JSON lines, each with its line number; empty lines are skipped."""
    with opened_file(source) as (file, total), bar() as tell:
        count = 0
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
            count += len(line)
            if line.strip():
                yield number, _object(number, line)
            if tell is not None:
                tell("bytes", count, total)


def _object(number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"line {number} is no JSON: {error}", line=number) from error
    if not isinstance(value, dict):
        raise InvalidInputError(f"line {number} is no JSON object", line=number)
    return value


def delivered(data: Iterable[bytes], target: str, as_json: bool) -> int:
    """Write bytes to stdout, or to a file that is whole or not there; return how many."""
    if target == STDIO:
        if as_json:
            raise InvalidInputError("bytes and JSON cannot share stdout: name a file", field="target")
        return sum(_poured(piece) for piece in data)
    return filed(data, Path(target))


def filed(data: Iterable[bytes], path: Path) -> int:
    """Write bytes to a file that is whole or not there; return how many."""
    with disk.translated(path):
        return disk.deliver(path, data)


def json_lines(values: Iterable[Any]) -> Iterator[bytes]:
    """Yield values as lines of JSON; bytes as they are."""
    for each in values:
        yield each if isinstance(each, bytes) else json.dumps(wire.dump(each)).encode() + b"\n"


def _poured(piece: bytes) -> int:
    render.pour(piece)
    return len(piece)
