"""Notes: JSON objects under a path and a key, found by fields and by vectors; they may end by themselves.

Rules:
- A note is written whole: value, vectors and time in one statement's row, the last writer's. `created_at` stays.
- A path is labels: not empty, without dots. What is asked for below a path never reaches a path that only begins alike.
- With `ttl_s` a note ends so long after it was written, or touched. From that moment on it is not there, swept or not.
- A note that is a subject's stays the subject's, and goes when that person is erased.
- Filters run in Python and never become SQL (filters.py); every vector is compared, exactly.
- Notes are outside the log (ADR 28). `h` is the hash of what a note says, and `verify` compares it.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from holdproof import paging, validation
from holdproof.content import encryption
from holdproof.db import USED, Row, Tx, Use, Work, Write, ask, sql
from holdproof.errors import FormatError, InvalidInputError, NotFoundError
from holdproof.evidence import erasable
from holdproof.memory.notes import filters
from holdproof.memory.objects.object_checks import CheckedPage, ObjectFlaw
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.memory.search.vectors import load_exact
from holdproof.model import jsontext
from holdproof.model.notes import Note
from holdproof.model.page import Page
from holdproof.model.times import later

_LONGEST: Final = 1_000
_DEEPEST: Final = 50
_MOST: Final = 1_000_000
_LEAST_S: Final = 1e-6  # the resolution of stored times
_SOME: Final = 200
_SWEPT: Final = 500
_EVERYTHING: Final = ""

# Two encoders: readable text by default, escapes only for values that no database can store as text.
_safely = jsontext.encoder(ascii=True)

# --- writing -----------------------------------------------------------------------------------------------------

_PUT = sql(
    "INSERT INTO notes (ns, path, key, value, h, subject, ttl_s, expires_at, created_at, updated_at)"
    " VALUES (:ns, :path, :key, :value, :h, :subject, :ttl_s, :expires_at, :now, :now)"
    " ON CONFLICT (ns, path, key) DO UPDATE SET value = excluded.value, h = excluded.h,"
    " subject = coalesce(excluded.subject, notes.subject), ttl_s = excluded.ttl_s, expires_at = excluded.expires_at,"
    " created_at = CASE WHEN notes.expires_at <= :now THEN excluded.created_at ELSE notes.created_at END,"
    " updated_at = excluded.updated_at RETURNING n"
)
_UNVECTOR = sql("DELETE FROM note_vectors WHERE note = :note")
_VECTOR = sql("INSERT INTO note_vectors (note, field, dimensions, vector) VALUES (:note, :field, :dimensions, :vector)")


def put(
    tx: Tx,
    path: Sequence[str],
    key: str,
    value: Mapping[str, Any],
    *,
    vectors: Mapping[str, Sequence[float]] | None = None,
    ttl_s: float | None = None,
    subject: str | None = None,
    ns: str = MAIN,
) -> None:
    """Keep a note in the place of the one that was; `vectors` are what it is found by, each under a name."""
    place = joined(path)
    text = _spelled(value)
    packed = _packed(vectors)
    if not place:
        raise InvalidInputError("a note needs a path", field="path")
    row: dict[str, Any] = {"ns": ns, "path": place, "key": _text("key", key), "value": text, "now": tx.now}
    row["h"] = row_hash(place, key, text, packed)
    row["ttl_s"] = None if ttl_s is None else validation.seconds("ttl_s", ttl_s, least=_LEAST_S)
    # The moment is stored beside the duration: a touch needs the one, every read the other.
    row["expires_at"] = None if ttl_s is None else later(tx.now, row["ttl_s"])
    row["subject"] = None if subject is None else encryption.label(tx, _text("subject", subject), ns=ns)
    if tx.limiter is not None:
        tx.limiter.store(tx, ns, len(text.encode()) + sum(map(len, packed.values())))
    [(n,)] = tx.all(_PUT, **row)
    tx.note(USED, Use("written", "notes", ns, n))
    # Vectors of fields that the new value no longer has must not be found any more.
    tx.execute(_UNVECTOR, note=n)
    tx.many(
        _VECTOR,
        [{"note": n, "field": field, "dimensions": len(data) // 4, "vector": data} for field, data in packed.items()],
    )


_DELETE = sql("DELETE FROM notes WHERE ns = :ns AND path = :path AND key = :key")


def delete(tx: Tx, path: Sequence[str], key: str, *, ns: str = MAIN) -> bool:
    """Remove a note; whether there was one."""
    return tx.count(_DELETE, ns=ns, path=joined(path), key=_text("key", key)) == 1


_TTL = sql("SELECT ttl_s FROM notes WHERE ns = :ns AND path = :path AND key = :key AND expires_at > :now")
_TOUCH = sql(
    "UPDATE notes SET expires_at = :expires_at WHERE ns = :ns AND path = :path AND key = :key AND ttl_s = :ttl_s"
    " AND expires_at > :now"
)


def touch(tx: Tx, path: Sequence[str], key: str, *, ns: str = MAIN) -> bool:
    """Let the time of a note begin anew; whether there is such a note, and it has a time."""
    of = {"ns": ns, "path": joined(path), "key": _text("key", key), "now": tx.now}
    row = tx.one(_TTL, **of)
    if row is None:
        return False
    (ttl_s,) = row
    return tx.count(_TOUCH, **of, ttl_s=ttl_s, expires_at=later(tx.now, ttl_s)) == 1


_SWEEP = sql(
    "DELETE FROM notes WHERE n IN (SELECT n FROM notes WHERE expires_at <= :now"
    " AND (CAST(:ns AS TEXT) IS NULL OR ns = :ns) ORDER BY expires_at LIMIT :limit) AND expires_at <= :now"
)


def sweep(*, ns: str | None = None) -> Work[int]:
    """Remove notes that have ended, in small transactions; how many."""
    count = 0
    while True:
        some = yield from ask(Write(lambda tx: tx.count(_SWEEP, now=tx.now, ns=ns, limit=_SWEPT)))
        count += some
        if some < _SWEPT:
            return count


_ERASE = sql("DELETE FROM notes WHERE subject = :subject")


def _erase(tx: Tx, handle: str) -> int:
    return tx.count(_ERASE, subject=handle)


erasable.register_rows(erasable.UnloggedRows("notes", _erase))

# --- reading -----------------------------------------------------------------------------------------------------

_COLUMNS: Final = "n, path, key, value, created_at, updated_at, ttl_s, expires_at, ns"
_LIVES: Final = "(expires_at IS NULL OR expires_at > :now)"
_BELOW: Final = "(:path = '' OR path = :path OR (path >= :first AND path < :end))"
_GET = sql(f"SELECT {_COLUMNS} FROM notes WHERE ns = :ns AND path = :path AND key = :key AND {_LIVES}")  # noqa: S608


_DELETE_BELOW = sql(f"DELETE FROM notes WHERE ns = :ns AND {_BELOW}")  # noqa: S608 (a constant of this file)


def delete_below(tx: Tx, path: Sequence[str], *, ns: str = MAIN) -> int:
    """Remove the notes at a path and below it; how many."""
    return tx.count(_DELETE_BELOW, ns=ns, **_below(path))


def get(tx: Tx, path: Sequence[str], key: str, *, ns: str = MAIN) -> Note:
    """Return a note; NotFoundError where there is none, or its time is over."""
    note = find(tx, path, key, ns=ns)
    if note is None:
        raise NotFoundError(
            f"there is no note {key} at {'.'.join(path)}", listed_by="notes search", path=[*path], key=key
        )
    return note


def find(tx: Tx, path: Sequence[str], key: str, *, ns: str = MAIN) -> Note | None:
    """Return what `get` does, or None where there is none."""
    row = tx.one(_GET, ns=ns, path=joined(path), key=_text("key", key), now=tx.now)
    return None if row is None else _used(tx, _note(row), row)


_ORDER = sql(
    f"SELECT n FROM notes WHERE ns = :ns AND {_BELOW} AND {_LIVES}"  # noqa: S608 (constants of this file)
    " ORDER BY updated_at DESC, n DESC LIMIT :limit OFFSET :offset"
)


def search(
    tx: Tx,
    path: Sequence[str] = (),
    *,
    filter: Mapping[str, Any] | None = None,
    vector: Sequence[float] | None = None,
    cursor: str | None = None,
    limit: int = 10,
    ns: str = MAIN,
) -> Page[Note]:
    """List the notes at a path and below it that pass a filter: the last written first, or the nearest to a vector."""
    # What ranks notes by a vector has no key to go on from, so the cursor counts those that came before.
    (offset,) = paging.decode(cursor, 0)
    notes = search_slice(tx, path, filter=filter, vector=vector, limit=paging.fetch(limit), offset=offset, ns=ns)
    return paging.page(notes, limit, lambda _: (offset + limit,))


def search_slice(
    tx: Tx,
    path: Sequence[str] = (),
    *,
    filter: Mapping[str, Any] | None = None,
    vector: Sequence[float] | None = None,
    limit: int = 10,
    offset: int = 0,
    ns: str = MAIN,
) -> tuple[Note, ...]:
    """Return what `search` does, by offset: LangGraph's store counts so."""
    validation.count("limit", limit, most=_MOST)
    validation.count("offset", offset, most=_MOST)
    test = filters.compiled(filter)
    # The database can cut the page only where it alone decides the order and what is in it.
    whole = test is not None or vector is not None
    page = {"limit": _MOST, "offset": 0} if whole else {"limit": limit, "offset": offset}
    numbers = [n for (n,) in tx.all(_ORDER, ns=ns, now=tx.now, **_below(path), **page)]
    if vector is None:
        order: Sequence[tuple[int, float | None]] = [(n, None) for n in numbers]
    else:
        order = _ranked(tx, numbers, vector)
    if test is not None:
        order = _let_through(tx, order, test, offset + limit)
    if whole:
        order = order[offset : offset + limit]
    return tuple(_read(tx, order))


def _ranked(tx: Tx, numbers: Sequence[int], vector: Sequence[float]) -> list[tuple[int, float]]:
    """Return notes by the cosine of their nearest vector, the nearest first; none for a query of zeros."""
    exact = load_exact()
    query = exact.as_numbers(vector)
    unit = exact.direction(query)
    return [] if unit is None else exact.best_scores(_vector_pages(tx, numbers, len(query)), unit)


_OF = sql(
    f"SELECT {_COLUMNS} FROM notes WHERE n IN (SELECT value FROM json_each(:wanted))",  # noqa: S608
    postgres=f"SELECT {_COLUMNS} FROM notes WHERE n IN"  # noqa: S608
    " (SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(:wanted AS JSON)))",
)
_VALUES = sql(
    "SELECT n, value FROM notes WHERE n IN (SELECT value FROM json_each(:wanted))",
    postgres="SELECT n, value FROM notes WHERE n IN"
    " (SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(:wanted AS JSON)))",
)
_VECTORS = sql(
    "SELECT note, vector FROM note_vectors WHERE note IN (SELECT value FROM json_each(:wanted))"
    " AND dimensions = :dimensions",
    postgres="SELECT note, vector FROM note_vectors WHERE note IN"
    " (SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(:wanted AS JSON)))"
    " AND dimensions = :dimensions",
)


def _vector_pages(tx: Tx, numbers: Sequence[int], dimensions: int) -> Iterator[list[Row]]:
    for some in _parts(numbers):
        if rows := tx.all(_VECTORS, wanted=json.dumps(some), dimensions=dimensions):
            yield rows


def _let_through(
    tx: Tx, order: Sequence[tuple[int, float | None]], test: filters.Test, most: int
) -> list[tuple[int, float | None]]:
    """Return the first so many that a filter lets through; no more is read than needed."""
    passed: list[tuple[int, float | None]] = []
    for some in _parts(order):
        values: dict[int, str] = dict(tx.all(_VALUES, wanted=json.dumps([n for n, _ in some])))
        passed += [(n, score) for n, score in some if n in values and test(_value(values[n]))]
        # Filters run here, not in SQL: stop as soon as the page is full.
        if len(passed) >= most:
            break
    return passed


def _read(tx: Tx, order: Sequence[tuple[int, float | None]]) -> Iterator[Note]:
    for some in _parts(order):
        rows = {n: (n, *rest) for n, *rest in tx.all(_OF, wanted=json.dumps([n for n, _ in some]))}
        yield from (_used(tx, _note(rows[n], score), rows[n]) for n, score in some if n in rows)


def _used(tx: Tx, note: Note, row: Row) -> Note:
    """Return a note that is read, noted for the step that reads it (executors/uses.py)."""
    n, *_ = row
    tx.note(USED, Use("read", "notes", note.ns, n))
    return note


def _parts(whole: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (whole[at : at + _SOME] for at in range(0, len(whole), _SOME))


_PATHS = sql(f"SELECT DISTINCT path FROM notes WHERE ns = :ns AND {_BELOW} AND {_LIVES} ORDER BY path")  # noqa: S608


def paths(
    tx: Tx,
    *,
    prefixes: Sequence[Sequence[str]] = (),
    suffixes: Sequence[Sequence[str]] = (),
    max_depth: int | None = None,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Page[tuple[str, ...]]:
    """List the paths that have notes, by name, cut after `max_depth` labels.

    A `*` in one of the prefixes or suffixes stands for any label.
    """
    (after,) = paging.decode(cursor, "")
    matching = _matching_paths(tx, prefixes, suffixes, max_depth, ns)
    rest = [path for path in matching if ".".join(path) > after]
    return paging.page(rest[: paging.fetch(limit)], limit, lambda path: (".".join(path),))


def paths_slice(
    tx: Tx,
    *,
    prefixes: Sequence[Sequence[str]] = (),
    suffixes: Sequence[Sequence[str]] = (),
    max_depth: int | None = None,
    limit: int = 100,
    offset: int = 0,
    ns: str = MAIN,
) -> list[tuple[str, ...]]:
    """Return what `paths` does, by offset: LangGraph's store counts so."""
    validation.count("limit", limit, most=_MOST)
    validation.count("offset", offset, most=_MOST)
    return _matching_paths(tx, prefixes, suffixes, max_depth, ns)[offset : offset + limit]


def _matching_paths(
    tx: Tx,
    prefixes: Sequence[Sequence[str]],
    suffixes: Sequence[Sequence[str]],
    max_depth: int | None,
    ns: str,
) -> list[tuple[str, ...]]:
    if max_depth is not None:
        validation.count("max_depth", max_depth, least=1, most=_MOST)
    for pattern in (*prefixes, *suffixes):
        joined(pattern)
    # One prefix without a wildcard narrows what the database reads; all patterns are checked here afterwards.
    below = next((each for each in prefixes if "*" not in each), ())
    all_paths = (tuple(path.split(".")) for (path,) in tx.all(_PATHS, ns=ns, now=tx.now, **_below(below)))
    matching = {
        path[:max_depth]
        for path in all_paths
        if all(_begins(path, pattern) for pattern in prefixes)
        and all(_begins(path[::-1], pattern[::-1]) for pattern in suffixes)
    }
    return sorted(matching, key=".".join)


def _begins(path: Sequence[str], pattern: Sequence[str]) -> bool:
    fits = (label in ("*", own) for label, own in zip(pattern, path, strict=False))
    return len(pattern) <= len(path) and all(fits)


# --- values ------------------------------------------------------------------------------------------------------


def joined(path: Any) -> str:
    """Return a path as it is stored."""
    if isinstance(path, str) or not isinstance(path, Sequence) or len(path) > _DEEPEST:
        raise InvalidInputError(f"a path is a list of at most {_DEEPEST} labels", field="path")
    for label in path:
        if "." in _text("a label of a path", label):
            raise InvalidInputError("a label of a path has no dot", label=label[:100])
    return ".".join(path)


def _below(path: Sequence[str]) -> dict[str, str]:
    """Return a path and what lies below it, as queries ask for it; `/` is what follows the dot."""
    text = joined(path)
    # A range instead of LIKE: it uses the index, and a label with % or _ in it is just a label.
    return {"path": text or _EVERYTHING, "first": f"{text}.", "end": f"{text}/"}


def _text(what: str, text: Any) -> str:
    return validation.words(what, text, least=1, most=_LONGEST)


def _spelled(value: Any) -> str:
    """Return a value as it is stored."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidInputError("the value of a note is an object with text keys", field="value")
    return validation.to_json("value", value if type(value) is dict else dict(value), jsontext.readable)


def _packed(vectors: Mapping[str, Sequence[float]] | None) -> dict[str, bytes]:
    """Return vectors as they are stored, by field; those of zeros are left out."""
    if not vectors:
        return {}
    exact = load_exact()
    arrays = {_text("the name of a vector", field): exact.as_numbers(vector) for field, vector in vectors.items()}
    return {field: exact.pack(numbers) for field, numbers in arrays.items() if numbers.any()}


def row_hash(path: str, key: str, value: str, vectors: Mapping[str, bytes]) -> bytes:
    """Return what `h` of a note must be: where it is, what it says, and what it is found by."""
    hashes = [[field, sha256(vectors[field]).hexdigest()] for field in sorted(vectors)]
    return sha256(_safely([path, key, value, hashes]).encode()).digest()


def _value(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise FormatError(f"a note is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise FormatError("a note is no object")
    return value


def _note(row: Row, score: float | None = None) -> Note:
    _, path, key, value, created_at, updated_at, ttl_s, expires_at, ns = row
    labels = tuple(path.split("."))
    return Note(labels, key, _value(value), created_at, updated_at, ttl_s, expires_at, score, ns)


# --- verifying ---------------------------------------------------------------------------------------------------

_CHECKED_PAGE: Final = 100
_ROWS = sql("SELECT n, path, key, value, h FROM notes WHERE n > :after ORDER BY n LIMIT :limit")
_ROW_VECTORS = sql(
    "SELECT note, field, dimensions, vector FROM note_vectors WHERE note IN (SELECT value FROM json_each(:wanted))",
    postgres="SELECT note, field, dimensions, vector FROM note_vectors WHERE note IN"
    " (SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(:wanted AS JSON)))",
)


def check_page(tx: Tx, after: int | None) -> CheckedPage:
    """Verify one page of notes: each is what its hash says, with the vectors it is found by.

    Notes are outside the log, so this finds damage, not intent.
    """
    rows = tx.all(_ROWS, after=-(2**62) if after is None else after, limit=_CHECKED_PAGE)
    numbers = [n for n, *_ in rows]
    vectors: dict[int, dict[str, bytes]] = defaultdict(dict)
    flaws = []
    for n, field, dimensions, vector in tx.all(_ROW_VECTORS, wanted=json.dumps(numbers)):
        vectors[n][field] = vector
        if len(vector) != 4 * dimensions:
            flaws.append(
                ObjectFlaw("note_vectors", f"{n} {field}", "a vector of a note has another length than it says")
            )
    for n, path, key, value, h in rows:
        if row_hash(path, key, value, vectors[n]) != h:
            flaws.append(ObjectFlaw("notes", str(n), "a note, or a vector of it, is damaged or was edited"))
    return CheckedPage(len(rows), flaws, numbers[-1] if len(rows) == _CHECKED_PAGE else None)
