"""`holdproof telemetry`: events in bulk, found by name and time."""

from collections.abc import Iterator
from dataclasses import fields
from itertools import islice
from typing import Annotated, Any, Final

import typer

from holdproof.cli import draw, storage
from holdproof.cli.bar import pulse
from holdproof.cli.call import Call, Limit, Since, command, options
from holdproof.cli.storage import Source
from holdproof.errors import HoldproofError, InvalidInputError
from holdproof.model.storage import TelemetryEvent

app = typer.Typer(
    help="Keep events, find them again, let the old ones go.",
    epilog="Example: holdproof telemetry query --type tool.call --limit 20",
    no_args_is_help=True,
)
app.callback()(options)

_BATCH: Final = 1_000
_FIELDS: Final = frozenset(each.name for each in fields(TelemetryEvent))


@command(app, example="holdproof telemetry append events.jsonl")
def append(call: Call, source: Source) -> dict[str, int]:
    """Keep the events of a file of JSON lines, a thousand a commit; an error says how many were kept before it."""
    kept, events = 0, _events(source)
    with storage.opened(call, "telemetry") as telemetry:
        try:
            while batch := [*islice(events, _BATCH)]:
                telemetry.append(batch)
                kept += len(batch)
        except HoldproofError as error:
            error.fields.setdefault("kept", kept)
            raise
    return {"appended": kept}


def _events(source: str) -> Iterator[TelemetryEvent]:
    for number, found in storage.documents(source):
        if unknown := sorted(found.keys() - _FIELDS):
            raise InvalidInputError(f"line {number}: an event has no {unknown[0]}", line=number)
        try:
            event = TelemetryEvent(**found)
        except TypeError as error:
            raise InvalidInputError(f"line {number}: an event needs event_type and timestamp", line=number) from error
        yield event


@command(
    app,
    example="holdproof telemetry query --type tool.call --since 2026-01-01T00:00:00Z",
    draw=draw.rows("events", "timestamp", "event_type", "instance_id", "span_id", "trace_id", "data"),
)
def query(
    call: Call,
    *,
    span: Annotated[str | None, typer.Option("--span", help="Only this span.")] = None,
    trace: Annotated[str | None, typer.Option("--trace", help="Only this trace.")] = None,
    event_type: Annotated[str | None, typer.Option("--type", help="Only this type.")] = None,
    instance: Annotated[str | None, typer.Option("--instance", help="Only this instance.")] = None,
    since: Since = None,
    until: Annotated[str | None, typer.Option("--until", help="Up to this time.")] = None,
    limit: Limit = 100,
) -> dict[str, Any]:
    """Find events that match everything said, newest first."""
    with storage.opened(call, "telemetry") as telemetry:
        found = telemetry.query(
            span, limit, event_type=event_type, trace_id=trace, instance_id=instance, since=since, until=until
        )
        return {"events": [event.to_dict() for event in found]}


@command(app, example="holdproof telemetry count")
def count(call: Call) -> dict[str, int]:
    """Count the events."""
    with storage.opened(call, "telemetry") as telemetry:
        return {"count": telemetry.count()}


@command(app, example="holdproof telemetry prune 730")
def prune(
    call: Call, older_than_days: Annotated[float, typer.Argument(metavar="DAYS", help="What is older goes.")]
) -> dict[str, int]:
    """Remove events that are older, and give their space back."""
    with storage.opened(call, "telemetry") as telemetry, pulse("pruning"):
        return {"pruned": telemetry.prune(older_than_days)}


@command(app, example="holdproof telemetry retain")
def retain(call: Call) -> dict[str, int]:
    """Do what the settings say of age: pack what is older harder, remove what is past its time."""
    with storage.opened(call, "telemetry") as telemetry, pulse("packing"):
        return {"removed": telemetry.retain()}
