"""Witnesses, both sides: a log that asks, on every backend, and a witness that never cosigns two histories."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from harness import witnesses
from harness.filling import submit
from harness.witnesses import NAME, made, serving
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.crypto import checkpoint, keys, merkle, tlog_proof, vkey, witness
from holdproof.crypto.checkpoint import LogCheckpoint
from holdproof.crypto.vkey import VerifierKey
from holdproof.crypto.witness import AddCheckpoint
from holdproof.db import sql
from holdproof.evidence import log, witness_server
from holdproof.evidence.witness_server import Cosigner, WitnessState
from holdproof.model.verdicts import Verdict
from tests.conformance import logs
from tests.conformance.logs import check, put, put_many, settle


class WitnessSuite(logs.OnSqlite):
    """What a log gets from its witnesses."""

    def test_a_head_is_cosigned_and_proofs_verify_with_the_quorum(self, tmp_path: Path) -> None:
        with self.open() as store:
            handle = store.write(put)
            settle(store)
            served = made(store, tmp_path / "witness.json")
            with serving(served) as url:
                cosigned = witnesses.cosign(store, url, key=served.key.encode())
                assert (cosigned.size, cosigned.witness) == (store.log.head().checkpoint.size, NAME)
                head = checkpoint.parse(cosigned.head.encode())
                proof = store.log.prove(handle)
                seen = tlog_proof.verify(
                    tlog_proof.TlogProof(proof.index, proof.proof, head, proof.extra),
                    merkle.leaf_hash(proof.extra),
                    origin=cosigned.origin,
                    log_keys=store.read(log.verifiers),
                    witnesses=[served.key],
                    quorum=1,
                )
                assert [each.key for each in seen] == [served.key]
                for amount in (1, 300, 0, 5):
                    store.write(partial(put_many, count=amount))
                    settle(store)
                    assert witnesses.cosign(store, url).size == store.log.head().checkpoint.size
            check(store)

    def test_a_witness_may_cosign_with_ml_dsa(self, tmp_path: Path) -> None:
        with self.open() as store:
            store.write(put)
            settle(store)
            served = made(store, tmp_path / "witness.json", alg="ml-dsa-44")
            with serving(served) as url:
                witnesses.cosign(store, url, key=served.key.encode())
                assert store.log.level().text == "WITNESSED 1/1"
                witnessed = store.witness.check(store.witness.policy().text)
                assert list(witnessed.witnesses) == [NAME]
            check(store)

    def test_the_level_counts_witnesses_whose_cosignature_holds(self, tmp_path: Path) -> None:
        with self.open() as store:
            store.write(put)
            settle(store)
            one, two = made(store, tmp_path / "1.json", "one"), made(store, tmp_path / "2.json", "two")
            with serving(one) as url:
                witnesses.cosign(store, url, key=one.key.encode())
                assert store.log.level().text == "WITNESSED 1/1"
            with serving(two) as url:
                store.write(put)
                settle(store)
                witnesses.cosign(store, url, key=two.key.encode())
            level = store.log.level()
            assert (level.text, level.witnessed_size) == ("WITNESSED 2/2", level.size)
            with serving(two) as url, pytest.raises(errors.ProofError):
                witnesses.cosign(store, url, key=witnesses.verifier_key("three").encode())
            assert store.log.level().text == "WITNESSED 2/3"

    def test_a_witness_that_remembers_another_size_gets_the_proof_from_there(self, tmp_path: Path) -> None:
        """409: the log lost what it knew of the witness, or the witness went on with another copy of the log."""
        with self.open() as store:
            store.write(put)
            settle(store)
            served = made(store, tmp_path / "witness.json")
            with serving(served) as url:
                witnesses.cosign(store, url, key=served.key.encode())
            store.write(lambda tx: [put(tx) for _ in range(10)])
            settle(store)
            with pytest.raises(errors.ConflictError):
                store.witness.add("http://127.0.0.1:1", key=served.key.encode())
            store.witness.remove(url, reason="it moves")
            settle(store)
            with serving(served) as elsewhere:  # another address, so the log believes it is new there
                cosigned = witnesses.cosign(store, elsewhere, key=served.key.encode())
            assert cosigned.size == store.log.head().checkpoint.size

    def test_a_witness_that_has_seen_more_proves_a_rollback(self, tmp_path: Path) -> None:
        with self.open() as store:
            settle(store)
            served = made(store, tmp_path / "witness.json")
            said = store.log.head().checkpoint
            with served._state.locked():
                served._state.write({said.origin: LogCheckpoint(said.origin, said.size + 5, b"\1" * 32)})
            with serving(served) as url, pytest.raises(errors.ProofError) as seen:
                witnesses.cosign(store, url, key=served.key.encode())
            assert seen.value.fields["verdict"] == "ROLLED_BACK"

    @pytest.mark.parametrize("back", [0, 2])
    def test_a_witness_that_has_seen_another_history_proves_a_fork(self, tmp_path: Path, back: int) -> None:
        with self.open() as store:
            store.write(put)
            settle(store)
            served = made(store, tmp_path / "witness.json")
            said = store.log.head().checkpoint
            with served._state.locked():
                served._state.write({said.origin: LogCheckpoint(said.origin, said.size - back, b"\1" * 32)})
            with serving(served) as url, pytest.raises(errors.ProofError) as seen:
                witnesses.cosign(store, url, key=served.key.encode())
            assert seen.value.fields["verdict"] == "FORKED"
            assert store.log.level().witnessed == 0

    def test_a_witness_that_says_forked_leaves_a_trace_and_locks_nothing(self, tmp_path: Path) -> None:
        with self.open() as store:
            submit(store, "decided", 0.5)
            settle(store)
            served = made(store, tmp_path / "witness.json")
            said = store.log.head().checkpoint
            with served._state.locked():
                served._state.write({said.origin: LogCheckpoint(said.origin, said.size, b"\1" * 32)})
            with serving(served) as url:
                for _ in range(2):  # asked every hour, it is recorded once
                    with pytest.raises(errors.ProofError):
                        witnesses.cosign(store, url, key=served.key.encode())
            settle(store)
            [(what, leaf)] = store.read(
                lambda tx: tx.all(
                    sql("SELECT d.what, l.leaf FROM witness_disputes d JOIN log_leaves l ON l.id = d.leaf_id")
                )
            )
            assert ("another history" in what, '"t":"audit"' in leaf) == (True, True)
            assert store.log.level().text == "DISPUTED 1/1"
            assert store.status().log == "DISPUTED 1/1"
            assert any("FORKED: the witness" in each for each in store.status().degraded)
            report = store.verify.run(lock=False)
            assert report.verdict is Verdict.FORKED
            disputes = [each for each in report.findings if each.verdict is Verdict.FORKED]
            assert [each.table for each in disputes] == ["witness_disputes"]
            assert not replace(report, findings=disputes).locks, "a witness must not be able to stop a log"

    def test_an_answer_of_another_key_is_not_kept(self, tmp_path: Path) -> None:
        with self.open() as store:
            settle(store)
            with serving(made(store, tmp_path / "witness.json")) as url, pytest.raises(errors.ProofError):
                witnesses.cosign(store, url, key=witnesses.verifier_key(NAME).encode())
            assert store.log.level().witnessed == 0

    def test_bad_addresses_and_keys_are_refused_before_anything_is_sent(self) -> None:
        with self.open() as store:
            settle(store)
            own = store.read(log.verifiers)[0].encode()
            for url in ("ftp://x", "witness.example", "http://", "http://x/?a=b"):
                with pytest.raises(errors.InvalidInputError):
                    witnesses.cosign(store, url, key=witnesses.verifier_key(NAME).encode())
            with pytest.raises(errors.InvalidInputError):
                witnesses.cosign(store, "http://127.0.0.1:1", key=own)
            with pytest.raises(errors.NotFoundError):
                witnesses.cosign(store, "http://127.0.0.1:1")
            with pytest.raises(errors.BadKeyError):
                witnesses.cosign(store, "http://127.0.0.1:1", key="nonsense")
            with pytest.raises(errors.UnreachableError):
                witnesses.cosign(store, "http://127.0.0.1:1", key=witnesses.verifier_key(NAME).encode(), timeout_s=2)

    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", errors.NotFoundError),
            (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n", errors.ProofError),
            (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", errors.UnreachableError),
            (
                b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
                errors.UnreachableError,
            ),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc\n", errors.FormatError),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 3_000_000, errors.FormatError),
            (
                b"HTTP/1.1 409 Conflict\r\nContent-Type: text/x.tlog.size\r\nContent-Length: 2\r\n\r\n3\n",
                errors.UnreachableError,
            ),
            (b"nonsense\r\n\r\n", errors.UnreachableError),
            (b"", errors.UnreachableError),
        ],
    )
    def test_a_wrong_answer_is_a_typed_error(self, answer: bytes, error: type[Exception]) -> None:
        with self.open() as store, raw_server(answer) as url:
            settle(store)
            with pytest.raises(error):
                witnesses.cosign(store, url, key=witnesses.verifier_key(NAME).encode(), timeout_s=60)
            check(store)


class TestSqlite(WitnessSuite):
    pass


class TestMemory(logs.InMemory, WitnessSuite):
    pass


class TestPostgres(logs.OnPostgres, WitnessSuite):
    pass


def _read_request(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split()[0])
    while len(body) < length:
        body += connection.recv(1 << 16)


@contextmanager
def raw_server(answer: bytes) -> Iterator[str]:
    """Answers every connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.05)
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                with suppress(OSError):
                    connection, _ = listening.accept()
                    with connection:
                        connection.settimeout(2)
                        _read_request(connection)
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(1 << 16):
                            pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


# --- the witness itself ------------------------------------------------------------------------------------------


class Tree:
    """A made-up log that a witness can be asked about."""

    def __init__(self, origin: str = "log.example") -> None:
        self.origin, self.key = origin, keys.generate("ed25519")
        self.vkey = VerifierKey(origin, 1, self.key.public)
        self.hashes = merkle.leaf_hashes([b"%d" % number for number in range(64)])

    def request(self, old: int, size: int, *, hashes: list[bytes] | None = None) -> bytes:
        row = self.hashes if hashes is None else hashes
        head = checkpoint.sign(LogCheckpoint(self.origin, size, merkle.root(row[:size])), self.key)

        def lookup(level: int, index: int) -> bytes:
            return merkle.root(row[index << level : (index + 1) << level])

        proof = merkle.prove_consistency(old, size, lookup) if 0 < old <= size else ()
        return witness.encode_request(AddCheckpoint(old, proof, head))

    def witness(self, path: Path, *more: str) -> Cosigner:
        return Cosigner(
            NAME,
            keys.from_seed(b"\2" * 32),
            [self.vkey.encode(), *more],
            WitnessState(path),
            lambda: 1_700_000_000_000_000,
        )


@pytest.fixture
def tree() -> Tree:
    return Tree()


def test_a_flipped_bit_never_makes_a_witness_forget_or_remember_another_head(tree: Tree, tmp_path: Path) -> None:
    """It would cosign any other history of a log it has forgotten."""
    path = tmp_path / "w.json"
    tree.witness(path).add_checkpoint(tree.request(0, 5))
    whole, other = path.read_bytes(), tmp_path / "other.json"
    with WitnessState(path).locked() as known:
        for at in range(len(whole)):
            other.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            try:
                with WitnessState(other).locked() as found:
                    assert found == known, at
            except errors.CorruptError:
                continue


def test_what_a_witness_of_an_older_version_remembers_counts(tree: Tree, tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    tree.witness(path).add_checkpoint(tree.request(0, 5))
    said = json.loads(path.read_text())
    del said[tree.origin]["sha256"]
    path.write_text(json.dumps(said))
    assert tree.witness(path).add_checkpoint(tree.request(0, 7)).status == 409
    assert tree.witness(path).add_checkpoint(tree.request(5, 7)).status == 200


def test_a_witness_follows_a_log_step_by_step(tree: Tree, tmp_path: Path) -> None:
    served = tree.witness(tmp_path / "w.json")
    for old, size in ((0, 5), (5, 5), (5, 17), (17, 64)):
        answer = served.add_checkpoint(tree.request(old, size))
        assert answer.status == 200
        [line] = witness.parse_cosignatures(answer.body.encode())
        text = LogCheckpoint(tree.origin, size, merkle.root(tree.hashes[:size])).text()
        assert served.key.verify(text, line.signature) == 1_700_000_000


def test_two_histories_are_never_both_cosigned(tree: Tree, tmp_path: Path) -> None:
    served = tree.witness(tmp_path / "w.json")
    other = merkle.leaf_hashes([b"other %d" % number for number in range(64)])
    assert served.add_checkpoint(tree.request(0, 5)).status == 200
    assert served.add_checkpoint(tree.request(5, 5, hashes=other)).status == 409
    assert served.add_checkpoint(tree.request(5, 9, hashes=other)).status == 422
    smaller = served.add_checkpoint(tree.request(0, 3))
    assert (smaller.status, smaller.body, smaller.content_type) == (409, "5\n", "text/x.tlog.size")
    assert tree.witness(tmp_path / "w.json").add_checkpoint(tree.request(0, 4, hashes=other)).status == 409
    assert served.add_checkpoint(tree.request(5, 6)).status == 200


def test_what_is_cosigned_is_durable_before_the_answer(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, synced, fsync = tree.witness(tmp_path / "w.json"), list[int](), os.fsync

    def sync_file(file: int) -> None:
        synced.append(file)
        fsync(file)

    monkeypatch.setattr(os, "fsync", sync_file)
    assert served.add_checkpoint(tree.request(0, 5)).status == 200
    assert len(synced) == 2  # the file and its folder
    assert json.loads((tmp_path / "w.json").read_text())[tree.origin]["size"] == 5

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(errors.UnavailableError):
        served.add_checkpoint(tree.request(5, 6))
    monkeypatch.undo()
    assert served.add_checkpoint(tree.request(5, 7)).status == 200


def test_racing_requests_end_in_one_history(tree: Tree, tmp_path: Path) -> None:
    other = merkle.leaf_hashes([b"other %d" % number for number in range(64)])
    bodies = [tree.request(0, size, hashes=row) for size in range(1, 9) for row in (tree.hashes, other)]
    answers: list[int] = []
    with serving(tree.witness(tmp_path / "w.json")) as url:

        def ask(body: bytes) -> None:
            answers.append(httpx.post(f"{url}/add-checkpoint", content=body).status_code)

        threads = [threading.Thread(target=ask, args=(body,)) for body in bodies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(answers) == [200] + [409] * (len(bodies) - 1)


def test_a_witness_knows_only_the_logs_it_was_given(tree: Tree, tmp_path: Path) -> None:
    stranger, thief = Tree("other.example"), Tree()
    served = tree.witness(tmp_path / "w.json")
    assert served.add_checkpoint(stranger.request(0, 5)).status == 404
    assert served.add_checkpoint(thief.request(0, 5)).status == 403
    assert served.add_checkpoint(b"nonsense").status == 400
    assert tree.witness(tmp_path / "w.json", thief.vkey.encode()).add_checkpoint(thief.request(0, 5)).status == 200
    with pytest.raises(errors.BadKeyError):
        tree.witness(tmp_path / "w.json", witnesses.verifier_key("w").encode())


def test_a_damaged_memory_is_never_taken_for_an_empty_one(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text('{"log.example": {"size"')
    with serving(tree.witness(tmp_path / "w.json")) as url:
        assert httpx.post(f"{url}/add-checkpoint", content=tree.request(0, 5)).status_code == 503


def test_requests_are_bounded(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness_server, "_TIMEOUT_S", 0.3)
    monkeypatch.setattr(witness_server._Handler, "timeout", 0.3)
    with serving(tree.witness(tmp_path / "w.json")) as url:
        host, port = url.removeprefix("http://").split(":")
        assert httpx.post(f"{url}/add-checkpoint", content=b"x" * 100_000).status_code == 413
        assert httpx.post(f"{url}/other", content=b"x").status_code == 404
        assert httpx.get(f"{url}/add-checkpoint").status_code == 404
        with socket.create_connection((host, int(port)), timeout=60) as slow:
            slow.sendall(b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: 500\r\n\r\nold")
            assert slow.recv(100) == b""  # hung up
        answer = httpx.post(f"{url}/add-checkpoint", content=tree.request(0, 5))
        assert answer.status_code == 200
        assert answer.headers["content-type"] == witness.TEXT_TYPE


# --- the command line --------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("HOLDPROOF", "XDG_", "PG"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run(*words: str) -> Any:
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_log_and_a_witness_meet_on_the_command_line(home: Path, tmp_path: Path) -> None:
    with sync.open(home) as store:
        head = store.log.head().checkpoint
    [key] = run("log", "verifier-keys")
    folder = str(tmp_path / "witness")
    command = [sys.executable, "-m", "holdproof", "--home", folder, "witness", "run", "--name", NAME, "--port", "0"]
    process = subprocess.Popen([*command, "--log", key], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        url, key = line.split()[2], line.split()[4]
        assert run("--home", folder, "witness", "key", "--name", NAME) == {"key": key}
        assert run("log", "level")["name"] == "KEPT"
        assert run("witness", "add", url, "--key", key)["key"] == key
        [cosigned] = run("witness", "ask")
        assert cosigned["size"] > head.size, "that the witness was added is an entry too"
        level = run("log", "level")
        assert (level["name"], level["witnessed"], level["witnesses"]) == ("WITNESSED", 1, 1)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        assert process.stderr is not None
        process.stderr.close()
    assert process.returncode == 0
    refused = CliRunner().invoke(app, ["witness", "ask", url, "--timeout-s", "2"])
    assert refused.exit_code == errors.UnreachableError.exit_code


def test_proofs_and_audits_on_the_command_line(home: Path, tmp_path: Path) -> None:
    with sync.open(home) as store:
        text = store.read(logs.texts)[0]
        origin = store.log.head().checkpoint.origin
    handle = json.loads(text)["id"]
    file = tmp_path / "key.tlog-proof"
    assert run("log", "prove", handle, "--out", str(file))["bytes"] == file.stat().st_size
    proof = tlog_proof.parse(file.read_bytes())
    keys = [vkey.parse(each) for each in run("log", "verifier-keys")]
    tlog_proof.verify(proof, merkle.leaf_hash(text), origin=origin, log_keys=keys)
    assert (proof.index, run("log", "prove", handle, "--version", "1")["index"]) == (0, 0)
    assert run("log", "prove-consistency", "2")
    assert run("log", "prove-consistency", "2", "3") != run("log", "prove-consistency", "2")
    assert run("log", "audit")["verdict"] == run("log", "audit", "--full")["verdict"] == "VALID"
    assert CliRunner().invoke(app, ["log", "prove", "nobody"]).exit_code == errors.NotFoundError.exit_code
    with sync.open(home) as store:
        store.write(lambda tx: tx.execute(sql("UPDATE log_leaves SET leaf = '{}' WHERE idx = 1")))
    assert CliRunner().invoke(app, ["log", "audit", "--full"]).exit_code == 20


def test_a_head_that_comes_byte_by_byte_does_not_keep_others_from_the_witness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness_server, "_TIMEOUT_S", 0.3)
    monkeypatch.setattr(witness_server, "_MOST_THREADS", 1)
    with sync.open(tmp_path / "home") as store:
        served = made(store, tmp_path / "witness.json")
        with serving(served) as url:
            host, port = url.removeprefix("http://").split(":")
            with socket.create_connection((host, int(port)), timeout=0.05) as slow:
                slow.sendall(b"POST /add-checkpoint HTTP/1.1\r\nX: ")
                until = time.monotonic() + 30
                hung_up = False
                while not hung_up and time.monotonic() < until:
                    with suppress(TimeoutError):
                        slow.sendall(b"x")  # always in time for the next read
                        hung_up = slow.recv(100) == b""
                assert hung_up
            witnesses.cosign(store, url, key=served.key.encode())


def test_a_length_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    with sync.open(tmp_path / "home") as store, serving(made(store, tmp_path / "witness.json")) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as caller:
            caller.sendall(b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")
            assert b" 413 " in caller.recv(100)
