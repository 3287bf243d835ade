"""Erasing a person from what services store: rows, bytes and files go, a record stays, and no restore undoes it."""

import asyncio
from contextlib import closing
from pathlib import Path

import apsw
import psycopg
import pytest

import holdproof
from holdproof import errors, sql, sync
from holdproof.upkeep import subject_stores
from tests.conformance.racing import together
from tests.store_locations import StoreLocation, submit

NAME, SMALL = "Ada Lovelace", b"the-small-secret-of-ada"
LARGE = b"the-large-secret-of-ada" * 5000
_DUE = sql("SELECT files FROM erasures WHERE files <> '[]'")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    return StoreLocation(tmp_path / "home", url)


def fill(store: sync.Holdproof) -> None:
    store.blobs.put("ada/small", SMALL, subject=NAME)
    store.blobs.open_write("ada/large", [LARGE], subject=NAME)
    store.blobs.put("bob", b"bob", subject="Bob")
    store.blobs.put("nobody", b"nobody")
    session = store.sessions.start_session("script", "hers", subject=NAME)
    store.sessions.log_event(session.id, "said", "cli", "a word of ada")
    store.sessions.start_session("script", "bobs", subject="Bob")
    store.sessions.start_session("script", "nobodys")


def seen(store: sync.Holdproof) -> tuple[list[str], list[str]]:
    return store.blobs.list().items, sorted(each.name for each in store.sessions.list_sessions())


OTHERS = (["bob", "nobody"], ["bobs", "nobodys"])


def holding(folder: Path, *needles: bytes) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path.relative_to(folder)) for path in files if any(each in path.read_bytes() for each in needles)]


def test_blobs_and_sessions_go_with_their_subject_and_the_record_says_so(place: StoreLocation) -> None:
    with place.open() as store:
        fill(store)
        submit(store, "mine", subject=NAME, secret="x")
        made = store.erase.subject(NAME, who="dpo")
        assert made.services == {"blobs": 2, "sessions": 1}
        assert made.to_dict()["services"] == {"blobs": 2, "sessions": 1}
        assert seen(store) == OTHERS
        served, own = store.erase.list().items
        assert (own.id, own.count, served.kind, served.who, served.count) == (made.id, 1, "subject", "dpo", 3)
        assert served.target.startswith("membrane/")
        with pytest.raises(errors.NotFoundError):
            store.erase.subject(NAME)
    place.sound()


def test_somebody_whom_only_services_know_is_erased_too(place: StoreLocation) -> None:
    with place.open() as store:
        fill(store)
        made = store.erase.subject(NAME)
        assert (made.count, made.services) == (3, {"blobs": 2, "sessions": 1})
        assert seen(store) == OTHERS
        assert store.blobs.check() == []
    place.sound()


def test_a_store_that_is_open_for_one_namespace_erases_nothing_of_services(place: StoreLocation) -> None:
    with place.open() as store:
        fill(store)
        for ns in ("main", "far"):
            with pytest.raises(errors.NotFoundError):
                sync.Holdproof(store.core, ns).erase.subject(NAME)
        assert store.erase.subject(NAME).services == {"blobs": 2, "sessions": 1}, "all of it was still there"


def test_nothing_of_them_is_in_any_file(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    with place.open() as store:
        fill(store)
        assert len(holding(place.home, SMALL, LARGE[:100], b"a word of ada")) > 1
        assert store.erase.subject(NAME).remains == ()
        assert holding(place.home, SMALL, LARGE[:100], b"a word of ada", NAME.encode()) == []


def test_the_same_name_is_somebody_new_afterwards(place: StoreLocation) -> None:
    with place.open() as store:
        fill(store)
        store.erase.subject(NAME)
        store.blobs.put("ada/again", b"new", subject=NAME)
        assert store.blobs.get("ada/again") == b"new"
        assert store.erase.subject(NAME).services == {"blobs": 1, "sessions": 0}


def test_bytes_that_another_key_has_too_stay_with_that_key(place: StoreLocation) -> None:
    with place.open() as store:
        store.blobs.put("ada", LARGE, subject=NAME)
        store.blobs.put("everybody", LARGE)
        store.erase.subject(NAME)
        assert (store.blobs.list().items, store.blobs.get("everybody")) == (["everybody"], LARGE)


def test_a_put_says_anew_whose_a_blob_is(place: StoreLocation) -> None:
    with place.open() as store:
        store.blobs.put("k", b"hers", subject=NAME)
        store.blobs.put("k", b"nobodys")
        assert store.erase.subject(NAME).services == {"blobs": 0, "sessions": 0}
        assert store.blobs.get("k") == b"nobodys"


@pytest.mark.parametrize("name", ["", "  ", "x" * 1025, 7])
def test_what_is_no_name_is_refused_before_anything_is_kept(tmp_path: Path, name: str) -> None:
    with sync.open(tmp_path / "home") as store:
        for call in (
            lambda: store.blobs.put("k", LARGE, subject=name),
            lambda: store.blobs.open_write("k", [LARGE], subject=name),
            lambda: store.sessions.start_session("script", "s", subject=name),
        ):
            with pytest.raises(errors.InvalidInputError):
                call()
        assert seen(store) == ([], [])


def test_an_erasure_that_a_crash_broke_off_is_done_at_the_next_opening(
    place: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> list[str]:
        raise KeyboardInterrupt

    with place.open() as store:
        fill(store)
        with monkeypatch.context() as patch:
            patch.setattr(subject_stores, "erase", crash)
            with pytest.raises(KeyboardInterrupt):
                store.erase.subject(NAME)
        assert store.read(lambda tx: tx.all(_DUE)) != []
        assert len(seen(store)[0]) == 4
    with place.open() as store:
        assert seen(store) == OTHERS
        assert store.read(lambda tx: tx.all(_DUE)) == []
    place.sound()


def test_an_opening_goes_on_where_services_cannot_be_reached(
    place: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> list[str]:
        raise errors.UnreachableError("no bucket today")

    with place.open() as store:
        fill(store)
        with monkeypatch.context() as patch:
            patch.setattr(subject_stores, "erase", away)
            with pytest.raises(errors.UnreachableError):
                store.erase.subject(NAME)
    with monkeypatch.context() as patch:
        patch.setattr(subject_stores, "erase", away)
        place.open().close()
    with place.open() as store:
        assert seen(store) == OTHERS


def test_an_erasure_that_the_database_resists_ends_and_the_store_opens(place: StoreLocation) -> None:
    with place.open() as store:
        fill(store)
        for table in ("blobs", "cli_sessions", "service_subjects"):
            _resist(place, table)
        with pytest.raises(errors.DatabaseError, match="triggers"):
            store.erase.subject(NAME)
    with place.open() as store:
        assert store.read(lambda tx: tx.all(_DUE)) != []
        store.write(lambda tx: tx.notify("still writing"))


def _resist(place: StoreLocation, table: str) -> None:
    """Add a trigger that keeps every row of a table; as the owner of the database could, SQL of applications cannot."""
    url = place.url
    if url is None:
        with closing(apsw.Connection(str(Path(place.home, "membrane.db")))) as connection:
            connection.execute(f"CREATE TRIGGER keep_{table} BEFORE DELETE ON {table} BEGIN SELECT RAISE(IGNORE); END")
        return
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(
            "CREATE OR REPLACE FUNCTION public.keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
        )
        trigger = f"CREATE TRIGGER keep BEFORE DELETE ON membrane.{table} FOR EACH ROW"
        owner.execute(f"{trigger} EXECUTE FUNCTION public.keep()".encode())


def test_no_record_makes_another_subject_go(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    forge = sql("UPDATE erasures SET files = :files")
    with place.open() as store:
        fill(store)
        store.erase.subject(NAME)
        [bob] = subject_stores.find(store.core.context, "Bob")
        store.write(lambda tx: tx.execute(forge, files=f'["membrane/{bob.handle}"]'))
    with place.open() as store:
        assert seen(store) == OTHERS


def test_a_restore_of_an_older_backup_erases_again(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        fill(store)
    made = place.backup(tmp_path / "backups")
    with place.open() as store:
        store.erase.subject(NAME)
    place.restore(Path(made.path))
    with place.open() as store:
        assert seen(store) == OTHERS
        assert store.blobs.check() == []
    place.sound()


def test_racing_puts_are_erased_or_belong_to_somebody_new(place: StoreLocation) -> None:
    with place.open() as store:
        fill(store)

        def act(number: int) -> str:
            if number == 0:
                store.erase.subject(NAME)
            else:
                store.blobs.put(f"race/{number}", LARGE if number % 2 else SMALL, subject=NAME)
            return "done"

        together(8, act)
        left = [key for key in store.blobs.list(limit=1_000) if key.startswith(("race/", "ada/"))]
        if left:
            assert store.erase.subject(NAME).services["blobs"] == len(left)
        assert seen(store) == OTHERS
        assert store.blobs.check() == []


def test_a_store_in_memory_is_erased_on_both_faces() -> None:
    async def act() -> None:
        async with holdproof.open(url=":memory:") as store:
            await store.blobs.put("k", SMALL, subject=NAME)
            await store.sessions.start_session("script", "hers", subject=NAME)
            made = await store.erase.subject(NAME)
            assert made.services == {"blobs": 1, "sessions": 1}
            blobs, sessions = await store.blobs.list(), await store.sessions.list_sessions()
            assert (blobs.items, sessions.items) == ([], [])

    asyncio.run(act())
    with sync.open(url=":memory:") as store:
        store.blobs.put("k", SMALL, subject=NAME)
        assert store.erase.subject(NAME).services == {"blobs": 1, "sessions": 0}
        assert store.blobs.list().items == []
