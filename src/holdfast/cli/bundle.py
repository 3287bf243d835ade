"""`holdfast bundle`: records for strangers."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.call import Call, command, options
from holdfast.content import disk

app = typer.Typer(
    help="Export a record with all that proves it.",
    epilog="Example: holdfast bundle export battle-1 --out battle-1.zip",
    no_args_is_help=True,
)
app.callback()(options)


@command(app, example="holdfast bundle export battle-1 --out battle-1.zip", hidden=True)
def export(
    call: Call,
    subject: Annotated[str, typer.Argument(help="The battle_id, or the id of a flow.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write the zip.")],
    kind: Annotated[str, typer.Option("--kind", help="battle or flow.")] = "battle",
) -> dict[str, object]:
    """Write one zip that anybody can check: `holdfast verify FILE`, or openssl and the page of Python inside."""
    with call.open() as store:
        data = store.bundle.export(subject, kind=kind)
    with disk.translated(out):
        disk.deliver(out, [data])
    return {"written": str(out), "bytes": len(data), "next": f"holdfast verify {out}"}
