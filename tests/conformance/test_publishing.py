"""The log as files: a stranger checks it over plain HTTP, however often and from wherever it was published."""

import functools
import http.server
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import obstore
import pytest
from click.testing import CliRunner

from harness import tiles as reader
from harness.filling import settled
from harness.servers import Seaweed
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.crypto import checkpoint, merkle, note, tiles, vkey
from holdproof.crypto.tiles import Tile
from holdproof.upkeep.publishing import targets
from tests.conformance.store_backends import StoreOnPostgres, StoreOnSqlite

Fetch = Callable[[str], bytes]


@contextmanager
def served(folder: Path) -> Iterator[Fetch]:
    """The folder behind a plain web server, and how to ask it."""
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}", trust_env=False) as client:
            yield lambda path: client.get(f"/{path}").raise_for_status().content
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def audit(fetch: Fetch, keys: list[str]) -> list[bytes]:
    """What a stranger does with the log's key: every entry is under the signed head. The entries."""
    head = checkpoint.parse(fetch("checkpoint"))
    assert note.verify(head.note, [*map(vkey.parse, keys)])
    size = head.checkpoint.size
    entries: list[bytes] = []
    for bundle in reader.bundles_of(size):
        entries += reader.decode_bundle(fetch(bundle.path), bundle.width)
    assert merkle.root([merkle.leaf_hash(entry) for entry in entries]) == head.checkpoint.root

    def tile_of(tile: Tile) -> bytes:
        return fetch(tile.path)

    for tile in reader.tiles_of(size):
        assert len(fetch(tile.path)) == 32 * tile.width
    proof = tiles.prove_inclusion(size // 2, size, tile_of)
    merkle.verify_inclusion(merkle.leaf_hash(entries[size // 2]), size // 2, size, proof, head.checkpoint.root)
    return entries


def write(store: sync.Holdproof, count: int) -> None:
    """So many flows, under a signed head."""
    for _ in range(count):
        store.flows.start("trader")
    settled(store)


def of(folder: Path) -> dict[str, bytes]:
    """Every file that is there, by its path."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


class Publishing(StoreOnSqlite):
    def test_a_stranger_checks_every_entry_over_plain_http(self, tmp_path: Path) -> None:
        with self.open() as store:
            store.agents.register("trader", version="1.0.0")
            keys = store.log.verifier_keys()
            sizes = [0]
            for count in (1, 100, 250, 1):
                write(store, count)
                published = store.log.publish(tmp_path / "www")
                assert published.size_before == sizes[-1]
                sizes.append(published.size)
                with served(tmp_path / "www") as fetch:
                    assert len(audit(fetch, keys)) == published.size
            before = of(tmp_path / "www")
            again = store.log.publish(tmp_path / "www")
            assert (again.files, again.size_before) == (0, again.size)
            assert of(tmp_path / "www") == before
        names = before.keys()
        assert not [each for each in names if each.startswith("tile/0/000.p")], "a full tile leaves no partial ones"
        assert {each.stat().st_mode & 0o004 for each in (tmp_path / "www").rglob("*")} == {0o004}

    def test_folders_above_that_it_creates_can_be_entered_by_a_stranger(self, tmp_path: Path) -> None:
        with self.open() as store:
            store.agents.register("trader", version="1.0.0")
            store.log.publish(tmp_path / "www" / "logs" / "shop")
        made = (tmp_path / "www", tmp_path / "www" / "logs", tmp_path / "www" / "logs" / "shop")
        assert [each.stat().st_mode & 0o777 for each in made] == [0o755] * 3

    def test_everybody_may_read_it_whatever_the_umask_and_nothing_is_written_through_a_link(
        self, tmp_path: Path
    ) -> None:
        www = tmp_path / "www"
        victim = tmp_path / "victim"
        victim.write_text("theirs")
        with self.open() as store:
            store.agents.register("trader", version="1.0.0")
            before = os.umask(0o077)
            try:
                store.log.publish(www)
            finally:
                os.umask(before)
            assert {each.stat().st_mode & 0o777 for each in www.rglob("*") if each.is_file()} == {0o644}
            (www / ".checkpoint.new").symlink_to(victim)
            write(store, 3)
            with pytest.raises(errors.UnavailableError):
                store.log.publish(www)
        assert victim.read_text() == "theirs"

    def test_a_run_that_is_killed_leaves_the_earlier_log_and_the_next_completes_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.open() as store:
            store.agents.register("trader", version="1.0.0")
            keys = store.log.verifier_keys()
            write(store, 300)
            first = store.log.publish(tmp_path / "www")
            write(store, 300)
            put = targets.LogFolder.put
            for most in range(5):
                calls: list[str] = []

                def cut(self: targets.LogFolder, path: str, data: bytes, most: int = most, calls: Any = calls) -> None:
                    if len(calls) == most:
                        raise KeyboardInterrupt
                    calls.append(path)
                    put(self, path, data)

                monkeypatch.setattr(targets.LogFolder, "put", cut)
                with pytest.raises(KeyboardInterrupt):
                    store.log.publish(tmp_path / "www")
                with served(tmp_path / "www") as fetch:
                    assert len(audit(fetch, keys)) == first.size
            monkeypatch.setattr(targets.LogFolder, "put", put)
            last = store.log.publish(tmp_path / "www")
            with served(tmp_path / "www") as fetch:
                assert len(audit(fetch, keys)) == last.size > first.size

    def test_publishing_at_once_ends_with_the_newest_log(self, tmp_path: Path) -> None:
        with self.open() as store:
            store.agents.register("trader", version="1.0.0")
            write(store, 50)
            threads = [threading.Thread(target=store.log.publish, args=(tmp_path / "www",)) for _ in range(4)]
            for thread in threads:
                thread.start()
            write(store, 20)
            for thread in threads:
                thread.join()
            last = store.log.publish(tmp_path / "www")
            with served(tmp_path / "www") as fetch:
                assert len(audit(fetch, store.log.verifier_keys())) == last.size

    def test_what_this_log_does_not_continue_is_not_written_over(self, tmp_path: Path) -> None:
        www = tmp_path / "www"
        with self.open() as store:
            store.agents.register("trader", version="1.0.0")
            write(store, 3)
            store.log.publish(www)
            head = (www / "checkpoint").read_bytes()
            origin, size, *rest = head.decode().split("\n")
            for text, error in (
                ("nothing of ours", errors.ConflictError),
                ("\n".join(["elsewhere", size, *rest]), errors.ConflictError),
                ("\n".join([origin, str(int(size) + 1), *rest]), errors.ProofError),
                ("\n".join([origin, str(int(size) - 1), *rest]), errors.ProofError),
            ):
                (www / "checkpoint").write_text(text)
                before = of(www)
                with pytest.raises(error) as caught:
                    store.log.publish(www)
                assert str(www) in caught.value.message
                assert of(www) == before
            (www / "checkpoint").write_bytes(bytes(1 << 20))
            with pytest.raises(errors.ConflictError, match="something else"):
                store.log.publish(www)
            for where in ("ftp://somewhere", "s3://", "s3://bucket/../logs"):
                with pytest.raises(errors.InvalidInputError, match="s3://bucket/folder"):
                    store.log.publish(where)
            with pytest.raises(errors.InvalidInputError, match="AWS_") as refused:
                store.log.publish("s3://AKIA1234:s3cr3t@public/logs")
            assert "s3cr3t" not in str(refused.value.to_dict())
            (tmp_path / "file").write_text("x")
            with pytest.raises(errors.HoldproofError):
                store.log.publish(tmp_path / "file" / "log")


class TestPublishingOnSqlite(Publishing):
    pass


class TestPublishingOnPostgres(Publishing, StoreOnPostgres):
    pass


def test_a_bucket_serves_the_log_and_refuses_the_slower_of_two(
    tmp_path: Path, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("access_key_id", "secret_access_key", "region"):
        monkeypatch.setenv(f"AWS_{name.upper()}", seaweed.options[name])
    monkeypatch.setenv("AWS_ENDPOINT_URL", seaweed.endpoint)
    where = "s3://public/logs/shop"
    with sync.open(tmp_path / "home") as store:
        store.agents.register("trader", version="1.0.0")
        write(store, 100)
        first = store.log.publish(where)
        write(store, 200)
        last = store.log.publish(where)
        assert (first.size, last.size_before) == (last.size_before, first.size)
        # A path object has one slash of the two, and is the same place.
        assert store.log.publish(Path(where)).files == 0
        with targets.opened(where) as target:
            seen = target.checkpoint()
            assert seen is not None
            with pytest.raises(errors.ConflictError, match="meanwhile"):
                target.swap(b"x", None)
            target.swap(seen.data, seen)

            def fetch(path: str) -> bytes:
                return obstore.get(target._store, path).bytes().to_bytes()  # type: ignore[attr-defined]

            assert len(audit(fetch, store.log.verifier_keys())) == last.size
            obstore.put(target._store, "checkpoint", bytes(1 << 20))  # type: ignore[attr-defined]
            with pytest.raises(errors.ConflictError, match="something else"):
                store.log.publish(where)


def test_the_command_line_publishes(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        done = CliRunner().invoke(app, ["--home", str(tmp_path / "home"), *words])
        assert done.exit_code == 0, done.output
        return done.output

    run("agents", "register", "trader", "--version", "1.0.0")
    assert "size" in run("log", "publish", str(tmp_path / "www"))
    assert (tmp_path / "www" / "checkpoint").exists()
