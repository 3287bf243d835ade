"""The project that rows belong to: its folder and the hash of that."""

import os
from pathlib import Path
from typing import Final, NamedTuple

from holdproof.errors import InvalidInputError
from holdproof.folders import find_project, project_hash


class Project(NamedTuple):
    """A project; both None if there is none."""

    path: str | None = None
    hash: str | None = None


NOWHERE: Final = Project()


def project_of(path: str | os.PathLike[str]) -> Project:
    """The project of a folder, by its resolved path."""
    try:
        folder = os.path.realpath(path)
        folder.encode()
        return Project(folder, project_hash(Path(folder)))
    except ValueError as error:  # a NUL, or a name that is not Unicode
        raise InvalidInputError(f"project_path cannot be a folder: {error}", field="project_path") from error


def project_here() -> Project:
    """The project of the working folder, else that folder itself; none if it was deleted."""
    try:
        here = Path.cwd()
        return project_of(find_project(here) or here)
    except (FileNotFoundError, InvalidInputError):
        return NOWHERE
