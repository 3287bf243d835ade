"""`holdfast init`: make a folder a project."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast import config
from holdfast.cli.call import Call, command

app = typer.Typer()


@command(app, example="holdfast init ./my-agent")
def init(
    _: Call, folder: Annotated[Path, typer.Argument(help="The project's folder, here by default.")] = Path()
) -> dict[str, list[str]]:
    """Create .holdfast/config.yaml and .holdfast/catalog.json in a project; an existing one is left alone."""
    return {"created": [str(path) for path in config.init_project(folder)]}
