"""Import the checkpoints of LangGraph's own SQLite saver; the file is only read.

Rules:
- Every checkpoint and every write arrives as it was, in the order it was written; doing it again changes nothing.
- Values are read by the same list of types as everywhere: one that is not on it ends the import with its name.
- A thread that was deleted here stays deleted.
"""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig

from holdproof import sync
from holdproof.adapters.langgraph.safety import Named, SafeSerializer
from holdproof.adapters.langgraph.saver import HoldproofSaver
from holdproof.errors import FormatError, ThreadDeletedError
from holdproof.kernel import MAIN, foreign_rows, thread_index
from holdproof.model.progress import Progress
from holdproof.model.threads import ThreadsImported


def import_sqlite(
    store: sync.Holdproof,
    source: str | Path,
    *,
    allow: Iterable[type | Named] = (),
    key: bytes | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ThreadsImported:
    """Import the checkpoints of a file of `SqliteSaver` or `AsyncSqliteSaver`; with `dry_run` only read them."""
    path = Path(source)
    serde = SafeSerializer(allow)
    saver = HoldproofSaver(store, serde=serde, key=key)
    threads_seen: set[str] = set()
    dead: set[str] = set()
    count = written = 0
    for config, checkpoint, metadata in _checkpoints(path, serde):
        thread = str(config["configurable"]["thread_id"])
        if thread not in threads_seen and store.read(
            partial(thread_index.is_deleted, thread_id=thread, ns=store.ns or MAIN)
        ):
            dead.add(thread)  # its first checkpoint has no parent, and would begin another life
        threads_seen.add(thread)
        if not dry_run and thread not in dead:
            try:
                saver.put(config, checkpoint, metadata, checkpoint.get("channel_versions") or {})
            except ThreadDeletedError:
                dead.add(thread)
        count += 1
        if progress is not None:
            progress("checkpoints", count, 0)
    # After all checkpoints: a write names one, and the order within a table is that of writing.
    for row in _rows(path, "writes"):
        value = serde.loads_typed((_text(row, "type"), row["value"] or b""))
        if not dry_run and _text(row, "thread_id") not in dead:
            _write(saver, store, row, value)
        written += 1
    return ThreadsImported(str(path), len(threads_seen), count, written, sorted(dead), dry_run)


def _checkpoints(path: Path, serde: SafeSerializer) -> Iterator[tuple[RunnableConfig, Any, Any]]:
    for row in _rows(path, "checkpoints"):
        checkpoint = serde.loads_typed((_text(row, "type"), row["checkpoint"] or b""))
        try:
            metadata = json.loads(row["metadata"] or b"{}")
        except ValueError as error:
            raise FormatError(f"{path}: the metadata of a checkpoint is no JSON", path=str(path)) from error
        if not isinstance(checkpoint, dict) or not isinstance(metadata, dict) or "channel_values" not in checkpoint:
            raise FormatError(f"{path}: a row of checkpoints is none", path=str(path))
        # The config names the parent, as LangGraph passes it to `put`; the checkpoint carries its own id.
        named = {"thread_id": _text(row, "thread_id"), "checkpoint_ns": _text(row, "checkpoint_ns")}
        if row["parent_checkpoint_id"] is not None:
            named["checkpoint_id"] = _text(row, "parent_checkpoint_id")
        yield {"configurable": named}, {**checkpoint, "id": _text(row, "checkpoint_id")}, metadata


def _write(saver: HoldproofSaver, store: sync.Holdproof, row: dict[str, Any], value: Any) -> None:
    write = (int(row["idx"]), _text(row, "channel"), saver.encoded(value))
    store.threads.put_writes(
        _text(row, "thread_id"),
        _text(row, "checkpoint_id"),
        _text(row, "task_id"),
        [write],
        checkpoint_ns=_text(row, "checkpoint_ns"),
        task_path=str(row.get("task_path") or ""),
        ns=store.ns or MAIN,
    )


def _rows(path: Path, table: str) -> Iterator[dict[str, Any]]:
    with foreign_rows(path, table) as (_, rows):
        yield from rows


def _text(row: dict[str, Any], column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str):
        raise FormatError(f"the column {column} holds no text", column=column)
    return value
