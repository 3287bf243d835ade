"""Skills: only what was approved is loaded, and only as it was approved; every attack is met with a lockdown."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import holdproof
from harness.filling import settled
from holdproof import errors, sync
from holdproof.crypto import keys as keypairs
from holdproof.db import Tx, sql
from holdproof.db.effects import Call, Read, Work
from holdproof.evidence import trust
from holdproof.memory.skills import proofs
from holdproof.model.skills import Fingerprint, Skill, SkillState
from holdproof.model.verdicts import Verdict
from holdproof.upkeep import notify
from holdproof.upkeep import skill_watch as upkeep
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.conformance.racing import together
from tests.conformance.store_backends import sound
from tests.receiver import Receiver

GOOD = b"""* Deploy
Words.
** Build
#+begin_src lisp
(build)
#+end_src
** Ship
#+begin_src sh
ship --now
#+end_src
"""
MOVED = GOOD.replace(b"** Build", b"** X").replace(b"** Ship", b"** Build").replace(b"** X", b"** Ship")
FENCED = b"# Use\n\n````\n```sh\nls\n```\n````\n"

_ROWS = sql("SELECT path, against, reason, changes FROM skill_lockdowns ORDER BY locked_at, id")
_NUMBERS = sql("SELECT n FROM skill_approvals WHERE path = :path ORDER BY n")


def lockdowns(store: sync.Holdproof) -> list[tuple[Any, ...]]:
    return store.read(lambda tx: tx.all(_ROWS))


def refused(store: sync.Holdproof, path: Path | str, **options: Any) -> errors.SkillLockedError:
    with pytest.raises(errors.SkillLockedError) as caught:
        store.skills.load(str(path), **options)
    assert (caught.value.code, caught.value.exit_code, caught.value.status) in (
        ("locked.skill", 5, 423),
        ("locked.skill.unapproved", 5, 423),
    )
    return caught.value


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = Path(os.path.realpath(tmp_path)) / "skills" / "deep"
    folder.mkdir(parents=True)
    (folder / "deploy.org").write_bytes(GOOD)
    return folder / "deploy.org"


class Skills(OnStore):
    # --- approving and loading -----------------------------------------------------------------------------------

    def test_what_was_approved_is_loaded_byte_for_byte(self, store: sync.Holdproof, file: Path) -> None:
        seen = store.skills.fingerprint(str(file))
        approved = store.skills.approve(str(file), by="ada", comment="reviewed", root=seen.root)
        loaded = store.skills.load(str(file))
        assert (loaded.data, loaded.text, loaded.approval) == (GOOD, GOOD.decode(), approved)
        assert (approved.n, approved.root, approved.rules, approved.size) == (1, seen.root, "org/1", len(GOOD))
        assert store.skills.status(str(file)) == Skill(str(file), SkillState.APPROVED, approved)
        assert store.skills.list().items == [store.skills.status(str(file))]
        report = sound(store)
        assert (report.checked["skill_approvals"], report.checked["approvals of skills"]) == (1, 1)

    def test_an_approval_is_a_leaf_of_the_log_and_signed_by_the_memory_key(
        self, store: sync.Holdproof, file: Path
    ) -> None:
        approved = store.skills.approve(str(file), by="ada")
        settled(store)
        [key] = store.keys.list(role="memory").items
        assert approved.keyid == key.keyid
        query = sql("SELECT leaf_id FROM skill_approvals")
        [(handle,)] = store.read(lambda tx: tx.all(query))
        leaf = json.loads(store.log.get_entry(handle)[1])
        assert (leaf["t"], leaf["p"], leaf["ver"]) == ("skill", "skill_approvals/1", 1)

    def test_nobody_approves_another_file_than_the_one_that_was_looked_at(
        self, store: sync.Holdproof, file: Path
    ) -> None:
        seen = store.skills.fingerprint(str(file))
        file.write_bytes(GOOD + b"(evil)")
        with pytest.raises(errors.ConflictError):
            store.skills.approve(str(file), by="ada", root=seen.root)
        assert store.skills.status(str(file)).state is SkillState.UNAPPROVED

    @pytest.mark.parametrize("by", ["", "a\nb", "x" * 1001])
    def test_an_approval_without_a_name_is_refused(self, store: sync.Holdproof, file: Path, by: str) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.skills.approve(str(file), by=by)
        assert store.skills.list().items == []

    def test_what_is_no_file_of_bounded_size_cannot_be_approved(self, store: sync.Holdproof, file: Path) -> None:
        (file.parent / "link.org").symlink_to(file)
        os.mkfifo(file.parent / "pipe.org")
        (file.parent / "blocks.org").write_bytes(b"* x\n" * 10_001)
        with (file.parent / "giant.org").open("wb") as giant:
            giant.truncate(1 << 40)
        for name in ("link.org", "pipe.org", "giant.org", "blocks.org"):
            with pytest.raises(errors.InvalidInputError, match="cannot be approved"):
                store.skills.approve(str(file.parent / name), by="ada")
        with pytest.raises(errors.NotFoundError):
            store.skills.approve(str(file.parent / "no.org"), by="ada")

    def test_a_revoked_skill_is_not_loaded_until_it_is_approved_again(self, store: sync.Holdproof, file: Path) -> None:
        with pytest.raises(errors.NotFoundError):
            store.skills.revoke(str(file), by="ada")
        store.skills.approve(str(file), by="ada")
        store.skills.revoke(str(file), by="bob", comment="outdated")
        assert store.skills.status(str(file)).state is SkillState.REVOKED
        assert "revoked" in refused(store, file).message
        with pytest.raises(errors.NotFoundError):
            store.skills.revoke(str(file), by="ada")
        assert store.skills.approve(str(file), by="ada").n == 3
        assert store.skills.load(str(file)).data == GOOD
        sound(store)

    def test_skills_of_a_namespace_are_its_own(self, store: sync.Holdproof, file: Path) -> None:
        store.skills.approve(str(file), by="ada", ns="blue")
        assert store.skills.load(str(file), ns="blue").data == GOOD
        assert "nobody approved it" in refused(store, file).message
        assert store.skills.load(str(file), ns="blue").data == GOOD
        assert [each.path for each in store.skills.list(ns="blue").items] == [str(file)]
        assert store.skills.list().items == []

    # --- attacks on the file -------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("tampered", "told"),
        [
            (GOOD.replace(b"(build)", b"(evil)"), "the code block 'lisp' at line 4 was changed"),
            (GOOD.replace(b"(build)", b"(build) "), "the code block 'lisp' at line 4 was changed"),
            (GOOD + b" ", "the text at line 11 was added"),
            (GOOD + b"#+begin_src sh\nrm\n#+end_src\n", "the code block 'sh' at line 11 was added"),
            (GOOD.replace(b"\n", b"\r\n"), "the headline 'Deploy' at line 1 was changed"),
            (GOOD[:-1], "the code block 'sh' at line 8 was changed"),
            (b"", "the headline 'Deploy' at line 1 is gone"),
            (MOVED, "the headline 'Build' at line 3 was moved"),
        ],
        ids=["edited", "space", "trailing", "appended", "crlf", "cut", "emptied", "moved"],
    )
    def test_a_changed_file_is_locked_and_the_block_is_named(
        self, store: sync.Holdproof, file: Path, tampered: bytes, told: str
    ) -> None:
        store.skills.approve(str(file), by="ada")
        file.write_bytes(tampered)
        error = refused(store, file)
        assert told in error.message
        assert any(told in change for change in error.fields["changes"])
        [(path, against, reason, changes)] = lockdowns(store)
        assert (path, against) == (str(file), 1)
        assert told in reason
        assert json.loads(changes) == error.fields["changes"]
        assert store.skills.status(str(file)).state is SkillState.LOCKED
        sound(store)

    def test_a_fence_inside_a_fence_cannot_hide_a_change(self, store: sync.Holdproof, file: Path) -> None:
        nested = file.with_name("SKILL.md")
        nested.write_bytes(FENCED)
        store.skills.approve(str(nested), by="ada")
        nested.write_bytes(FENCED.replace(b"ls", b"rm"))
        assert "the code block at line 3 was changed" in refused(store, nested).message

    def test_a_locked_skill_stays_locked_whatever_the_file_says_until_it_is_approved_again(
        self, store: sync.Holdproof, file: Path
    ) -> None:
        store.skills.approve(str(file), by="ada")
        file.write_bytes(b"* Evil\n")
        first = refused(store, file)
        file.write_bytes(GOOD)
        again = refused(store, file)
        assert again.fields["lockdown"] == first.fields["lockdown"]
        assert len(lockdowns(store)) == 1
        assert [each for each in store.status().degraded if "LOCKED" in each and str(file) in each]
        store.skills.approve(str(file), by="ada")
        assert store.skills.load(str(file)).data == GOOD
        assert not [each for each in store.status().degraded if "LOCKED" in each]
        sound(store)

    def test_an_unapproved_file_is_refused_asked_about_once_and_can_be_dismissed(
        self, store: sync.Holdproof, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        alerts: list[str] = []

        def note(_: object, alert: notify.Alert) -> dict[str, str]:
            alerts.append(alert.verdict)
            return {}

        monkeypatch.setattr(notify, "broadcast", note)
        for _ in range(2):
            with pytest.raises(errors.SkillUnapprovedError, match="nobody approved it"):
                store.skills.load(str(file))
        with pytest.raises(errors.NotFoundError):
            store.skills.load(str(file.with_name("no.org")))
        assert (alerts, lockdowns(store)) == (["UNAPPROVED"], [])
        assert store.skills.status(str(file)).state is SkillState.UNAPPROVED
        assert not [each for each in store.status().degraded if str(file) in each]
        [asked] = store.escalations.list(status="PENDING").items
        assert asked.reason.startswith("UNAPPROVED")
        store.escalations.resolve(asked.id, "reject", by="ada", comment="a typing error")
        with pytest.raises(errors.SkillUnapprovedError):
            store.skills.load(str(file))
        assert (alerts, store.escalations.list(status="PENDING").items) == (["UNAPPROVED"], [])
        store.skills.approve(str(file), by="ada")
        assert store.skills.load(str(file)).data == GOOD
        sound(store)

    def test_the_first_approval_answers_the_question_about_an_unapproved_file(
        self, store: sync.Holdproof, file: Path
    ) -> None:
        with pytest.raises(errors.SkillUnapprovedError):
            store.skills.load(str(file))
        store.skills.approve(str(file), by="ada")
        assert store.escalations.list(status="PENDING").items == []

    def test_a_file_that_is_gone_locks_nothing(self, store: sync.Holdproof, file: Path) -> None:
        store.skills.approve(str(file), by="ada")
        aside = file.rename(file.with_name("aside.org"))
        with pytest.raises(errors.NotFoundError):
            store.skills.load(str(file))
        assert [each.state for each in store.skills.verify().items] == [SkillState.MISSING]
        aside.rename(file)
        assert store.skills.load(str(file)).data == GOOD
        assert lockdowns(store) == []

    def test_a_link_to_the_very_same_bytes_is_refused(self, store: sync.Holdproof, file: Path) -> None:
        store.skills.approve(str(file), by="ada")
        file.rename(file.with_name("copy.org"))
        file.symlink_to(file.with_name("copy.org"))
        assert "link" in refused(store, file).message

    def test_a_folder_on_the_way_that_was_replaced_by_a_link_is_refused(
        self, store: sync.Holdproof, file: Path
    ) -> None:
        store.skills.approve(str(file), by="ada")
        folder = file.parent.parent
        folder.rename(folder.with_name("moved"))
        folder.symlink_to(folder.with_name("moved"))
        assert file.read_bytes() == GOOD  # whoever follows links sees nothing
        assert "link" in refused(store, file).message

    def test_a_skill_approved_through_a_linked_folder_is_loaded_from_where_it_lay_then(
        self, store: sync.Holdproof, file: Path
    ) -> None:
        (file.parent.parent / "by").symlink_to(file.parent)
        through = file.parent.parent / "by" / file.name
        assert store.skills.approve(str(through), by="ada").place == str(file)
        assert store.skills.load(str(through)).data == GOOD
        evil = file.parent.parent / "evil"
        evil.mkdir()
        (evil / file.name).write_bytes(b"* Evil\n")
        (file.parent.parent / "by").unlink()
        (file.parent.parent / "by").symlink_to(evil)
        assert store.skills.load(str(through)).data == GOOD

    @pytest.mark.parametrize("odd", ["pipe", "folder", "giant"])
    def test_what_is_no_file_any_more_is_refused_without_waiting(
        self, store: sync.Holdproof, file: Path, odd: str
    ) -> None:
        store.skills.approve(str(file), by="ada")
        file.unlink()
        if odd == "pipe":
            os.mkfifo(file)
        elif odd == "folder":
            file.mkdir()
        else:
            with file.open("wb") as giant:
                giant.truncate(1 << 40)
        refused(store, file)
        assert len(lockdowns(store)) == 1

    def test_a_file_swapped_between_check_and_read_is_what_is_checked(self, store: sync.Holdproof, file: Path) -> None:
        store.skills.approve(str(file), by="ada")
        load = Driven(store, upkeep.load(store.context, str(file)))
        load.until(Read)
        file.write_bytes(b"* Evil\n")  # after the database was asked, before the file is read
        with pytest.raises(errors.SkillLockedError):
            load.finish()

    def test_a_file_swapped_after_it_was_read_changes_nothing(self, store: sync.Holdproof, file: Path) -> None:
        store.skills.approve(str(file), by="ada")
        load = Driven(store, upkeep.load(store.context, str(file)))
        load.until(Call)
        file.write_bytes(b"* Evil\n")
        assert load.finish().data == GOOD

    # --- attacks on the database ---------------------------------------------------------------------------------

    def test_a_forged_approval_is_neither_loaded_nor_verified(self, store: sync.Holdproof, file: Path) -> None:
        store.skills.approve(str(file), by="ada")
        file.write_bytes(b"* Evil\n")
        evil = store.skills.fingerprint(str(file))
        forge(store, root=evil.root, size=evil.size, blocks=listed(evil))
        assert store.skills.status(str(file)).state is SkillState.INVALID
        assert "does not hold" in refused(store, file).message
        settled(store)
        report = store.verify.run(lock=False)
        assert {finding.table for finding in report.findings if finding.verdict.locks} >= {"skill_approvals"}

    def test_an_older_approval_played_again_under_a_newer_number_does_not_hold(
        self, store: sync.Holdproof, file: Path
    ) -> None:
        store.skills.approve(str(file), by="ada")
        file.write_bytes(GOOD + b"* More\n")
        store.skills.approve(str(file), by="ada")
        file.write_bytes(GOOD)
        forge(store, n=3)
        assert "says something else" in refused(store, file).message

    @pytest.mark.parametrize(
        "edit",
        [
            "root = '00'",
            "root = ''",
            "place = '/etc/passwd'",
            "rules = 'whole/1'",
            "statement = ''",
            "statement = '{}'",
            "keyid = 'x'",
            "blocks = '[]'",
            "blocks = 'x'",
            "blocks = '[1]'",
            "approved_by = 'eve'",
            "size = 1",
        ],
    )
    def test_an_edited_approval_does_not_hold(self, store: sync.Holdproof, file: Path, edit: str) -> None:
        store.skills.approve(str(file), by="ada")
        store.write(lambda tx: tx.execute(sql(f"UPDATE skill_approvals SET {edit}")))
        assert "does not hold" in refused(store, file).message
        settled(store)
        found = store.verify.run(lock=False).findings
        assert [each.table for each in found if each.verdict is Verdict.TAMPERED].count("skill_approvals") >= 1

    def test_an_approval_signed_with_a_key_that_nobody_admitted_does_not_hold(
        self, store: sync.Holdproof, file: Path
    ) -> None:
        store.skills.approve(str(file), by="ada")
        store.run(trust.export_root(store.context))
        stranger = keypairs.generate("ecdsa-p256-sha256")
        file.write_bytes(b"* Evil\n")
        evil = store.skills.fingerprint(str(file))
        settled(store)
        origin = store.log.head().checkpoint.origin
        forge(
            store,
            root=evil.root,
            size=evil.size,
            blocks=listed(evil),
            keyid=stranger.keyid,
            statement=lambda row: proofs.sign(row, origin, stranger),
        )
        add = sql(
            "INSERT INTO keyring (keyid, role, alg, public, statement, added_at, leaf_id, leaf_ver) SELECT :keyid,"
            " role, alg, :public, statement, added_at, 'x', 1 FROM keyring WHERE role = 'memory'"
        )
        public = stranger.public.to_pem().decode()
        store.write(lambda tx: tx.execute(add, keyid=stranger.keyid, public=public))
        assert "no memory key of this store" in refused(store, file).message

    def test_what_a_revoked_key_signed_after_that_point_does_not_count(self, store: sync.Holdproof, file: Path) -> None:
        store.run(trust.export_root(store.context))
        before = store.skills.approve(str(file), by="ada")
        settled(store)
        store.keys.revoke(before.keyid, from_index=0)
        assert "does not count" in refused(store, file).message
        settled(store)
        report = store.verify.run(lock=False)
        assert report.verdict is Verdict.REVOKED_KEY
        with pytest.raises(errors.RevokedKeyError):
            store.skills.approve(str(file), by="ada")
        store.keys.rotate("memory")
        store.skills.approve(str(file), by="ada")
        assert store.skills.load(str(file)).data == GOOD

    @pytest.mark.parametrize("table", ["skill_approvals", "skill_lockdowns"])
    def test_a_deleted_row_is_missed(self, store: sync.Holdproof, file: Path, table: str) -> None:
        store.skills.approve(str(file), by="ada")
        file.write_bytes(b"* Evil\n")
        refused(store, file)
        settled(store)
        store.write(lambda tx: tx.execute(sql(f"DELETE FROM {table}")))
        report = store.verify.run(lock=False)
        assert (report.verdict, report.findings[0].table) == (Verdict.TAMPERED, table)
        refused(store, file)  # and the file is not loaded for all that

    def test_in_a_locked_store_what_is_sound_is_loaded_and_nothing_else(
        self, store: sync.Holdproof, file: Path
    ) -> None:
        store.skills.approve(str(file), by="ada")
        store.lockdown.lock(reason="try")
        assert store.skills.load(str(file)).data == GOOD
        file.write_bytes(b"* Evil\n")
        error = refused(store, file)
        assert "the headline 'Deploy' at line 1" in error.message
        assert error.fields["lockdown"] is None
        assert lockdowns(store) == []
        with pytest.raises(errors.LockedError):
            store.skills.approve(str(file), by="ada")

    # --- races ---------------------------------------------------------------------------------------------------

    def test_racing_approvals_have_numbers_of_their_own_and_none_is_lost(
        self, store: sync.Holdproof, file: Path
    ) -> None:
        store.skills.approve(str(file), by="first")

        def approve(number: int) -> int:
            try:
                return store.skills.approve(str(file), by=f"racer {number}").n
            except errors.ConflictError:
                return 0

        outcomes = together(8, approve)
        won = sorted(number for number in outcomes if number)
        numbers = [row[0] for row in store.read(lambda tx: tx.all(_NUMBERS, path=str(file)))]
        assert won
        assert [1, *won] == numbers == list(range(1, len(numbers) + 1))
        assert store.skills.load(str(file)).data == GOOD
        sound(store)

    def test_an_approval_that_was_overtaken_while_the_file_was_read_is_refused(
        self, store: sync.Holdproof, file: Path
    ) -> None:
        slow = Driven(store, upkeep.approve(store.context, str(file), by="slow"))
        slow.until(Call)  # the file was read
        file.write_bytes(GOOD + b"* Better\n")
        store.skills.approve(str(file), by="fast")
        with pytest.raises(errors.ConflictError):
            slow.finish()
        assert store.skills.load(str(file)).data == GOOD + b"* Better\n"
        sound(store)

    def test_of_many_who_find_the_same_one_tells(
        self, store: sync.Holdproof, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        receiver = Receiver(200)
        monkeypatch.setenv("HOLDPROOF_NOTIFY_WEBHOOK_URL", receiver.url)
        store.skills.approve(str(file), by="ada")
        file.write_bytes(b"* Evil\n")
        together(8, lambda _: type(refused(store, file)).__name__)
        receiver.close()
        [(_, _, body)] = receiver.requests
        told = json.loads(body)
        [(_, _, reason, _)] = lockdowns(store)
        assert (told["type"], told["skill"], told["reason"]) == ("holdproof.lockdown", str(file), reason)
        sound(store)

    def test_the_operator_is_asked_and_the_next_approval_is_the_answer(self, store: sync.Holdproof, file: Path) -> None:
        store.skills.approve(str(file), by="ada")
        file.write_bytes(b"* Evil\n")
        lockdown = refused(store, file).fields["lockdown"]
        [asked] = store.escalations.list(status="PENDING").items
        assert (asked.flow_id, asked.opened_by) == (lockdown, "kernel")
        assert str(file) in asked.reason
        file.write_bytes(GOOD)
        store.skills.approve(str(file), by="bob")
        answered = store.escalations.get(asked.id)
        assert (answered.status, answered.resolved_by) == ("APPROVED", "bob")
        assert store.flows.get(lockdown).status == "COMPLETED"

    # --- verifying and watching ----------------------------------------------------------------------------------

    def test_verify_looks_at_every_listed_file_and_locks_what_changed(self, store: sync.Holdproof, file: Path) -> None:
        other = file.with_name("other.py")
        other.write_bytes(b"def f(): ...\n")
        for each in (file, other):
            store.skills.approve(str(each), by="ada")
        assert [each.state for each in store.skills.verify().items] == [SkillState.APPROVED] * 2
        other.write_bytes(b"def f(): evil()\n")
        found = {each.path: each for each in store.skills.verify(lock=False).items}
        assert found[str(other)].state is SkillState.LOCKED
        assert "the code block 'f' at line 1 was changed" in found[str(other)].flaw
        assert lockdowns(store) == []
        assert [each.state for each in store.skills.verify(str(other)).items] == [SkillState.LOCKED]
        assert [row[0] for row in lockdowns(store)] == [str(other)]
        assert store.skills.load(str(file)).data == GOOD

    def test_many_skills_are_listed_in_pages(self, store: sync.Holdproof, file: Path) -> None:
        paths = [file.with_name(f"s{number}.txt") for number in range(5)]
        for path in paths:
            path.write_bytes(path.name.encode())
            store.skills.approve(str(path), by="ada")
        first = store.skills.list(limit=3)
        rest = store.skills.list(cursor=first.next_cursor, limit=3)
        assert [each.path for each in (*first.items, *rest.items)] == [str(path) for path in paths]
        assert rest.next_cursor is None
        with pytest.raises(errors.InvalidInputError):
            store.skills.list(limit=0)


class WithoutFrozenClock(OnStore):
    """A watcher waits for time to pass."""

    @pytest.fixture
    def live(self) -> Iterator[sync.Holdproof]:
        with self.open() as store:
            yield store

    def test_a_watcher_tells_of_each_change_once(self, live: sync.Holdproof, file: Path) -> None:
        live.skills.approve(str(file), by="ada")
        watching = live.skills.watch(every_s=0.01)
        assert next(watching).state is SkillState.APPROVED
        file.write_bytes(b"* Evil\n")
        told = next(watching)
        assert (told.state, told.lockdown is not None) == (SkillState.LOCKED, True)
        file.write_bytes(GOOD)
        live.skills.approve(str(file), by="ada")
        assert next(watching).state is SkillState.APPROVED
        watching.close()  # type: ignore[attr-defined]
        assert len(list(live.skills.watch(rounds=1))) == 1
        sound(live)

    def test_a_watcher_looks_at_once_when_something_is_said(self, live: sync.Holdproof, file: Path) -> None:
        watching = live.skills.watch(every_s=600)
        found: list[Skill] = []
        thread = threading.Thread(target=lambda: found.append(next(watching)))
        thread.start()
        for say in cycle((live.skills.approve, live.skills.revoke)):  # the first may be said before it looks at all
            say(str(file), by="ada")
            thread.join(0.5)
            if not thread.is_alive():
                break
        assert [each.path for each in found] == [str(file)]

    @pytest.mark.parametrize("every_s", [0, -1, float("nan"), 1e9])
    def test_a_watcher_that_never_or_always_looks_is_refused(self, live: sync.Holdproof, every_s: float) -> None:
        with pytest.raises(errors.InvalidInputError):
            next(live.skills.watch(every_s=every_s))

    def test_the_async_face_does_the_same(self, file: Path) -> None:
        async def play() -> None:
            async with holdproof.open(**self.target()) as store:
                approved = await store.skills.approve(str(file), by="ada")
                assert (await store.skills.load(str(file))).approval == approved
                assert [each.state async for each in store.skills.watch(rounds=2, every_s=0.01)] == [
                    SkillState.APPROVED
                ]
                file.write_bytes(b"* Evil\n")
                with pytest.raises(errors.SkillLockedError):
                    await store.skills.load(str(file))
                assert (await store.skills.status(str(file))).state is SkillState.LOCKED
                [found] = (await store.skills.verify()).items
                assert found.lockdown == (await store.skills.list()).items[0].lockdown

        asyncio.run(play())

    def test_a_store_of_one_namespace_keeps_to_it(self, file: Path) -> None:
        with self.open(ns="blue") as store:
            store.skills.approve(str(file), by="ada")
            assert store.skills.load(str(file)).approval.ns == "blue"
            assert [each.path for each in store.skills.watch(rounds=1)] == [str(file)]
            with pytest.raises(errors.NamespaceError):
                next(store.skills.watch(rounds=1, ns="red"))
            with pytest.raises(errors.NamespaceError):
                store.skills.load(str(file), ns="red")


# --- driving by hand ---------------------------------------------------------------------------------------------


class Driven:
    """A work driven step by step, so that somebody can do something in between."""

    def __init__(self, store: sync.Holdproof, work: Work[Any]) -> None:
        self._store, self._work, self._answer = store, work, None

    def until(self, kind: type) -> None:
        """Perform effects up to the first of that kind; the work has not heard its answer yet."""
        effect: Any = None
        while not isinstance(effect, kind):
            effect = self._work.send(self._answer)
            self._answer = self._perform(effect)

    def finish(self) -> Any:
        try:
            while True:
                self._answer = self._perform(self._work.send(self._answer))
        except StopIteration as stop:
            return stop.value

    def _perform(self, effect: Any) -> Any:
        if isinstance(effect, Call):
            return effect.fn()
        return self._store.read(effect.fn) if isinstance(effect, Read) else self._store.write(effect.fn)


# --- forging -----------------------------------------------------------------------------------------------------

_LAST = sql(
    "SELECT path, n, action, place, rules, root, size, approved_by, comment, approved_at, ns, blocks, keyid, statement"
    " FROM skill_approvals ORDER BY n LIMIT 1"
)
_FORGE = sql(
    "INSERT INTO skill_approvals (id, ns, path, n, action, place, rules, root, size, blocks, approved_by, comment,"
    " approved_at, keyid, statement, leaf_id, leaf_ver, leaf_salt) SELECT :id, :ns, :path, :n, :action, :place, :rules,"
    " :root, :size, :blocks, :approved_by, :comment, :approved_at, :keyid, :statement, leaf_id, leaf_ver, leaf_salt"
    " FROM skill_approvals WHERE n = 1"
)


def listed(found: Fingerprint) -> str:
    return json.dumps([[*each.to_dict().values()] for each in found.blocks])


def forge(store: sync.Holdproof, **changes: Any) -> None:
    """Put an approval into the database that nobody made: the first one, with the next number and these changes."""

    def put(tx: Tx) -> None:
        names = (*proofs.SIGNED, "blocks", "keyid", "statement")
        found = tx.one(_LAST)
        assert found is not None
        row = dict(zip(names, found, strict=True)) | {"n": 2, **changes}
        if callable(row["statement"]):
            row["statement"] = row["statement"](row)
        tx.execute(_FORGE, id=tx.new_id(), **row)

    store.write(put)


class TestSqlite(OnSqlite, Skills):
    pass


class TestMemory(InMemory, Skills):
    pass


class TestPostgres(OnPostgres, Skills):
    pass


class TestLiveSqlite(OnSqlite, WithoutFrozenClock):
    pass


class TestLiveMemory(InMemory, WithoutFrozenClock):
    pass


class TestLivePostgres(OnPostgres, WithoutFrozenClock):
    pass
