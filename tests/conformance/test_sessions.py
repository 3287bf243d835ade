"""Sessions of the command line on every backend: their lives, their events, racing callers, a model."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdproof import errors
from holdproof.cli.app import app
from holdproof.db import Tx, sql
from holdproof.executors import SyncExecutor
from holdproof.folders import project_hash
from holdproof.model.sessions import SESSION_ENDS, SessionState, SessionType
from holdproof.storage import CLISessionService, StorageProvider, create_cli_session_service
from holdproof.storage.projects import NOWHERE, project_here, project_of
from holdproof.storage.sessions import Sessions, lives
from holdproof.testing import FrozenClock
from tests.conformance.membranes import InMemory, OnPostgres, OnSqlite
from tests.conformance.racing import together
from tests.conformance.services import OnMembrane, behind

_FORGET = sql("DELETE FROM cli_sessions WHERE id = :id")
_LEFT = sql(
    "SELECT (SELECT count(*) FROM cli_session_events) + (SELECT count(*) FROM cli_session_agents)"
    " + (SELECT count(*) FROM cli_session_artifacts)"
)
_WITHOUT_TIME = sql("INSERT INTO cli_session_events (id, session_id) VALUES (:id, :session_id)")
_FOREIGN = sql(
    "INSERT INTO cli_sessions (id, name, session_type, state, started_at, budget_level, tokens_used, metadata)"
    " VALUES ('cli_old', 'theirs', 'daemon', 'paused', '2020-01-01T00:00:00', NULL, NULL, 'no json')"
)

Service = Sessions[SyncExecutor]


class Lives(OnMembrane):
    @pytest.fixture
    def sessions(self, face: SyncExecutor) -> Service:
        return Sessions(face)

    def test_a_session_runs_as_the_seed_says(self, sessions: Service, clock: FrozenClock) -> None:
        session = sessions.start_session("interactive", "My REPL")
        assert (session.id[:4], len(session.id), session.state) == ("cli_", 16, "active")
        assert int(session.id[4:], 16) >= 0
        assert sessions.get_session(session.id) == session
        clock.advance(1)
        event = sessions.log_event(session.id, "command", "repl", "User ran check", {"exit": 0})
        clock.advance(1)
        ended = sessions.end_session(session.id, state="completed", tokens_used=7)
        assert (ended.state, ended.ended_at, ended.tokens_used) == ("completed", "2026-01-01T00:00:02.000000Z", 7)
        assert sessions.get_session(session.id) == ended
        found = sessions.get_session_events(session.id)
        assert [each.event_type for each in found] == ["session_end", "command", "session_start"]
        assert found[1] == event
        assert [each.timestamp[-4:] for each in found] == ["000Z"] * 3

    def test_everything_said_at_the_start_is_kept(self, sessions: Service) -> None:
        said: dict[str, Any] = {"flow_name": "f", "flow_path": "a/f.yaml", "budget_level": "high"}
        session = sessions.start_session("flow", "nächtlich", project_hash="0a1b2c3d", metadata={"é": [1]}, **said)
        assert sessions.get_session(session.id) == session
        assert (session.flow_name, session.budget_level, session.metadata) == ("f", "high", {"é": [1]})
        assert (session.project_hash, session.project_path) == ("0a1b2c3d", None)

    def test_a_project_is_named_by_the_hash_of_its_resolved_path(
        self, sessions: Service, tmp_path: Path, face: SyncExecutor
    ) -> None:
        (tmp_path / "link").symlink_to(tmp_path)
        session = sessions.start_session("script", "a", project_path=str(tmp_path / "link"))
        assert (session.project_path, session.project_hash) == (str(tmp_path), project_hash(tmp_path))
        both = sessions.start_session("script", "b", project_path=str(tmp_path), project_hash="cafe0000")
        assert (both.project_path, both.project_hash) == (str(tmp_path), "cafe0000")
        assert Sessions(face, project_of(tmp_path)).start_session("script", "c").project_path == str(tmp_path)
        with pytest.raises(errors.InvalidInputError):
            sessions.start_session("script", "d", project_path="a\0b")

    def test_repl_is_another_word_for_interactive(self, sessions: Service) -> None:
        assert sessions.start_session("repl", "r").session_type == SessionType.INTERACTIVE.value == "interactive"

    @pytest.mark.parametrize("state", sorted(SESSION_ENDS))
    def test_a_session_ends_once(self, sessions: Service, state: str) -> None:
        session = sessions.start_session("script", "s")
        ended = sessions.end_session(session.id, state=state)
        for again in sorted(SESSION_ENDS):
            with pytest.raises(errors.SessionEndedError, match=state):
                sessions.end_session(session.id, state=again, tokens_used=1)
        assert sessions.get_session(session.id) == ended
        assert len(sessions.get_session_events(session.id)) == 2

    def test_an_ended_session_takes_nothing_more_but_its_agents_may_finish(self, sessions: Service) -> None:
        session = sessions.start_session("script", "s")
        agent = sessions.spawn_agent(session.id, "C-gent", "c-gent")
        sessions.end_session(session.id)
        with pytest.raises(errors.SessionEndedError):
            sessions.log_event(session.id, "info", "cli", "late")
        with pytest.raises(errors.SessionEndedError):
            sessions.spawn_agent(session.id, "late", "c-gent")
        with pytest.raises(errors.SessionEndedError):
            sessions.record_artifact(session.id, "late", "doc")
        assert sessions.complete_agent(agent.id).status == "completed"

    def test_what_is_not_there_is_not_found(self, sessions: Service) -> None:
        assert sessions.get_session("cli_none") is None
        assert sessions.get_session_events("cli_none").items == []
        for call in (
            lambda: sessions.end_session("cli_none"),
            lambda: sessions.log_event("cli_none", "info", "cli", "x"),
            lambda: sessions.spawn_agent("cli_none", "a", "b"),
            lambda: sessions.record_artifact("cli_none", "a", "b"),
            lambda: sessions.complete_agent("agt_none"),
            lambda: sessions.timeline("cli_none"),
        ):
            with pytest.raises(errors.NotFoundError):
                call()

    def test_what_makes_no_sense_is_refused_and_nothing_is_written(self, sessions: Service) -> None:
        session = sessions.start_session("script", "s")
        agent = sessions.spawn_agent(session.id, "a", "g")
        before = sessions.timeline(session.id)
        for call in (
            lambda: sessions.start_session("dance", "s"),
            lambda: sessions.start_session("flow", ""),
            lambda: sessions.start_session("flow", "a\nb"),
            lambda: sessions.start_session("flow", "s", metadata={"x": {1}}),
            lambda: sessions.start_session("flow", "s", metadata=["x"]),  # type: ignore[arg-type]
            lambda: sessions.start_session("flow", "s", flow_path="a\0"),
            lambda: sessions.end_session(session.id, state="active"),
            lambda: sessions.end_session(session.id, state="done"),
            lambda: sessions.end_session(session.id, tokens_used=-1),
            lambda: sessions.log_event(session.id, "", "cli", "x"),
            lambda: sessions.log_event(session.id, "info", "cli", "\0"),
            lambda: sessions.log_event(session.id, "info", "cli", "\ud800"),
            lambda: sessions.log_event(session.id, "info", "cli", "x", {"x": float("nan")}),
            lambda: sessions.complete_agent(agent.id, status="running"),
            lambda: sessions.complete_agent(agent.id, status="asleep"),
            lambda: sessions.record_artifact(session.id, "a", "doc", size_bytes=-1),
            lambda: sessions.list_sessions(limit=0),
            lambda: sessions.list_sessions(state="dancing"),
            lambda: sessions.get_session_events(session.id, limit=10**6),
        ):
            with pytest.raises(errors.InvalidInputError):
                call()
        assert sessions.timeline(session.id) == before
        assert len(sessions.list_sessions()) == 1

    def test_sessions_come_newest_first_by_state_by_project_and_page_by_page(
        self, sessions: Service, clock: FrozenClock
    ) -> None:
        ids = []
        for number in range(6):
            ids.append(sessions.start_session("script", f"s{number}", project_hash=f"p{number % 2}").id)
            clock.advance(number % 3)  # some share a moment
        sessions.end_session(ids[1], state="failed")
        told = sessions.list_sessions()
        assert [each.started_at for each in told] == sorted((each.started_at for each in told), reverse=True)
        assert {each.id for each in told} == set(ids)
        assert [each.id for each in sessions.list_sessions(state="failed")] == [ids[1]]
        assert {each.id for each in sessions.list_sessions(project_hash="p0")} == set(ids[::2])
        assert sessions.list_sessions(project_hash="p0", state="failed").items == []
        page = sessions.list_sessions(limit=2)
        paged = list(page)
        while page.next_cursor is not None:
            page = sessions.list_sessions(limit=2, cursor=page.next_cursor)
            paged += page
        assert paged == told.items

    def test_events_of_one_moment_keep_their_order(self, sessions: Service) -> None:
        session = sessions.start_session("script", "s")
        for number in range(30):
            sessions.log_event(session.id, "even" if number % 2 == 0 else "odd", "cli", f"{number}\n")
        newest = [each.message for each in sessions.get_session_events(session.id, limit=3)]
        assert newest == ["29\n", "28\n", "27\n"]
        assert len(sessions.get_session_events(session.id, event_type="odd")) == 15
        page = sessions.get_session_events(session.id, 7)
        every = [each.message for each in page]
        while page.next_cursor is not None:
            page = sessions.get_session_events(session.id, 7, cursor=page.next_cursor)
            every += [each.message for each in page]
        assert every == [*(f"{number}\n" for number in reversed(range(30))), "Started script session: s"]
        first = sessions.timeline(session.id, limit=10)
        rest = sessions.timeline(session.id, cursor=first.next_cursor)
        told = [each.message for each in (*first.events, *rest.events)]
        assert told == ["Started script session: s", *(f"{number}\n" for number in range(30))]
        assert rest.next_cursor is None

    def test_agents_and_artifacts_belong_to_their_session(self, sessions: Service, clock: FrozenClock) -> None:
        session, other = sessions.start_session("script", "s"), sessions.start_session("script", "other")
        good = sessions.spawn_agent(session.id, "C-gent", "c-gent", {"n": 1})
        clock.advance(1)
        bad = sessions.spawn_agent(session.id, "B-gent", "b-gent")
        assert (good.status, good.id[:4], good.metadata) == ("running", "agt_", {"n": 1})
        assert sessions.complete_agent(good.id).completed_at == "2026-01-01T00:00:01.000000Z"
        failed = sessions.complete_agent(bad.id, status="failed", error="no\nluck")
        assert (failed.status, failed.error) == ("failed", "no\nluck")
        with pytest.raises(errors.SessionEndedError, match="failed already"):
            sessions.complete_agent(bad.id)
        made = sessions.record_artifact(session.id, "plan", "doc", path="plan.md", size_bytes=9, content_preview="# P")
        timeline = sessions.timeline(session.id)
        assert [(agent.name, agent.status) for agent in timeline.agents] == [
            ("C-gent", "completed"),
            ("B-gent", "failed"),
        ]
        assert timeline.artifacts == (made,)
        assert (made.id[:4], made.created_at) == ("art_", made.updated_at)
        assert sessions.timeline(other.id).agents == ()

    def test_what_belongs_to_a_session_goes_with_it(self, sessions: Service, face: SyncExecutor) -> None:
        session = sessions.start_session("script", "s")
        sessions.spawn_agent(session.id, "a", "g")
        sessions.record_artifact(session.id, "a", "doc")
        face.write(lambda tx: tx.execute(_FORGET, id=session.id, expect=1))
        assert face.read(lambda tx: tx.all(_LEFT)) == [(0,)]

    def test_start_and_its_event_count_together_with_what_else_is_in_the_transaction(
        self, sessions: Service, face: SyncExecutor
    ) -> None:
        def both(tx: Tx) -> None:
            lives.start(tx, "script", "s")
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            face.write(both)
        assert sessions.list_sessions().items == []
        assert face.read(lambda tx: tx.all(_LEFT)) == [(0,)]

    def test_rows_of_other_programs_are_shown_as_they_are(self, sessions: Service, face: SyncExecutor) -> None:
        face.write(lambda tx: tx.execute(_FOREIGN))
        found = sessions.get_session("cli_old")
        assert found is not None
        assert (found.session_type, found.state, found.tokens_used) == ("daemon", "paused", 0)
        assert found.metadata == {"text": "no json"}
        with pytest.raises(errors.SessionEndedError):
            sessions.end_session("cli_old")

    def test_events_of_other_programs_that_have_no_time_are_the_oldest(
        self, sessions: Service, face: SyncExecutor, clock: FrozenClock
    ) -> None:
        session = sessions.start_session("script", "s")
        for name in ("e1", "e2", "e3"):
            face.write(lambda tx, id=name: tx.execute(_WITHOUT_TIME, id=id, session_id=session.id))  # type: ignore[misc]
        clock.advance(1)
        sessions.log_event(session.id, "note", "cli", "last")
        newest = [event.id for event in sessions.get_session_events(session.id)]
        assert newest[-3:] == ["e3", "e2", "e1"]
        assert len(newest) == 5
        onward = [event.id for event in sessions.timeline(session.id).events]
        assert onward == newest[::-1]
        for limit in (1, 2, 3, 4):
            listed: list[str] = []
            page = sessions.get_session_events(session.id, limit)
            listed += [event.id for event in page]
            while page.next_cursor is not None:
                page = sessions.get_session_events(session.id, limit, cursor=page.next_cursor)
                listed += [event.id for event in page]
            assert listed == newest
            part = sessions.timeline(session.id, limit=limit)
            followed = [event.id for event in part.events]
            while part.next_cursor is not None:
                part = sessions.timeline(session.id, cursor=part.next_cursor, limit=limit)
                followed += [event.id for event in part.events]
            assert followed == onward

    def test_what_is_said_may_be_said_in_order(self, sessions: Service) -> None:
        session = sessions.start_session("script", "s", project_hash="p")
        assert sessions.end_session(session.id, "failed", 3).tokens_used == 3
        assert [each.id for each in sessions.list_sessions(5, "failed", "p")] == [session.id]
        assert len(sessions.get_session_events(session.id, 5, "session_end")) == 1

    # --- racing callers ------------------------------------------------------------------------------------------

    def test_a_neighbour_that_fails_does_no_harm(self, sessions: Service, face: SyncExecutor) -> None:
        def fails(tx: Tx) -> None:
            lives.start(tx, "script", "never")
            raise ZeroDivisionError

        def one(number: int) -> str:
            if number % 2:
                return sessions.start_session("script", f"s{number}").state
            try:
                face.write(fails)
            except ZeroDivisionError:
                return "failed"
            return "kept"

        assert together(16, one) == Counter(active=8, failed=8)
        assert {each.name for each in sessions.list_sessions()} == {f"s{number}" for number in range(1, 16, 2)}

    def test_of_many_ends_one_counts(self, sessions: Service) -> None:
        for _ in range(5):
            session = sessions.start_session("script", "s")
            ends = sorted(SESSION_ENDS)

            def one(number: int, id: str = session.id, ends: list[SessionState] = ends) -> str:
                try:
                    return sessions.end_session(id, state=ends[number % 3]).state
                except errors.SessionEndedError:
                    return "too late"

            got = together(8, one)
            assert got["too late"] == 7
            assert sessions.get_session(session.id).state in got  # type: ignore[union-attr]
            assert len(sessions.get_session_events(session.id, event_type="session_end")) == 1

    def test_no_event_comes_after_the_end(self, sessions: Service) -> None:
        for _ in range(5):
            session = sessions.start_session("script", "s")

            def one(number: int, id: str = session.id) -> str:
                try:
                    if number == 3:
                        sessions.end_session(id)
                    else:
                        sessions.log_event(id, "info", "cli", str(number))
                except errors.SessionEndedError:
                    return "too late"
                return "in time"

            got = together(8, one)
            assert len(sessions.get_session_events(session.id, event_type="info")) == got["in time"] - 1

    def test_whoever_logs_while_the_session_is_being_ended_is_too_late(
        self, sessions: Service, face: SyncExecutor
    ) -> None:
        session = sessions.start_session("script", "s")

        def log() -> str:
            with pytest.raises(errors.SessionEndedError):
                sessions.log_event(session.id, "info", "cli", "late")
            return "too late"

        assert behind(face, lambda tx: lives.end(tx, session.id), log) == "too late"
        assert len(sessions.get_session_events(session.id)) == 2

    def test_whoever_ends_a_session_that_is_being_logged_to_does_so_after_that(
        self, sessions: Service, face: SyncExecutor
    ) -> None:
        session = sessions.start_session("script", "s")
        ended = behind(
            face,
            lambda tx: lives.log(tx, session.id, "info", "cli", "just in time"),
            lambda: sessions.end_session(session.id),
        )
        assert ended.state == "completed"
        assert len(sessions.get_session_events(session.id)) == 3

    def test_of_many_completions_one_counts(self, sessions: Service) -> None:
        session = sessions.start_session("script", "s")
        agent = sessions.spawn_agent(session.id, "a", "g")

        def one(number: int) -> str:
            try:
                return sessions.complete_agent(agent.id, error=str(number)).status
            except errors.SessionEndedError:
                return "too late"

        assert together(8, one) == Counter({"too late": 7, "completed": 1})

    def test_many_sessions_at_once_have_ids_of_their_own(self, sessions: Service) -> None:
        assert len(together(16, lambda number: sessions.start_session("script", f"s{number}").id)) == 16

    # --- a model -------------------------------------------------------------------------------------------------

    def test_a_random_walk_ends_where_the_model_does(self, sessions: Service, clock: FrozenClock) -> None:
        SessionMachine.sessions, SessionMachine.clock = sessions, clock
        self.walk(SessionMachine)


class SessionMachine(RuleBasedStateMachine):
    """Sessions as plain Python beside the real ones, each walk in a project of its own."""

    sessions: ClassVar[Service]
    clock: ClassVar[FrozenClock]
    walks: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        SessionMachine.walks += 1
        self.project = f"walk{SessionMachine.walks}"
        self.states: dict[str, str] = {}
        self.told: dict[str, list[str]] = {}
        self.agents: dict[str, tuple[str, str]] = {}

    def pick(self, number: int) -> str:
        return list(self.states)[number % len(self.states)]

    @rule()
    def time_passes(self) -> None:
        self.clock.advance(1)

    @rule(kind=st.sampled_from(["repl", *SessionType]))
    def start(self, kind: str) -> None:
        session = self.sessions.start_session(kind, "walk", project_hash=self.project)
        self.states[session.id], self.told[session.id] = "active", ["session_start"]

    @precondition(lambda self: self.states)
    @rule(number=st.integers(0, 100), state=st.sampled_from(sorted(SESSION_ENDS)))
    def end(self, number: int, state: str) -> None:
        id = self.pick(number)
        if self.states[id] != "active":
            with pytest.raises(errors.SessionEndedError):
                self.sessions.end_session(id, state=state)
            return
        self.sessions.end_session(id, state=state)
        self.states[id] = state
        self.told[id].append("session_end")

    @precondition(lambda self: self.states)
    @rule(number=st.integers(0, 100), kind=st.sampled_from(["command", "error"]))
    def log(self, number: int, kind: str) -> None:
        id = self.pick(number)
        if self.states[id] != "active":
            with pytest.raises(errors.SessionEndedError):
                self.sessions.log_event(id, kind, "walk", "x")
            return
        self.sessions.log_event(id, kind, "walk", "x")
        self.told[id].append(kind)

    @precondition(lambda self: self.states)
    @rule(number=st.integers(0, 100))
    def spawn(self, number: int) -> None:
        id = self.pick(number)
        if self.states[id] == "active":
            self.agents[self.sessions.spawn_agent(id, "a", "g").id] = (id, "running")

    @precondition(lambda self: self.agents)
    @rule(number=st.integers(0, 100), status=st.sampled_from(["completed", "failed"]))
    def complete(self, number: int, status: str) -> None:
        agent = list(self.agents)[number % len(self.agents)]
        id, before = self.agents[agent]
        if before == "running":
            self.sessions.complete_agent(agent, status=status)
            self.agents[agent] = (id, status)
        else:
            with pytest.raises(errors.SessionEndedError):
                self.sessions.complete_agent(agent, status=status)

    @invariant()
    def the_store_agrees(self) -> None:
        found = self.sessions.list_sessions(project_hash=self.project, limit=100)
        assert {each.id: each.state for each in found} == self.states
        for id in list(self.states)[-2:]:
            timeline = self.sessions.timeline(id)
            assert [each.event_type for each in timeline.events] == self.told[id]
            mine = {agent: status for agent, (session, status) in self.agents.items() if session == id}
            assert {each.id: each.status for each in timeline.agents} == mine


class TestSqlite(OnSqlite, Lives):
    walks = 6


class TestMemory(InMemory, Lives):
    pass


class TestPostgres(OnPostgres, Lives):
    walks = 3


# --- the service of a storage --------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HOLDPROOF_DATABASE_URL", raising=False)
    (tmp_path / "work" / ".holdproof").mkdir(parents=True)
    (tmp_path / "work" / ".holdproof" / "config.yaml").write_text("")
    (tmp_path / "work" / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "work" / "deep")
    return tmp_path / "home"


def test_the_service_keeps_sessions_of_the_project_it_stands_in(home: Path) -> None:
    async def run() -> None:
        service = await create_cli_session_service()
        session = await service.start_session("interactive", "My REPL")
        await service.close()
        await service.close()
        project = home.parent / "work"
        assert (session.project_path, session.project_hash) == (str(project), project_hash(project))
        async with await create_cli_session_service() as again:
            assert await again.get_session(session.id) == session

    asyncio.run(run())


def test_the_service_is_made_of_a_provider_or_of_its_relational_store(home: Path) -> None:
    async def run() -> None:
        async with await StorageProvider.create_minimal() as storage:
            for given in (storage, storage.relational):
                service = CLISessionService(given)
                session = await service.start_session("script", "s")
                assert session.project_hash is None
                assert (await service.end_session(session.id)).ended
            assert (await create_cli_session_service(storage)).held == project_here()
            assert len(await service.list_sessions()) == 2
            with pytest.raises(errors.InvalidInputError):
                CLISessionService(storage.blob)  # type: ignore[arg-type]

    asyncio.run(run())


def test_a_working_folder_that_is_gone_is_no_project(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = home.parent / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert project_here() == NOWHERE


def test_on_postgres_the_command_line_sees_the_same_sessions(home: Path, postgres_url: str) -> None:
    words = ["--url", postgres_url, "--json"]
    made = CliRunner().invoke(app, ["sessions", "start-session", "script", "s", *words])
    assert made.exit_code == 0, made.output
    id = json.loads(made.stdout)["id"]

    async def run() -> None:
        settings = {"providers": {"relational": {"type": "postgres", "connection": postgres_url}}}
        async with CLISessionService(await StorageProvider.from_config_dict(settings)) as service:
            assert (await service.end_session(id)).name == "s"

    asyncio.run(run())
    [found] = json.loads(CliRunner().invoke(app, ["sessions", "list-sessions", *words]).stdout)["items"]
    assert (found["id"], found["state"]) == (id, "completed")
