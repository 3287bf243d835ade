"""`holdproof init`: make a folder a project."""

from pathlib import Path
from typing import Annotated

import typer

from holdproof import config
from holdproof.cli.call import Call, command

app = typer.Typer()


@command(app, example="holdproof init ./my-agent")
def init(
    _: Call, folder: Annotated[Path, typer.Argument(help="The project's folder, here by default.")] = Path()
) -> dict[str, list[str]]:
    """Create .holdproof/config.yaml and .holdproof/catalog.json in a project; an existing one is left alone."""
    return {"created": [str(path) for path in config.init_project(folder)]}
