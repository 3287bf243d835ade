"""Who was given a person's content, or an export, and who verified the store: each leaves an entry."""

import asyncio
from pathlib import Path

import holdproof
from harness.filling import settled
from holdproof import sql, sync
from holdproof.db import Give, Read
from holdproof.executors.accesses import watch_of
from holdproof.model.trail import TrailEntry
from holdproof.model.verdicts import Verdict
from holdproof.remote import connect_sync
from holdproof.runtime import exports
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.store_locations import StoreLocation
from tests.web import running


def _accesses(store: sync.Holdproof, kind: str = "access") -> list[TrailEntry]:
    # The write of a read's entry is queued before the answer is given: one more write comes after it.
    store.audit.trail(limit=1)
    store.agents.set_status("trader", "ACTIVE")
    settled(store)
    return [*reversed(store.audit.trail(kind=kind, limit=1000).items)]


def _sealed(store: sync.Holdproof, count: int = 1, subject: str = "Ada") -> None:
    for number in range(count):
        store.evaluations.submit({"n": number}, evaluation_id=f"{subject}-{number}", score=0.5, subject=subject)


class Accesses(OnStore):
    def test_reading_a_persons_content_in_a_loop_leaves_one_entry_an_hour(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        _sealed(store, 5)
        for number in range(5):
            assert store.evaluations.reveal(f"Ada-{number}") == {"n": number}
        [access] = _accesses(store)
        assert (access.what, access.person) == ("content of a subject read by evaluations.reveal", "operator")
        clock.advance(3600)
        store.evaluations.reveal("Ada-0")
        assert len(_accesses(store)) == 2

    def test_each_subject_and_each_method_has_an_entry_of_its_own(self, store: sync.Holdproof) -> None:
        _sealed(store)
        _sealed(store, subject="Bob")
        store.objects.put("o", type="t", content="of Ada", subject="Ada")
        store.evaluations.reveal("Ada-0")
        store.evaluations.reveal("Bob-0")
        assert store.objects.get("o").content == "of Ada"
        accesses = _accesses(store)
        assert len({each.note for each in accesses}) == 2
        assert sorted(each.what.rpartition(" ")[2] for each in accesses) == [
            "evaluations.reveal",
            "evaluations.reveal",
            "objects.get",
        ]

    def test_what_belongs_to_nobody_leaves_no_entry(self, store: sync.Holdproof) -> None:
        store.objects.put("o", type="t", content="plain")
        store.objects.get("o")
        store.evaluations.submit({"n": 1}, evaluation_id="b", score=0.5)
        store.evaluations.get("b")
        assert _accesses(store) == []

    def test_running_a_persons_flow_is_no_access_and_reading_it_is_one(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader", subject="Ada") as flow:
            flow.step("note", lambda: "a finding")
        assert _accesses(store) == []
        [step] = store.flows.steps(flow.flow_id)
        assert step.result == "a finding"
        assert [each.what for each in _accesses(store)] == ["content of a subject read by flows.steps"]

    def test_every_export_leaves_an_entry_that_names_it(self, store: sync.Holdproof) -> None:
        _sealed(store, subject="Bob")
        settled(store)
        store.bundle.export("Bob-0")
        store.bundle.export("Bob-0")
        assert [*store.audit.export()] == []
        store.dbom.envelope("Bob-0")
        assert [(each.what, each.note) for each in _accesses(store)] == [
            ("exported by bundle.export", "Bob-0"),
            ("exported by bundle.export", "Bob-0"),
            ("exported by audit.export", None),
            ("exported by dbom.envelope", "Bob-0"),
        ]

    def test_a_stream_of_persons_content_is_recorded_before_its_first_item(self, store: sync.Holdproof) -> None:
        flow = store.flows.start("trader", subject="Ada")
        store.flows.transition(flow.flow_id, "RUNNING", reason="of Ada")
        stream = iter(store.flows.export())
        next(stream)
        kinds = [each.what for each in _accesses(store)]
        assert "exported by flows.export" in kinds

    def test_content_of_many_people_is_recorded_by_one_write(self, store: sync.Holdproof) -> None:
        _sealed(store)
        for number in range(20):
            flow = store.flows.start("trader", subject=f"person-{number}")
            store.flows.transition(flow.flow_id, "RUNNING", reason="of them")
        watch = watch_of(store.flows, "export", subject="since", exports=False)
        assert watch is not None
        work = watch.working(exports.flows(None), (), {})
        effects = [next(work)]
        while not isinstance(effects[-1], Give):
            effects.append(work.send((store.read if isinstance(effects[-1], Read) else store.write)(effects[-1].fn)))
        work.close()
        assert [type(each).__name__ for each in effects] == ["Read", "Write", "Give"]
        assert len(_accesses(store)) == 20

    def test_a_verification_leaves_its_report(self, store: sync.Holdproof) -> None:
        store.verify.run()
        store.verify.run(full=True, who="ann")
        told = [(each.what, each.note, each.person) for each in _accesses(store, "verification")]
        assert told == [
            ("verified (fast): VALID", "0 findings", "operator"),
            ("verified (full): VALID", "0 findings", "ann"),
        ]
        assert store.verify.run(full=True).verdict is Verdict.VALID

    def test_the_report_of_tampering_names_what_was_found(self, store: sync.Holdproof) -> None:
        _sealed(store)
        settled(store)
        store.write(lambda tx: tx.execute(sql("UPDATE battles SET score = 0.9")))
        report = store.verify.run()
        assert report.verdict is Verdict.TAMPERED
        store.write(lambda tx: tx.execute(sql("UPDATE battles SET score = 0.5")))
        [(verdict, found, findings)] = store.read(
            lambda tx: tx.all(sql("SELECT verdict, found, findings FROM verifications"))
        )
        assert (verdict, found) == ("TAMPERED", len(report.findings))
        assert '"table":"battles"' in findings

    def test_the_async_client_records_the_same(self, store: sync.Holdproof) -> None:
        _sealed(store)

        async def read() -> None:
            client = holdproof.Holdproof(store.core)
            await asyncio.gather(*(client.evaluations.reveal("Ada-0") for _ in range(20)))

        asyncio.run(read())
        assert len(_accesses(store)) == 1


class TestAccessesInMemory(InMemory, Accesses):
    pass


class TestAccessesOnSqlite(OnSqlite, Accesses):
    pass


class TestAccessesOnPostgres(OnPostgres, Accesses):
    pass


def test_read_only_and_locked_stores_give_content_and_write_nothing(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        _sealed(store)
        size = store.log.head().checkpoint.size
    with sync.open(tmp_path, readonly=True) as store:
        assert store.evaluations.reveal("Ada-0") == {"n": 0}
        report = store.verify.run()
        assert report.verdict is Verdict.VALID
        assert any("no entry" in each for each in report.not_checked)
        assert store.log.head().checkpoint.size == size
    sync.verify(tmp_path)
    with sync.open(tmp_path) as store:
        assert store.log.head().checkpoint.size == size
        store.lockdown.lock(reason="a drill")
        size = store.log.head().checkpoint.size
        assert store.evaluations.reveal("Ada-0") == {"n": 0}
        assert len(store.bundle.export("Ada-0")) > 0
        assert any("no entry" in each for each in store.verify.run().not_checked)
        assert store.log.head().checkpoint.size == size


def test_the_entry_of_a_verification_does_not_name_a_blob_whose_path_names_a_person(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.blobs.open_write("ada/diagnosis", [b"x" * 400_000], subject="Ada")
        [file] = [each for each in (tmp_path / "blobs").rglob("*") if each.is_file()]
        file.unlink()
        assert [each.row for each in store.verify.run().findings] == ["ada/diagnosis"]
        [(found, findings)] = store.read(lambda tx: tx.all(sql("SELECT found, findings FROM verifications")))
    assert (found, findings) == (1, '[{"verdict":"TAMPERED","table":"blobs"}]')


def test_a_verification_that_may_lock_leaves_its_report_and_a_plain_one_does_not(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    with place.open() as store:
        store.agents.register("trader", version="1")
    sync.verify(place.home)
    sync.verify(place.home, lock=True)
    with place.open() as store:
        assert len(_accesses(store, "verification")) == 1


def test_at_a_server_the_entry_names_the_caller(tmp_path: Path) -> None:
    with running(tmp_path) as web:
        web.store.agents.register("trader", version="1")
        _sealed(web.store)
        secret = web.store.tokens.create("ann", role="operator").secret
        with connect_sync(web.listening.address, token=secret) as remote:
            assert remote.evaluations.reveal("Ada-0") == {"n": 0}
            remote.bundle.export("Ada-0")
            remote.verify.run()
        people = {each.person for kind in ("access", "verification") for each in _accesses(web.store, kind)}
        assert people == {"operator:ann"}
