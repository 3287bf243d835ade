"""The matrix as a file in the cache, memory-mapped: a store of any size opens at once.

Rules:
- It is a copy. A file that is torn, foreign, of another version or layout, or has a changed byte is not used, and the
  rows are read instead. It may be deleted at any time.
- It is written to a temporary file, synced and renamed, so a reader never sees half of one.
- The mapping is private: rows that are added in its spare capacity never reach the file.
- Whether it matches the rows is checked once it is up to date: same number, same sum of stamps.
"""

import hashlib
import json
import mmap
import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from holdproof import folders
from holdproof.storage.vectors.matrix import Matrix, View

_MAGIC: Final = "holdproof-vectors/1"
_PAGE: Final = 4096
_STRIDE: Final = 509  # prime, so that pages which changed places are noticed


def load(path: Path, matrix: Matrix, *, key: str) -> bool:
    """Fill a matrix from the file; False if there is none that can be used."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        with path.open("rb") as file:
            area = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        head = _head(area)
        if (head["key"], head["kind"], head["dimensions"]) != (key, matrix.name, matrix.dimensions):
            return False
        arrays = {name: _array(area, head, name, *facts) for name, facts in matrix.layout().items()}
        ids = bytes(area[head["ids"] : head["end"]])
        if head["sum"] != _sum([array[: head["count"]] for array in arrays.values()], ids):
            return False
        names = ids.decode().split("\n") if ids else []
        if len(names) != head["count"]:
            return False
        matrix.adopt(arrays, names, mark=head["mark"], key=key)
        return True
    return False


def save(path: Path, matrix: Matrix) -> None:
    """Write a matrix; an error of the disk is ignored, because the file is only a cache."""
    with matrix.lock:
        view = matrix.view()
        mark = matrix.mark
        key = matrix.key
        # Stamps of dead rows are overwritten in place; everything else in a view never changes.
        view = replace(view, arrays={**view.arrays, "stamps": view.arrays["stamps"].copy()})
    with suppress(OSError):
        folders.make(path.parent)
        handle, temporary = tempfile.mkstemp(prefix=".vectors-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                _write(file, view, {"key": key, "kind": matrix.name, "dimensions": matrix.dimensions, "mark": mark})
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink()
            raise


def _head(area: mmap.mmap) -> dict[str, Any]:
    magic, text, digest, _ = bytes(area[:_PAGE]).decode().split("\n", 3)
    if magic != _MAGIC or digest != hashlib.sha256(text.encode()).hexdigest():
        raise ValueError(magic)
    head: dict[str, Any] = json.loads(text)
    if head["end"] != len(area):
        raise ValueError(head["end"])
    return head


def _array(area: mmap.mmap, head: dict[str, Any], name: str, kind: str, width: int) -> NDArray[Any]:
    room = head["room"]
    flat = np.frombuffer(area, kind, room * max(width, 1), head["at"][name])
    return flat.reshape(room, width) if width else flat


def _write(file: BinaryIO, view: View, head: dict[str, Any]) -> None:
    # Spare capacity, so that rows which are added after mapping need no copy.
    room = view.count + view.count // 8 + 1024
    at: dict[str, int] = {}
    end = _PAGE
    ids = "\n".join(view.ids[: view.count]).encode()
    for name, array in view.arrays.items():
        at[name] = end
        file.seek(end)
        file.write(array.reshape(-1).view(np.uint8).data)
        # Arrays begin at page boundaries: rounded up.
        end = -(-(end + room * array.itemsize * int(np.prod(array.shape[1:]))) // _PAGE) * _PAGE
    file.truncate(end)
    file.seek(end)
    file.write(ids)
    total = _sum(list(view.arrays.values()), ids)
    head |= {"count": view.count, "room": room, "at": at, "ids": end, "end": end + len(ids), "sum": total}
    text = json.dumps(head)
    file.seek(0)
    file.write("\n".join([_MAGIC, text, hashlib.sha256(text.encode()).hexdigest(), ""]).encode())


def file_sum(path: Path) -> str:
    """The checksum of a whole file."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as area:
        return _sum([np.frombuffer(bytes(area), np.uint8)], b"")


def _sum(arrays: list[NDArray[Any]], ids: bytes) -> str:
    """A checksum at the speed of memory: column sums of 64-bit words, hashed. Detects damage, not forgery."""
    digest = hashlib.sha256(ids)
    for array in arrays:
        data = array.reshape(-1).view(np.uint8)
        aligned = len(data) // (8 * _STRIDE) * 8 * _STRIDE
        digest.update(np.add.reduce(data[:aligned].view("<u8").reshape(-1, _STRIDE), axis=0).tobytes())
        digest.update(data[aligned:].tobytes())
    return digest.hexdigest()
