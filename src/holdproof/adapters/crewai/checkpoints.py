"""Checkpoints of crews, flows and agents: the items of one transcript for each location.

Rules:
- A checkpoint is durable when `checkpoint` returns, and is never written over.
- Pruning keeps the newest of a branch, and touches no other branch.

CrewAI restores from files of its own only: `export` writes one, for `CheckpointConfig(restore_from=…)`.
"""

from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote

from crewai.state.provider.json_provider import JsonProvider
from pydantic import PrivateAttr

from holdproof.adapters import documents
from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where, shield_until_done
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.kernel import Tx, transcripts

PREFIX: Final = "crewai-checkpoints/"


class HoldproofCheckpointProvider(StoreAdapter, JsonProvider):
    """Checkpoints on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `subject` names the person whose they are: `store.erase.subject(name)` then removes them. It is a `JsonProvider`,
    since `CheckpointConfig` accepts no other kind; it writes no file.
    """

    model_config: ClassVar[Any] = {"arbitrary_types_allowed": True}

    subject: str | None = None
    _shared: SharedStore = PrivateAttr()

    def __init__(self, where: Where = None, /, *, ns: str | None = None, **fields: Any) -> None:
        super().__init__(**fields)
        self._shared = SharedStore(where, ns=ns)

    def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Write a checkpoint; return where it is, as `location#id`."""
        return self._shared.sync_store().write(lambda tx: self._put(tx, data, location, parent_id, branch))

    async def acheckpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Write a checkpoint; return where it is, as `location#id`."""
        store = await self._shared.store()
        return await shield_until_done(store.write(lambda tx: self._put(tx, data, location, parent_id, branch)))

    def from_checkpoint(self, location: str) -> str:
        """Return a checkpoint as it was written; NotFoundError where there is none."""
        return str(self._shared.sync_store().read(lambda tx: self._get(tx, location))["data"])

    async def afrom_checkpoint(self, location: str) -> str:
        """Return a checkpoint as it was written; NotFoundError where there is none."""
        store = await self._shared.store()
        return str((await store.read(lambda tx: self._get(tx, location)))["data"])

    def extract_id(self, location: str) -> str:
        """Return the id of a checkpoint from where it is; a file that `export` wrote has it in its name."""
        return location.rpartition("#")[2] if "#" in location else super().extract_id(location)

    def prune(self, location: str, max_keep: int, *, branch: str = "main") -> int:
        """Remove the oldest checkpoints of a branch, all but `max_keep`; return how many."""
        name = documents.joined(PREFIX, location)
        within = self._within()

        def write(tx: Tx) -> int:
            # Numbers only grow, so the newest come last.
            keys = [str(item.key) for item in transcripts.read_items(tx, name, tag=_tag(branch), **within)]
            oldest = keys[: max(0, len(keys) - max_keep)]
            return sum(transcripts.delete_item(tx, name, key, **within) for key in oldest)

        return self._shared.sync_store().write(write)

    def export(self, location: str, folder: str | Path) -> Path:
        """Write a checkpoint as a file of CrewAI into a folder and return its path, to be restored from."""
        body = self._shared.sync_store().read(lambda tx: self._get(tx, location))
        # The name that CrewAI's own files have: it reads the id of a checkpoint from it.
        path = Path(folder) / f"{self.extract_id(location)}_p-{body['parent'] or 'none'}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body["data"], encoding="utf-8")
        return path

    def _put(self, tx: Tx, data: str, location: str, parent_id: str | None, branch: str) -> str:
        id = tx.new_id()
        transcripts.put_item(
            tx,
            documents.joined(PREFIX, location),
            id,
            {"data": data, "parent": parent_id},
            tag=_tag(branch),
            subject=self.subject,
            **self._within(),
        )
        return f"{location}#{id}"

    def _get(self, tx: Tx, location: str) -> Any:
        place, separator, id = location.rpartition("#")
        if not separator:
            raise InvalidInputError(f"a checkpoint is named as location#id, not {location!r}", field="location")
        try:
            return transcripts.get_item(tx, documents.joined(PREFIX, place), id, **self._within()).value
        except NotFoundError:
            raise NotFoundError(f"there is no checkpoint {id} at {place}", location=location) from None


def _tag(branch: str) -> str:
    return quote(branch, safe="/:@ ")
