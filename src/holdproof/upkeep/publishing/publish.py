"""Publish the log as files: checkpoint, tiles and bundles of entries, as C2SP tlog-tiles lays them out.

    checkpoint                    the signed head
    tile/<L>/<N>[.p/<W>]          hashes of the tree
    tile/entries/<N>[.p/<W>]      the entries

Anybody who can read files over HTTP checks the log by them, without the store and after it is gone.

Rules:
- The checkpoint comes last: whoever reads it finds every file that it needs. A run that is killed before that leaves
  the earlier checkpoint, and files that the next run writes again.
- Only what the published checkpoint does not cover is written: a full tile never changes.
- What is published there must be an earlier state of this very log; a shorter log, or another one, is refused, so that
  a store that was rolled back cannot publish a second history over the first.
- Partial tiles stay until their tile is full: a reader may still go by an earlier checkpoint.
"""

import os
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

from holdproof.crypto import checkpoint, tiles
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.tiles import WIDTH, EntryBundle, Tile
from holdproof.db import Call, Tx, Work, ask
from holdproof.errors import ConflictError, FormatError, ProofError
from holdproof.evidence import log, tree
from holdproof.model.progress import Progress
from holdproof.model.publishing import PublishedLog
from holdproof.store.context import Context
from holdproof.upkeep.backups.backup_list import no_progress
from holdproof.upkeep.publishing import targets
from holdproof.upkeep.publishing.targets import LogTarget, StoredCheckpoint

_AT_A_TIME: Final = 64
"""How many files one transaction reads."""


def publish(
    context: Context, target: str | os.PathLike[str], *, progress: Progress | None = None
) -> Work[PublishedLog]:
    """Publish what is new of the log to a folder or `s3://bucket/prefix`, for everybody who can read it there.

    Raises ConflictError where another log is there, or somebody publishes at the same time, and ProofError where what
    is there is not an earlier state of this log.
    """
    return (yield from ask(Call(partial(_publish, context, target, progress or no_progress))))


def _publish(context: Context, named: str | os.PathLike[str], tell: Progress) -> PublishedLog:
    with targets.opened(named) as target:
        before = target.checkpoint()
        head = context.database.read(log.head).result()
        start = (
            0
            if before is None
            else context.database.read(partial(_continued, before=before, head=head, where=target.where)).result()
        )
        files, written = _write_tiles(context, target, start, head.checkpoint.size, tell)
        encoded = head.encode()
        if before is None or before.data != encoded:
            target.swap(encoded, before)
            files += 1
            written += len(encoded)
        for tile in _completed(start, head.checkpoint.size):
            target.drop_partials(tile)
        stated = head.checkpoint
        return PublishedLog(target.where, stated.origin, start, stated.size, stated.root.hex(), files, written)


def _continued(tx: Tx, before: StoredCheckpoint, head: SignedCheckpoint, where: str) -> int:
    """Return the size up to which the log is published; raises unless that is an earlier state of this log."""
    try:
        there = checkpoint.parse(before.data).checkpoint
    except FormatError as error:
        raise targets.something_else(where) from error
    now = head.checkpoint
    if there.origin != now.origin:
        raise ConflictError(
            f"{where} holds the log {there.origin}, this is {now.origin}: name another place", target=where
        )
    if there.size > now.size or tree.root_at(tx, there.size) != there.root:
        raise ProofError(
            f"{where} holds a head of {there.size} entries that this log does not continue: run `holdproof verify`",
            target=where,
            size=there.size,
        )
    return there.size


def _write_tiles(context: Context, target: LogTarget, start: int, end: int, tell: Progress) -> tuple[int, int]:
    """Write what is new between two sizes; how many files that were, and bytes."""
    names = iter(_new_files(start, end))
    total = sum(1 for _ in _new_files(start, end))
    files = 0
    written = 0
    while batch := [*islice(names, _AT_A_TIME)]:
        contents = context.database.read(partial(_read, paths=batch)).result()
        for path, data in zip(batch, contents, strict=True):
            target.put(path, data)
            files += 1
            written += len(data)
        tell("files", files, total)
    return files, written


def _read(tx: Tx, paths: list[str]) -> list[bytes]:
    return [log.tile(tx, path) for path in paths]


def _new_files(start: int, end: int) -> Iterator[str]:
    for tile in tiles.new_tiles(start, end):
        yield tile.path
        if tile.level == 0:
            yield EntryBundle(tile.index, tile.width).path


def _completed(start: int, end: int) -> Iterator[str]:
    """Yield the full tiles and bundles that were partial at the size before."""
    for tile in tiles.new_tiles(start, end):
        was_partial = tile.index == (start >> 8 * tile.level) // WIDTH and (start >> 8 * tile.level) % WIDTH
        if was_partial and tile.width == WIDTH:
            yield Tile(tile.level, tile.index).path
            if tile.level == 0:
                yield EntryBundle(tile.index).path
