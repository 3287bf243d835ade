"""`HoldproofSaver`: LangGraph's checkpointer on a store.

Rules:
- Sync and async are native: one generator for each operation, driven by the sync or the async client.
- A checkpoint costs what is new in it, for graphs as they are: lists are compared element by element.
- `on_conflict="error"` refuses a run whose thread another run has claimed since; "fork" keeps both and logs it.
- What is read is made only of types on a list; with a key everything is sealed, and nothing in clear is read.
- Listing reads in pages: one that is paused holds nothing, and nobody waits for it.
"""

import copy
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT

from holdproof import client, sync
from holdproof.adapters.langgraph import values
from holdproof.adapters.langgraph.decode_cache import CachedStates
from holdproof.adapters.langgraph.encode_cache import EncodeCache
from holdproof.adapters.langgraph.envelope import Envelopes, Sealer
from holdproof.adapters.langgraph.open_store import SetUp, StoreOpener
from holdproof.adapters.langgraph.safety import Named, SafeSerializer
from holdproof.adapters.langgraph.values import ThreadConfig
from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.kernel import (
    Give,
    Read,
    Stream,
    Tx,
    Work,
    Write,
    ask,
    line_writers,
    thread_deltas,
    thread_removal,
    thread_writes,
    threads,
)
from holdproof.model.page import Page
from holdproof.model.threads import Checkpoint as StoredCheckpoint
from holdproof.model.threads import EncodedList, EncodedValue, SavedCheckpoint

_PAGE: Final = 20
_STEPS: Final = ("source", "step", "parents", "run_id", "counters_since_delta_snapshot", "writes")
_STATUSES: Final = {ERROR: "error", INTERRUPT: "interrupted"}
_WHO: Final = "langgraph"
_logger = logging.getLogger("holdproof")


class HoldproofSaver(StoreAdapter, BaseCheckpointSaver[Any]):
    """LangGraph's checkpointer on a store: a folder, a PostgreSQL URL, or a store that is open in this process.

    A store that is named is opened here, shared with the other adapters of the process, and released by `close`.

    `allow` are types of your own in the state. `key` (32 bytes) seals all content and metadata; ids stay readable.
    Each checkpoint has an entry in the log unless `provable=False`.
    """

    def __init__(
        self,
        store: Where,
        *,
        ns: str | None = None,
        serde: Any = None,
        allow: Iterable[type | Named] = (),
        key: bytes | None = None,
        on_conflict: str = "fork",
        provable: bool = True,
    ) -> None:
        if on_conflict not in ("error", "fork"):
            raise InvalidInputError("on_conflict is error or fork", on_conflict=str(on_conflict))
        super().__init__(serde=serde or SafeSerializer(allow))
        self._shared = SharedStore(store, ns=ns)
        core = self._shared.core()
        # LangGraph calls both kinds of methods on one saver, whatever client it was made with.
        self._sync = sync.Holdproof(core, self._shared.ns)
        self._async = client.Holdproof(core, self._shared.ns)
        self._sealer = None if key is None else Sealer(key)
        self._on_conflict = on_conflict
        self._provable = provable
        self._cache = EncodeCache()

    @classmethod
    def from_conn_string(
        cls, conn_string: str | Path, *, home: str | Path | None = None, **options: Any
    ) -> StoreOpener["HoldproofSaver"]:
        """Return a saver over the store in a folder or at `postgresql://…`; `with` or `async with` it opens and closes.

        Keys and kept heads of a store on a server lie in `home`: the user's own, or HOLDPROOF_HOME, if it is not said.
        """
        return StoreOpener(conn_string, home, partial(cls, **options))

    def with_allowlist(self, extra_allowlist: Collection[Any]) -> "HoldproofSaver":
        """Return the same saver with more types that may be read."""
        if not isinstance(self.serde, SafeSerializer):
            return self
        clone = copy.copy(self)
        clone.serde = self.serde.with_more(extra_allowlist)
        clone._cache = EncodeCache()  # elements decoded under one list of types are not for the other
        return clone

    def setup(self) -> SetUp:
        """Do nothing: a store that is open has its tables. LangGraph's own savers need it; `await` it or not."""
        return SetUp()

    @property
    def _envelopes(self) -> Envelopes:
        return Envelopes(self.serde, self._sealer)

    def encoded(self, value: Any) -> EncodedValue | EncodedList:
        """Return a value as this saver keeps it."""
        return values.encoded(self._envelopes, value)

    # --- writing ---

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint; the config that names it."""
        return self._sync.run(self._put(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint; the config that names it."""
        return await self._async.run(self._put(config, checkpoint, metadata, new_versions))

    def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new: ChannelVersions
    ) -> Work[RunnableConfig]:
        place = ThreadConfig.of(config)
        merged_metadata = get_checkpoint_metadata(config, metadata)
        try:
            saved = yield from ask(Write(self._checkpoint(place, checkpoint, merged_metadata, new)))
        except NotFoundError:  # the cache names blocks that are gone: pruned, or written by another store
            self._cache.forget(place.thread_id)
            saved = yield from ask(Write(self._checkpoint(place, checkpoint, merged_metadata, new)))
        line = self._cache.line(place.thread_id, place.checkpoint_ns)
        line.newest = saved.checkpoint_id, dict(checkpoint["channel_versions"])
        if saved.forked:
            message = "thread %s was forked: checkpoint %s is not on top of its newest one"
            _logger.warning(message, place.thread_id, saved.checkpoint_id)
        return place.config(saved.checkpoint_id, place.writer)

    def _checkpoint(
        self, place: ThreadConfig, checkpoint: Checkpoint, metadata: Mapping[str, Any], new: ChannelVersions
    ) -> "partial[SavedCheckpoint]":
        """Return the operation that keeps a checkpoint: all is encoded before it begins."""
        envelopes = self._envelopes
        line = self._cache.line(place.thread_id, place.checkpoint_ns)
        channel_values = checkpoint["channel_values"]
        versions = checkpoint["channel_versions"]
        keep = set()
        # Channels whose version is as in the parent need not be encoded again, nor even looked at.
        if line.newest is not None and line.newest[0] == place.checkpoint_id:
            before = line.newest[1]
            same = channel_values.keys() - new.keys()
            keep = {name for name in same if name in versions and before.get(name) == versions[name]}
        channels = {
            name: values.channel(envelopes, line, name, channel_values[name])
            for name in channel_values
            if name not in keep
        }
        state = {name: item for name, item in checkpoint.items() if name not in ("id", "channel_values")}
        purpose = place.purpose(checkpoint["id"])
        run_id = metadata.get("run_id")
        return partial(
            threads.put_checkpoint,
            thread_id=place.thread_id,
            channels=channels,
            checkpoint_id=checkpoint["id"],
            parent_id=place.checkpoint_id,
            checkpoint_ns=place.checkpoint_ns,
            metadata=envelopes.wrap_facts(metadata, purpose),
            state=envelopes.wrap(state, purpose),
            keep=keep,
            needs=[name for name in metadata.get("counters_since_delta_snapshot") or () if name not in channel_values],
            run_id=None if run_id is None else self._run(str(run_id)),
            facts=values.facts(metadata, _STEPS) if self._sealer is None and not place.checkpoint_ns else None,
            claim=place.writer,
            on_conflict=self._on_conflict,
            provable=self._provable,
            ns=self._ns,
        )

    def _run(self, run_id: str) -> str:
        return run_id if self._sealer is None else self._sealer.name(run_id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task wrote on top of a checkpoint."""
        self._sync.write(self._writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task wrote on top of a checkpoint."""
        await self._async.write(self._writes(config, writes, task_id, task_path))

    def _writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> "partial[None]":
        place = ThreadConfig.of(config)
        envelopes = self._envelopes
        encoded = [
            (WRITES_IDX_MAP.get(channel, idx), channel, values.encoded(envelopes, value))
            for idx, (channel, value) in enumerate(writes)
        ]
        # Errors, interrupts and the like have fixed numbers and may be written again.
        special = [channel for channel, _ in writes if channel in WRITES_IDX_MAP]
        statuses = [_STATUSES[channel] for channel in special if channel in _STATUSES]
        return partial(
            thread_writes.put_writes,
            thread_id=place.thread_id,
            checkpoint_id=str(config["configurable"]["checkpoint_id"]),
            task_id=task_id,
            writes=encoded,
            checkpoint_ns=place.checkpoint_ns,
            task_path=task_path,
            replace=len(special) == len(writes),
            status=statuses[-1] if statuses else None,
            claim=place.writer,
            on_conflict=self._on_conflict,
            ns=self._ns,
        )

    # --- reading ---

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the newest of its thread."""
        return self._sync.run(self._tuple(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the newest of its thread."""
        return await self._async.run(self._tuple(config))

    def _tuple(self, config: RunnableConfig) -> Work[CheckpointTuple | None]:
        place = ThreadConfig.of(config)
        named = {"checkpoint_ns": place.checkpoint_ns, "ns": self._ns}
        fenced = self._on_conflict == "error"

        states = CachedStates(self._cache.decoded)

        def look(tx: Tx) -> tuple[Any, str | None]:
            checkpoint = threads.find_checkpoint(
                tx, place.thread_id, checkpoint_id=place.checkpoint_id, cached=states.find, **named
            )
            return checkpoint, line_writers.claim(tx, place.thread_id, **named) if fenced else None

        checkpoint, writer = yield from ask(Read(look))
        if checkpoint is None:
            return None
        line = self._cache.line(place.thread_id, place.checkpoint_ns)
        return values.shown(self._envelopes, checkpoint, self._cache, line, writer, states=states.found)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first, of a thread or of all."""
        yield from self._sync.stream(self._list(config, filter, before, limit))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first, of a thread or of all."""
        async for checkpoint in self._async.stream(self._list(config, filter, before, limit)):
            yield checkpoint

    def _list(
        self,
        config: RunnableConfig | None,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Stream[CheckpointTuple]:
        named = {} if config is None else config["configurable"]
        only = values.checkpoint_id_of(config)
        query: dict[str, Any] = {"checkpoint_ns": named.get("checkpoint_ns"), "ns": self._ns}
        query["before"] = values.checkpoint_id_of(before)
        thread = named.get("thread_id")
        envelopes = self._envelopes
        remaining = -1 if limit is None else limit
        alone = only is not None and thread is not None
        query["thread_id"] = None if thread is None else str(thread)
        # One checkpoint is asked for: the page begins just before it, so that the rest of the thread is not read.
        query["cursor"] = threads.cursor_at(str(only)) if alone else None
        more = True
        while more and remaining:
            look = partial(threads.list_checkpoints, **query, limit=_PAGE)
            page: Page[StoredCheckpoint] = yield from ask(Read(look))
            for checkpoint in page.items:
                if only is not None and checkpoint.checkpoint_id != only:
                    if alone:
                        return
                    continue
                entry = values.shown(envelopes, checkpoint, self._cache)
                if values.matches(entry.metadata, filter):
                    yield Give(entry)
                    remaining -= 1
                    if not remaining:
                        return
            query["cursor"] = page.next_cursor
            more = page.next_cursor is not None

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what was written to channels since the last checkpoint that holds them, and what that one holds."""
        return self._sync.run(self._deltas(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what was written to channels since the last checkpoint that holds them, and what that one holds."""
        return await self._async.run(self._deltas(config, channels))

    def _deltas(self, config: RunnableConfig, channels: Sequence[str]) -> Work[Mapping[str, DeltaChannelHistory]]:
        place = ThreadConfig.of(config)
        envelopes = self._envelopes
        named: dict[str, Any] = {"checkpoint_id": place.checkpoint_id, "checkpoint_ns": place.checkpoint_ns}
        named |= {"thread_id": place.thread_id, "channels": list(channels), "ns": self._ns}
        states = CachedStates(self._cache.decoded)
        look = partial(thread_deltas.since, **named, cached=states.find)
        histories = yield from ask(Read(look))
        result: dict[str, DeltaChannelHistory] = {name: {"writes": []} for name in channels}
        for name, history in histories.items():
            decode = partial(values.decoded, envelopes, cache=self._cache, states=states.found)
            result[name]["writes"] = [(task, channel, decode(value)) for task, channel, value in history.writes]
            if history.seeded:
                result[name]["seed"] = decode(history.seed)
        return result

    # --- taking away ---

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread; what a run still writes for it stays out."""
        self._sync.write(self._delete(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove a thread; what a run still writes for it stays out."""
        await self._async.write(self._delete(thread_id))

    def _delete(self, thread_id: str) -> Any:
        self._cache.forget(str(thread_id))
        return partial(thread_removal.delete, thread_id=str(thread_id), who=_WHO, ns=self._ns)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove what some runs wrote."""
        self._sync.write(self._delete_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove what some runs wrote."""
        await self._async.write(self._delete_runs(run_ids))

    def _delete_runs(self, run_ids: Sequence[str]) -> Any:
        return partial(
            thread_removal.delete_runs, run_ids=[self._run(str(each)) for each in run_ids], who=_WHO, ns=self._ns
        )

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its checkpoints and writes."""
        self._sync.write(self._copy(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its checkpoints and writes."""
        await self._async.write(self._copy(source_thread_id, target_thread_id))

    def _copy(self, source: str, target: str) -> Any:
        return partial(thread_removal.copy, thread_id=str(source), to=str(target), ns=self._ns)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove all but the newest checkpoint of each line (`keep_latest`), or all (`delete`)."""
        self._sync.run(self._prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove all but the newest checkpoint of each line (`keep_latest`), or all (`delete`)."""
        await self._async.run(self._prune(thread_ids, strategy))

    def _prune(self, thread_ids: Sequence[str], strategy: str) -> Work[None]:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInputError("a strategy is keep_latest or delete", strategy=str(strategy))
        if isinstance(thread_ids, str):  # or each of its letters would name a thread
            raise InvalidInputError(f"prune takes a list of threads: [{thread_ids!r}]", thread_ids=thread_ids)
        for thread_id in dict.fromkeys(map(str, thread_ids)):
            newest = partial(thread_removal.prune, thread_id=thread_id, keep=1, who=_WHO, ns=self._ns)
            yield from ask(Write(self._delete(thread_id) if strategy == "delete" else newest))

    def get_next_version(self, current: Any, channel: None) -> Any:  # noqa: ARG002
        """Return the version after this one: a number; after one of another saver, a text of its form."""
        # A thread that was imported goes on with versions of its old form.
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.0"
        return 1 if current is None else current + 1
