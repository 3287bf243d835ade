"""`Vectors`: the verbs of a vector store, the same on both faces."""

from holdproof.executors import Executor, Resource, RunsWith, StreamsWith, WritesWith
from holdproof.executors.exit_codes import exit_absent
from holdproof.storage.vectors import operations
from holdproof.storage.vectors.operations import Opened


class Vectors(Resource[Executor]):
    """Vectors by id, found by nearness."""

    add = WritesWith(operations.add, example="note-1 '[0.1, 0.9]' --metadata '{\"kind\": \"note\"}'")
    add_many = RunsWith(operations.add_many)
    upsert = WritesWith(operations.add)
    search = RunsWith(
        operations.search,
        reads=True,
        columns=("id", "distance", "metadata"),
        example="'[0.1, 0.9]' --k 5 --filter '{\"kind\": \"note\"}'",
    )
    delete = RunsWith(operations.delete, example="note-1", exit_code=exit_absent)
    count = RunsWith(operations.count, reads=True)
    export = StreamsWith(operations.export, reads=True)
    close = RunsWith(operations.close, internal=True, local=True)
    embed = RunsWith(operations.embed)
    find = RunsWith(operations.find, reads=True, columns=("id", "distance", "metadata"))
    reembed = RunsWith(operations.reembed, local=True)
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
