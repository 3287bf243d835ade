"""Memory under attack: whatever is changed behind Holdproof's back, verify names it."""

from pathlib import Path

import pytest

from harness.attacks import MEMORY
from harness.filling import remember
from harness.raw_access import attack, attack_server, behind, copy
from holdproof import errors, sync
from holdproof.crypto import cid as cids
from holdproof.memory.objects import commits
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("memory") / "home"
    with sync.open(home) as store:
        remember(store)
    assert sync.verify(home, full=True, lock=False).findings == []
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return copy(template, tmp_path / "home")


def found(home: Path, url: str | None = None) -> list[Finding]:
    return [each for each in sync.verify(home, url, lock=False).findings if each.verdict.locks]


def test_a_flipped_byte_in_any_block_is_named(home: Path) -> None:
    with behind(home) as connection:
        places = [row[0] for row in connection.execute("SELECT rowid FROM objects")]
        for place in places[:: max(1, len(places) // 25)]:
            row = connection.execute("SELECT h, data FROM objects WHERE rowid = ?", (place,)).fetchall()[0]
            raw, data = (bytes(each) for each in row if isinstance(each, bytes))
            edited = data[:-1] + bytes([data[-1] ^ 1])
            connection.execute("UPDATE objects SET data = ? WHERE rowid = ?", (edited, place))
            connection.pragma("wal_checkpoint(truncate)")
            named = {each.row for each in found(home) if each.table == "objects"}
            assert str(cids.parse(raw)) in named
            connection.execute("UPDATE objects SET data = ? WHERE rowid = ?", (data, place))


def test_a_block_that_was_removed_is_named(home: Path) -> None:
    with behind(home) as connection:
        blocks = connection.execute("SELECT rowid, h, data FROM objects ORDER BY rowid").fetchall()
        for place, raw, data in blocks[:: len(blocks) // 20]:
            connection.execute("DELETE FROM objects WHERE rowid = ?", (place,))
            findings = found(home)
            assert findings, "something needs it"
            connection.execute("INSERT INTO objects (rowid, h, data) VALUES (?, ?, ?)", (place, raw, data))


def test_a_block_under_another_name_is_named(home: Path) -> None:
    with behind(home) as connection:
        rows = connection.execute("SELECT h, data FROM objects LIMIT 2").fetchall()
        (one, first), (two, second) = ([bytes(each) for each in row if isinstance(each, bytes)] for row in rows)
        connection.execute("UPDATE objects SET data = ? WHERE h = ?", (second, one))
        connection.execute("UPDATE objects SET data = ? WHERE h = ?", (first, two))
    assert {str(cids.parse(raw)) for raw in (one, two)} <= {each.row for each in found(home)}


@pytest.mark.parametrize("name", MEMORY)
def test_an_edited_row_is_found(home: Path, name: str) -> None:
    attack(home, MEMORY[name])
    table = MEMORY[name].replace("INTO ", "UPDATE ").replace("FROM ", "UPDATE ").split("UPDATE ")[1].split()[0]
    expected = {"object_index", "object_text", table} if table.startswith("object_") else {table}
    assert expected & {each.table for each in found(home)}


def test_words_that_were_never_written_are_no_tampering_but_said(home: Path) -> None:
    attack(home, "DELETE FROM object_text")
    with sync.open(home) as store:
        said = store.verify.run(full=True)
        assert said.verdict == Verdict.VALID
        assert [each for each in said.not_checked if "reindex" in each]
        assert store.objects.search("content") == ()
        assert store.objects.reindex() == len(store.objects.list().items)
        assert not [each for each in store.verify.run(full=True).not_checked if "reindex" in each]
        assert [each.id for each in store.objects.search("content 6")] == ["o06"]


def test_a_damaged_object_is_refused_when_it_is_read(home: Path) -> None:
    with sync.open(home) as store:
        cid = commits.parse(store.objects.get("o05").cid)
    with behind(home) as connection:
        connection.execute("UPDATE objects SET data = CAST('x' AS BLOB) WHERE h = ?", (cid.raw,))
    with sync.open(home) as store:
        with pytest.raises(errors.ProofError):
            store.objects.get("o05")
        assert store.objects.get("o06").content == "content 6"


def test_tampering_with_memory_locks_the_store(home: Path) -> None:
    attack(home, MEMORY["an older root"])
    assert sync.verify(home, lock=True).locked
    with sync.open(home) as store, pytest.raises(errors.LockedError):
        store.objects.put("a", type="t")


def test_a_flipped_byte_on_a_server_is_named(tmp_path: Path, postgres_url: str) -> None:
    home = tmp_path / "home"
    with sync.open(home, postgres_url) as store:
        remember(store)
        cid = commits.parse(store.objects.get("o05").cid)
    assert found(home, postgres_url) == []
    flip = "set_byte(data, 0, get_byte(data, 0) # 1)"
    attack_server(postgres_url, f"UPDATE objects SET data = {flip} WHERE h = decode('{cid.raw.hex()}', 'hex')")
    assert str(cid) in {each.row for each in found(home, postgres_url)}


SEARCH_LIES = {
    "words removed": "INSERT INTO object_search (object_search, rowid, body)"
    " SELECT 'delete', id, body FROM object_text WHERE key = 'o07'",
    "all words removed": "INSERT INTO object_search (object_search, rowid, body)"
    " SELECT 'delete', id, body FROM object_text",
    "foreign words added": "INSERT INTO object_search (rowid, body)"
    " SELECT id, 'forged' FROM object_text WHERE key = 'o07'",
    "another ranking": "INSERT INTO object_search (object_search, rank) VALUES ('rank', 'bm25(0.0)')",
}


@pytest.mark.parametrize("name", SEARCH_LIES)
def test_a_text_search_that_lies_while_rows_are_intact_is_found(home: Path, name: str) -> None:
    attack(home, SEARCH_LIES[name])
    assert {each.table for each in sync.verify(home, full=True, lock=False).findings} == {"object_search"}
