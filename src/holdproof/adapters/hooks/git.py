"""What git says about a folder: its repository, where it stands, and the hunks of a commit."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdproof.errors import InvalidInputError, NotFoundError

_PATIENCE_S: Final = 20
# Nothing of a user's or a repository's settings may change what is read: no pager, colour, external diff, quoted names.
_PLAIN: Final = ("-c", "core.quotePath=false", "-c", "color.ui=false", "-c", "diff.noprefix=false")
_DIFF: Final = ("--unified=0", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--first-parent", "-m")


@dataclass(frozen=True, slots=True)
class Hunk:
    """A stretch of a commit: what it adds to a file and takes away; `start` is the first line in the new file."""

    path: str
    start: int
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GitCommit:
    """A commit, and when it was made."""

    id: str
    at: str
    hunks: tuple[Hunk, ...]


def root_of(folder: str) -> str | None:
    """Return the top of the work tree that a folder is in; None where there is none."""
    at = os.path.realpath(folder)
    return next((str(each) for each in (Path(at), *Path(at).parents) if os.path.lexists(each / ".git")), None)


def head_of(folder: str) -> str | None:
    """Return the commit that a work tree stands at; None before the first, and where git cannot say."""
    try:
        return _git(folder, "rev-parse", "--verify", "--quiet", "HEAD").strip() or None
    except NotFoundError:
        return None


def commit(folder: str, revision: str) -> GitCommit:
    """Return a commit with its hunks, as it differs from its first parent; NotFoundError where there is none."""
    if revision.startswith("-"):
        raise InvalidInputError(f"{revision} is no revision of git", revision=revision)
    facts = _git(folder, "show", "--no-patch", "--format=%H%n%cI", f"{revision}^{{commit}}").split()
    patch = _git(folder, "show", "--format=", *_DIFF, facts[0])
    return GitCommit(facts[0], facts[1], tuple(parse(patch)))


def parse(patch: str) -> Iterator[Hunk]:
    """Yield the hunks of a patch without context."""
    path = ""
    old_path = ""
    start = 0
    added: list[str] = []
    removed: list[str] = []
    in_hunk = False
    # Split at newlines alone: other characters that end lines for Python stand inside lines of code.
    for line in [*patch.split("\n"), "diff --git"]:
        if line.startswith(("diff --git", "@@ ")):
            if in_hunk:
                yield Hunk(path, start, tuple(added), tuple(removed))
            added = []
            removed = []
            in_hunk = line.startswith("@@ ")
            start = _start(line) if in_hunk else 0
        elif in_hunk and line.startswith("+"):
            added.append(line[1:])
        elif in_hunk and line.startswith("-"):
            removed.append(line[1:])
        elif line.startswith("--- "):
            old_path = _path(line[4:])
        elif line.startswith("+++ "):
            # A file that was deleted has a name on the old side only.
            path = _path(line[4:]) or old_path


def _path(text: str) -> str:
    name = text.rstrip("\t")
    return "" if name == "/dev/null" else name[2:]


def _start(line: str) -> int:
    """Return the first line in the new file, out of `@@ -1,2 +3,4 @@`."""
    return int(line.split("+", 1)[1].split(" ", 1)[0].split(",", 1)[0])


def _git(folder: str, *words: str) -> str:
    # A lock of another git must not make this one wait, and reading must not write the index.
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(  # noqa: S603 (a fixed program, its words given one by one)
            ["git", *_PLAIN, "-C", folder, *words],  # noqa: S607 (the user's own git)
            capture_output=True,
            timeout=_PATIENCE_S,
            env=env,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotFoundError(f"git cannot be asked in {folder}: {error}", path=folder) from error
    if done.returncode != 0:
        message = done.stderr.decode("utf-8", "replace").strip() or f"git {words[0]} failed"
        raise NotFoundError(f"{folder}: {message}", path=folder)
    return done.stdout.decode("utf-8", "replace")
