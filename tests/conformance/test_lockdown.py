"""The lockdown: what locks, what is refused meanwhile, who is told, and the only way out."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import holdproof
from harness.filling import settled, submit
from harness.raw_access import asking, attack, attack_server, behind
from holdproof import errors, sync
from holdproof.crypto import dsse, keys, statement
from holdproof.db import Tx, sql
from holdproof.evidence import key_admission, statements, tree, trust
from holdproof.evidence import keys as ring
from holdproof.evidence.key_files import KeyFolder
from holdproof.evidence.startup import KEYRING, add_key
from holdproof.evidence.statements import KeyStatement
from holdproof.model.verdicts import Verdict
from holdproof.upkeep import alarm, lockdown, notify, unlock
from tests.store_locations import StoreLocation

_FORGET = sql("DELETE FROM keyring")
_STATEMENTS = sql("SELECT statement FROM lockdowns WHERE statement IS NOT NULL")
_PUT = sql("INSERT INTO store_facts (key, value, updated_at) VALUES (:key, 'x', :now)")


def put(tx: Tx, key: str) -> None:
    tx.execute(_PUT, key=key, now=tx.now)


def make(home: Path, url: str | None = None) -> None:
    with sync.open(home, url) as store:
        for number in range(4):
            submit(store, f"b{number}", number / 10)
        store.run(trust.export_root(store.context))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str | None]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    make(tmp_path / "home", url)
    return tmp_path / "home", url


def tamper(home: Path, url: str | None = None) -> None:
    statement = "UPDATE battles SET score = 0.99 WHERE id = 2"
    attack(home, statement) if url is None else attack_server(url, statement)


def sign(home: Path, draft: str) -> str:
    root = KeyFolder(home / "config" / "keys").load("root")
    return unlock.sign(draft.encode(), root).decode()


# --- locking -----------------------------------------------------------------------------------------------------


def test_tampering_locks_writes_and_reads_go_on(place: tuple[Path, str | None]) -> None:
    home, url = place
    tamper(home, url)
    with sync.open(home, url) as store:
        report = store.verify.run(lock=True)
        assert (report.verdict, report.locked is not None) == (Verdict.TAMPERED, True)
        with pytest.raises(errors.LockedError) as refused:
            store.write(lambda tx: put(tx, "k"))
        assert (refused.value.fields["id"], refused.value.exit_code) == (report.locked, 5)
        with pytest.raises(errors.LockedError):
            submit(store, "b9", 0.1)
        assert store.read(lambda tx: tx.all(sql("SELECT count(*) FROM battles"))) == [(4,)]
        [warning] = [each for each in store.status().degraded if "LOCKED" in each]
        assert "table battles row 2" in warning
    with sync.open(home, url) as store:  # a locked store can still be opened, verified and read
        assert store.lockdown.status().id == report.locked  # type: ignore[union-attr]
        assert store.verify.run(lock=True).locked == report.locked
        with pytest.raises(errors.LockedError):
            store.write(lambda tx: put(tx, "k"))


def test_whoever_opens_a_locked_store_is_told_that_reads_may_lie(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with sync.open(home) as store:
        locked = store.lockdown.lock(reason="by hand")
    caplog.clear()
    with sync.open(home) as store:
        assert store.read(lambda tx: tx.all(sql("SELECT count(*) FROM battles"))) == [(4,)]
    [told] = [each.getMessage() for each in caplog.records if "LOCKED" in each.getMessage()]
    assert locked.id in told
    assert "what is read may not be what was written" in told


def test_an_honest_store_and_a_run_without_locking_do_not_lock(home: Path) -> None:
    with sync.open(home) as store:
        assert store.verify.run(lock=True).locked is None
        assert store.lockdown.status() is None
    tamper(home)
    with sync.open(home) as store:
        assert store.verify.run().verdict is Verdict.TAMPERED
        store.write(lambda tx: put(tx, "k"))


def test_both_faces_do_the_same(home: Path) -> None:
    async def play() -> None:
        async with holdproof.open(home) as store:
            assert (await store.verify.run(full=True, lock=True)).ok
            locked = await store.lockdown.lock(reason="by hand")
            with pytest.raises(errors.LockedError, match="by hand"):
                await store.write(lambda tx: put(tx, "k"))
            standing = await store.lockdown.status()
            assert standing is not None
            assert locked.to_dict() == {**standing.to_dict(), "ended_by": locked.ended_by}
            draft = await store.lockdown.statement(reason="done")
            await store.lockdown.unlock(sign(home, draft))
            await store.write(lambda tx: put(tx, "k"))
            assert (await store.verify.run(full=True, lock=True)).ok

    asyncio.run(play())


def test_a_store_in_memory_locks_too() -> None:
    with sync.open(url=":memory:") as store:
        store.run(trust.export_root(store.context))
        store.lockdown.lock(reason="try")
        with pytest.raises(errors.LockedError):
            store.write(lambda tx: put(tx, "k"))
        root: Any = store.context.keys.load("root")
        store.lockdown.unlock(unlock.sign(store.lockdown.statement(reason="done").encode(), root).decode())
        store.write(lambda tx: put(tx, "k"))


def test_the_lockdown_stands_in_the_log_with_its_findings(home: Path) -> None:
    tamper(home)
    report = sync.verify(home, lock=True)
    [(key, findings, leaf_id)] = asking(home)("SELECT id, findings, leaf_id FROM lockdowns")
    assert (key, json.loads(findings)[0]["row"]) == (report.locked, "2")
    [(text,)] = asking(home)(f"SELECT leaf FROM log_leaves WHERE id = '{leaf_id}'")
    assert json.loads(text)["t"] == "lockdown"


def test_evidence_is_kept_in_a_folder_for_the_owner_only(home: Path) -> None:
    tamper(home)
    report = sync.verify(home, lock=True)
    folder = home / "state" / "lockdowns" / str(report.locked)
    kept = json.loads((folder / "lockdown.json").read_text())
    assert kept["report"]["findings"][0]["row"] == "2"
    assert (folder / "heads.jsonl").exists()
    assert "holdproof/" in (folder / "head.note").read_text()
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "lockdown.json").stat().st_mode & 0o077 == 0


def test_notifiers_are_told_and_a_broken_one_does_not_matter(home: Path) -> None:
    told: list[notify.AnyAlert] = []

    class Kept:
        name = "kept"

        def send(self, alert: notify.AnyAlert) -> None:
            told.append(alert)

    class Broken:
        name = "broken"

        def send(self, alert: notify.AnyAlert) -> None:
            raise RuntimeError("no network")

    tamper(home)
    with sync.open(home) as store:
        report = store.verify.run()
        locked = store.run(lockdown.respond(store.context, report, notifiers=[Broken(), Kept()]))
        assert store.run(lockdown.respond(store.context, report, notifiers=[Kept()])) == locked
    [alert] = told
    assert isinstance(alert, notify.Alert)
    assert (alert.lockdown, alert.verdict) == (locked.id, "TAMPERED")


# --- the operator's question -------------------------------------------------------------------------------------

_BUDGET = sql("SELECT count(*) FROM escalation_budget")


def test_a_lockdown_is_an_escalation_that_only_root_answers(place: tuple[Path, str | None]) -> None:
    home, url = place
    with sync.open(home, url) as store:
        locked = store.lockdown.lock(reason="a stolen laptop")
        [asked] = store.escalations.list(status="PENDING").items
        assert (asked.flow_id, asked.agent_id, asked.impact) == (locked.id, alarm.AGENT, "HIGH_IMPACT")
        assert asked.reason == "LOCKDOWN: a stolen laptop"
        assert (asked.context["verdict"], asked.context["findings"]) == ("TAMPERED", 1)
        assert store.flows.get(locked.id).status == "WAITING_ESCALATION"
        with pytest.raises(errors.LockedError):
            store.escalations.resolve(asked.id, "approve", by="me")
        store.lockdown.unlock(sign(home, store.lockdown.statement(reason="the laptop was found")))
        answered = store.escalations.get(asked.id)
        assert (answered.status, answered.resolved_by) == ("APPROVED", "root")
        assert answered.comment == "the laptop was found"
        assert store.flows.get(locked.id).status == "COMPLETED"
        assert store.escalations.list(status="PENDING").items == []
        assert store.read(lambda tx: tx.all(_BUDGET)) == [(0,)]
        settled(store)
        assert store.verify.run(full=True, lock=True).findings == []


def test_each_lockdown_asks_anew_and_a_second_finding_does_not(home: Path) -> None:
    with sync.open(home) as store:
        for number in range(2):
            store.lockdown.lock(reason="try")
            store.lockdown.lock(reason="again")
            [asked] = store.escalations.list(status="PENDING").items
            assert asked.reason == "LOCKDOWN: try"
            store.lockdown.unlock(sign(home, store.lockdown.statement(reason=f"done {number}")))
        assert store.verify.run(full=True, lock=True).findings == []


def test_a_runtime_that_is_damaged_stops_neither_the_lockdown_nor_its_end(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attack(home, "DROP TABLE escalation_requests")
    with sync.open(home) as store:
        locked = store.lockdown.lock(reason="try")
        assert "escalation not written: no such table" in caplog.text
        assert asking(home)("SELECT id FROM lockdowns") == [(locked.id,)]
        store.lockdown.unlock(sign(home, store.lockdown.statement(reason="done")))
        store.write(lambda tx: put(tx, "k"))


def test_where_the_log_is_in_doubt_nothing_is_asked_in_the_store(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = (home / "kernel.db").read_bytes()
    with sync.open(home) as store:
        submit(store, "later", 0.9)
    (home / "kernel.db").write_bytes(before)
    with sync.open(home) as store:
        assert store.escalations.list(status="PENDING").items == []
        assert "escalation not written: the log itself is in doubt" in caplog.text


# --- who notices -------------------------------------------------------------------------------------------------

_OTHER = """
import sys
from holdproof import errors, sync
from holdproof.db import sql
put = sql("INSERT INTO store_facts (key, value, updated_at) VALUES (:key, 'x', :now)")
with sync.open(sys.argv[1], sys.argv[2] or None) as store:
    for line in sys.stdin:
        try:
            store.write(lambda tx: tx.execute(put, key=line.strip(), now=tx.now))
            print("written", flush=True)
        except errors.LockedError:
            print("locked", flush=True)
"""


def test_another_process_notices_the_lock_and_its_end(place: tuple[Path, str | None]) -> None:
    home, url = place
    other = subprocess.Popen(
        [sys.executable, "-c", _OTHER, str(home), url or ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None
    assert other.stdout is not None

    def tries(key: str) -> str:
        print(key, file=other.stdin, flush=True)
        assert other.stdout is not None
        return other.stdout.readline().strip()

    try:
        assert tries("a") == "written"
        with sync.open(home, url) as store:
            store.lockdown.lock(reason="try")
            assert tries("b") == "locked"
            store.lockdown.unlock(sign(home, store.lockdown.statement(reason="done")))
        assert tries("c") == "written"
    finally:
        other.stdin.close()
        other.wait(30)
        other.stdout.close()


def test_a_process_with_another_state_folder_notices_within_a_second(tmp_path: Path, postgres_url: str) -> None:
    """Another machine on the same server: it does not see the flag, only the row."""
    make(tmp_path / "home", postgres_url)
    with sync.open(tmp_path / "home", postgres_url) as store, sync.open(tmp_path / "far", postgres_url) as far:
        far.write(lambda tx: put(tx, "a"))
        store.lockdown.lock(reason="try")
        time.sleep(1.1)
        with pytest.raises(errors.LockedError):
            far.write(lambda tx: put(tx, "b"))
        assert any("LOCKED" in each for each in far.status().degraded)


def test_deleting_the_flag_does_not_unlock(home: Path) -> None:
    with sync.open(home) as store:
        store.lockdown.lock(reason="try")
    (home / "state" / "lockdown.json").unlink()
    with sync.open(home) as store, pytest.raises(errors.LockedError):
        store.write(lambda tx: put(tx, "k"))


def test_putting_an_older_database_back_does_not_unlock(home: Path) -> None:
    before = (home / "kernel.db").read_bytes()
    with sync.open(home) as store:
        store.lockdown.lock(reason="try")
    (home / "kernel.db").write_bytes(before)
    with sync.open(home) as store, pytest.raises(errors.LockedError):
        store.write(lambda tx: put(tx, "k"))


def test_a_flag_that_cannot_be_read_locks(home: Path) -> None:
    (home / "state" / "lockdown.json").write_text("{torn")
    with sync.open(home) as store:
        with pytest.raises(errors.LockedError, match="cannot be read"):
            store.write(lambda tx: put(tx, "k"))
        store.lockdown.unlock(sign(home, store.lockdown.statement(reason="a torn file")))
        store.write(lambda tx: put(tx, "k"))
        assert store.verify.run(full=True, lock=True).ok


def test_a_flag_that_leads_nowhere_locks(home: Path) -> None:
    """A link to nothing can be there beforehand: no flag could be put up, and none would be seen."""
    (home / "state" / "lockdown.json").symlink_to("nowhere")
    with sync.open(home) as store:
        with pytest.raises(errors.LockedError, match="cannot be read"):
            store.write(lambda tx: put(tx, "k"))
        store.lockdown.unlock(sign(home, store.lockdown.statement(reason="a link")))
        store.write(lambda tx: put(tx, "k"))


def test_a_log_in_doubt_is_not_written_on(home: Path) -> None:
    """A rolled-back store is locked at opening, and no head is signed that would make a second history."""
    before = (home / "kernel.db").read_bytes()
    with sync.open(home) as store:
        submit(store, "later", 0.9)
    (home / "kernel.db").write_bytes(before)
    heads = (home / "state" / "heads.jsonl").read_bytes()
    [size] = asking(home)("SELECT size FROM log_state")
    with sync.open(home) as store:
        assert store.lockdown.status().verdict == "ROLLED_BACK"  # type: ignore[union-attr]
        with pytest.raises(errors.LockedError):
            submit(store, "more", 0.9)
        # Nor does unlocking: its entry would continue the wrong log.
        with pytest.raises(errors.LockedError, match="second history"):
            store.lockdown.unlock(reason="an older copy was put back by mistake")
    assert asking(home)("SELECT size FROM log_state") == [size]
    assert (home / "state" / "heads.jsonl").read_bytes() == heads


def test_a_log_whose_leaves_do_not_give_a_kept_head_is_not_written_on(home: Path) -> None:
    attack(home, "UPDATE log_leaves SET leaf = replace(leaf, '\"v\":1', '\"v\":2') WHERE idx = 3")
    with sync.open(home) as store:
        assert store.run(lockdown.status(store.context)) is not None
    assert asking(home)("SELECT count(*) FROM lockdowns") == [(0,)]


def test_a_database_that_cannot_be_opened_is_reported_and_locked(home: Path) -> None:
    data = bytearray((home / "kernel.db").read_bytes())
    data[:16] = b"not a database!!"
    (home / "kernel.db").write_bytes(data)
    report = sync.verify(home, lock=True)
    assert (report.verdict, report.mode) == (Verdict.TAMPERED, "file")
    assert json.loads((home / "state" / "lockdown.json").read_text())["id"] == report.locked


def test_a_wrong_path_is_no_tampering(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "kernel.db").write_bytes(b"somebody else's file" * 100)
    with pytest.raises(errors.ForeignFileError):
        sync.verify(tmp_path / "home")
    assert not (tmp_path / "home" / "state" / "lockdown.json").exists()


# --- the way out -------------------------------------------------------------------------------------------------


def test_root_ends_it_and_the_log_keeps_the_statement(place: tuple[Path, str | None]) -> None:
    home, url = place
    with sync.open(home, url) as store:
        locked = store.lockdown.lock(reason="try")
        signed = sign(home, store.lockdown.statement(reason="looked into it"))
        assert store.lockdown.unlock(signed).id == locked.id
        store.write(lambda tx: put(tx, "k"))
        assert store.lockdown.status() is None
        with pytest.raises(errors.NotFoundError):
            store.lockdown.unlock(signed)
        [(statement, version)] = store.read(lambda tx: tx.all(sql("SELECT statement, leaf_ver FROM lockdowns")))
        assert (json.loads(statement)["payloadType"], version) == ("application/vnd.in-toto+json", 2)
    report = sync.verify(home, url, full=True)
    assert (report.verdict, report.checked["lockdowns"]) == (Verdict.VALID, 1)


def test_nobody_but_root_ends_it(home: Path) -> None:
    with sync.open(home) as store:
        store.lockdown.lock(reason="try")
        draft = store.lockdown.statement(reason="let me in").encode()
        stranger = keys.generate("ed25519")
        log_key = KeyFolder(home / "config" / "keys").load("log")
        for signer in (stranger, log_key):
            with pytest.raises(errors.ProofError):
                store.lockdown.unlock(unlock.sign(draft, signer).decode())
        with pytest.raises(errors.FormatError):
            store.lockdown.unlock("{}")
        with pytest.raises(errors.LockedError):
            store.write(lambda tx: put(tx, "k"))


def test_a_root_key_forged_into_the_keyring_does_not_count(home: Path) -> None:
    stranger = keys.generate("ed25519")
    with sync.open(home) as store:
        store.lockdown.lock(reason="try")
        draft = store.lockdown.statement(reason="let me in").encode()
    attack(
        home,
        f"UPDATE keyring SET keyid = '{stranger.keyid}', public = '{stranger.public.to_pem().decode()}'"
        " WHERE role = 'root'",
    )
    with sync.open(home) as store, pytest.raises(errors.ProofError):
        store.lockdown.unlock(unlock.sign(draft, stranger).decode())


def test_a_root_key_that_the_log_does_not_name_does_not_count(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    with place.open_without_root() as store:
        store.lockdown.lock(reason="try")
        draft = store.lockdown.statement(reason="let me in").encode()
        with pytest.raises(errors.ProofError):
            store.lockdown.unlock(unlock.sign(draft, keys.generate("ed25519")).decode())


def test_a_locked_store_is_unlocked_with_a_reason_by_the_root_key_that_is_here(place: tuple[Path, str | None]) -> None:
    home, url = place
    with sync.open(home, url) as store:
        locked = store.lockdown.lock(reason="drill")
        with pytest.raises(errors.InvalidInputError, match="--reason TEXT"):
            store.lockdown.unlock()
        assert store.lockdown.unlock(reason="it was a drill").id == locked.id
        settled(store)
        ended, began = store.audit.trail(kind="lockdown").items
        assert (ended.what, ended.note) == ("unlocked by the root key", "it was a drill")
        assert (began.what, began.note) == ("locked: TAMPERED", "drill")
        store.write(lambda tx: put(tx, "k"))
        settled(store)
        [(envelope,)] = store.read(lambda tx: tx.all(_STATEMENTS))
        assert statement.parse(dsse.parse(envelope.encode()).payload).predicate["signed_by"] == "root"
        assert store.verify.run(full=True).ok


def test_who_locks_a_store_is_told_who_can_end_it(place: tuple[Path, str | None]) -> None:
    home, url = place
    with sync.open(home, url) as store:
        settled(store)
        [root] = store.keys.list(role="root").items
        told = store.lockdown.lock(reason="drill").ended_by
        assert told == f"the root key {root.keyid[:16]}…, which is here: `holdproof unlock --reason TEXT`"
        store.lockdown.unlock(reason="over")
    (home / "config" / "keys" / "root.pem").unlink()
    with sync.open(home, url) as store:
        told = store.lockdown.lock(reason="drill").ended_by
        assert "which is not here" in told
        assert "keys recover-root" in told
        with pytest.raises(errors.NotFoundError):
            store.lockdown.unlock(reason="over")
    (home / "config" / "keys" / "log.pem").unlink()
    with sync.open(home, url, readonly=True) as store:
        assert store.lockdown.status() is not None


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_store_without_a_root_key_is_unlocked_by_its_own_log_key_and_the_entry_says_so(
    tmp_path: Path, backend: str, request: pytest.FixtureRequest
) -> None:
    url = str(request.getfixturevalue("postgres_url")) if backend == "postgres" else None
    with StoreLocation(tmp_path / "home", url).open_without_root() as store:
        settled(store)
        assert store.keys.list(role="root").items == []
        assert store.lockdown.lock(reason="drill").ended_by.startswith("the log key ")
        settled(store)
        store.lockdown.unlock(reason="it was a drill")
        store.write(lambda tx: put(tx, "k"))
        settled(store)
        [(envelope,)] = store.read(lambda tx: tx.all(_STATEMENTS))
        assert statement.parse(dsse.parse(envelope.encode()).payload).predicate["signed_by"] == "log"
        assert store.verify.run(full=True).ok


def test_deleting_the_root_key_does_not_make_the_log_key_enough(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with sync.open(home) as store:
        store.lockdown.lock(reason="drill")
        store.keys.export_root()
    attack(home, "DELETE FROM keyring WHERE role = 'root'")
    KeyFolder(home / "config" / "keys").remove("root")
    with sync.open(home) as store, pytest.raises((errors.NotFoundError, errors.ProofError)):
        store.lockdown.unlock(reason="let me in")


def test_nor_does_it_where_root_is_kept_offline(tmp_path: Path) -> None:
    """Without a root key file at hand only the log can tell a forged row: it must match its leaf."""
    home, stranger = tmp_path / "home", keys.generate("ed25519")
    with sync.open(home) as store:
        made = store.run(trust.export_root(store.context, offline=True))
        store.lockdown.lock(reason="try")
        draft = store.lockdown.statement(reason="let me in").encode()
        recovery = made.recovery
    row = asking(home)("SELECT keyid, public FROM keyring WHERE role = 'root'")[0]
    pem = stranger.public.to_pem().decode()
    attack(home, f"UPDATE keyring SET keyid = '{stranger.keyid}', public = '{pem}' WHERE role = 'root'")
    with sync.open(home) as store, pytest.raises(errors.ProofError):
        store.lockdown.unlock(unlock.sign(draft, stranger).decode())
    attack(home, f"UPDATE keyring SET keyid = '{row[0]}', public = '{row[1]}' WHERE role = 'root'")
    with sync.open(home) as store:
        store.lockdown.unlock(trust.sign_statement(draft.decode(), recovery=recovery))
        store.write(lambda tx: put(tx, "k"))


def test_nor_if_leaf_and_tree_were_forged_with_it(tmp_path: Path) -> None:
    """A forged root key with a leaf of its own in a tree of its own: no log key signed that head."""
    home, stranger = tmp_path / "home", keys.generate("ed25519")
    with sync.open(home) as store:
        store.run(trust.export_root(store.context, offline=True))
        store.lockdown.lock(reason="try")
        draft = store.lockdown.statement(reason="let me in").encode()
    with behind(home) as connection:
        names = ", ".join(KEYRING.columns)
        *old, salt, leaf_id = connection.execute(
            f"SELECT {names}, leaf_salt, leaf_id FROM keyring WHERE role = 'root'"
        ).get
        row = dict(zip(KEYRING.columns, old, strict=True))
        row |= {"keyid": stranger.keyid, "public": stranger.public.to_pem().decode()}
        [text] = connection.execute("SELECT leaf FROM log_leaves WHERE id = ?", (leaf_id,)).fetchone() or ("",)
        forged = f'{{"h":"{KEYRING.commit(salt, row)}"' + text[text.index(',"id"') :]
        connection.execute("UPDATE keyring SET keyid = :keyid, public = :public WHERE role = 'root'", row)
        connection.execute("UPDATE log_leaves SET leaf = ? WHERE id = ?", (forged, leaf_id))
    (home / "state" / "heads.jsonl").unlink()
    with sync.open(home) as store, pytest.raises(errors.ProofError):
        store.lockdown.unlock(unlock.sign(draft, stranger).decode())


def test_nor_under_a_log_key_that_took_the_place_of_ours(tmp_path: Path) -> None:
    """Whoever writes to the database alone: our log key out of the keyring, his own in, and a root under his head."""
    thief, stranger = keys.generate("ed25519"), keys.generate("ed25519")
    with sync.open(tmp_path / "home") as store:
        submit(store, "b", 0.5)
        store.lockdown.lock(reason="try")
        draft = store.lockdown.statement(reason="let me in").encode()
        origin, now = store.read(lambda tx: (tree.state(tx).origin, tx.now))
        text = statements.sign(KeyStatement("introduce", "root", stranger.public, origin, now).encode(), stranger)

        def forge(tx: Tx) -> None:
            tx.execute(_FORGET)
            add_key(tx, "log", thief.public, statement="first")
            add_key(tx, "root", stranger.public, statement=text)

        store.context.log.use(thief)
        store.database.write(forge, ungated=True).result()
        assert store.read(ring.flaws).keys().isdisjoint({thief.keyid, stranger.keyid})
        with pytest.raises(errors.ProofError):
            store.lockdown.unlock(unlock.sign(draft, stranger).decode())


def test_nor_does_a_second_root_that_only_the_log_vouches_for(place: tuple[Path, str | None]) -> None:
    """Whoever holds the log key, or may write to a server's log_pending, gets a leaf; root's word he does not get."""
    home, url = place
    stranger = keys.generate("ed25519")
    with sync.open(home, url) as store:
        origin, now = store.read(lambda tx: (tree.state(tx).origin, tx.now))
        said = KeyStatement("introduce", "root", stranger.public, origin, now)
        text = statements.sign(said.encode(), stranger)
        store.write(lambda tx: add_key(tx, "root", stranger.public, statement=text))
        settled(store)
        store.lockdown.lock(reason="try")
        draft = store.lockdown.statement(reason="let me in")
        with pytest.raises(errors.ProofError):
            store.lockdown.unlock(unlock.sign(draft.encode(), stranger).decode())
        store.lockdown.unlock(sign(home, draft))


def test_a_revoked_root_does_not_count(home: Path) -> None:
    old = KeyFolder(home / "config" / "keys").load("root")
    with sync.open(home) as store:
        store.run(key_admission.rotate(store.context, "root"))
        store.run(ring.revoke(store.context, old.keyid))
        store.lockdown.lock(reason="try")
        draft = store.lockdown.statement(reason="let me in").encode()
        with pytest.raises(errors.ProofError):
            store.lockdown.unlock(unlock.sign(draft, old).decode())
        store.lockdown.unlock(sign(home, draft.decode()))


def test_a_statement_ends_no_other_lockdown(home: Path, tmp_path: Path) -> None:
    with sync.open(home) as store:
        store.lockdown.lock(reason="first")
        signed = sign(home, store.lockdown.statement(reason="done"))
        store.lockdown.unlock(signed)
        store.lockdown.lock(reason="second")
        with pytest.raises(errors.ProofError, match="another lockdown"):
            store.lockdown.unlock(signed)


def test_a_lockdown_that_a_restored_database_does_not_know_is_recorded_when_it_ends(home: Path) -> None:
    before = (home / "kernel.db").read_bytes()
    heads = (home / "state" / "heads.jsonl").read_bytes()
    with sync.open(home) as store:
        locked = store.lockdown.lock(reason="try")
    (home / "kernel.db").write_bytes(before)
    (home / "state" / "heads.jsonl").write_bytes(heads)
    with sync.open(home) as store:
        standing = store.lockdown.status()
        assert standing is not None
        assert standing.id == locked.id
        store.lockdown.unlock(sign(home, store.lockdown.statement(reason="restored")))
        store.write(lambda tx: put(tx, "k"))
    assert asking(home)("SELECT id, leaf_ver FROM lockdowns") == [(locked.id, 2)]
    assert sync.verify(home, full=True).ok


def test_a_reason_is_demanded(home: Path) -> None:
    with sync.open(home) as store:
        with pytest.raises(errors.NotFoundError):
            store.lockdown.statement(reason="not locked")
        store.lockdown.lock(reason="try")
        with pytest.raises(errors.InvalidInputError):
            store.lockdown.statement(reason=" ")


def test_the_helper_signs_with_a_key_file_of_its_owner_only(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "root.pem"
    path.write_bytes(KeyFolder(home / "config" / "keys").load("root").to_pem(b"pass"))
    path.chmod(0o644)
    with pytest.raises(errors.BadKeyError, match="chmod 600"):
        unlock.load_root(path, b"pass")
    path.chmod(0o600)
    root = unlock.load_root(path, b"pass")
    with pytest.raises(errors.FormatError):
        unlock.sign(b"{}", root)
    with pytest.raises(errors.NotFoundError):
        unlock.load_root(tmp_path / "none.pem")
