"""SQL constants: parameters are numbered, everything else is left alone, scripts are split where statements end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.db.sql import QUERIES, Kind, Query, binder, kind_of, numbered, sql, sql_postgres, statements

# What looks like a parameter or an end, and is neither.
UNTOUCHED = {
    "string": "SELECT ':a; it''s :b'",
    "quoted name": 'SELECT ":a;" FROM "t "":b"',
    "line comment": "SELECT 1 -- :a; it's",
    "block comment": "SELECT 1 /* :a;\n it's :b */",
    "dollar quote": "SELECT $$ :a; it's $$",
    "tagged dollar quote": "SELECT $body$ :a; $$ :b $body$",
    "cast": "SELECT x::text, '1'::int",
    "assignment": "SELECT f(a := 1)",
    "slice": "SELECT a[1:n]",
    "colon in a word": "SELECT a:b",
}


@pytest.mark.parametrize("sign", ["?", "$"])
@pytest.mark.parametrize("text", UNTOUCHED.values(), ids=UNTOUCHED)
def test_what_only_looks_like_a_parameter_is_left_alone(text: str, sign: str) -> None:
    assert numbered(text, sign) == (text, ())


@pytest.mark.parametrize("text", UNTOUCHED.values(), ids=UNTOUCHED)
def test_a_parameter_after_what_only_looks_like_one_is_numbered(text: str) -> None:
    assert numbered(f"{text}\n, :real", "$") == (f"{text}\n, $1", ("real",))


@pytest.mark.parametrize(
    ("text", "sqlite", "postgres", "names"),
    [
        ("SELECT :a", "SELECT ?1", "SELECT $1", ("a",)),
        ("SELECT :b, :a, :b", "SELECT ?1, ?2, ?1", "SELECT $1, $2, $1", ("b", "a")),
        ("SELECT :a::text", "SELECT ?1::text", "SELECT $1::text", ("a",)),
        ("SELECT (:a),:b_2", "SELECT (?1),?2", "SELECT ($1),$2", ("a", "b_2")),
        ("SELECT x=:a AND y>:b", "SELECT x=?1 AND y>?2", "SELECT x=$1 AND y>$2", ("a", "b")),
        ("SELECT ':a' || :a", "SELECT ':a' || ?1", "SELECT ':a' || $1", ("a",)),
        ("SELECT f(x := :a)", "SELECT f(x := ?1)", "SELECT f(x := $1)", ("a",)),
        ("SELECT 1", "SELECT 1", "SELECT 1", ()),
    ],
)
def test_parameters_are_numbered_by_first_use(text: str, sqlite: str, postgres: str, names: tuple[str, ...]) -> None:
    assert numbered(text, "?") == (sqlite, names)
    assert numbered(text, "$") == (postgres, names)


@given(st.lists(st.sampled_from([*UNTOUCHED.values(), ":a", ":b", ":c"]), max_size=12))
def test_numbering_finds_exactly_the_parameters_whatever_stands_between(parts: list[str]) -> None:
    text, names = numbered("\n ".join(parts), "$")
    wanted = tuple(dict.fromkeys(part[1:] for part in parts if part.startswith(":")))
    assert names == wanted
    numbers = {name: f"${at}" for at, name in enumerate(wanted, 1)}
    assert text == "\n ".join(numbers.get(part[1:], part) if part.startswith(":") else part for part in parts)


# --- statements ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", UNTOUCHED.values(), ids=UNTOUCHED)
def test_a_semicolon_inside_quotes_or_comments_ends_nothing(text: str) -> None:
    assert statements(f"{text}\n; SELECT 2;") == [text, "SELECT 2"]


@pytest.mark.parametrize("script", ["", " ; ;\n", "-- nothing;\n", "/* nothing; */;"])
def test_a_script_of_nothing_has_no_statements(script: str) -> None:
    assert statements(script) == []


def test_the_last_statement_needs_no_semicolon_and_comments_stay_with_theirs() -> None:
    assert statements("-- one\nCREATE TABLE a (x);\n\nSELECT 1 -- two") == [
        "-- one\nCREATE TABLE a (x)",
        "SELECT 1 -- two",
    ]


def test_a_statement_that_begins_with_a_parenthesis_is_not_lost() -> None:
    assert statements("(SELECT 1) UNION (SELECT 2); SELECT 3") == ["(SELECT 1) UNION (SELECT 2)", "SELECT 3"]


# --- kinds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT 1", "read"),
        ("values (1)", "read"),
        ("  -- insert\n /* update */ select 1", "read"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "read"),
        ("INSERT INTO t VALUES (1)", "write"),
        ("update t SET x = 1", "write"),
        ("/* why */ DELETE FROM t", "write"),
        ("REPLACE INTO t VALUES (1)", "write"),
        ("-- a\n-- b\nWITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", "write"),
        ("WITH x AS (SELECT 1) update t SET y = 1", "write"),
        ("WITH gone AS (DELETE FROM t RETURNING *) SELECT count(*) FROM gone", "write"),
        ("CREATE TABLE t (x)", "other"),
        ("PRAGMA user_version", "other"),
        ("", "other"),
    ],
)
def test_the_kind_of_a_statement_is_seen_past_comments(text: str, kind: Kind) -> None:
    assert kind_of(text) == kind


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("INSERT INTO t VALUES (1)", False),
        ("INSERT INTO t VALUES (1) returning x", True),
        ("UPDATE t SET returning_at = 1", False),
        ("SELECT 1", True),
        ("CREATE TABLE t (x)", True),
    ],
)
def test_a_query_knows_whether_rows_come_back(text: str, answers: bool) -> None:
    assert Query(text, text, "here", 0).answers is answers


# --- constants -------------------------------------------------------------------------------------------------------


def test_both_texts_must_take_the_same_parameters() -> None:
    with pytest.raises(AssertionError, match="same parameters"):
        Query("SELECT :a", "SELECT :b", "here", 0)


def test_both_texts_must_be_of_one_kind() -> None:
    with pytest.raises(AssertionError, match="one kind"):
        Query("SELECT :a", "DELETE FROM t WHERE x = :a", "here", 0)


def test_each_text_numbers_its_parameters_in_its_own_order() -> None:
    query = Query("SELECT :a, :b", "SELECT :b, :a", "here", 0)
    assert (query.sqlite, query.bind({"a": 1, "b": 2})) == ("SELECT ?1, ?2", (1, 2))
    assert (query.postgres, query.names) == ("SELECT $1, $2", ("b", "a"))


def test_a_text_for_postgres_only_leaves_sqlite_empty() -> None:
    before = len(QUERIES)
    try:
        query = sql_postgres("SELECT :a")
        assert (query.sqlite, query.postgres, query.kind) == ("", "SELECT $1", "read")
        assert "SELECT $1" in repr(query)
    finally:
        del QUERIES[before:]


def test_a_constant_is_registered_with_its_place_and_a_number_of_its_own() -> None:
    before = len(QUERIES)
    try:
        one, two = sql("SELECT 1"), sql("SELECT 2", postgres="SELECT 3")
        assert QUERIES[before:] == [one, two]
        assert (one.number, two.number) == (before, before + 1)
        assert one.where.startswith(f"{__name__}:")
        assert (two.sqlite, two.postgres) == ("SELECT 2", "SELECT 3")
    finally:
        del QUERIES[before:]


@pytest.mark.parametrize("names", [(), ("a",), ("a", "b", "c")])
def test_a_binder_gives_a_tuple_in_order_and_misses_nothing(names: tuple[str, ...]) -> None:
    bind = binder(names)
    assert bind({"c": 3, "b": 2, "a": 1}) == tuple(range(1, len(names) + 1))
    if names:
        with pytest.raises(KeyError):
            bind({})


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT a FROM t", ("t",)),
        ("SELECT (SELECT max(x) FROM u) FROM t JOIN u ON u.id = t.id", ("u", "t")),
        ("INSERT INTO t (a) VALUES (:a) ON CONFLICT (a) DO UPDATE SET a = excluded.a", ("t",)),
        ("UPDATE t SET a = :a WHERE b IN (SELECT b FROM u)", ("t", "u")),
        ("DELETE FROM t", ("t",)),
        ("PRAGMA user_version", ()),
    ],
)
def test_a_query_names_its_tables(text: str, tables: tuple[str, ...]) -> None:
    assert Query(text, text, "here", 0).tables == tables
