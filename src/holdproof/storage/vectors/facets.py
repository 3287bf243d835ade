"""Metadata in columns, so that a filter costs a comparison of numbers: for each key asked for, one small number a row.

A column is made when its key is first asked for, and extended by the rows that came since. A value is equal if it is
the same JSON; a key that is absent counts as null.
"""

import json
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdproof.db import Read, Row, Tx, Work, ask
from holdproof.storage.vectors import vector_rows
from holdproof.storage.vectors.matrix import View
from holdproof.storage.vectors.vector_validation import plain

_PAGE = 500
_UNKNOWN = -1


class _Column:
    """The value of one key in every row, as a number that stands for it."""

    def __init__(self) -> None:
        self.codes: NDArray[np.int32] = np.empty(0, np.int32)
        self.numbers: dict[str, int] = {}
        self.filled = 0

    def extend(self, texts: list[str | None], key: str) -> None:
        """The metadata of the rows that follow; None where it is not known any more."""
        end = self.filled + len(texts)
        if end > len(self.codes):
            self.codes = np.concatenate([self.codes, np.empty(max(end, 1024), np.int32)])
        self.codes[self.filled : end] = [_UNKNOWN if text is None else self._code(text, key) for text in texts]
        self.filled = end

    def _code(self, text: str, key: str) -> int:
        value: Any = json.loads(text).get(key)
        return self.numbers.setdefault(plain(value), len(self.numbers))


class Facets:
    """The columns of one matrix."""

    def __init__(self) -> None:
        self._lock, self._epoch = Lock(), -1
        self._columns: dict[str, _Column] = {}

    def allowed(self, view: View, wanted: dict[str, str]) -> Work[NDArray[np.bool_] | None]:
        """Which rows of the view have what is wanted; None if nothing is."""
        if not wanted:
            return None
        allowed = np.ones(view.count, np.bool_)
        for key, value in wanted.items():
            column = self._column(view.epoch, key)
            while column.filled < view.count:
                yield from ask(Read(lambda tx, column=column, key=key: self._fill(tx, view, column, key)))  # type: ignore[misc]
            allowed &= column.codes[: view.count] == column.numbers.get(value, _UNKNOWN - 1)
        return allowed

    def _column(self, epoch: int, key: str) -> _Column:
        with self._lock:
            if self._epoch != epoch:
                self._epoch, self._columns = epoch, {}
            return self._columns.setdefault(key, _Column())

    def _fill(self, tx: Tx, view: View, column: _Column, key: str) -> None:
        start = column.filled
        ids = view.ids[start : min(start + _PAGE, view.count)]
        found: dict[str, Row] = {row[0]: row for row in vector_rows.describe(tx, ids)}
        stamps = view.kept["stamps"][start : start + len(ids)]
        texts = [
            row[2] if (row := found.get(id)) and row[1] == stamp else None
            for id, stamp in zip(ids, stamps, strict=True)
        ]
        with self._lock:
            if column.filled == start:  # or another search was faster
                column.extend(texts, key)
