"""The only module that prints.

Results go to stdout, with `--json` as one JSON document; everything else goes to stderr. Colours only on a terminal.
What is printed may come from anybody, so it is never read as markup and its control characters are shown, not sent.
"""

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

import click
from rich.console import Console
from rich.text import Text

from holdproof.lazy import lazy_module
from holdproof.model.status import Status
from holdproof.model.visible_text import visible

if TYPE_CHECKING:
    from holdproof.importers import kgents
else:
    kgents = lazy_module("holdproof.importers.kgents")

_BROKEN_PIPE = 141  # what a shell reports for a program that SIGPIPE ended
_CANNOT_WRITE = 74  # EX_IOERR of sysexits.h, like 70 for a defect
_WORDS = {True: "yes", False: "no", None: "-"}


Draw = Callable[[Any], Text]
"""Shows a plain value to people in a way of its own."""


def show(value: Any, as_json: bool, draw: Draw | None = None) -> None:
    """Print a result: anything with `to_dict`, or plain mappings, lists and scalars; of an iterator all."""
    if isinstance(value, Iterator):
        for each in value:
            _show_next(each.to_dict() if hasattr(each, "to_dict") else each, as_json, draw)
        return
    if value is None and not as_json:
        return
    plain = value.to_dict() if hasattr(value, "to_dict") else value
    if as_json:
        # Escaped to ASCII: valid whatever the encoding of the terminal, and for names that are not Unicode.
        _write(sys.stdout, json.dumps(plain, indent=2, default=str) + "\n")
    else:
        _print(sys.stdout, (draw or plain_table)(plain))


def _show_next(plain: Any, as_json: bool, draw: Draw | None) -> None:
    """Print one of many results: a line of JSON, or for people with an empty line after it."""
    if as_json:
        _write(sys.stdout, json.dumps(plain, default=str) + "\n")
    else:
        _print(sys.stdout, (draw or plain_table)(plain).append("\n"))


def say(text: Text) -> None:
    """Print one part of a result that arrives in parts, for people."""
    _print(sys.stdout, text)


def greet(status: Status) -> None:
    """Say on stderr what nobody should overlook: where a new store lives, and what is degraded."""
    if status.first_run:
        _print(sys.stderr, Text("first run: this store is new, and lives here\n", style="bold"))
        _print(sys.stderr, plain_table({"database": status.database.get("path", status.database), **status.paths}))
        for reminder in status.reminders:
            aside(f"note: {reminder}\n")
        if (waiting := kgents.hint()) is not None:
            aside(f"note: {waiting}\n")
    for reason in status.degraded:
        warn(reason)


def warn(reason: str) -> None:
    """Say on stderr what nobody should overlook."""
    _print(sys.stderr, Text.assemble(("warning: ", "bold yellow"), visible(reason), "\n"))


def warn_outside(outside: Iterable[str]) -> None:
    """Say on stderr which parts of a store a backup does not hold."""
    for each in outside:
        warn(f"not in the backup: {each}")


def pour(data: bytes) -> None:
    """Write bytes to stdout as they are."""
    _write(sys.stdout, data)


def fail(facts: Mapping[str, Any], as_json: bool) -> None:
    """Print an error: its message and what to do, or with `--json` all its facts on stdout."""
    if as_json:
        show({"error": facts}, as_json)
        return
    lines = Text.assemble(("error: ", "bold red"), visible(str(facts["message"])), "\n")
    if facts["remedy"]:
        lines.append(f"{visible(str(facts['remedy']))}\n", style="dim")
    _print(sys.stderr, lines)


def aside(text: str) -> None:
    """Print ready-made text on stderr: a usage hint or a traceback."""
    _write(sys.stderr, text)


def plain_table(value: Any) -> Text:
    """Draw fields as lines, whatever has fields below its name."""
    if isinstance(value, Mapping):
        rows = list(_rows(value))
        width = max((len(label) for label, _ in rows), default=0) + 2
        lines = Text()
        for label, text in rows:
            # Continued lines are indented, so that a value cannot pass for another row.
            lines.append(label.ljust(width) if text else label, style="cyan")
            lines.append(text.replace("\n", "\n" + " " * width) + "\n")
        return lines
    if isinstance(value, list | tuple) and value:
        blocks = any(isinstance(item, Mapping) for item in value)
        return Text("\n" if blocks else "").join(plain_table(item) for item in value)
    return Text(words(value) + "\n")


def _rows(value: Mapping[Any, Any], indent: str = "") -> Iterator[tuple[str, str]]:
    for name, item in value.items():
        label = indent + visible(str(name)).replace("\n", "\\n")
        if isinstance(item, Mapping) and item:
            yield label, ""
            yield from _rows(item, indent + "  ")
        elif isinstance(item, list | tuple) and item:
            yield label, "\n".join(words(part) for part in item)
        else:
            yield label, words(item)


def words(value: Any) -> str:
    """A value on one line, unless its own text has several; no control characters."""
    if isinstance(value, Mapping) and value:
        return ", ".join(f"{words(name)}={words(item)}" for name, item in value.items())
    if isinstance(value, list | tuple) and value:
        return ", ".join(words(item) for item in value)
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    return visible(str(value)) if value not in ([], (), {}) else "none"


def _print(stream: TextIO, text: Text) -> None:
    if stream is None:  # closed by the caller (`>&-`)
        return
    output = io.StringIO()
    # Terminals wrap by themselves, and pipes want whole lines.
    Console(file=output, force_terminal=stream.isatty()).print(text, end="", soft_wrap=True)
    _write(stream, output.getvalue())


def _write(stream: TextIO, text: str | bytes) -> None:
    if stream is None:
        return
    try:
        if isinstance(text, bytes):
            stream.buffer.write(text)
        else:
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
            stream.write(text)
        stream.flush()
    except OSError as error:
        # Or the interpreter would fail once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if isinstance(error, BrokenPipeError):
            raise click.exceptions.Exit(_BROKEN_PIPE) from error
        aside(f"error: the output cannot be written: {error.strerror}\n")
        raise click.exceptions.Exit(_CANNOT_WRITE) from error
