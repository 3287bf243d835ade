"""Notes: JSON objects under a path and a key, found by fields and by vectors; they may end by themselves.

Rules:
- A note is written whole: value, vectors and time in one statement's row, the last writer's. `created_at` stays.
- A path is labels: not empty, without dots. What is asked for below a path never reaches a path that only begins alike.
- With `ttl_s` a note ends so long after it was written, or touched. From that moment on it is not there, swept or not.
- A note that is a subject's stays the subject's, and goes when that person is erased.
- Filters are looked at here and never become SQL (notefilters.py); every vector is compared (notevectors.py).
- Notes are outside the log (ADR 28). `h` is the hash of what a note says, and `verify` compares it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from math import isfinite
from types import ModuleType
from typing import Any, Final

from holdproof import validation
from holdproof.content import encryption
from holdproof.db import Row, Tx, Work, Write, ask, sql
from holdproof.errors import FormatError, InvalidInputError, MissingExtraError
from holdproof.evidence import erasable
from holdproof.memory.notes import filters
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.model import jsontext
from holdproof.model.notes import Note
from holdproof.model.times import later

_LONGEST: Final = 1_000
_DEEPEST: Final = 50
_MOST: Final = 1_000_000
_LONGEST_S: Final = 100 * 365 * 86_400
_SOME: Final = 200
_SWEPT: Final = 500
_EVERYTHING: Final = ""

_dumps = jsontext.encoder(ascii=False)
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
    place, text, packed = joined(path), _spelled(value), _packed(vectors)
    if not place:
        raise InvalidInputError("a note needs a path", field="path")
    row: dict[str, Any] = {"ns": ns, "path": place, "key": _text("key", key), "value": text, "now": tx.now}
    row["h"] = row_hash(place, key, text, packed)
    row["ttl_s"] = None if ttl_s is None else _seconds(ttl_s)
    row["expires_at"] = None if ttl_s is None else later(tx.now, row["ttl_s"])
    row["subject"] = None if subject is None else encryption.label(tx, _text("subject", subject), ns=ns)
    kept = tx.one(_PUT, **row)
    assert kept is not None, "an upsert that returns its number"
    tx.execute(_UNVECTOR, note=kept[0])
    tx.many(
        _VECTOR,
        [
            {"note": kept[0], "field": field, "dimensions": len(data) // 4, "vector": data}
            for field, data in packed.items()
        ],
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
    return row is not None and tx.count(_TOUCH, **of, ttl_s=row[0], expires_at=later(tx.now, row[0])) == 1


_SWEEP = sql(
    "DELETE FROM notes WHERE n IN (SELECT n FROM notes WHERE expires_at <= :now"
    " AND (CAST(:ns AS TEXT) IS NULL OR ns = :ns) ORDER BY expires_at LIMIT :limit) AND expires_at <= :now"
)


def sweep(*, ns: str | None = None) -> Work[int]:
    """Remove notes that have ended, in small transactions; how many."""
    gone = 0
    while True:
        some = yield from ask(Write(lambda tx: tx.count(_SWEEP, now=tx.now, ns=ns, limit=_SWEPT)))
        gone += some
        if some < _SWEPT:
            return gone


_ERASE = sql("DELETE FROM notes WHERE subject = :subject")


def _erase(tx: Tx, handle: str) -> int:
    return tx.count(_ERASE, subject=handle)


erasable.register_rows(erasable.UnloggedRows("notes", _erase))

# --- reading -----------------------------------------------------------------------------------------------------

_COLUMNS: Final = "n, path, key, value, created_at, updated_at, ttl_s, expires_at, ns"
_LIVES: Final = "(expires_at IS NULL OR expires_at > :now)"
_BELOW: Final = "(:path = '' OR path = :path OR (path >= :first AND path < :end))"
_GET = sql(f"SELECT {_COLUMNS} FROM notes WHERE ns = :ns AND path = :path AND key = :key AND {_LIVES}")  # noqa: S608


def get(tx: Tx, path: Sequence[str], key: str, *, ns: str = MAIN) -> Note | None:
    """A note, None where there is none, or none any more."""
    row = tx.one(_GET, ns=ns, path=joined(path), key=_text("key", key), now=tx.now)
    return None if row is None else _note(row)


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
    limit: int = 10,
    offset: int = 0,
    ns: str = MAIN,
) -> tuple[Note, ...]:
    """Notes at a path and below it that a filter lets through: the last written first, or the nearest to a vector."""
    _count("limit", limit)
    _count("offset", offset)
    test = filters.compiled(filter)
    whole = test is not None or vector is not None
    page = {"limit": _MOST, "offset": 0} if whole else {"limit": limit, "offset": offset}
    found = [row[0] for row in tx.all(_ORDER, ns=ns, now=tx.now, **_below(path), **page)]
    if vector is None:
        order: Sequence[tuple[int, float | None]] = [(n, None) for n in found]
    else:
        order = _vectors().scores(_vector_pages(tx, found, len(vector)), vector)
    if test is not None:
        order = _let_through(tx, order, test, offset + limit)
    if whole:
        order = order[offset : offset + limit]
    return tuple(_read(tx, order))


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


def _vector_pages(tx: Tx, found: Sequence[int], dimensions: int) -> Iterator[list[Row]]:
    for some in _parts(found):
        if rows := tx.all(_VECTORS, wanted=json.dumps(some), dimensions=dimensions):
            yield rows


def _let_through(
    tx: Tx, order: Sequence[tuple[int, float | None]], test: filters.Test, most: int
) -> list[tuple[int, float | None]]:
    """The first so many that a filter lets through; no more is read than needed."""
    passed: list[tuple[int, float | None]] = []
    for some in _parts(order):
        values: dict[int, str] = dict(tx.all(_VALUES, wanted=json.dumps([n for n, _ in some])))
        passed += [each for each in some if each[0] in values and test(_value(values[each[0]]))]
        if len(passed) >= most:
            break
    return passed


def _read(tx: Tx, order: Sequence[tuple[int, float | None]]) -> Iterator[Note]:
    for some in _parts(order):
        rows = {row[0]: row for row in tx.all(_OF, wanted=json.dumps([n for n, _ in some]))}
        yield from (_note(rows[n], score) for n, score in some if n in rows)


def _parts(whole: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (whole[at : at + _SOME] for at in range(0, len(whole), _SOME))


_PATHS = sql(f"SELECT DISTINCT path FROM notes WHERE ns = :ns AND {_BELOW} AND {_LIVES} ORDER BY path")  # noqa: S608


def paths(
    tx: Tx,
    *,
    prefixes: Sequence[Sequence[str]] = (),
    suffixes: Sequence[Sequence[str]] = (),
    max_depth: int | None = None,
    limit: int = 100,
    offset: int = 0,
    ns: str = MAIN,
) -> tuple[tuple[str, ...], ...]:
    """Paths that have notes, by name, cut after `max_depth` labels; `*` in what they begin or end with is any label."""
    _count("limit", limit)
    _count("offset", offset)
    if max_depth is not None and _count("max_depth", max_depth) < 1:
        raise InvalidInputError("max_depth is 1 or more", field="max_depth")
    for wanted in (*prefixes, *suffixes):
        joined(wanted)
    below = next((each for each in prefixes if "*" not in each), ())
    rows = tx.all(_PATHS, ns=ns, now=tx.now, **_below(below))
    found = (tuple(row[0].split(".")) for row in rows)
    kept = {
        each[:max_depth]
        for each in found
        if all(_begins(each, wanted) for wanted in prefixes)
        and all(_begins(each[::-1], wanted[::-1]) for wanted in suffixes)
    }
    return tuple(sorted(kept, key=".".join)[offset : offset + limit])


def _begins(path: Sequence[str], wanted: Sequence[str]) -> bool:
    fits = (label in ("*", own) for label, own in zip(wanted, path, strict=False))
    return len(wanted) <= len(path) and all(fits)


# --- values ------------------------------------------------------------------------------------------------------


def joined(path: Any) -> str:
    """A path as it is stored."""
    if isinstance(path, str) or not isinstance(path, Sequence) or len(path) > _DEEPEST:
        raise InvalidInputError(f"a path is a list of at most {_DEEPEST} labels", field="path")
    for label in path:
        if "." in _text("a label of a path", label):
            raise InvalidInputError("a label of a path has no dot", label=label[:100])
    return ".".join(path)


def _below(path: Sequence[str]) -> dict[str, str]:
    """A path and what lies below it, as queries ask for it; `/` is what follows the dot."""
    text = joined(path)
    return {"path": text or _EVERYTHING, "first": f"{text}.", "end": f"{text}/"}


def _text(what: str, text: Any) -> str:
    return validation.words(what, text, most=_LONGEST)


def _spelled(value: Any) -> str:
    """A value as it is stored; a lone surrogate, which no database can keep, is written as its escape."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidInputError("the value of a note is an object with text keys", field="value")
    try:
        plain = value if type(value) is dict else dict(value)
        text = _dumps(plain)
        try:
            text.encode()
        except UnicodeEncodeError:
            text = _safely(plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"the value of a note is no JSON: {error}", field="value") from error
    return text


def _seconds(ttl_s: Any) -> float:
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or not isfinite(ttl_s):
        raise InvalidInputError("ttl_s is a number of seconds", field="ttl_s")
    if not 0 < ttl_s <= _LONGEST_S:
        raise InvalidInputError("ttl_s is more than nothing, and a hundred years at most", field="ttl_s")
    return float(ttl_s)


def _count(what: str, number: Any) -> int:
    if type(number) is not int or not 0 <= number <= _MOST:
        raise InvalidInputError(f"{what} is a whole number from 0 to {_MOST:,}", field=what)
    return number


def _packed(vectors: Mapping[str, Sequence[float]] | None) -> dict[str, bytes]:
    """Vectors as they are kept; those of zeros are not."""
    if not vectors:
        return {}
    named = ((_text("the name of a vector", field), _vectors().packed(each)) for field, each in vectors.items())
    return {field: data for field, data in named if data is not None}


def _vectors() -> ModuleType:
    try:
        from holdproof.memory.notes import note_vectors  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("vectors need numpy: pip install 'holdproof[vectors]'") from error
    return note_vectors


def row_hash(path: str, key: str, value: str, vectors: Mapping[str, bytes]) -> bytes:
    """What `h` of a note must be: where it is, what it says, and what it is found by."""
    found = [[field, sha256(vectors[field]).hexdigest()] for field in sorted(vectors)]
    return sha256(_safely([path, key, value, found]).encode()).digest()


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
