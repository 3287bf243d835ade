"""JSON of kgents: prompts and their history, states of agents, the witness.

Rules:
- A state is stored as its exact text. `soul/state.json` is the agent `soul`, `soul/other.json` is `soul/other`.
- Other files in such a folder become blobs, so that nothing of it is lost.
- Of the witness, documents become states; its logs and the like go to the cache.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from holdproof.db.sqlite.readonly import foreign_tables
from holdproof.errors import FormatError
from holdproof.importers import driver
from holdproof.importers.kgents import files, tables
from holdproof.importers.kgents.row_source import Rows, RowSource
from holdproof.importers.kgents.source import MOST_JSON, Contents
from holdproof.importers.kgents.tables import TABLES, Row
from holdproof.model.times import to_text

_GENUS: Final = {"soul": "k-gent"}
_INDEX: Final = "index.json"
_CHECKPOINTS: Final = "checkpoints"


def document(path: Path) -> tuple[str, Any]:
    """Read a JSON file; return its text and its value."""
    try:
        text = files.small(path, MOST_JSON).decode()
        return text, json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not JSON: {error}", path=str(path)) from error


def _state(agent_id: str, genus: str, path: Path, text: str) -> tuple[str, Row]:
    # The document has no time of its own; that of the file is the best there is.
    at = to_text(path.stat(follow_symlinks=False).st_mtime_ns // 1000)
    row = {"agent_id": agent_id, "genus": genus, "state": text, "updated_at": at}
    return "agent_state", tables.fit(TABLES["agent_state"], row, str(path))


class States(RowSource):
    """A folder of states: `soul/`, `hypnagogia/`."""

    kind = "states"

    def rows(self, contents: Contents) -> Rows:
        """See RowSource."""
        for path, parts in files.walk(self.path, contents.skipped):
            if _is_state(parts):
                text, value = document(path)
                genus = value.get("genus") if isinstance(value, dict) else None
                kind = genus if isinstance(genus, str) else _GENUS.get(self.name, self.name)
                yield _state(self.name if path.stem == "state" else f"{self.name}/{path.stem}", kind, path, text)

    def blobs(self, contents: Contents) -> Iterator[tuple[Path, str, str | None]]:
        """See RowSource."""
        for path, parts in files.walk(self.path, Counter()):
            if not _is_state(parts):
                yield path, files.key_of(self.name, *parts), None
        del contents  # `rows` has counted what is skipped


def _is_state(parts: tuple[str, ...]) -> bool:
    return len(parts) == 1 and parts[0].endswith(".json")


class Prompts(RowSource):
    """`prompt-history/`: an index, and a document for each checkpoint."""

    kind = "prompts"

    def rows(self, contents: Contents) -> Rows:
        """See RowSource."""
        index = self.path / _INDEX
        checkpoints: set[str] = set()
        listed: Any = []
        if index.is_file() and not index.is_symlink():
            text, listed = document(index)
            yield _state(self.name, "prompts", index, text)
        for path, parts in files.walk(self.path, contents.skipped):
            if _is_checkpoint(parts):
                row, extra = self._checkpoint(path)
                checkpoints.add(row["id"])
                yield "prompt_checkpoints", row
                if extra:
                    yield _state(f"{self.name}/{row['id']}", "prompts", path, json.dumps(extra, ensure_ascii=False))
        if missing := _ids(listed) - checkpoints:
            contents.skipped["checkpoints that the index names, and that have no file"] = len(missing)

    def _checkpoint(self, path: Path) -> tuple[Row, Row]:
        _, value = document(path)
        if not isinstance(value, dict):
            raise FormatError(f"{path} is not a checkpoint", path=str(path))
        table = TABLES["prompt_checkpoints"]
        names = {column.name for column in table.columns}
        columns = {name: each for name, each in value.items() if name in names}
        row = tables.fit(table, {"id": path.stem, **columns}, str(path))
        return row, {name: each for name, each in value.items() if name not in names}

    def blobs(self, contents: Contents) -> Iterator[tuple[Path, str, str | None]]:
        """See RowSource."""
        for path, parts in files.walk(self.path, Counter()):
            if parts != (_INDEX,) and not _is_checkpoint(parts):
                yield path, files.key_of(self.name, *parts), None
        del contents  # `rows` has counted what is skipped


def _is_checkpoint(parts: tuple[str, ...]) -> bool:
    return len(parts) == 2 and parts[0] == _CHECKPOINTS and parts[1].endswith(".json")


def _ids(listed: Any) -> set[str]:
    """The ids that an index names, as a list or under `checkpoints`, plain or in objects."""
    if isinstance(listed, dict):
        listed = listed.get(_CHECKPOINTS, [])
    if isinstance(listed, dict):
        return set(listed)
    ids = [each.get("id") if isinstance(each, dict) else each for each in listed if isinstance(listed, list)]
    return {each for each in ids if isinstance(each, str)}


class Folder(RowSource):
    """A folder whose files become blobs: `ghost/`, `atelier/`, and `blobs/` of an XDG home."""

    kind = "blobs"

    def blobs(self, contents: Contents) -> Iterator[tuple[Path, str, str | None]]:
        """See RowSource."""
        paths = {parts: path for path, parts in files.walk(self.path, contents.skipped)}
        above = () if self.name == "blobs" else (self.name,)
        for parts, path in paths.items():
            of = (*parts[:-1], parts[-1].removesuffix(".meta"))
            if of in paths and of != parts and _type(path) is not None:
                continue  # metadata that a file store wrote beside its blob
            beside = paths.get((*parts[:-1], f"{parts[-1]}.meta"))
            yield path, files.key_of(*above, *parts), None if beside is None else _type(beside)


def _type(path: Path) -> str | None:
    """The content type in a `.meta` file; None if it is another kind of file."""
    try:
        _, value = document(path)
    except (FormatError, OSError):
        return None
    name = value.get("content_type") if isinstance(value, dict) else None
    return name if isinstance(name, str) and name.isascii() and name.isprintable() and name else None


class WitnessDocument(RowSource):
    """One of `witness.*`."""

    kind = "witness"

    @property
    def _agent(self) -> str:
        rest = self.name.removeprefix("witness.").rpartition(".")[0]
        return f"witness/{rest}" if rest else "witness"

    def rows(self, contents: Contents) -> Rows:
        """See RowSource."""
        end = Path(self.name).suffix
        if end == ".json":
            text, _ = document(self.path)
            yield _state(self._agent, "witness", self.path, text)
        elif end == ".jsonl":
            lines = files.small(self.path, MOST_JSON).splitlines()
            values = [_line(self.path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
            yield _state(f"{self._agent}/lines", "witness", self.path, json.dumps(values, ensure_ascii=False))
        elif end in {".db", ".sqlite"}:
            with foreign_tables(self.path) as listed:
                dump = {name: [driver.row_as_json(row) for row in rows] for name, rows in listed}
            yield _state(f"{self._agent}/tables", "witness", self.path, json.dumps(dump, ensure_ascii=False))
        del contents

    def cached(self) -> Iterator[tuple[Path, str]]:
        """See RowSource."""
        if Path(self.name).suffix not in {".json", ".jsonl", ".db", ".sqlite"}:
            yield self.path, self.name


def _line(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"line {number} of {path} is not JSON: {error}", path=str(path), line=number) from error
