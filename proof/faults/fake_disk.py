"""A disk that forgets: what of a store survives if the power goes now.

Rules:
- A file is durable as it was when it was last synced. What was written since is on its way in sectors of 512 bytes, of
  which any may have arrived, in any order; a cut may have too, and a file may have grown without its new bytes.
- A folder is durable as it was when it was last synced. Of the names that came and went since, some of the first may
  have arrived; a rename within a folder does as a whole or not at all. Folders and files know nothing of each other,
  but that no name is lost between two folders: every file system with a journal sees to that.
- A sync that failed makes nothing durable ever: what was on its way to that file arrived or is gone for good, whatever
  a later sync says, unless it is written again.
"""

import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from proof.faults.watch import Event

SECTOR: Final = 512
_LUCK: Final = (0.0, 1.0, 0.5, 0.9, 0.1)
"""How much of what is on its way arrives: nothing, all of it, some."""


@dataclass(slots=True)
class File:
    """A file: what is sure of it, and what is on its way."""

    sure: bytearray = field(default_factory=bytearray)
    coming: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Bytes at a place, or nothing: the file is cut there."""

    def sync(self) -> None:
        """All of it is sure from now on."""
        self.sure, self.coming = self._arrived(self.coming), []

    def unsynced(self, chance: random.Random) -> None:
        """A sync failed: some arrived, the rest never will."""
        self.sure, self.coming = self._torn(chance), []

    def left(self, chance: random.Random) -> bytes:
        """What is there after a power cut."""
        return bytes(self._torn(chance))

    def now(self) -> bytes:
        """What whoever reads it now is given."""
        return bytes(self._arrived(self.coming))

    def _torn(self, chance: random.Random) -> bytearray:
        luck = chance.choice(_LUCK)
        arrived: list[tuple[int, bytes | None]] = []
        for at, data in self.coming:
            if data is None:
                arrived += [(at, None)] if chance.random() < luck else []
                continue
            for start in range(at - at % SECTOR, at + len(data), SECTOR):
                first, last = max(start, at), min(start + SECTOR, at + len(data))
                if chance.random() < luck:
                    arrived.append((first, data[first - at : last - at]))
                elif luck and chance.random() < 0.1:
                    arrived.append((last, b""))  # the length is known, the bytes are not
        return self._arrived(arrived)

    def _arrived(self, pieces: list[tuple[int, bytes | None]]) -> bytearray:
        whole = bytearray(self.sure)
        for at, data in pieces:
            if data is None:
                del whole[at:]
            if len(whole) < at:
                whole.extend(bytes(at - len(whole)))
            whole[at : at + len(data or b"")] = data or b""
        return whole


@dataclass(slots=True)
class Folder:
    """A folder: its names, those that are sure, and what is on its way."""

    names: "dict[str, File | Folder]" = field(default_factory=dict)
    sure: "dict[str, File | Folder]" = field(default_factory=dict)
    coming: "list[dict[str, File | Folder | Moved | None]]" = field(default_factory=list)
    """Names that come, or go (None), together."""
    moves: "list[Moved]" = field(default_factory=list)
    """Names on their way from here, or to here."""

    def change(self, names: "dict[str, File | Folder | Moved | None]") -> None:
        """Names come and go."""
        self.coming.append(names)
        _apply(self.names, names)

    def sync(self) -> None:
        """All of them are sure from now on, and so are those that went elsewhere there."""
        self.sure, self.coming = dict(self.names), []
        for move in self.moves:
            move.arrive()
        self.moves = []

    def left(self, chance: random.Random) -> "dict[str, File | Folder]":
        """The names after a power cut."""
        names = dict(self.sure)
        for change in self.coming[: chance.choice((0, len(self.coming), chance.randint(0, len(self.coming))))]:
            stays = {name: gone.node for name, gone in change.items() if isinstance(gone, Moved) and not gone.arrived}
            _apply(names, {**change, **stays})
        return names


@dataclass(slots=True)
class Moved:
    """A name that went to another folder, which stays where it was until it has arrived there."""

    node: File | Folder
    folder: Folder
    name: str
    arrived: bool = False

    def arrive(self) -> None:
        """From now on it is there for sure, if it still is."""
        if not self.arrived and self.folder.names.get(self.name) is self.node:
            self.folder.sure[self.name] = self.node
        self.arrived = True


def _apply(names: "dict[str, File | Folder]", change: "Mapping[str, File | Folder | Moved | None]") -> None:
    for name, node in change.items():
        if node is None or isinstance(node, Moved):
            names.pop(name, None)
        else:
            names[name] = node


class FakeDisk:
    """A disk below one folder, told event by event what is done to it."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self._root, self._chance = str(root), chance
        self._top = _load(root)
        self._open: dict[int, File] = {}

    def hear(self, event: Event) -> None:
        """One event of a record (watch.py)."""
        _HEARD[event[0]](self, *event[1:])

    def cut(self, target: Path, chance: random.Random) -> None:
        """Write down what is left if the power goes now."""
        _save(self._top, target, chance)

    def unlike(self, root: Path) -> list[str]:
        """The files in which this disk differs from the real one: something was done that nobody told."""
        real = {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        told = dict(_files(self._top, str(root)))
        return sorted(name for name in real.keys() | told.keys() if real.get(name) != told.get(name))

    def _find(self, path: str) -> Any:
        node: Any = self._top
        for part in path.removeprefix(self._root).strip("/").split("/"):
            node = node.names[part] if part else node
        return node

    def _place(self, path: str) -> tuple[Folder, str]:
        return self._find(os.path.dirname(path)), os.path.basename(path)

    def _opened(self, handle: int, path: str, created: bool, truncated: bool) -> None:
        folder, name = self._place(path)
        if created or name not in folder.names:
            folder.change({name: File()})
        file = folder.names[name]
        assert isinstance(file, File), path
        self._open[handle] = file
        if truncated:
            file.coming.append((0, None))

    def _write(self, handle: int, offset: int, data: bytes) -> None:
        self._open[handle].coming.append((offset, data))

    def _truncate(self, handle: int, size: int) -> None:
        self._open[handle].coming.append((size, None))

    def _sync(self, handle: int) -> None:
        self._open[handle].sync()

    def _unsynced(self, handle: int) -> None:
        if handle in self._open:  # a folder that was not synced has its names on their way still
            self._open[handle].unsynced(self._chance)

    def _syncdir(self, path: str) -> None:
        self._find(path).sync()

    def _unlink(self, path: str) -> None:
        folder, name = self._place(path)
        folder.change({name: None})

    _rmdir = _unlink

    def _mkdir(self, path: str) -> None:
        folder, name = self._place(path)
        folder.change({name: Folder()})

    def _rename(self, old: str, new: str) -> None:
        (source, before), (target, after) = self._place(old), self._place(new)
        node = source.names[before]
        if source is target:
            source.change({before: None, after: node})
        else:
            moved = Moved(node, target, after)
            target.change({after: node})
            source.change({before: moved})
            source.moves.append(moved)
            target.moves.append(moved)

    def _link(self, old: str, new: str) -> None:
        target, after = self._place(new)
        target.change({after: self._find(old)})


def _files(folder: Folder, path: str) -> Iterator[tuple[str, bytes]]:
    for name, node in folder.names.items():
        if isinstance(node, Folder):
            yield from _files(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", node.now()


def _load(path: Path) -> Folder:
    names: dict[str, File | Folder] = {}
    for each in sorted(path.iterdir()):
        names[each.name] = _load(each) if each.is_dir() else File(bytearray(each.read_bytes()))
    return Folder(names, dict(names))


def _save(folder: Folder, target: Path, chance: random.Random) -> None:
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, node in folder.left(chance).items():
        if isinstance(node, Folder):
            _save(node, target / name, chance)
        else:
            (target / name).write_bytes(node.left(chance))
            (target / name).chmod(0o600)


_HEARD: Final[dict[str, Callable[..., None]]] = {
    "open": FakeDisk._opened,
    "write": FakeDisk._write,
    "truncate": FakeDisk._truncate,
    "sync": FakeDisk._sync,
    "unsynced": FakeDisk._unsynced,
    "syncdir": FakeDisk._syncdir,
    "unlink": FakeDisk._unlink,
    "rmdir": FakeDisk._rmdir,
    "mkdir": FakeDisk._mkdir,
    "rename": FakeDisk._rename,
    "link": FakeDisk._link,
}
