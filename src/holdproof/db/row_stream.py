"""The rows of one table on their way from one place to another."""

from collections.abc import Callable, Iterator

from holdproof.db.tx import Row


class RowStream:
    """Rows of a table, read once: as plain tuples, which every database takes, or as PostgreSQL's COPY text.

    `text` is None where the source has no such text (SQLite), or where rows were changed on their way.
    """

    def __init__(self, rows: Callable[[], Iterator[Row]], text: Callable[[], Iterator[bytes]] | None = None) -> None:
        self._rows = rows
        self.text = text

    def __iter__(self) -> Iterator[Row]:
        return self._rows()
