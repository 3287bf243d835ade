"""Tables on their way from one place to another: the rows of one, and what defines those of applications."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class ApplicationTables:
    """What applications created: statements to run before the rows, tables with their columns, statements after."""

    before: list[str] = field(default_factory=list)
    tables: dict[str, list[str]] = field(default_factory=dict)
    after: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
