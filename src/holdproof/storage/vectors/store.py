"""`Vectors`: the verbs of a vector store, the same on both faces."""

from holdproof.executors import Executor, Resource, RunsWith, StreamsWith, WritesWith
from holdproof.storage.vectors import operations
from holdproof.storage.vectors.operations import Opened


class Vectors(Resource[Executor]):
    """Vectors by id, found by nearness."""

    add = WritesWith(operations.add)
    add_many = RunsWith(operations.add_many)
    upsert = WritesWith(operations.add)
    search = RunsWith(operations.search, reads=True)
    delete = RunsWith(operations.delete)
    count = RunsWith(operations.count, reads=True)
    export = StreamsWith(operations.export, reads=True)
    close = RunsWith(operations.close)
    embed = RunsWith(operations.embed)
    find = RunsWith(operations.find, reads=True)
    reembed = RunsWith(operations.reembed)
    index = RunsWith(operations.index)

    def __init__(self, face: Executor, opened: Opened) -> None:
        super().__init__(face)
        self._opened = opened

    @property
    def held(self) -> Opened:
        """The open store."""
        return self._opened

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return self._opened.facts.dimensions

    @property
    def model(self) -> str | None:
        """Which model made the vectors, where that was said."""
        return self._opened.facts.model
