"""`HoldproofStore`: LangGraph's long-term memory on a store.

Rules:
- Sync and async are native: one generator for each batch, driven by the sync or the async client.
- A batch is one transaction, all of it or nothing; what it reads is what was there before it writes.
- Namespaces are checked for every operation before anything is done; filters never become SQL.
- An item whose time is over is not there, whether it was swept or not. Reading begins its time anew only where
  `ttl={"refresh_on_read": True}` says so, as in LangGraph's own SQLite store.
- Vectors are made outside the transaction, written with the item, and compared exactly.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)

from holdproof import client, sync
from holdproof.adapters.langgraph.open_store import SetUp, StoreOpener
from holdproof.adapters.langgraph.ttl_sweeper import Sweeper
from holdproof.adapters.langgraph.values import plain
from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where
from holdproof.errors import InvalidInputError
from holdproof.kernel import Call, Read, Tx, Work, Write, ask, notes
from holdproof.model.notes import Note

_MINUTE_S: Final = 60.0
_SWEEP_MINUTES: Final = 5.0

Embed = Callable[[list[str]], Any]
Subject = Callable[[tuple[str, ...], str], str | None]


class _Prepared(NamedTuple):
    """A batch with all that has to be known before its transaction begins."""

    ops: Sequence[Op]
    vectors: Mapping[int, Mapping[str, Sequence[float]]]
    queries: Mapping[int, Sequence[float]]


class HoldproofStore(StoreAdapter, BaseStore):
    """LangGraph's long-term memory on a store: a folder, a PostgreSQL URL, or one that is open in this process.

    A store that is named is opened here, shared with the other adapters of the process, and released by `close`.

    `index` (`dims`, `embed`, `fields`) lets items be found by what they mean; `ttl` is LangGraph's configuration.
    `subject(namespace, key)` names the person whose an item is: it goes when that person is erased.
    """

    supports_ttl = True

    def __init__(
        self,
        store: Where,
        *,
        ns: str | None = None,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        subject: Subject | None = None,
    ) -> None:
        self._shared = SharedStore(store, ns=ns)
        core = self._shared.core()
        self._sync = sync.Holdproof(core, self._shared.ns)
        self._async = client.Holdproof(core, self._shared.ns)
        self.ttl_config = ttl
        self._subject = subject
        self.index_config = index
        self.embeddings = None
        self._fields = _fields(index)
        if index is not None:
            self.embeddings = ensure_embeddings(index.get("embed"))
        self._sweeper = Sweeper(self.sweep_ttl)

    @classmethod
    def from_conn_string(
        cls, conn_string: str | Path, *, home: str | Path | None = None, **options: Any
    ) -> StoreOpener["HoldproofStore"]:
        """Return a store in a folder or at `postgresql://…`; `with` or `async with` it opens and closes.

        Keys and kept heads of a store on a server lie in `home`: the user's own, or HOLDPROOF_HOME, if it is not said.
        """
        return StoreOpener(conn_string, home, partial(cls, **options), closing=HoldproofStore.close)

    def setup(self) -> SetUp:
        """Do nothing: a store that is open has its tables. LangGraph's own stores need it; `await` it or not."""
        return SetUp()

    def close(self) -> None:
        """Let the sweeper end, and release a store that was opened here; one that was passed in stays open."""
        self._sweeper.stop(None)
        super().close()

    # --- batches ---

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations as one."""
        try:
            return self._sync.run(self._batch(_checked(ops), self._embed(blocking=True)))
        except InvalidInputError as error:
            raise ValueError(str(error)) from error

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations as one."""
        try:
            return await self._async.run(self._batch(_checked(ops), self._embed(blocking=False)))
        except InvalidInputError as error:
            raise ValueError(str(error)) from error

    def _embed(self, *, blocking: bool) -> Embed | None:
        if self.embeddings is None:
            return None
        return self.embeddings.embed_documents if blocking else self.embeddings.aembed_documents

    def _batch(self, ops: Sequence[Op], embed: Embed | None) -> Work[list[Result]]:
        prepared = yield from self._prepare(ops, embed)
        if any(isinstance(op, PutOp) for op in ops):
            return (yield from ask(Write(partial(self._apply, prepared=prepared))))
        results, due = yield from ask(Read(partial(self._look, prepared=prepared)))
        if due:  # most that is read has no time that could begin anew: then nothing is written
            yield from ask(Write(partial(self._refresh, due=due)))
        return results

    def _prepare(self, ops: Sequence[Op], embed: Embed | None) -> Work[_Prepared]:
        """Ask for the vectors of all texts of a batch, at once."""
        texts: list[str] = []
        places: list[tuple[int, str | None]] = []
        if embed is not None:
            for place, op in enumerate(ops):
                for name, text in self._texts(op):
                    places.append((place, name))
                    texts.append(text)
        embedded_texts: Sequence[Any] = (
            (yield from ask(Call(partial(embed, texts)))) if embed is not None and texts else []
        )
        vectors: dict[int, dict[str, Sequence[float]]] = {}
        queries: dict[int, Sequence[float]] = {}
        for (place, name), vector in zip(places, embedded_texts, strict=True):
            self._fits(vector)
            if name is None:
                queries[place] = vector
            else:
                vectors.setdefault(place, {})[name] = vector
        return _Prepared(ops, vectors, queries)

    def _texts(self, op: Op) -> Iterable[tuple[str | None, str]]:
        """Return what of an operation becomes a vector: fields under their names, a query under none."""
        if isinstance(op, SearchOp):
            return [(None, op.query)] if op.query else []
        if not isinstance(op, PutOp) or op.value is None or op.index is False:
            return []
        paths = self._fields if op.index is None else [(path, tokenize_path(path)) for path in op.index]
        texts_by_path = [(path, get_text_at_path(plain(op.value), tokens)) for path, tokens in paths]
        return [
            (f"{path}.{number}" if len(texts) > 1 else path, text)
            for path, texts in texts_by_path
            for number, text in enumerate(texts)
        ]

    def _fits(self, vector: Sequence[float]) -> None:
        dims = None if self.index_config is None else self.index_config.get("dims")
        if dims is not None and len(vector) != dims:
            raise InvalidInputError(f"the index has {dims} dimensions, and a vector {len(vector)}", dims=dims)

    # --- within a transaction ---

    def _apply(self, tx: Tx, prepared: _Prepared) -> list[Result]:
        """All of a batch: what is read, then what is written, the last for each key, in one order for everybody."""
        results, due = self._look(tx, prepared)
        self._refresh(tx, due)
        # The last put of a key wins, as in LangGraph's own stores; sorted, so that two batches lock in one order.
        last = {(op.namespace, op.key): place for place, op in enumerate(prepared.ops) if isinstance(op, PutOp)}
        for (path, key), place in sorted(last.items()):
            op = prepared.ops[place]
            assert isinstance(op, PutOp), "only those were gathered"
            if op.value is None:
                notes.delete(tx, path, key, ns=self._ns)
                continue
            notes.put(
                tx,
                path,
                key,
                plain(op.value),
                vectors=prepared.vectors.get(place),
                ttl_s=None if op.ttl is None else op.ttl * _MINUTE_S,
                subject=None if self._subject is None else self._subject(path, key),
                ns=self._ns,
            )
        return results

    def _look(self, tx: Tx, prepared: _Prepared) -> tuple[list[Result], list[Note]]:
        """Return what a batch reads, and whose time begins anew by that."""
        results: list[Result] = [None] * len(prepared.ops)
        due: dict[tuple[tuple[str, ...], str], Note] = {}
        for place, op in enumerate(prepared.ops):
            matches: Sequence[Note] = ()
            if isinstance(op, GetOp):
                one = notes.find(tx, op.namespace, op.key, ns=self._ns)
                matches = () if one is None else (one,)
                results[place] = None if one is None else Item(**_item(one))
            elif isinstance(op, SearchOp):
                matches = self._search(tx, op, prepared.queries.get(place))
                results[place] = [SearchItem(**_item(each), score=each.score) for each in matches]
            elif isinstance(op, ListNamespacesOp):
                results[place] = self._paths(tx, op)
            # Collected first and refreshed at the end: a batch reads one state.
            if isinstance(op, GetOp | SearchOp) and op.refresh_ttl and self._refreshes:
                due.update(((note.path, note.key), note) for note in matches if note.ttl_s is not None)
        return results, [due[key] for key in sorted(due)]

    @property
    def _refreshes(self) -> bool:
        return bool(self.ttl_config and self.ttl_config.get("refresh_on_read", False))

    def _refresh(self, tx: Tx, due: Iterable[Note]) -> None:
        for note in due:
            notes.touch(tx, note.path, note.key, ns=self._ns)

    def _search(self, tx: Tx, op: SearchOp, vector: Sequence[float] | None) -> Sequence[Note]:
        query: dict[str, Any] = {
            "filter": op.filter,
            "vector": vector,
            "limit": op.limit,
            "offset": op.offset,
            "ns": self._ns,
        }
        return notes.search_slice(tx, tuple(op.namespace_prefix), **query)

    def _paths(self, tx: Tx, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        patterns: dict[str, list[tuple[str, ...]]] = {"prefix": [], "suffix": []}
        for condition in op.match_conditions or ():
            if condition.match_type not in patterns:
                raise InvalidInputError("a namespace is matched by prefix or suffix", match=str(condition.match_type))
            patterns[condition.match_type].append(tuple(condition.path))
        page: dict[str, Any] = {"max_depth": op.max_depth, "limit": op.limit, "offset": op.offset, "ns": self._ns}
        return notes.paths_slice(tx, prefixes=patterns["prefix"], suffixes=patterns["suffix"], **page)

    # --- time ---

    def sweep_ttl(self) -> int:
        """Remove items whose time is over; how many. They are not shown before that either."""
        return self._sync.run(notes.sweep(ns=self._ns))

    async def asweep_ttl(self) -> int:
        """Remove items whose time is over; how many."""
        return await self._async.run(notes.sweep(ns=self._ns))

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Any:
        """Sweep every so often in a thread of its own, until `stop_ttl_sweeper`; a future whose cancelling ends it."""
        configured = (self.ttl_config or {}).get("sweep_interval_minutes")
        return self._sweeper.start((sweep_interval_minutes or configured or _SWEEP_MINUTES) * _MINUTE_S)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """End the sweeper; False if it is still at it after so many seconds."""
        return self._sweeper.stop(timeout)


def _checked(ops: Iterable[Op]) -> list[Op]:
    """Return the operations of a batch, each with a namespace that is one."""
    operations = list(ops)
    for op in operations:
        if not isinstance(op, GetOp | PutOp | SearchOp | ListNamespacesOp):
            raise TypeError(f"no operation of a store: {type(op).__name__}")
        validate_op_namespace(op)
    return operations


def _fields(index: IndexConfig | None) -> list[tuple[str, Any]]:
    """The fields that are embedded where an item does not say which; LangGraph's SQLite store says `text_fields`."""
    config: Any = index or {}
    # LangGraph's SQLite store offers others; silently ranking by cosine would be a wrong answer.
    if (distance := config.get("distance_type", "cosine")) != "cosine":
        raise ValueError(f"items are compared by their cosine, not by {distance!r}")
    fields = config.get("fields") or config.get("text_fields") or ["$"]
    if isinstance(fields, str):
        fields = [fields]
    return [(path, "$" if path == "$" else tokenize_path(path)) for path in fields]


def _item(note: Note) -> dict[str, Any]:
    return {
        "value": note.value,
        "key": note.key,
        "namespace": note.path,
        "created_at": note.created_at,
        "updated_at": note.updated_at,
    }
