"""Metadata in columns, so that a filter is a comparison of integers: for each filtered key, one integer a row.

A column is built when its key is first used in a filter, and extended by later rows. Values are equal if they are the
same JSON; an absent key counts as null.
"""

import json
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdproof.db import Read, Tx, Work, ask
from holdproof.storage.vectors import vector_rows
from holdproof.storage.vectors.matrix import View
from holdproof.storage.vectors.vector_validation import plain

_PAGE = 500
_UNKNOWN = -1


class _Column:
    """The value of one key in every row, as an integer code."""

    def __init__(self) -> None:
        self.codes: NDArray[np.int32] = np.empty(0, np.int32)
        self.numbers: dict[str, int] = {}
        self.filled = 0

    def extend(self, texts: list[str | None], key: str) -> None:
        """Add the metadata of the following rows; None for rows that are not in the database any more."""
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
        self._lock = Lock()
        self._epoch = -1
        self._columns: dict[str, _Column] = {}

    def allowed(self, view: View, conditions: dict[str, str]) -> Work[NDArray[np.bool_] | None]:
        """Which rows of the view meet the conditions; None without conditions."""
        if not conditions:
            return None
        allowed = np.ones(view.count, np.bool_)
        for key, value in conditions.items():
            column = self._column(view.epoch, key)
            while column.filled < view.count:
                yield from ask(Read(lambda tx, column=column, key=key: self._fill(tx, view, column, key)))  # type: ignore[misc]
            allowed &= column.codes[: view.count] == column.numbers.get(value, _UNKNOWN - 1)
        return allowed

    def _column(self, epoch: int, key: str) -> _Column:
        with self._lock:
            if self._epoch != epoch:
                # In a new epoch rows have other numbers.
                self._epoch = epoch
                self._columns = {}
            return self._columns.setdefault(key, _Column())

    def _fill(self, tx: Tx, view: View, column: _Column, key: str) -> None:
        start = column.filled
        ids = view.ids[start : min(start + _PAGE, view.count)]
        rows = {row.id: row for row in vector_rows.describe(tx, ids)}
        stamps = view.arrays["stamps"][start : start + len(ids)]
        texts = [
            row.metadata if (row := rows.get(id)) and row.stamp == stamp else None
            for id, stamp in zip(ids, stamps, strict=True)
        ]
        with self._lock:
            if column.filled == start:  # else another search was faster
                column.extend(texts, key)
