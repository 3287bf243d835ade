"""Instances and duties on every backend: who is heard, who is stale, who does what; racing callers."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdproof import errors
from holdproof.db import sql
from holdproof.executors import SyncExecutor
from holdproof.model.instances import Instance
from holdproof.storage import instances, scheduled_jobs
from holdproof.storage.instances import Instances
from holdproof.storage.projects import Project
from holdproof.testing import FrozenClock
from tests.conformance.membranes import InMemory, OnPostgres, OnSqlite
from tests.conformance.racing import together
from tests.conformance.services import OnMembrane, behind

DAY = 86_400.0
_FORGET = sql("DELETE FROM instances")


def started(face: SyncExecutor, hostname: str = "host") -> Instance:
    return face.write(lambda tx: instances.start(tx, hostname=hostname, pid=7, project=Project("/p", "0a1b2c3d")))


class Suite(OnMembrane):
    def test_an_instance_is_entered_heard_and_stopped(self, face: SyncExecutor, clock: FrozenClock) -> None:
        instance = started(face)
        assert (instance.status, instance.project_hash, instance.last_heartbeat) == (
            "active",
            "0a1b2c3d",
            instance.started_at,
        )
        assert Instances(face).get(instance.id) == instance
        clock.advance(30)
        heard = face.write(lambda tx: instances.beat(tx, instance))
        assert (heard.started_at, heard.last_heartbeat) == (instance.started_at, "2026-01-01T00:00:30.000000Z")
        assert [face.write(lambda tx: instances.stop(tx, instance.id)) for _ in range(2)] == [True, False]
        with pytest.raises(errors.InstanceStoppedError):
            face.write(lambda tx: instances.beat(tx, instance))
        assert Instances(face).get(instance.id).status == "stopped"

    def test_one_that_is_not_heard_for_five_minutes_is_stale_until_it_is_heard(
        self, face: SyncExecutor, clock: FrozenClock
    ) -> None:
        silent, gone = started(face), started(face)
        face.write(lambda tx: instances.stop(tx, gone.id))
        clock.advance(300)
        assert face.write(instances.mark_stale) == ()
        clock.advance(0.001)
        [marked] = face.write(instances.mark_stale)
        assert (marked.id, marked.status) == (silent.id, "stale")
        assert face.write(instances.mark_stale) == ()
        assert face.write(lambda tx: instances.beat(tx, silent)).status == "active"
        assert face.write(lambda tx: instances.mark_stale(tx, stale_s=1)) == ()

    def test_an_instance_whose_row_is_gone_is_entered_again(self, face: SyncExecutor) -> None:
        instance = started(face)
        face.write(lambda tx: tx.execute(_FORGET))
        assert face.write(lambda tx: instances.beat(tx, instance)) == instance
        assert Instances(face).list().items == [instance]

    def test_instances_come_the_last_started_first(self, face: SyncExecutor, clock: FrozenClock) -> None:
        made = []
        for number in range(4):
            made.append(started(face, f"host{number}"))
            clock.advance(number % 2)
        face.write(lambda tx: instances.stop(tx, made[0].id))
        view = Instances(face)
        assert [each.hostname for each in view.list()] == ["host3", "host2", "host1", "host0"]
        assert [each.id for each in view.list(status="stopped")] == [made[0].id]
        assert view.list(project_hash="other").items == []
        page = view.list(limit=3)
        assert [*page, *view.list(cursor=page.next_cursor)] == list(view.list())
        for wrong in ({"status": "asleep"}, {"limit": 0}):
            with pytest.raises(errors.InvalidInputError):
                view.list(**wrong)
        with pytest.raises(errors.InvalidInputError):
            face.write(lambda tx: instances.mark_stale(tx, stale_s=0))
        with pytest.raises(errors.NotFoundError):
            view.get("nobody")

    # --- racing callers ------------------------------------------------------------------------------------------

    def test_whoever_is_heard_is_active_whatever_others_mark(self, face: SyncExecutor, clock: FrozenClock) -> None:
        for _ in range(4):
            instance = started(face)
            clock.advance(301)

            def one(number: int, instance: Instance = instance) -> str:
                if number % 2:
                    return face.write(lambda tx: instances.beat(tx, instance)).status
                return "marked" if face.write(instances.mark_stale) else "nothing to mark"

            got = together(8, one)
            assert (got["active"], got["marked"]) in {(4, 0), (4, 1)}
            assert Instances(face).get(instance.id).status == "active"

    def test_a_heartbeat_that_is_not_committed_yet_counts(self, face: SyncExecutor, clock: FrozenClock) -> None:
        instance = started(face)
        clock.advance(301)
        assert behind(face, lambda tx: instances.beat(tx, instance), lambda: face.write(instances.mark_stale)) == ()
        clock.advance(301)
        late = behind(face, instances.mark_stale, lambda: face.write(lambda tx: instances.beat(tx, instance)))
        assert late.status == Instances(face).get(instance.id).status == "active"

    def test_of_many_that_look_one_marks(self, face: SyncExecutor, clock: FrozenClock) -> None:
        for _ in range(3):
            started(face)
        clock.advance(301)
        got = together(8, lambda _: len(face.write(instances.mark_stale)))
        assert sum(count * times for count, times in got.items()) == 3

    def test_a_stopped_instance_is_not_brought_back_by_a_late_heartbeat(self, face: SyncExecutor) -> None:
        for _ in range(4):
            instance = started(face)

            def one(number: int, instance: Instance = instance) -> str:
                if number == 2:
                    return f"stopped {face.write(lambda tx: instances.stop(tx, instance.id))}"
                try:
                    return face.write(lambda tx: instances.beat(tx, instance)).status
                except errors.InstanceStoppedError:
                    return "too late"

            assert together(6, one)["stopped True"] == 1
            assert Instances(face).get(instance.id).status == "stopped"

    # --- duties --------------------------------------------------------------------------------------------------

    def claim(self, face: SyncExecutor, by: str = "a") -> bool:
        return face.write(lambda tx: scheduled_jobs.claim(tx, "sweep", by=by, every_s=DAY))

    def test_a_duty_is_done_once_in_its_time(self, face: SyncExecutor, clock: FrozenClock) -> None:
        assert self.claim(face)
        face.write(lambda tx: scheduled_jobs.end(tx, "sweep", by="a"))
        clock.advance(DAY - 1)
        assert not self.claim(face, "b")
        clock.advance(1)
        assert self.claim(face, "b")
        [duty] = face.read(scheduled_jobs.recorded)
        assert (duty.begun_by, duty.ended_at, duty.error) == ("b", None, None)
        face.write(lambda tx: scheduled_jobs.end(tx, "sweep", by="a", error="too late to count"))
        assert face.read(scheduled_jobs.recorded) == (duty,)

    def test_a_duty_that_failed_is_tried_again_after_an_hour(self, face: SyncExecutor, clock: FrozenClock) -> None:
        self.claim(face)
        face.write(lambda tx: scheduled_jobs.end(tx, "sweep", by="a", error="no luck"))
        clock.advance(scheduled_jobs.RETRY_S - 1)
        assert not self.claim(face, "b")
        clock.advance(1)
        assert self.claim(face, "b")
        clock.advance(scheduled_jobs.RETRY_S)
        assert not self.claim(face, "a")

    def test_a_claim_by_a_clock_that_was_wrong_binds_nobody(self, face: SyncExecutor, clock: FrozenClock) -> None:
        clock.advance(365 * DAY)
        assert self.claim(face)
        clock.advance(-365 * DAY)
        assert self.claim(face)
        assert not self.claim(face)

    def test_of_many_instances_one_gets_a_duty(self, face: SyncExecutor, clock: FrozenClock) -> None:
        for _ in range(4):
            assert together(8, lambda number: self.claim(face, f"i{number}")) == Counter({False: 7, True: 1})
            clock.advance(DAY)

    # --- a model -------------------------------------------------------------------------------------------------

    def test_a_random_walk_ends_where_the_model_does(self, face: SyncExecutor, clock: FrozenClock) -> None:
        InstanceMachine.face, InstanceMachine.clock = face, clock
        self.walk(InstanceMachine)


@dataclass
class Known:
    """What the model knows of an instance."""

    instance: Instance
    heard: float
    status: str = "active"


class InstanceMachine(RuleBasedStateMachine):
    """Instances as plain Python beside the real ones; those of earlier walks have stopped."""

    face: ClassVar[SyncExecutor]
    clock: ClassVar[FrozenClock]

    def __init__(self) -> None:
        super().__init__()
        self.now, self.known = 0.0, dict[str, Known]()

    def teardown(self) -> None:
        for id in self.known:
            self.face.write(lambda tx, id=id: instances.stop(tx, id))  # type: ignore[misc]

    def pick(self, number: int) -> Known:
        return list(self.known.values())[number % len(self.known)]

    @rule(seconds=st.sampled_from([30, 100, 299, 300, 301]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.now += seconds

    @rule()
    def start(self) -> None:
        instance = started(self.face)
        self.known[instance.id] = Known(instance, self.now)

    @precondition(lambda self: self.known)
    @rule(number=st.integers(0, 100))
    def beat(self, number: int) -> None:
        known = self.pick(number)
        if known.status == "stopped":
            with pytest.raises(errors.InstanceStoppedError):
                self.face.write(lambda tx: instances.beat(tx, known.instance))
            return
        self.face.write(lambda tx: instances.beat(tx, known.instance))
        known.status, known.heard = "active", self.now

    @precondition(lambda self: self.known)
    @rule(number=st.integers(0, 100))
    def stop(self, number: int) -> None:
        known = self.pick(number)
        assert self.face.write(lambda tx: instances.stop(tx, known.instance.id)) == (known.status != "stopped")
        known.status = "stopped"

    @rule()
    def mark(self) -> None:
        silent = {id for id, known in self.known.items() if known.status == "active" and self.now - known.heard > 300}
        assert {each.id for each in self.face.write(instances.mark_stale)} == silent
        for id in silent:
            self.known[id].status = "stale"

    @invariant()
    def the_store_agrees(self) -> None:
        for id, known in list(self.known.items())[-4:]:
            assert Instances(self.face).get(id).status == known.status


class TestSqlite(OnSqlite, Suite):
    walks = 6


class TestMemory(InMemory, Suite):
    pass


class TestPostgres(OnPostgres, Suite):
    walks = 3
