"""Search: objects by the words in their content and attributes.

Rules:
- The words of an object are written in the transaction that changes it, whatever changes it: a put, a deletion, a
  rollback, a merge, an import. They follow from its record, and `verify` compares them.
- What is searched for is words, all of which an object must have; no sign in it is ever syntax.
- Upper and lower case are alike. A word is letters and digits: databases see only what was cut into words here.
- Of a very long text the first 256 KiB of words are searched.
- What is found is read through the tree, never from the index.
"""

from itertools import islice
from typing import Final

from holdproof.crypto import mst
from holdproof.db import Tx, Work, Write, ask, sql
from holdproof.db.sql import sql_sqlite
from holdproof.errors import InvalidInputError
from holdproof.memory.objects import objects
from holdproof.memory.objects.records import OBJECT
from holdproof.memory.objects.tree_transaction import MAIN, TreeTransaction
from holdproof.memory.search import search_index
from holdproof.memory.search.search_index import Text
from holdproof.model.memory import Object
from holdproof.validation import limited

MOST_WORDS: Final = 64
_LONGEST: Final = 2_000
_PAGE: Final = 200

_SEARCH = sql(
    "SELECT t.key FROM object_search s JOIN object_text t ON t.id = s.rowid"
    " WHERE s.body MATCH :words AND t.ns = :ns ORDER BY s.rank, t.key LIMIT :limit",
    postgres="SELECT key FROM object_text, plainto_tsquery('simple', CAST(:words AS TEXT)) wanted"
    " WHERE ns = :ns AND to_tsvector('simple', body) @@ wanted"
    " ORDER BY ts_rank(to_tsvector('simple', body), wanted) DESC, key LIMIT :limit",
)


def search(tx: Tx, text: str, *, limit: int = 20, ns: str = MAIN) -> tuple[Object, ...]:
    """Return the objects that have all words of a text, as they are now, the best first."""
    if len(text) > _LONGEST:
        raise InvalidInputError(f"what is searched for is a text of at most {_LONGEST:,} characters")
    words = dict.fromkeys(search_index.words(text))
    if not words or len(words) > MOST_WORDS:
        raise InvalidInputError(f"a search has 1 to {MOST_WORDS} words, of letters and digits", text=text[:100])
    view = objects.view_at(tx, None, ns)
    quoted = " ".join(f'"{word}"' for word in words)  # nothing but words for either database
    keys = [key for (key,) in tx.all(_SEARCH, words=quoted, ns=ns, limit=limited(limit))]
    return tuple(objects.read(view, key, ns) for key in keys if view.find(OBJECT + key) is not None)


def reindex(*, ns: str = MAIN) -> Work[int]:
    """Write words and vectors of every object anew, for a store that was made before there were any; how many."""
    count = 0
    after = ""
    while True:
        done, last = yield from ask(Write(lambda tx: _page(tx, after, ns)))  # noqa: B023
        count += done
        if last is None:
            return count
        after = last


def _page(tx: Tx, after: str, ns: str) -> tuple[int, str | None]:
    edit = TreeTransaction(tx, ns)  # nobody changes objects meanwhile
    start = OBJECT + after + "\x00" if after else OBJECT
    page = [*islice(mst.walk(edit.get, edit.root, start=start, end=OBJECT + "\x7f"), _PAGE)]
    texts = [Text(key[len(OBJECT) :], str(cid), search_index.body(edit.record(cid), edit.get)) for key, cid in page]
    search_index.put(tx, ns, texts)
    edit.index_vectors([each.key for each in texts])
    return len(page), texts[-1].key if len(page) == _PAGE else None


_SEGMENTS = sql_sqlite("SELECT count(DISTINCT segid) FROM object_search_idx")
_MERGE = sql_sqlite("INSERT INTO object_search (object_search, rank) VALUES ('merge', :pages)")
_PAGES: Final = 500


def forget() -> Work[None]:
    """Let words that no object has any more leave the index for good: SQLite keeps them until it merges, which is done.

    A few pages a transaction, so that others get on; PostgreSQL's vacuum does the same by itself.
    """
    # A negative number starts a full merge in FTS5; positive ones continue it.
    segments = yield from ask(Write(lambda tx: _merge(tx, -_PAGES)))
    tries = 0
    while segments > 1 and tries < _PAGES:
        segments = yield from ask(Write(lambda tx: _merge(tx, _PAGES)))
        tries = tries + 1


def _merge(tx: Tx, pages: int) -> int:
    if tx.dialect != "sqlite":
        return 0
    tx.execute(_MERGE, pages=pages)
    [(count,)] = tx.all(_SEGMENTS)
    return int(count)
