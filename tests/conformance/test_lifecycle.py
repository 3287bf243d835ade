"""The life of a process that uses a storage, on every backend: bootstrap, heartbeat, upkeep, shutdown."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdproof import config, errors, folders
from holdproof.db import open_database
from holdproof.model.instances import Mode
from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import to_text
from holdproof.storage import Instances, Lifecycle, StorageProvider, bootstrap, instances, lifecycle, scheduled_jobs
from holdproof.storage.selfgrow import steps
from holdproof.testing import FrozenClock
from tests.conformance.racing import race
from tests.conformance.storages import InMemory, OnPostgres, OnSqlite, OnStorage

DAY = 86_400
OLD = TelemetryEvent("tool.call", "2025-12-01T00:00:00Z", {})


async def until(seen: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that comes by itself."""
    while not await seen():
        await asyncio.sleep(0.005)


async def told(storage: StorageProvider, kind: str) -> list[TelemetryEvent]:
    return await storage.telemetry.query(event_type=kind)


class Suite(OnStorage):
    def test_bootstrap_enters_the_instance_and_shutdown_stops_it(self, clock: FrozenClock, home: Path) -> None:
        async def test(storage: StorageProvider) -> None:
            life = await bootstrap(storage)
            instance = life.instance
            assert (instance.hostname, instance.pid) == (socket.gethostname(), os.getpid())
            here = Path.cwd()
            assert (instance.project_path, instance.project_hash) == (str(here), folders.project_hash(here))
            [event] = await told(storage, "instance.started")
            assert (event.instance_id, event.project_hash) == (instance.id, instance.project_hash)
            assert event.data == {"hostname": instance.hostname, "pid": instance.pid, "mode": life.mode.value}
            rows = await storage.relational.fetch_all("SELECT version FROM schema_version ORDER BY version")
            assert [row["version"] for row in rows][-1] >= 4
            clock.advance(5)
            await life.shutdown()
            await life.shutdown()
            stopped = await Instances(storage.membrane).get(instance.id)
            assert (stopped.status, stopped.last_heartbeat) == ("stopped", "2026-01-01T00:00:05.000000Z")
            [event] = await told(storage, "instance.stopped")
            assert (event.instance_id, event.timestamp) == (instance.id, stopped.last_heartbeat)

        self.use(clock, test)

    def test_nothing_runs_on_after_shutdown(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            before = asyncio.all_tasks()
            async with await bootstrap(storage, heartbeat_s=0.001) as life:
                names = {task.get_name().split()[1] for task in asyncio.all_tasks() - before}
                assert names == {"heartbeat", "images", "upkeep"}
                await asyncio.gather(*(life.shutdown() for _ in range(3)))
            assert asyncio.all_tasks() == before
            assert len(await told(storage, "instance.stopped")) == 1

        self.use(clock, test)

    def test_a_cancelled_program_is_shut_down_all_the_same(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            inside = asyncio.Event()

            async def program() -> None:
                async with await bootstrap(storage, heartbeat_s=0.001):
                    inside.set()
                    await asyncio.Event().wait()

            before = asyncio.all_tasks()
            running = asyncio.create_task(program())
            await inside.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert asyncio.all_tasks() == before
            assert [each.status for each in await Instances(storage.membrane).list()] == ["stopped"]

        self.use(clock, test)

    def test_an_instance_is_heard_regularly(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            async with await bootstrap(storage, heartbeat_s=0.005) as life:
                for _ in range(3):
                    clock.advance(30)
                    now = clock.micros

                    async def heard(now: int = now) -> bool:
                        return life.instance.last_heartbeat == to_text(now)

                    await until(heard)

        self.use(clock, test)

    def test_others_that_fall_silent_are_marked_and_told_once(
        self, clock: FrozenClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def test(storage: StorageProvider) -> None:
            mine, other = await bootstrap(storage), await bootstrap(storage)
            clock.advance(299)
            assert await mine.beat() == ()
            clock.advance(2)
            assert [each.id for each in await mine.beat()] == [other.instance.id]
            assert await mine.beat() == ()
            [event] = await told(storage, "instance.stale")
            assert event.instance_id == other.instance.id
            assert await other.beat() == ()
            assert other.instance.status == "active"
            await other.shutdown()
            with pytest.raises(errors.InstanceStoppedError):
                await other.beat()
            await mine.shutdown()

        with caplog.at_level(logging.WARNING, "holdproof.storage"):
            self.use(clock, test)
        assert len([each for each in caplog.records if "sends no heartbeats any more" in each.message]) == 1

    def test_telemetry_grows_old_by_the_upkeep(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            async with await bootstrap(storage) as life:
                await storage.telemetry.append([OLD])
                done = await life.run_jobs()
                assert any(duty.startswith("telemetry retain ") for duty in done) == self.kept
                assert (await told(storage, "tool.call") == []) == self.kept

        telemetry = {**self.providers().get("telemetry", {}), "retention": {"cold_days": 7}}
        self.use(clock, test, telemetry=telemetry)

    def test_one_instance_does_a_duty_for_all_once_a_day(self, clock: FrozenClock) -> None:
        async def test(storage: StorageProvider) -> None:
            lives = [await bootstrap(storage) for _ in range(4)]
            for _ in range(2):
                done = [duty for each in await asyncio.gather(*(life.run_jobs() for life in lives)) for duty in each]
                assert len(done) == len(set(done)) == (3 if self.kept else 1)
                assert [await life.run_jobs() for life in lives] == [[]] * 4
                clock.advance(DAY)
            assert all(
                duty.ended_at and not duty.error for duty in await storage.membrane.read(scheduled_jobs.recorded)
            )
            for life in lives:
                await life.shutdown()

        self.use(clock, test)

    def test_a_failing_duty_ends_nothing_and_is_tried_again(
        self, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def test(storage: StorageProvider) -> None:
            async with await bootstrap(storage) as life:

                def fail(tx: Any) -> int:
                    raise OSError("no\0luck")

                with monkeypatch.context() as patch:
                    patch.setattr(steps, "expire", fail)
                    await life.run_jobs()
                    assert "selfgrow expire" not in await life.run_jobs()
                [duty] = [
                    each
                    for each in await storage.membrane.read(scheduled_jobs.recorded)
                    if each.duty == "selfgrow expire"
                ]
                assert duty.error == "OSError: noluck"
                clock.advance(scheduled_jobs.RETRY_S)
                assert await life.run_jobs() == ["selfgrow expire"]

        with caplog.at_level(logging.WARNING, "holdproof.storage"):
            self.use(clock, test)
        assert len([each for each in caplog.records if "tried again later" in each.message]) == 1

    def test_a_heartbeat_that_fails_is_a_warning_and_the_next_one_counts(
        self, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def test(storage: StorageProvider) -> None:
            left, beat = iter(range(3)), instances.beat

            def moody(tx: Any, instance: Any) -> Any:
                if next(left, None) is not None:
                    raise errors.BusyError("locked")
                return beat(tx, instance)

            async with await bootstrap(storage, heartbeat_s=0.005) as life:
                monkeypatch.setattr(instances, "beat", moody)
                clock.advance(30)
                now = clock.micros

                async def heard() -> bool:
                    return life.instance.last_heartbeat == to_text(now)

                await until(heard)

        with caplog.at_level(logging.WARNING, "holdproof.storage"):
            self.use(clock, test)
        assert len([each for each in caplog.records if "beat of instance" in each.message]) == 3

    def test_a_long_duty_keeps_no_heartbeat_back(self, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
        async def test(storage: StorageProvider) -> None:
            under_way = asyncio.Event()

            async def long() -> list[str]:
                under_way.set()
                await asyncio.Event().wait()
                return []

            monkeypatch.setattr(Lifecycle, "run_jobs", lambda _: long())
            async with await bootstrap(storage, heartbeat_s=0.005) as life:
                await under_way.wait()
                clock.advance(30)
                now = clock.micros

                async def heard() -> bool:
                    return life.instance.last_heartbeat == to_text(now)

                await until(heard)

        self.use(clock, test)


class TestSqlite(OnSqlite, Suite):
    def test_blobs_that_nobody_has_are_swept_by_the_upkeep(self, clock: FrozenClock, home: Path) -> None:
        async def test(storage: StorageProvider) -> None:
            async with await bootstrap(storage) as life:
                await storage.blob.put("kept", b"x" * 100_000)
                [body] = [path for path in (home / "blobs").rglob("*") if path.is_file()]
                stray = body.with_name(body.parent.name + "0" * 62 + body.name[64:73] + "0" * 8)
                stray.write_bytes(b"left by a crash")
                os.utime(stray, (0, 0))
                await life.run_jobs()
                assert not stray.exists()
                assert await storage.blob.get("kept") == b"x" * 100_000

        self.use(clock, test)

    def test_an_instance_that_was_killed_is_found_stale(self, home: Path) -> None:
        program = """
import asyncio, os, signal
from holdproof.storage import bootstrap

async def main():
    life = await bootstrap()
    print(life.instance.id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        assert done.returncode == -9, done.stderr

        def ahead() -> int:
            return int(FrozenClock("2100-01-01T00:00:00Z")())

        with closing(open_database(home / "membrane.db", space="membrane", clock=ahead)) as database:
            [stale] = database.write(instances.mark_stale).result()
            assert stale.id == done.stdout.strip()


class TestMemory(InMemory, Suite):
    pass


class TestPostgres(OnPostgres, Suite):
    pass


# --- without a storage of its own ----------------------------------------------------------------------------------


class TestOwn(OnStorage):
    def test_the_first_run_says_where_data_lives_and_the_next_does_not(self, home: Path) -> None:
        async def run() -> None:
            life = await bootstrap()
            assert life.message is not None
            assert str(home / "membrane.db") in life.message
            assert str(home / "config" / "config.yaml") in life.message
            assert life.mode is Mode.GLOBAL
            assert (home / "config").is_dir()
            await life.shutdown()
            with pytest.raises(errors.ClosedError):
                await life.storage.membrane.read(lambda tx: tx.now)
            async with await bootstrap() as again:
                assert again.message is None

        asyncio.run(run())

    def test_a_pulse_without_a_pause_is_refused_and_nothing_is_opened(self, home: Path) -> None:
        for wrong in (0, -1, float("nan")):
            with pytest.raises(errors.InvalidInputError):
                asyncio.run(bootstrap(heartbeat_s=wrong))
        assert not home.exists()

    def test_the_upkeep_bears_a_home_of_any_name(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        strange = tmp_path / ("long" * 50) / "nächtlich\n" / ("er" * 50)
        monkeypatch.setenv("HOLDPROOF_HOME", str(strange))

        async def run() -> None:
            async with await bootstrap() as life:
                assert len(await life.run_jobs()) == 3

        asyncio.run(run())

    def test_a_project_is_a_mode_and_memory_is_another(self, home: Path) -> None:
        config.init_project(Path.cwd())
        deep = Path.cwd() / "deep"
        deep.mkdir()

        async def run() -> None:
            async with await bootstrap(project=deep) as life:
                assert (life.mode, life.instance.project_path) == (Mode.PROJECT, str(deep))
            async with await StorageProvider.create_minimal() as storage, await bootstrap(storage) as life:
                assert (life.mode, life.message) == (Mode.EPHEMERAL, None)
                await life.shutdown()
                await storage.blob.put("still", b"open")

        asyncio.run(run())

    def test_a_degraded_storage_is_ephemeral_and_the_instance_is_entered_anew_when_it_is_well_again(
        self, home: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        home.write_text("in the way")

        async def run() -> None:
            async with await bootstrap() as life:
                assert (life.mode, life.message) == (Mode.EPHEMERAL, None)
                home.unlink()
                await life.storage.recover()
                await life.beat()
                assert [each.id for each in await Instances(life.storage.membrane).list()] == [life.instance.id]
            with closing(open_database(home / "membrane.db", space="membrane")) as database:
                assert database.read(lambda tx: instances.get(tx, life.instance.id)).result().status == "stopped"

        with caplog.at_level(logging.WARNING, "holdproof.storage"):
            asyncio.run(run())

    def test_of_processes_that_start_together_one_does_each_duty(self, home: Path) -> None:
        script = """
async def main():
    async with await bootstrap() as life:
        answer([life.instance.id, await life.run_jobs()])

asyncio.run(main())
"""
        found = race(script, home, 4, imports="import asyncio\nfrom holdproof.storage import bootstrap\n")
        done = [duty.split()[0] for _, each in found for duty in each]
        assert sorted(done) == ["blob", "selfgrow", "telemetry"]
        with closing(open_database(home / "membrane.db", space="membrane")) as database:
            told = database.read(instances.recent).result()
        assert {each.id: each.status for each in told} == {id: "stopped" for id, _ in found}

    def test_a_bootstrap_that_fails_leaves_nothing_open(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        opened: list[StorageProvider] = []
        enter = lifecycle._enter

        async def fail(storage: StorageProvider, project: Any) -> Any:
            opened.append(storage)
            raise errors.DiskFullError("full")

        async def run() -> None:
            before = asyncio.all_tasks()
            monkeypatch.setattr(lifecycle, "_enter", fail)
            with pytest.raises(errors.DiskFullError):
                await bootstrap()
            with pytest.raises(errors.ClosedError):
                await opened[0].membrane.read(lambda tx: tx.now)
            assert asyncio.all_tasks() == before
            monkeypatch.setattr(lifecycle, "_enter", enter)
            async with await bootstrap():
                pass

        asyncio.run(run())

    def test_a_storage_that_was_closed_under_it_ends_with_a_warning(
        self, home: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def run() -> None:
            async with await bootstrap() as life:
                await life.storage.close()

        with caplog.at_level(logging.WARNING, "holdproof.storage"):
            asyncio.run(run())
        assert any("was not recorded" in each.message for each in caplog.records)
