"""Archives of a month of audit events: whole, provable to a stranger, under one entry, and only then removed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from harness.filling import settled
from harness.servers import Seaweed
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.content import parquet, parquet_reader
from holdproof.crypto import keys
from holdproof.db import sql
from holdproof.evidence import archives
from holdproof.model.backup import Entry
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import BundleReport
from holdproof.testing import FrozenClock
from holdproof.upkeep import archiving, kernel_tables
from holdproof.upkeep.backups import bucket_places
from holdproof.upkeep.backups.bucket import Bucket
from holdproof.upkeep.verification import archive_check
from tests.buckets import place_in
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

DAY_S = 86_400
JANUARY = 12
_TABLE = kernel_tables.LOGGED["decision_audit_events"]
_LEFT = sql("SELECT count(*) FROM decision_audit_events")


def filled(store: sync.Holdproof, clock: FrozenClock, *, events: int = JANUARY) -> None:
    """Leave events in January by two flows, one of a person, and two in February; it is March then."""
    for flow_id, subject in (("plain", None), ("of Ada", "Ada")):
        store.flows.start("trader", flow_id=flow_id, subject=subject)
        for number in range(events // 2):
            store.audit.record(flow_id, "LOOKED", detail={"n": number, "text": "é" * 50})
    clock.advance(40 * DAY_S)
    for flow_id in ("plain", "of Ada"):
        store.audit.record(flow_id, "LATER")
    clock.advance(25 * DAY_S)
    settled(store)


def left(store: sync.Holdproof) -> int:
    return int(store.read(lambda tx: tx.all(_LEFT))[0][0])


def verdicts(store: sync.Holdproof) -> tuple[Verdict, ...]:
    settled(store)
    reports = (store.verify.run(full=True, lock=False), store.verify.run(since_last=True, lock=False))
    return tuple(report.verdict for report in reports)


def place_of(archived: Any) -> Path:
    [made] = archived.archives
    return Path(made.place)


class Archives(OnStore):
    def test_a_month_is_archived_under_one_entry_and_a_stranger_can_check_it(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path
    ) -> None:
        filled(store, clock)
        store.verify.run(lock=False)
        planned = store.retention.archive(month="2026-01", to=tmp_path, dry_run=True)
        assert (planned.count, planned.archives, left(store)) == (JANUARY, [], JANUARY + 2)
        archived = store.retention.archive(month="2026-01", to=tmp_path)
        assert (archived.count, archived.under_hold, left(store)) == (JANUARY, 0, 2)
        assert verdicts(store) == (Verdict.VALID, Verdict.VALID)
        assert store.verify.run(full=True, lock=False).checked["archived"] == JANUARY
        folder = place_of(archived)
        report = archive_check.check(folder)
        assert (report.verdict, report.subject) == (Verdict.VALID, "audit 2026-01")
        [listed] = store.retention.archives().items
        assert [listed] == archived.archives
        assert listed.sha256 in report.notes[0]
        root = keys.load_public_pem(store.keys.list(role="root").items[0].public.encode())
        assert archive_check.check(folder, root=root).trusted
        assert archive_check.check(folder, root=keys.generate("ed25519").public).verdict is Verdict.TAMPERED

    def test_duckdb_reads_the_records_and_a_person_stays_sealed_in_them(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path
    ) -> None:
        filled(store, clock)
        folder = place_of(store.retention.archive(month="2026-01", to=tmp_path))
        query = f"SELECT dfid, count(*), min(detail_json) FROM '{folder}/records.parquet' GROUP BY dfid ORDER BY dfid"
        of_ada, plain = duckdb.connect().execute(query).fetchall()
        assert (plain[:2], of_ada[:2]) == (("plain", JANUARY // 2), ("of Ada", JANUARY // 2))
        assert json.loads(plain[2])["n"] == 0
        assert "é" not in of_ada[2]

    def test_a_month_with_more_records_than_an_archive_holds_has_several(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        filled(store, clock)
        monkeypatch.setattr(archive_check, "MOST", 5)
        monkeypatch.setattr(archiving, "_PAGE", 2)
        monkeypatch.setattr(archiving, "_GROUP", 2)
        monkeypatch.setattr(archiving, "_REMOVED", 2)
        archived = store.retention.archive(month="2026-01", to=tmp_path)
        assert [each.count for each in archived.archives] == [5, 5, 2]
        assert (archived.count, left(store)) == (JANUARY, 2)
        assert {archive_check.check(Path(each.place)).verdict for each in archived.archives} == {Verdict.VALID}
        assert verdicts(store) == (Verdict.VALID, Verdict.VALID)

    def test_killed_before_the_removal_the_records_are_in_both_and_the_next_run_ends_it(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        filled(store, clock)
        whole = archiving._remove_some

        def dies(*_: Any, **__: Any) -> int:
            raise RuntimeError("killed")

        monkeypatch.setattr(archiving, "_remove_some", dies)
        with pytest.raises(RuntimeError, match="killed"):
            store.retention.archive(month="2026-01", to=tmp_path)
        assert left(store) == JANUARY + 2
        assert verdicts(store) == (Verdict.VALID, Verdict.VALID)
        monkeypatch.setattr(archiving, "_remove_some", whole)
        assert store.retention.archive(month="2026-01", to=tmp_path).count == JANUARY
        assert verdicts(store) == (Verdict.VALID, Verdict.VALID)
        assert len(store.retention.archives().items) == 2

    def test_a_place_that_cannot_be_written_removes_nothing_and_leaves_nothing(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path
    ) -> None:
        filled(store, clock)
        blocked = tmp_path / "file"
        blocked.write_text("")
        with pytest.raises(errors.UnavailableError):
            store.retention.archive(month="2026-01", to=blocked)
        assert (left(store), store.retention.archives().items) == (JANUARY + 2, [])

    def test_what_a_rule_keeps_is_not_archived(self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path) -> None:
        filled(store, clock)
        floor = store.retention.floor(183, reason="six months", what="audit")
        with pytest.raises(errors.RetentionHeldError, match="183 days: 2026-01"):
            store.retention.archive(month="2026-01", to=tmp_path)
        store.retention.lift(floor.id, reason="closed")
        everything = store.retention.hold(reason="case 1")
        with pytest.raises(errors.RetentionHeldError, match="case 1"):
            store.retention.archive(month="2026-01", to=tmp_path)
        store.retention.lift(everything.id, reason="closed")
        hold = store.retention.hold(subject="Ada", reason="case 2")
        archived = store.retention.archive(month="2026-01", to=tmp_path)
        assert (archived.count, archived.under_hold, left(store)) == (JANUARY // 2, JANUARY // 2, JANUARY // 2 + 2)
        store.retention.lift(hold.id, reason="closed")
        assert store.retention.archive(month="2026-01", to=tmp_path).count == JANUARY // 2
        assert verdicts(store) == (Verdict.VALID, Verdict.VALID)

    @pytest.mark.parametrize("month", ["2026-03", "2026-1", "January", "", "2026-13", "9999-12"])
    def test_a_month_that_has_not_ended_or_is_none_is_refused(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path, month: str
    ) -> None:
        clock.advance(65 * DAY_S)
        with pytest.raises(errors.InvalidInputError, match="month"):
            store.retention.archive(month=month, to=tmp_path)

    def test_a_month_without_records_gives_no_archive(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path
    ) -> None:
        filled(store, clock)
        archived = store.retention.archive(month="2025-12", to=tmp_path)
        assert (archived.count, archived.archives, [*tmp_path.glob("audit*")]) == (0, [], [])

    def test_a_record_that_does_not_match_its_entry_ends_it(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path
    ) -> None:
        filled(store, clock)
        edit = "UPDATE decision_audit_events SET severity = :to WHERE id = 3"
        store.core.database.write(lambda tx: tx.execute(sql(edit), to="ERROR")).result()
        with pytest.raises(errors.TamperedError, match="nothing was archived"):
            store.retention.archive(month="2026-01", to=tmp_path)
        assert left(store) == JANUARY + 2
        store.core.database.write(lambda tx: tx.execute(sql(edit), to="INFO")).result()

    def test_an_archive_covers_only_the_records_that_are_in_it(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path
    ) -> None:
        filled(store, clock)
        store.retention.archive(month="2026-01", to=tmp_path)
        before = store.read(lambda tx: tx.all(sql("SELECT positions FROM retention_archives")))
        lose = sql("DELETE FROM decision_audit_events WHERE event_type = 'LATER' AND dfid = 'plain'")
        rows = store.read(lambda tx: tx.all(_EVERY))
        store.core.database.write(lambda tx: tx.execute(lose)).result()
        report = store.verify.run(full=True, lock=False)
        assert [finding.verdict for finding in report.findings] == [Verdict.TAMPERED]
        # An archive that was widened to cover it does not match its own entry.
        wider = archives.encode(range(store.read(lambda tx: tx.all(_SIZE))[0][0]))
        edit = sql("UPDATE retention_archives SET positions = :positions")
        store.core.database.write(lambda tx: tx.execute(edit, positions=wider)).result()
        [finding] = store.verify.run(full=True, lock=False).findings
        assert (finding.verdict, finding.table) == (Verdict.TAMPERED, "retention_archives")
        store.core.database.write(lambda tx: tx.execute(edit, positions=before[0][0])).result()
        lost = next(row for row in rows if row[1] == "LATER" and row[2] == "plain")
        store.core.database.write(lambda tx: tx.execute(_PUT_BACK, **dict(zip(_COLUMNS, lost, strict=True)))).result()


_COLUMNS = (
    *("id", "event_type", "dfid", "root_dfid", "severity", "step_id", "state", "detail_json", "created_at", "ns"),
    *("leaf_id", "leaf_ver", "leaf_salt"),
)
_EVERY = sql(f"SELECT {', '.join(_COLUMNS)} FROM decision_audit_events")
_PUT_BACK = sql(
    f"INSERT INTO decision_audit_events ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{each}' for each in _COLUMNS)})"
)
_SIZE = sql("SELECT size FROM log_state")


class TestSqlite(OnSqlite, Archives):
    @pytest.fixture
    def archive(self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path) -> Path:
        filled(store, clock)
        return place_of(store.retention.archive(month="2026-01", to=tmp_path / "out"))

    def test_every_edited_file_of_an_archive_is_found(self, archive: Path) -> None:
        for name in (*archive_check.FILES, archive_check.MANIFEST):
            path = archive / name
            whole = path.read_bytes()
            for at in range(0, len(whole), max(1, len(whole) // 40)):
                path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
                assert _refused(lambda: archive_check.check(archive)), (name, at)
            path.write_bytes(whole[:-1])
            assert _refused(lambda: archive_check.check(archive)), name
            path.unlink()
            assert _refused(lambda: archive_check.check(archive)), name
            path.write_bytes(whole)
        assert archive_check.check(archive).verdict is Verdict.VALID

    @pytest.mark.parametrize("change", ["edit", "drop", "double", "shift"])
    def test_records_that_the_manifest_names_but_the_log_does_not_have_are_found(
        self, archive: Path, monkeypatch: pytest.MonkeyPatch, change: str
    ) -> None:
        """As by whoever can sign manifests: what the log has decides."""
        columns = archive_check.columns(_TABLE)
        with (archive / "records.parquet").open("rb") as file:
            rows = [[*row] for group in parquet_reader.read(file, columns) for row in group]
        names = [each.name for each in columns]
        if change == "edit":
            rows[3][names.index("severity")] = "ERROR"
        elif change == "drop":
            rows.pop()
        elif change == "double":
            rows[-1] = rows[0]
        else:
            rows[0][0] += 1
        (archive / "records.parquet").write_bytes(b"".join(parquet.write(columns, [rows])))
        monkeypatch.setattr(archive_check, "_check_files", lambda *_: None)
        assert archive_check.check(archive).verdict is Verdict.TAMPERED

    def test_the_command_archives_and_verifies_what_it_wrote(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path
    ) -> None:
        filled(store, clock)
        home = ["--home", str(self.home)]
        command = [
            *home,
            "--json",
            "retention",
            "archive",
            "audit",
            "--month",
            "2026-01",
            "--to",
            str(tmp_path / "a b"),
        ]
        answer = CliRunner().invoke(app, command)
        assert answer.exit_code == 0, answer.output
        assert "holdproof verify" in answer.stderr
        [made] = json.loads(answer.stdout)["archives"]
        check = CliRunner().invoke(app, ["verify", made["place"]])
        assert check.exit_code == 0, check.output
        assert "archive audit 2026-01" in check.output
        (Path(made["place"]) / "proof.bin").unlink()
        assert CliRunner().invoke(app, ["verify", made["place"]]).exit_code == Verdict.TAMPERED.exit_code

    def test_an_archive_in_a_bucket_is_read_back_before_anything_goes(
        self,
        store: sync.Holdproof,
        clock: FrozenClock,
        tmp_path: Path,
        seaweed: Seaweed,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        place = place_in(seaweed, monkeypatch)
        filled(store, clock)
        whole = Bucket.entry
        monkeypatch.setattr(Bucket, "entry", lambda self, name, size, tell: Entry("00" * 32, size))
        with pytest.raises(errors.ProofError, match="not what was sent"):
            store.retention.archive(month="2026-01", to=place.url)
        assert (left(store), store.retention.archives().items, place.names()) == (JANUARY + 2, [], [])
        monkeypatch.setattr(Bucket, "entry", whole)
        [made] = store.retention.archive(month="2026-01", to=place.url).archives
        assert (made.place.startswith(f"{place.url}/audit-2026-01-"), left(store)) == (True, 2)
        folder = bucket_places.opened(made.place)
        assert folder is not None
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in (*archive_check.FILES, archive_check.MANIFEST):
            (copy / name).write_bytes(folder.bucket.read(folder.name_of(name), 1 << 20))
        assert archive_check.check(copy).verdict is Verdict.VALID
        assert [*(self.home / "cache" / "archives").iterdir()] == []


class TestMemory(InMemory, Archives):
    pass


class TestPostgres(OnPostgres, Archives):
    pass


def _refused(check: Callable[[], BundleReport]) -> bool:
    try:
        return check().verdict is Verdict.TAMPERED
    except errors.FormatError:
        return True
