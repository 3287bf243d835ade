"""What every blob store must do, wherever its bytes lie: the suite a store passes with a few lines.

Subclass `BlobSuite` in a test module and define `open`; it is called once a test, inside its event loop, and gives a
store that is empty at the start of each test. Where a test can get at the bytes behind the store's back, define `alter`
and `lose` too.
"""

import asyncio
from abc import ABC, abstractmethod
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256

import pytest

from holdproof.errors import BlobCorruptError, BlobKeyError, InvalidInputError, NotFoundError
from holdproof.storage.stores import BlobStore
from holdproof.testing.clocks import SeededRandom

SMALL = b"small"
LARGE = bytes(range(256)) * 400
# Around the limits of a row, a piece and a chunk of a stream.
SIZES = (0, 1, 4096, 32 << 10, (32 << 10) + 1, (1 << 20) + 7)
# Each is a way out of a folder, or a name that some backend cannot store.
NO_KEYS = {
    "nothing": "",
    "parent": "..",
    "inside": "a/../b",
    "outside": "../../etc/passwd",
    "here": "./a",
    "absolute": "/etc/passwd",
    "two slashes": "a//b",
    "slash at the end": "a/",
    "backslash": "..\\a",
    "drive": "C:/a",
    "NUL": "a\0b",
    "control": "a\nb",
    "escape": "a\x1b[2Jb",
    "delete": "a\x7f",
    "no Unicode": "a\ud800",
    "too long": "/".join(["x" * 100] * 11),
    "too long a part": "x" * 256,
    "device": "nul",
    "device with an ending": "a/CON.txt",
    "ours": ".holdproof/a",
    "blank": "a/ /b",
}
NAMES = (
    "a",
    "a/b/c.txt",
    "backups/2026.bak",
    "notes.meta",
    "x.tmp",
    ".hidden",
    "..a",
    "a..b",
    "Ünï/cödé 中",
    "with space",
    "%2e%2e",
    "x" * 255,
)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    """A stream of these parts."""
    for part in parts:
        yield part


async def gathered(stream: AsyncIterator[bytes]) -> bytes:
    """Everything a stream gives."""
    return b"".join([piece async for piece in stream])


class BlobSuite(ABC):
    """One claim a test."""

    @abstractmethod
    def open(self) -> BlobStore:
        """The test's store."""

    def alter(self, key: str) -> None:
        """Change a bit of a blob behind the store's back."""
        pytest.skip(f"nobody can get at the bytes of {key} from here")

    def lose(self, key: str) -> None:
        """Remove the bytes of a blob behind the store's back."""
        pytest.skip(f"nobody can get at the bytes of {key} from here")

    def play(self, act: Callable[[BlobStore], Awaitable[None]]) -> None:
        """Open the store, do this with it, close it twice."""

        async def run() -> None:
            store = self.open()
            assert isinstance(store, BlobStore)
            try:
                await act(store)
            finally:
                await store.close()
                await store.close()

        asyncio.run(run())

    # --- one blob -------------------------------------------------------------------------------------------------

    def test_what_is_put_comes_back_whatever_its_size(self) -> None:
        async def act(store: BlobStore) -> None:
            for size in SIZES:
                data = sha256(str(size).encode()).digest() * (size // 32 + 1)
                where = await store.put(f"size/{size}", data[:size], "application/octet-stream")
                assert where
                assert await store.get(f"size/{size}") == data[:size]
                assert await gathered(store.open_read(f"size/{size}")) == data[:size]
            assert (await store.list("size/")).items == sorted(f"size/{size}" for size in SIZES)

        self.play(act)

    def test_what_is_not_there_is_none_false_or_not_found(self) -> None:
        async def act(store: BlobStore) -> None:
            assert await store.get("no") is None
            assert await store.exists("no") is False
            assert await store.delete("no") is False
            assert (await store.list()).items == []
            with pytest.raises(NotFoundError):
                await gathered(store.open_read("no"))

        self.play(act)

    def test_a_key_has_its_newest_bytes_small_or_large(self) -> None:
        async def act(store: BlobStore) -> None:
            for data in (SMALL, LARGE, LARGE[::-1], SMALL, LARGE, LARGE):
                await store.put("k", data)
                assert await store.get("k") == data
            assert (await store.list()).items == ["k"]

        self.play(act)

    def test_a_deleted_key_is_gone_and_can_be_put_again(self) -> None:
        async def act(store: BlobStore) -> None:
            for data in (SMALL, LARGE):
                for _ in range(2):
                    await store.put("k", data)
                    assert await store.exists("k") is True
                    assert await store.delete("k") is True
                    assert await store.delete("k") is False
                    assert await store.get("k") is None

        self.play(act)

    def test_equal_bytes_under_two_keys_do_not_share_their_fate(self) -> None:
        async def act(store: BlobStore) -> None:
            for data in (SMALL, LARGE):
                for key in ("one", "two"):
                    await store.put(key, data)
                await store.delete("one")
                assert await store.get("two") == data
                await store.put("two", data + b"!")
                await store.put("one", data)
                assert (await store.get("one"), await store.get("two")) == (data, data + b"!")

        self.play(act)

    def test_what_is_not_bytes_is_refused(self) -> None:
        async def act(store: BlobStore) -> None:
            with pytest.raises(InvalidInputError):
                await store.put("k", "text")  # type: ignore[arg-type]
            with pytest.raises(InvalidInputError):
                await store.put("k", SMALL, "text/plain\r\nX-Evil: 1")
            assert await store.exists("k") is False
            with pytest.raises(InvalidInputError):
                await store.list(None)  # type: ignore[arg-type]

        self.play(act)

    @pytest.mark.parametrize("size", [1_000, 20_000, 100_000])
    def test_a_view_is_the_bytes_it_shows_whatever_it_counts_in(self, size: int) -> None:
        async def act(store: BlobStore) -> None:
            wide = memoryview(array("I", range(size)))
            for view in (wide, memoryview(bytes(range(256)) * size)[::3], wide[:0], memoryview(wide.tobytes())):
                await store.put("k", view)  # type: ignore[arg-type]
                assert await store.get("k") == view.tobytes()

        self.play(act)

    # --- keys -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("key", NO_KEYS.values(), ids=NO_KEYS)
    def test_a_key_that_is_no_name_is_refused_everywhere(self, key: str) -> None:
        async def act(store: BlobStore) -> None:
            for call in (
                lambda: store.put(key, SMALL),
                lambda: store.put(key, LARGE),
                lambda: store.open_write(key, pieces(LARGE)),
                lambda: store.get(key),
                lambda: store.exists(key),
                lambda: store.delete(key),
                lambda: gathered(store.open_read(key)),
            ):
                with pytest.raises(BlobKeyError):
                    await call()
            assert (await store.list()).items == []

        self.play(act)

    def test_odd_names_are_names(self) -> None:
        async def act(store: BlobStore) -> None:
            for name in NAMES:
                await store.put(name, name.encode())
            assert (await store.list()).items == sorted(NAMES)
            for name in NAMES:
                assert await store.get(name) == name.encode()

        self.play(act)

    def test_a_prefix_is_the_beginning_of_a_text_not_a_folder(self) -> None:
        async def act(store: BlobStore) -> None:
            for key in ("backups/a", "backups/b", "ball", "b", "c", "notes.meta", "a_c", "aXc", "a%c"):
                await store.put(key, SMALL)
            assert (await store.list("ba")).items == ["backups/a", "backups/b", "ball"]
            assert (await store.list("backups/")).items == ["backups/a", "backups/b"]
            assert (await store.list("b")).items == ["b", "backups/a", "backups/b", "ball"]
            assert (await store.list("n")).items == ["notes.meta"], "a name like any other"
            assert (await store.list("a_")).items == ["a_c"], "no pattern"
            assert (await store.list("a%")).items == ["a%c"]
            assert (await store.list("B")).items == []
            for never in ("../", "/", "\0", "\ud800", "b" * 3000):
                assert (await store.list(never)).items == []

        self.play(act)

    def test_thousands_of_keys_are_listed_in_order(self) -> None:
        async def act(store: BlobStore) -> None:
            keys = [f"k/{number:05}" for number in range(2_500)]
            await asyncio.gather(*(store.put(key, b"") for key in reversed(keys)))
            await store.put("l", b"")
            for prefix, expected in (("k/", keys), ("", [*keys, "l"])):
                listed: list[str] = []
                page = await store.list(prefix, limit=1_000)
                while page.next_cursor is not None:
                    listed += page.items
                    page = await store.list(prefix, cursor=page.next_cursor, limit=1_000)
                assert [*listed, *page.items] == expected
            assert (await store.list("k/")).items == keys[:100]

        self.play(act)

    # --- streams --------------------------------------------------------------------------------------------------

    def test_a_stream_may_come_in_pieces_of_any_size(self) -> None:
        async def act(store: BlobStore) -> None:
            for parts in ([], [b""], [SMALL], [b"", SMALL, b"", SMALL], [LARGE] * 40, [b"x"] * 50_000):
                await store.open_write("k", pieces(*parts), "text/plain")
                assert await store.get("k") == b"".join(parts)

        self.play(act)

    @pytest.mark.parametrize("before", [None, SMALL, LARGE], ids=["new", "small", "large"])
    @pytest.mark.parametrize("sent", [1, 40], ids=["at the beginning", "late"])
    def test_a_stream_that_breaks_off_leaves_what_was_there(self, before: bytes | None, sent: int) -> None:
        async def broken() -> AsyncIterator[bytes]:
            for _ in range(sent):
                yield LARGE
            raise ConnectionResetError("the line is dead")

        async def act(store: BlobStore) -> None:
            if before is not None:
                await store.put("k", before)
            with pytest.raises(ConnectionResetError):
                await store.open_write("k", broken())
            assert await store.get("k") == before

        self.play(act)

    def test_a_stream_of_something_else_is_refused(self) -> None:
        async def act(store: BlobStore) -> None:
            with pytest.raises(InvalidInputError):
                await store.open_write("k", pieces(LARGE, "text"))  # type: ignore[arg-type]
            assert await store.exists("k") is False

        self.play(act)

    def test_reading_may_stop_early(self) -> None:
        async def act(store: BlobStore) -> None:
            data = LARGE * 40
            await store.put("k", data)
            stream = store.open_read("k")
            first = await anext(stream)
            assert data.startswith(first)
            assert first != data
            await stream.aclose()  # type: ignore[attr-defined]
            assert await store.get("k") == data

        self.play(act)

    def test_a_cancelled_write_leaves_what_was_there(self) -> None:
        async def slow(started: asyncio.Event) -> AsyncIterator[bytes]:
            yield LARGE * 20
            started.set()
            await asyncio.sleep(60)

        async def act(store: BlobStore) -> None:
            await store.put("k", SMALL)
            # Cancel only once bytes have arrived: before that there is nothing to clean up.
            started = asyncio.Event()
            task = asyncio.ensure_future(store.open_write("k", slow(started)))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await store.get("k") == SMALL

        self.play(act)

    # --- many at once ---------------------------------------------------------------------------------------------

    def test_whoever_writes_a_key_at_the_same_time_one_of_them_is_read_whole(self) -> None:
        async def act(store: BlobStore) -> None:
            versions = [bytes([number]) * size for number in range(8) for size in (100, 60_000)]
            await asyncio.gather(*(store.put("k", version) for version in versions))
            assert await store.get("k") in versions
            assert (await store.list()).items == ["k"]

        self.play(act)

    def test_readers_see_whole_versions_while_writers_replace_them(self) -> None:
        async def act(store: BlobStore) -> None:
            await store.put("k", LARGE)
            versions = {bytes([number]) * 50_000 for number in range(6)} | {LARGE, SMALL}

            async def write() -> None:
                for version in versions:
                    await store.put("k", version)

            async def read() -> None:
                for _ in range(8):
                    assert await store.get("k") in versions
                    assert await gathered(store.open_read("k")) in versions

            await asyncio.gather(write(), read(), read())

        self.play(act)

    def test_equal_bytes_can_be_put_while_others_delete_them(self) -> None:
        async def act(store: BlobStore) -> None:
            async def churn(key: str) -> None:
                for _ in range(6):
                    await store.put(key, LARGE)
                    assert await store.get(key) == LARGE
                    await store.delete(key)
                await store.put(key, LARGE)

            await asyncio.gather(*(churn(f"k{number}") for number in range(4)))
            for number in range(4):
                assert await store.get(f"k{number}") == LARGE

        self.play(act)

    # --- damage ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("data", [SMALL, LARGE, LARGE * 40], ids=["small", "large", "in pieces"])
    def test_altered_bytes_are_an_error_that_names_the_key(self, data: bytes) -> None:
        async def act(store: BlobStore) -> None:
            await store.put("sound", data)
            await store.put("altered", data[::-1])
            self.alter("altered")
            with pytest.raises(BlobCorruptError) as caught:
                await store.get("altered")
            assert caught.value.fields["key"] == "altered"
            with pytest.raises(BlobCorruptError):
                await gathered(store.open_read("altered"))
            assert await store.get("sound") == data
            await store.put("altered", data[::-1])
            assert await store.get("altered") == data[::-1], "putting it again mends it"

        self.play(act)

    def test_lost_bytes_are_an_error_not_an_absent_key(self) -> None:
        async def act(store: BlobStore) -> None:
            await store.put("lost", LARGE)
            self.lose("lost")
            with pytest.raises(BlobCorruptError) as caught:
                await store.get("lost")
            assert caught.value.fields == {"key": "lost", "what": "missing", "place": caught.value.fields["place"]}
            with pytest.raises(BlobCorruptError):
                await gathered(store.open_read("lost"))
            assert await store.exists("lost") is True
            assert await store.delete("lost") is True

        self.play(act)

    # --- all of it ------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("seed", range(3))
    def test_any_sequence_of_calls_does_what_a_dict_does(self, seed: int) -> None:
        keys = ("a", "a/b", "ab", "b")
        calls = ("put", "write", "delete", "list")
        sizes = (0, 10, 40_000)

        async def act(store: BlobStore) -> None:
            model: dict[str, bytes] = {}
            # Four random bytes make one call.
            choices = SeededRandom(seed)(4 * 60)
            for call, key, size, fill in zip(*[iter(choices)] * 4, strict=True):
                data = bytes([fill % 3]) * sizes[size % 3]
                await _step(store, model, calls[call % 4], keys[key % 4], data)
            for name in keys:
                assert await store.get(name) == model.get(name)

        self.play(act)


async def _step(store: BlobStore, model: dict[str, bytes], operation: str, key: str, data: bytes) -> None:
    if operation == "put":
        await store.put(key, data)
        model[key] = data
    elif operation == "write":
        await store.open_write(key, pieces(data[:7], data[7:]))
        model[key] = data
    elif operation == "delete":
        assert await store.delete(key) is (model.pop(key, None) is not None)
    else:
        assert (await store.list(key)).items == sorted(each for each in model if each.startswith(key))
