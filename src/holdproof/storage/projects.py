"""Which project rows belong to: its folder, and the hash that stands for it."""

import os
from pathlib import Path
from typing import Final, NamedTuple

from holdproof.config import find_project, project_hash
from holdproof.errors import InvalidInputError


class Project(NamedTuple):
    """A project, or nothing where there is none."""

    path: str | None = None
    hash: str | None = None


NOWHERE: Final = Project()


def project_of(path: str | os.PathLike[str]) -> Project:
    """The project of a folder, by its resolved path."""
    try:
        folder = os.path.realpath(path)
        folder.encode()
        return Project(folder, project_hash(Path(folder)))
    except ValueError as error:  # a NUL, or a name that is no Unicode
        raise InvalidInputError(f"no folder of a project: {error}", field="project_path") from error


def project_here() -> Project:
    """The project that the working folder lies in, else the working folder; nothing where that is gone."""
    try:
        here = Path.cwd()
        return project_of(find_project(here) or here)
    except (FileNotFoundError, InvalidInputError):
        return NOWHERE
