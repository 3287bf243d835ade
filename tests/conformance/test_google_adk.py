"""Google ADK on a store: its contract as its own service keeps it, scopes apart, and no writer overwritten."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.client import Holdproof
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

sessions: Any = pytest.importorskip("google.adk.sessions", reason="not installed: pip install google-adk")
events: Any = pytest.importorskip("google.adk.events")
theirs: Any = pytest.importorskip("google.adk.errors")
exists: Any = pytest.importorskip("google.adk.errors.already_exists_error")
missing: Any = pytest.importorskip("google.adk.errors.session_not_found_error")
config: Any = pytest.importorskip("google.adk.sessions.base_session_service")
types: Any = pytest.importorskip("google.genai.types")
adapter: Any = pytest.importorskip("holdproof.adapters.google_adk")

ADA = {"app_name": "shop", "user_id": "ada"}


def event(text: str = "", delta: dict[str, Any] | None = None, **options: Any) -> Any:
    actions = events.EventActions(state_delta=delta or {})
    content = types.Content(role="user", parts=[types.Part(text=text), types.Part(inline_data={"data": b"\0\xff"})])
    return events.Event(author="user", content=content, actions=actions, **options)


Act = Callable[[Holdproof, Any], Coroutine[Any, Any, Any]]


class GoogleAdk(OnStore):
    def acted(self, store: sync.Holdproof, act: Act) -> Any:
        face = Holdproof(store.core)
        return asyncio.run(act(face, adapter.HoldproofSessionService(face)))

    def test_it_answers_as_their_own_service_does(self, live: sync.Holdproof) -> None:
        async def script(service: Any) -> list[Any]:
            told: list[Any] = []
            given = {"app:a": 1, "user:u": [1], "s": None, "temp:t": 1}
            one = await service.create_session(**ADA, session_id=" s1 ", state=given)
            two = await service.create_session(app_name="shop", user_id="bob/../x", session_id="s 2%")
            for number in range(5):
                delta = {"n": number, "app:a": number, "user:u": str(number), "temp:t": number}
                await service.append_event(one, event(f"turn {number}", delta, timestamp=1000.0 + number))
            await service.append_event(two, event("hello", {"user:u": "two"}))
            for wanted in (None, {"num_recent_events": 2}, {"num_recent_events": 0}, {"after_timestamp": 1002.0}):
                asked = None if wanted is None else config.GetSessionConfig(**wanted)
                got = await service.get_session(**ADA, session_id="s1", config=asked)
                told.append((got.id, got.state, [each.content for each in got.events]))
                told.append([each.actions.state_delta for each in got.events])
            told.append({key: value for key, value in one.state.items() if not key.startswith("temp:")})
            other = await service.get_session(app_name="shop", user_id="bob/../x", session_id="s 2%")
            told.append(other.state)
            told.append(await service.get_session(**ADA, session_id="none"))
            told.append(
                sorted((each.id, each.user_id) for each in (await service.list_sessions(app_name="shop")).sessions)
            )
            told.append([each.id for each in (await service.list_sessions(**ADA)).sessions])
            told.append(await service.get_user_state(**ADA))
            await service.delete_session(**ADA, session_id="s1")
            told.append(await service.get_session(**ADA, session_id="s1"))
            again = await service.create_session(**ADA, session_id="s1")
            told.append((again.state, again.events))
            return told

        async def work(face: Holdproof, ours: Any) -> None:
            assert await script(ours) == await script(sessions.InMemorySessionService())

        self.acted(live, work)

    def test_a_session_is_made_once(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, service: Any) -> None:
            made = await asyncio.gather(
                *(service.create_session(**ADA, session_id="s", state={"app:n": n}) for n in range(6)),
                return_exceptions=True,
            )
            assert sum(isinstance(each, exists.AlreadyExistsError) for each in made) == 5
            [first] = [each for each in made if not isinstance(each, BaseException)]
            got = await service.get_session(**ADA, session_id="s")
            assert got.state == first.state, "a session that was refused left nothing"
            named = await service.create_session(**ADA)
            assert named.id not in ("", "s")

        self.acted(live, work)

    def test_an_overtaken_session_is_stale_and_leaves_nothing(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, service: Any) -> None:
            await service.create_session(**ADA, session_id="s")
            one = await service.get_session(**ADA, session_id="s")
            other = await service.get_session(**ADA, session_id="s")
            await service.append_event(one, event("first", {"n": 1}))
            with pytest.raises(theirs.StaleSessionError):
                await service.append_event(other, event("late", {"n": 2, "app:n": 2, "user:n": 2}))
            assert (len(other.events), other.state) == (0, {})
            await service.append_event(one, event("second"))
            got = await service.get_session(**ADA, session_id="s")
            assert (len(got.events), got.state) == (2, {"n": 1})
            by_hand = sessions.Session(id="s", **ADA, last_update_time=0.0)
            with pytest.raises(theirs.StaleSessionError):
                await service.append_event(by_hand, event())

        self.acted(live, work)

    def test_of_racing_writers_of_one_session_one_is_taken(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, service: Any) -> None:
            await service.create_session(**ADA, session_id="s")
            copies = [await service.get_session(**ADA, session_id="s") for _ in range(6)]
            ended = await asyncio.gather(
                *(service.append_event(each, event(delta={"n": n})) for n, each in enumerate(copies)),
                return_exceptions=True,
            )
            assert sum(isinstance(each, theirs.StaleSessionError) for each in ended) == 5
            assert len((await service.get_session(**ADA, session_id="s")).events) == 1

        self.acted(live, work)

    def test_sessions_that_change_shared_state_at_the_same_time_lose_nothing(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, service: Any) -> None:
            made = [await service.create_session(**ADA, session_id=f"s{n}") for n in range(8)]
            deltas = [{f"app:a{n}": n, f"user:u{n}": n} for n in range(8)]
            await asyncio.gather(
                *(service.append_event(each, event(delta=delta)) for each, delta in zip(made, deltas, strict=True))
            )
            got = await service.get_session(**ADA, session_id="s0")
            wanted = {f"app:a{n}": n for n in range(8)} | {f"user:u{n}": n for n in range(8)}
            assert got.state == wanted
            assert await service.get_user_state(app_name="shop", user_id="bob") == {}

        self.acted(live, work)

    def test_a_session_was_updated_when_its_last_event_says(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, service: Any) -> None:
            session = await service.create_session(**ADA, session_id="s")
            await service.create_session(**ADA, session_id="new")
            await service.append_event(session, event(timestamp=1000.5))
            await service.append_event(session, event(timestamp=1001.5))
            got = await service.get_session(**ADA, session_id="s", config=config.GetSessionConfig(num_recent_events=0))
            listed = (await service.list_sessions(**ADA)).sessions
            assert [session.last_update_time, got.last_update_time, got.events] == [1001.5, 1001.5, []]
            assert [each.id for each in listed] == ["s", "new"], "the one with the latest event is the last"
            assert listed[0].last_update_time == 1001.5
            by_hand = sessions.Session(id="s", **ADA, last_update_time=1001.5)
            await service.append_event(by_hand, event(timestamp=1002.0))
            late = sessions.Session(id="s", **ADA, last_update_time=1001.5)
            with pytest.raises(theirs.StaleSessionError, match="modified in storage"):
                await service.append_event(late, event())

        self.acted(live, work)

    def test_temporary_state_reaches_no_disk(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, service: Any) -> None:
            session = await service.create_session(**ADA, session_id="s", state={"temp:secret": "hush"})
            await service.append_event(session, event(delta={"temp:secret": "hush", "kept": 1}))
            assert session.state["temp:secret"] == "hush"
            listed = (await face.transcripts.list()).items
            kept = [one.state for one in listed] + [
                item.value for one in listed for item in (await face.transcripts.list_items(one.name)).items
            ]
            assert "hush" not in repr(kept)
            assert "kept" in repr(kept)

        self.acted(live, work)

    def test_partial_events_and_unknown_sessions_leave_nothing(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, service: Any) -> None:
            session = await service.create_session(**ADA, session_id="s")
            await service.append_event(session, event("par", {"n": 1}, partial=True))
            assert (await service.get_session(**ADA, session_id="s")).events == []
            await service.delete_session(**ADA, session_id="s")
            with pytest.raises(missing.SessionNotFoundError):
                await service.append_event(session, event("late", {"app:n": 1}))
            assert (await face.transcripts.list()).items == []

        self.acted(live, work)

    def test_state_that_json_cannot_hold_is_refused(self, live: sync.Holdproof) -> None:
        async def work(face: Holdproof, service: Any) -> None:
            at = datetime(2026, 1, 1, tzinfo=UTC)
            session = await service.create_session(**ADA, session_id="s", state={"at": at})
            assert session.state == {"at": "2026-01-01T00:00:00Z"}
            with pytest.raises(errors.InvalidInputError):
                await service.append_event(session, event(delta={"call": lambda: 1}))
            assert (await service.get_session(**ADA, session_id="s")).events == []

        self.acted(live, work)


class TestSqlite(OnSqlite, GoogleAdk):
    pass


class TestMemory(InMemory, GoogleAdk):
    pass


class TestPostgres(OnPostgres, GoogleAdk):
    pass
