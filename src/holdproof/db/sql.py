"""SQL written once, by hand, in the dialect both databases share.

`sql("… :name …")` is a constant directly above its only caller. It is compiled at import for both drivers (`:name`
becomes `?1` or `$1`) and registered, so that one test can EXPLAIN every query on both databases. A text per
dialect is allowed only where the databases truly differ.
"""

import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, Literal

from holdproof.errors import ForbiddenSqlError, QueryError

Dialect = Literal["sqlite", "postgres"]
Kind = Literal["read", "write", "other"]

# What must be skipped as a unit: strings, quoted names, comments, dollar quotes and casts; then the parameters.
_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | :: | :=
      | (?P<end>;) | (?<![\w:]):(?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"\s+|--[^\n]*|/\*.*?\*/", re.DOTALL)
_RETURNS = re.compile(r"\bRETURNING\b", re.IGNORECASE)
# First words allowed in SQL of applications. Nothing about sessions or transactions: those belong to Holdproof.
_ALLOWED = frozenset(
    re.findall(
        r"\w+",
        "ALTER ANALYZE COMMENT CREATE DELETE DROP EXPLAIN INSERT MERGE PRAGMA REINDEX REPLACE SELECT TABLE TRUNCATE"
        " UPDATE VALUES WITH",
    )
)
# What else begins a statement in either database: refused, while any other word is a mistake in writing.
_REFUSED = frozenset(
    re.findall(
        r"\w+",
        "ABORT ATTACH BEGIN CALL CHECKPOINT CLOSE CLUSTER COMMIT COPY DEALLOCATE DECLARE DETACH DISCARD DO END EXECUTE"
        " FETCH GRANT IMPORT LISTEN LOAD LOCK MOVE NOTIFY PREPARE REASSIGN REFRESH RELEASE RESET REVOKE ROLLBACK"
        " SAVEPOINT SECURITY SET SHOW START UNLISTEN VACUUM",
    )
)
_QUOTED = re.compile(r"'(?:[^']|'')*'")
_TEMPORARY = re.compile(r"\b(CREATE(\s+OR\s+REPLACE|\s+LOCAL|\s+GLOBAL)*|INTO)\s+(TEMP|TEMPORARY)\b", re.IGNORECASE)
# Roles belong to the whole server. A login may always change its own settings and password, so rights do not forbid it.
_ROLES = re.compile(r"(ALTER|CREATE|DROP|COMMENT\s+ON)\s+(ROLE|USER|GROUP)\b", re.IGNORECASE)
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
_TABLES = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?!SET\b)([a-z]\w*)", re.IGNORECASE)


class Query:
    """One statement, ready for both databases."""

    __slots__ = ("answers", "bind", "kind", "names", "number", "postgres", "sqlite", "where")

    def __init__(self, sqlite: str, postgres: str, where: str, number: int) -> None:
        self.sqlite, names = numbered(sqlite, "?")
        self.postgres, postgres_names = numbered(postgres, "$")
        self.names: Final = postgres_names if postgres else names
        both = bool(sqlite and postgres)
        assert not both or set(names) == set(postgres_names), "both texts take the same parameters"
        self.kind: Final[Kind] = kind_of(sqlite or postgres)
        assert not both or self.kind == kind_of(postgres), "both texts are of one kind"
        self.answers: Final = self.kind != "write" or bool(_RETURNS.search(sqlite))
        self.where: Final = where
        self.number: Final = number
        self.bind: Final = binder(names)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables it reads and writes, for messages."""
        return tuple(dict.fromkeys(_TABLES.findall(self.sqlite or self.postgres)))

    def __repr__(self) -> str:
        return f"<Query {self.where}: {' '.join((self.sqlite or self.postgres).split())[:80]}>"


def binder(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function from named parameters to the tuple of a statement; a missing one is a KeyError."""
    if not names:
        return lambda _: ()
    if len(names) == 1:
        [name] = names
        return lambda params: (params[name],)
    return itemgetter(*names)


QUERIES: Final[list[Query]] = []
_NAMESPACE: Final = re.compile(r"(?<![\w.+])ns = :ns\b")


def sql(text: str, /, *, postgres: str | None = None) -> Query:
    """Register a query; `postgres` is the text for PostgreSQL where the dialects truly differ."""
    return _register(text, text if postgres is None else postgres)


def sql_by_key(text: str, /) -> Query:
    """Register a query that finds the rows of a namespace by their key, or in the order of it.

    SQLite keeps no statistics: with an index that begins with `ns` it would read and sort the whole namespace.
    """
    return _register(_NAMESPACE.sub("+ns = :ns", text), text)


def sql_postgres(text: str, /) -> Query:
    """Register a query that only runs on PostgreSQL."""
    return _register("", text)


def sql_sqlite(text: str, /) -> Query:
    """Register a query that only runs on SQLite."""
    return _register(text, "")


def _register(sqlite: str, postgres: str) -> Query:
    # The module and line of the constant, two frames up, name the query in errors and in the EXPLAIN test.
    frame = sys._getframe(2)
    where = f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno}"
    query = Query(sqlite, postgres, where, len(QUERIES))
    QUERIES.append(query)
    return query


@lru_cache(maxsize=512)
def numbered(text: str, sign: str) -> tuple[str, tuple[str, ...]]:
    """Return the text with `:name` as `?n` or `$n`, and the names in that order; strings, comments and casts stay."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        name = match["name"]
        return f"{sign}{names.setdefault(name, len(names) + 1)}" if name else match[0]

    return _TOKEN.sub(number, text), tuple(names)


def statements(script: str) -> list[str]:
    """Split a script into its statements, at the semicolons that end one."""
    parts = []
    start = 0
    for match in _TOKEN.finditer(script):
        if match["end"]:
            parts.append(script[start : match.start()])
            start = match.end()
    parts.append(script[start:])
    return [part.strip() for part in parts if _COMMENT.sub("", part)]


def first_word(text: str) -> str:
    """Return the first keyword of a statement in capitals, past white space and comments; empty if there is none."""
    start = 0
    while comment := _COMMENT.match(text, start):
        start = comment.end()
    word = re.match(r"\w+", text[start:])
    return word[0].upper() if word else ""


def refusal(statement: str) -> QueryError | None:
    """Return why SQL of an application may not run: a misspelt first word, or what is not listed; None if it may."""
    word = first_word(statement)
    if word not in _ALLOWED | _REFUSED:
        start = word or statement[:20]
        return QueryError(f"syntax error at {start!r}: a statement begins with a keyword like SELECT or INSERT")
    bare = _COMMENT.sub(" ", _QUOTED.sub("''", statement)).strip()
    match = _TEMPORARY.search(bare) or _ROLES.match(bare)
    if word in _ALLOWED and match is None:
        return None
    keywords = word if match is None else " ".join(match[0].upper().split())
    return ForbiddenSqlError(f"{keywords} is not allowed in SQL of applications", statement=word)


def kind_of(text: str) -> Kind:
    """Classify a statement: it reads, writes rows, or does something else (schema, settings)."""
    word = first_word(text)
    if word in {"INSERT", "UPDATE", "DELETE", "REPLACE"}:
        return "write"
    if word in {"SELECT", "VALUES"}:
        return "read"
    if word == "WITH":
        return "write" if _WRITES.search(text) else "read"
    return "other"
