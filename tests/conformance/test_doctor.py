"""The doctor: what is not well is found, said in words, and comes with what to do."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from harness.filling import settled
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.db.clock import system_clock
from holdproof.model.doctor import HealthCheck, HealthReport
from holdproof.model.times import to_text
from holdproof.testing import FrozenClock
from holdproof.upkeep import doctor
from tests.conformance.store_backends import StoreInMemory, StoreOnPostgres, StoreOnSqlite
from tests.store_locations import submit


class Usage(NamedTuple):
    """What a disk says of itself."""

    free: int


def found(examined: HealthReport, about: str) -> list[HealthCheck]:
    return [each for each in examined.checks if each.about == about and each.level != "ok"]


class Doctor(StoreOnSqlite):
    def examine(self) -> HealthReport:
        return sync.doctor(self.home, self.url)

    def begin(self) -> None:
        with self.open() as store:
            submit(store, "b")
            settled(store)

    def test_a_new_store_is_well_and_told_what_would_make_it_safer(self) -> None:
        self.begin()
        told = self.examine()
        assert told.ok
        assert ["export-root" in each.remedy for each in found(told, "keys")] == [True]
        assert {each.about for each in told.checks if each.level == "ok"} >= {"database", "keys", "clock", "flows"}

    def test_what_is_left_lying_is_told(self) -> None:
        with self.open() as store:
            store.agents.register("trader", version="1")
            flow = store.flows.start("trader")
            store.sagas.mark_dirty(flow.flow_id, "order")
        [dirty] = found(self.examine(), "flows")
        assert (dirty.level, dirty.remedy) == ("warning", "holdproof sagas list")

    def test_a_locked_store_is_ill(self) -> None:
        with self.open() as store:
            store.lockdown.lock(reason="by hand")
        told = self.examine()
        [locked] = found(told, "lockdown")
        assert (told.ok, "by hand" in locked.what) == (False, True)
        assert "which is here: `holdproof unlock --reason TEXT`" in locked.remedy

    def test_a_locked_store_whose_root_key_is_elsewhere_names_what_ends_it(self) -> None:
        with self.open() as store:
            store.keys.export_root(offline=True)
            store.lockdown.lock(reason="by hand")
        [locked] = found(self.examine(), "lockdown")
        assert "which is not here" in locked.remedy
        assert "holdproof lockdown statement" in locked.remedy
        assert "unlock --reason" not in locked.remedy

    def test_a_locked_skill_is_ill(self, tmp_path: Path) -> None:
        skill = tmp_path / "skill.org"
        skill.write_text("* Deploy\n")
        with self.open() as store:
            store.skills.approve(str(skill), by="ada")
            assert found(doctor.examine(store.context), "skills") == []
            skill.write_text("* Steal\n")
            store.skills.verify()
            [locked] = found(doctor.examine(store.context), "skills")
        assert (locked.level, "the headline 'Deploy' at line 1 was changed" in locked.what) == ("error", True)

    def test_a_clock_behind_what_was_written_is_ill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begin()
        with self.open() as store:
            [(newest,)] = store.read(lambda tx: tx.all(doctor._NEWEST))
            behind = FrozenClock(newest)
            behind.advance(-3600)
            monkeypatch.setattr(doctor, "system_clock", behind)
            [clock] = found(doctor.examine(store.context), "clock")
        assert (clock.level, clock.what) == ("error", "3,600 s behind the newest record")

    def test_a_look_that_fails_hides_no_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begin()

        def fail(*_: object, **__: object) -> None:
            raise OSError("scratched")

        with self.open() as store:
            monkeypatch.setattr(doctor, "level_of", fail)
            told = doctor.examine(store.context)
        [log] = found(told, "log")
        assert (log.level, "scratched" in log.what) == ("error", True)
        assert told.checks[-1].about == "flows"


class TestOnSqlite(Doctor):
    def test_no_store_is_made_where_there_is_none(self, tmp_path: Path) -> None:
        self.home = tmp_path / "nothing here"
        with pytest.raises(errors.NoStoreError):
            self.examine()
        assert not self.home.exists()

    def test_a_store_that_cannot_be_opened_is_ill_and_says_why(self) -> None:
        self.begin()
        (self.home / "kernel.db").write_bytes(b"nothing of ours" * 1000)
        told = self.examine()
        [store] = found(told, "store")
        assert (told.ok, "cannot be opened" in store.what, bool(store.remedy)) == (False, True, True)

    @pytest.mark.parametrize(("free", "level"), [(1 << 20, "error"), (512 << 20, "warning")])
    def test_a_disk_with_little_room_is_told(self, free: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begin()
        monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free))
        [disk] = found(self.examine(), "disk")
        assert disk.level == level

    def test_a_network_disk_is_ill(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        mounts = tmp_path / "mounts"
        mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {self.home} nfs4 rw 0 0\n")
        monkeypatch.setattr(doctor, "_MOUNTS", mounts)
        self.begin()
        [disk] = found(self.examine(), "disk")
        assert (disk.level, "nfs4" in disk.what) == ("error", True)

    def test_folders_and_keys_that_others_can_read_are_told(self) -> None:
        self.begin()
        self.home.chmod(0o755)
        (self.home / "config" / "keys" / "judge.pem").chmod(0o644)
        told = self.examine()
        assert [each.remedy for each in found(told, "folders")] == [f"chmod go= {self.home}"]
        assert any("judge key cannot be used" in each.what for each in found(told, "keys"))

    def test_a_missing_log_key_is_ill(self) -> None:
        self.begin()
        (self.home / "config" / "keys" / "log.pem").rename(self.home / "log.pem")
        ill = [each.what for each in found(self.examine(), "keys") if each.level == "error"]
        assert ill == ["no log key of this store is here: nothing can be logged"]

    def test_a_lost_judge_key_is_told_with_the_command_that_works(self) -> None:
        self.begin()
        with self.open() as store:
            store.evaluations.submit({"n": 1}, evaluation_id="e-1", score=0.5)
        (self.home / "config" / "keys" / "judge.pem").unlink()
        [told] = [each for each in found(self.examine(), "keys") if "judge key" in each.what]
        assert (told.level, "`holdproof keys rotate judge`" in told.remedy) == ("warning", True)
        with self.open() as store:
            store.keys.rotate("judge")
            store.evaluations.submit({"n": 2}, evaluation_id="e-2", score=0.5)
        assert not [each for each in found(self.examine(), "keys") if "judge key" in each.what]

    def test_heads_that_cannot_be_read_are_told(self) -> None:
        self.begin()
        with (self.home / "state" / "heads.jsonl").open("a") as file:
            file.write("scratched\n")
        assert any("1 lines" in each.what for each in found(self.examine(), "log"))

    def test_the_command_prints_it_and_exits_with_eight_if_anything_is_ill(self) -> None:
        self.begin()
        words = ["--home", str(self.home), "doctor"]
        well = CliRunner().invoke(app, words)
        assert (well.exit_code, "export-root" in well.stdout) == (0, True)
        with self.open() as store:
            store.lockdown.lock(reason="by hand")
        ill = CliRunner().invoke(app, [*words, "--json"])
        assert (ill.exit_code, json.loads(ill.stdout)["ok"]) == (8, False)


class TestInMemory(StoreInMemory):
    def test_a_store_in_memory_is_told_that_it_will_not_last(self) -> None:
        with self.open() as store:
            told = doctor.examine(store.context)
        assert any("in memory" in each.what for each in found(told, "database"))


class TestOnPostgres(Doctor, StoreOnPostgres):
    def test_a_clock_beside_that_of_the_server_is_ill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begin()
        ahead = FrozenClock(to_text(system_clock()))
        ahead.advance(60)
        monkeypatch.setattr(doctor, "system_clock", ahead)
        [clock] = found(self.examine(), "clock")
        assert (clock.level, "beside the clock of the server" in clock.what) == ("error", True)
