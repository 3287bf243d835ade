"""JSON of kgents: prompts and their history, states of agents, the witness.

Rules:
- A state is kept as its exact text. `soul/state.json` is the agent `soul`, `soul/other.json` is `soul/other`.
- Whatever else lies in such a folder becomes a blob, so that nothing of it is lost.
- Of the witness, documents become states; its logs and the like go to the cache.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from holdproof.db.sqlite.readonly import foreign_tables
from holdproof.errors import FormatError
from holdproof.importers.kgents import files, tables
from holdproof.importers.kgents.plan import Plan, Rows
from holdproof.importers.kgents.source import MOST_JSON, Contents
from holdproof.importers.kgents.tables import TABLES, Row
from holdproof.model.times import to_text

_GENUS: Final = {"soul": "k-gent"}
_INDEX: Final = "index.json"
_CHECKPOINTS: Final = "checkpoints"


def document(path: Path) -> tuple[str, Any]:
    """A file of JSON: its text, and what it says."""
    try:
        text = files.small(path, MOST_JSON).decode()
        return text, json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is no JSON: {error}", path=str(path)) from error


def _state(agent_id: str, genus: str, path: Path, text: str) -> tuple[str, Row]:
    at = to_text(path.stat(follow_symlinks=False).st_mtime_ns // 1000)
    row = {"agent_id": agent_id, "genus": genus, "state": text, "updated_at": at}
    return "agent_state", tables.fit(TABLES["agent_state"], row, str(path))


class States(Plan):
    """A folder of states: `soul/`, `hypnagogia/`."""

    kind = "states"

    def rows(self, contents: Contents) -> Rows:
        """See Plan."""
        for path, parts in files.walk(self.path, contents.skipped):
            if _is_state(parts):
                text, said = document(path)
                genus = said.get("genus") if isinstance(said, dict) else None
                kind = genus if isinstance(genus, str) else _GENUS.get(self.name, self.name)
                yield _state(self.name if path.stem == "state" else f"{self.name}/{path.stem}", kind, path, text)

    def blobs(self, contents: Contents) -> Iterator[tuple[Path, str, str | None]]:
        """See Plan."""
        for path, parts in files.walk(self.path, Counter()):
            if not _is_state(parts):
                yield path, files.key_of(self.name, *parts), None
        del contents  # the rows have counted what is passed over


def _is_state(parts: tuple[str, ...]) -> bool:
    return len(parts) == 1 and parts[0].endswith(".json")


class Prompts(Plan):
    """`prompt-history/`: an index, and a document for each checkpoint."""

    kind = "prompts"

    def rows(self, contents: Contents) -> Rows:
        """See Plan."""
        index, seen = self.path / _INDEX, set[str]()
        listed: Any = []
        if index.is_file() and not index.is_symlink():
            text, listed = document(index)
            yield _state(self.name, "prompts", index, text)
        for path, parts in files.walk(self.path, contents.skipped):
            if _is_checkpoint(parts):
                row, extra = self._checkpoint(path)
                seen.add(row["id"])
                yield "prompt_checkpoints", row
                if extra:
                    yield _state(f"{self.name}/{row['id']}", "prompts", path, json.dumps(extra, ensure_ascii=False))
        if lost := _ids(listed) - seen:
            contents.skipped["checkpoints that the index names, and that have no file"] = len(lost)

    def _checkpoint(self, path: Path) -> tuple[Row, Row]:
        _, said = document(path)
        if not isinstance(said, dict):
            raise FormatError(f"{path} is no checkpoint", path=str(path))
        table = TABLES["prompt_checkpoints"]
        names = {column.name for column in table.columns}
        known = {name: value for name, value in said.items() if name in names}
        row = tables.fit(table, {"id": path.stem, **known}, str(path))
        return row, {name: value for name, value in said.items() if name not in names}

    def blobs(self, contents: Contents) -> Iterator[tuple[Path, str, str | None]]:
        """See Plan."""
        for path, parts in files.walk(self.path, Counter()):
            if parts != (_INDEX,) and not _is_checkpoint(parts):
                yield path, files.key_of(self.name, *parts), None
        del contents  # the rows have counted what is passed over


def _is_checkpoint(parts: tuple[str, ...]) -> bool:
    return len(parts) == 2 and parts[0] == _CHECKPOINTS and parts[1].endswith(".json")


def _ids(listed: Any) -> set[str]:
    """The ids that an index names, as a list or under `checkpoints`, plain or in objects."""
    if isinstance(listed, dict):
        listed = listed.get(_CHECKPOINTS, [])
    if isinstance(listed, dict):
        return set(listed)
    found = [each.get("id") if isinstance(each, dict) else each for each in listed if isinstance(listed, list)]
    return {each for each in found if isinstance(each, str)}


class Folder(Plan):
    """A folder whose files become blobs: `ghost/`, `atelier/`, and `blobs/` of an XDG home."""

    kind = "blobs"

    def blobs(self, contents: Contents) -> Iterator[tuple[Path, str, str | None]]:
        """See Plan."""
        found = {parts: path for path, parts in files.walk(self.path, contents.skipped)}
        above = () if self.name == "blobs" else (self.name,)
        for parts, path in found.items():
            of = (*parts[:-1], parts[-1].removesuffix(".meta"))
            if of in found and of != parts and _type(path) is not None:
                continue  # what a file store wrote beside its blob, not a blob of its own
            beside = found.get((*parts[:-1], f"{parts[-1]}.meta"))
            yield path, files.key_of(*above, *parts), None if beside is None else _type(beside)


def _type(path: Path) -> str | None:
    """The content type that a `.meta` file tells, or None if it is something else."""
    try:
        said = document(path)[1]
    except (FormatError, OSError):
        return None
    found = said.get("content_type") if isinstance(said, dict) else None
    return found if isinstance(found, str) and found.isascii() and found.isprintable() and found else None


class Witness(Plan):
    """One of `witness.*`."""

    kind = "witness"

    @property
    def _agent(self) -> str:
        rest = self.name.removeprefix("witness.").rpartition(".")[0]
        return f"witness/{rest}" if rest else "witness"

    def rows(self, contents: Contents) -> Rows:
        """See Plan."""
        end = Path(self.name).suffix
        if end == ".json":
            yield _state(self._agent, "witness", self.path, document(self.path)[0])
        elif end == ".jsonl":
            lines = files.small(self.path, MOST_JSON).splitlines()
            said = [_line(self.path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
            yield _state(f"{self._agent}/lines", "witness", self.path, json.dumps(said, ensure_ascii=False))
        elif end in {".db", ".sqlite"}:
            with foreign_tables(self.path) as listed:
                told = {name: [_plain(row) for row in rows] for name, rows in listed}
            yield _state(f"{self._agent}/tables", "witness", self.path, json.dumps(told, ensure_ascii=False))
        del contents

    def cached(self) -> Iterator[tuple[Path, str]]:
        """See Plan."""
        if Path(self.name).suffix not in {".json", ".jsonl", ".db", ".sqlite"}:
            yield self.path, self.name


def _line(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"line {number} of {path} is no JSON: {error}", path=str(path), line=number) from error


def _plain(row: Row) -> Row:
    return {name: {"hex": value.hex()} if isinstance(value, bytes) else value for name, value in row.items()}
