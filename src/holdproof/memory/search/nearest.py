"""Search by vector: the objects whose vectors lie nearest to one that is given, to that of a text, or of an object.

Rules:
- An object's vector is `meta["vector"]`: it is stored with the object and carried by images. Rows for searching are
  written in the transaction that changes it, whatever does; so what was deleted or changed is never found as it was.
- Every vector of the same length is compared: the answer is exact. Nearest first, equals by id; the distance is one
  minus the cosine.
- A query of another length than all vectors here is refused: it was made by another model.
- What is found is read through the tree, never from the rows. What is sealed has no row.
- `embed` gives objects that have none a vector of their text, and a new one where the text has changed; vectors that
  came from a caller it leaves alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from holdproof.crypto import mst
from holdproof.db import Call, Read, Row, Tx, Work, Write, ask, sql
from holdproof.errors import (
    ConfigError,
    EmbeddingMismatchError,
    InvalidInputError,
    NotFoundError,
)
from holdproof.memory.objects import objects, records
from holdproof.memory.objects.records import OBJECT
from holdproof.memory.objects.tree_transaction import MAIN, TreeTransaction
from holdproof.memory.search import search_index
from holdproof.memory.search.vectors import FIELD, MADE_OF, load_exact, packed
from holdproof.model.memory import Near, Object
from holdproof.store.context import Context, Embedder
from holdproof.validation import limited

_PAGE: Final = 2_000
_EMBEDDED: Final = 64

_LENGTHS = sql("SELECT DISTINCT dimensions FROM object_vectors WHERE ns = :ns ORDER BY dimensions")
_ROWS = sql(
    "SELECT key, vector FROM object_vectors WHERE ns = :ns AND dimensions = :dimensions AND key > :after"
    " ORDER BY key LIMIT :limit"
)


def nearest(
    context: Context,
    vector: Sequence[float] | None = None,
    *,
    like: str | None = None,
    near: str | None = None,
    limit: int = 20,
    embedder: Embedder | None = None,
    ns: str = MAIN,
) -> Work[tuple[Near, ...]]:
    """The objects nearest to a vector, to what the embedder makes of a text (`like`), or to an object (`near`)."""
    if sum(each is not None for each in (vector, like, near)) != 1:
        raise InvalidInputError("give a vector, a text or the id of an object: one of them")
    limited(limit)
    query: Any = vector
    if like is not None:
        query = yield from _embedded(embedder or context.embedder, like)
    elif near is not None:
        query = yield from ask(Read(lambda tx: _of(tx, near, ns)))
    exact = load_exact()
    unit = exact.direction(exact.as_numbers(query))
    if unit is None:
        return ()
    return (yield from ask(Read(lambda tx: _look(tx, unit, limit, near, ns))))


def _of(tx: Tx, id: str, ns: str) -> list[float]:
    vector = objects.get(tx, id, ns=ns).meta.get(FIELD)
    if not isinstance(vector, list):
        raise NotFoundError(f"{id} has no vector", id=id)
    return vector


def _embedded(embedder: Embedder | None, text: str) -> Work[Any]:
    if embedder is None:
        raise ConfigError("texts need an embedder: name one when the store is opened")
    if not text.strip():
        raise InvalidInputError("there must be a text to embed")
    making: Call[Any] = Call(lambda: embedder(text))
    return (yield from ask(making))


def _look(tx: Tx, unit: Any, limit: int, near: str | None, ns: str) -> tuple[Near, ...]:
    """Compare every vector of that length, a page at a time, and read what is nearest through the tree."""
    lengths = [length for (length,) in tx.all(_LENGTHS, ns=ns)]
    if lengths and len(unit) not in lengths:
        raise EmbeddingMismatchError(
            f"the vectors here have {' or '.join(map(str, lengths))} numbers, not {len(unit)}",
            dimensions=lengths,
        )
    # An object is nearest to itself: one more is asked for, and the object itself left out below.
    most = limit + (near is not None)
    ranking = load_exact().nearest(_pages(tx, len(unit), ns), unit, most)
    view = objects.view_at(tx, None, ns)
    matches = (
        Near(objects.read(view, key, ns), distance) for key, distance in ranking if view.find(OBJECT + key) is not None
    )
    return tuple(islice((each for each in matches if each.object.id != near), limit))


def _pages(tx: Tx, dimensions: int, ns: str) -> Iterator[list[Row]]:
    after = ""
    while page := tx.all(_ROWS, ns=ns, dimensions=dimensions, after=after, limit=_PAGE):
        yield page
        after, _ = page[-1]


# --- embedding ---------------------------------------------------------------------------------------------------


class _Text(NamedTuple):
    """An object that wants a vector: which, and of what."""

    id: str
    cid: str
    text: str


def embed(context: Context, *, embedder: Embedder | None = None, anew: bool = False, ns: str = MAIN) -> Work[int]:
    """Give every object a vector of its text that has none, or one of an older text; how many were made.

    A model of another length is refused where there are vectors of its predecessor, unless all are made `anew`.
    """
    chosen = embedder or context.embedder
    count = 0
    after = ""
    while True:
        page, last = yield from ask(Read(lambda tx: _wanting(tx, after, anew, ns)))  # noqa: B023
        # The embedder may be a model on a network: it runs between two transactions, never inside one.
        vectors: list[tuple[_Text, list[float]]] = []
        for each in page:
            numbers = yield from _embedded(chosen, each.text)
            vectors.append((each, [float(number) for number in numbers]))
        if vectors:
            count += yield from ask(Write(lambda tx: _keep(tx, vectors, anew, ns)))  # noqa: B023
        if last is None:
            return count
        after = last


def _wanting(tx: Tx, after: str, anew: bool, ns: str) -> tuple[list[_Text], str | None]:
    """Return some objects without a vector of what they say now, and where the next ones begin."""
    view = objects.view_at(tx, None, ns)
    start = OBJECT + after + "\x00" if after else OBJECT
    page = [*islice(mst.walk(view.get, view.root, start=start, end=OBJECT + "\x7f"), _EMBEDDED)]
    items = (objects.read(view, key[len(OBJECT) :], ns) for key, _ in page)
    texts = [_Text(each.id, each.cid, text) for each in items if _wants(each, anew) and (text := _text(each))]
    return texts, page[-1][0][len(OBJECT) :] if len(page) == _EMBEDDED else None


def _wants(item: Object, anew: bool) -> bool:
    """Return whether it lacks a vector; who is a subject's gets none, for it would tell of what is sealed."""
    if item.subject is not None:
        return False
    ours = MADE_OF in item.meta
    return FIELD not in item.meta or (ours and (anew or item.meta[MADE_OF] != item.cid))


def _text(item: Object) -> str:
    return "\n".join(search_index.texts([item.content, item.attributes])).strip()


_OURS = sql("SELECT key, dimensions FROM object_vectors WHERE ns = :ns AND dimensions <> :dimensions LIMIT :limit")


def _keep(tx: Tx, vectors: Iterable[tuple[_Text, list[float]]], anew: bool, ns: str) -> int:
    """Keep vectors of objects that still say what was embedded."""
    edit = TreeTransaction(tx, ns)
    count = 0
    for each, vector in vectors:
        key = records.key_of(each.id)
        # It was changed while the embedder worked: the next run embeds what it says now.
        if str(edit.find(OBJECT + key)) != each.cid:
            continue
        if packed({FIELD: vector}) is None:
            raise InvalidInputError("the embedder gave no vector: finite numbers, not all zero", id=each.id)
        if not anew:
            _check_length(edit, len(vector), ns)
        edit.put_meta(each.id, {**edit.meta(key), FIELD: vector, MADE_OF: each.cid})
        count += 1
    edit.finish()
    return count


def _check_length(edit: TreeTransaction, dimensions: int, ns: str) -> None:
    """Refuse a vector of another length than those that were made here before."""
    for key, length in edit.tx.all(_OURS, ns=ns, dimensions=dimensions, limit=1):
        if MADE_OF in edit.meta(key):
            raise EmbeddingMismatchError(
                f"vectors here have {length} numbers, the embedder's {dimensions}: another model? make all anew",
                dimensions=length,
            )
