"""Battles: submit, list, get, DBOM files, bad input, races; on every backend."""

import asyncio
import hashlib
import json
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdproof
from harness.filling import settled
from holdproof import errors, sync
from holdproof.db import sql
from holdproof.evidence import evaluations
from holdproof.evidence.dbom_files import DbomFolder
from holdproof.model.verdicts import Verdict
from holdproof.testing import FrozenClock
from tests.conformance.store_backends import StoreInMemory, StoreOnPostgres, StoreOnSqlite, sound

GOOD: dict[str, Any] = {"evaluation_id": "b", "score": 0.5, "breakdown": "fine", "intent": [0.25, -1.0]}
_AS_IMPORTED = sql("UPDATE battles SET dbom = replace(dbom, 'dsse:', 'SIG_GREEN_') WHERE id = :id")


class Strange:
    pass


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


BAD: dict[str, tuple[Any, dict[str, Any]]] = {
    "a NaN score": ({}, {"score": math.nan}),
    "an infinite score": ({}, {"score": math.inf}),
    "a score infinitely low": ({}, {"score": -math.inf}),
    "a score beyond the doubles": ({}, {"score": 10**400}),
    "a score that is a text": ({}, {"score": "0.5"}),
    "a score that is a truth": ({}, {"score": True}),
    "no score": ({}, {"score": None}),
    "an empty battle_id": ({}, {"evaluation_id": ""}),
    "a blank battle_id": ({}, {"evaluation_id": "  "}),
    "a battle_id that is a path": ({}, {"evaluation_id": "../../etc/passwd"}),
    "a battle_id that is an absolute path": ({}, {"evaluation_id": "/etc/passwd"}),
    "a battle_id with a slash": ({}, {"evaluation_id": "a/b"}),
    "a battle_id of one dot": ({}, {"evaluation_id": "."}),
    "no battle_id": ({}, {"evaluation_id": None}),
    "a battle_id with a backslash": ({}, {"evaluation_id": "a\\b"}),
    "a battle_id of dots": ({}, {"evaluation_id": ".."}),
    "a battle_id with NUL": ({}, {"evaluation_id": "a\0b"}),
    "a battle_id with a line break": ({}, {"evaluation_id": "a\nb"}),
    "a battle_id with a lone surrogate": ({}, {"evaluation_id": "\ud800"}),
    "an over-long battle_id": ({}, {"evaluation_id": "x" * 201}),
    "a battle_id that is no text": ({}, {"evaluation_id": 7}),
    "a namespace that is a path": ({}, {"ns": "a/b"}),
    "a result without JSON": (Strange(), {}),
    "a result with NaN": ({"x": math.nan}, {}),
    "a result of bytes": (b"x", {}),
    "a result nested without end": (deep(), {}),
    "a result with keys that cannot be sorted": ({1: 1, "a": 2}, {}),
    "a vector with NaN": ({}, {"intent": [0.1, math.nan]}),
    "a vector with a hole": ({}, {"intent": [0.1, None]}),
    "a vector of vectors": ({}, {"intent": [[0.1], [0.2]]}),
    "a vector with infinity": ({}, {"intent": [math.inf, 0.1]}),
    "a vector of texts": ({}, {"intent": ["0.1", "0.2"]}),
    "a vector of truths": ({}, {"intent": [True, False]}),
    "a vector that is a number": ({}, {"intent": 0.1}),
    "a vector without end": ({}, {"intent": [0.0] * 65_537}),
    "a text of a task and no embedder": ({}, {"intent": "write a limiter"}),
    "a breakdown with NUL": ({}, {"breakdown": "a\0b"}),
    "a breakdown with a lone surrogate": ({}, {"breakdown": "\ud800"}),
    "a breakdown without JSON": ({}, {"breakdown": Strange()}),
    "a time without zone": ({}, {"timestamp": "2026-01-01T00:00:00"}),
    "a time that does not exist": ({}, {"timestamp": "2026-02-30T00:00:00Z"}),
    "a time in another zone": ({}, {"timestamp": "2026-01-01T00:00:00+02:00"}),
}


class BattleSuite(StoreOnSqlite):
    """One claim a test."""

    def dboms(self) -> Path:
        return self.home / "dboms"

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.dboms().glob("*.json")} if self.disk else {}

    def test_a_bound_that_is_no_time_is_refused(self) -> None:
        with self.open() as store:
            store.evaluations.submit({}, **GOOD, timestamp="2026-01-31T12:00:00Z")
            wrong: list[dict[str, Any]] = [{"since": "nonsense"}, {"until": "31.1."}, {"since": ""}]
            for bounds in wrong:
                with pytest.raises(errors.InvalidInputError, match="as in 2026"):
                    store.evaluations.list(**bounds)
            for since, count in (("2026-01-31", 1), ("2026-01-31T13:00:00+02:00", 1), ("2026-01-31T12:00:01Z", 0)):
                assert len(store.evaluations.list(since=since).items) == count

    def test_row_dbom_file_and_leaf_say_the_same(self) -> None:
        result = {"z": 1, "a": {"é": [1.5, None]}}
        with self.open(clock=FrozenClock("2026-01-14T21:05:51.758624Z")) as store:
            evaluation = store.evaluations.submit(result, **GOOD)
            text = json.dumps(result, sort_keys=True)
            digest = hashlib.sha256(text.encode()).hexdigest()
            assert (evaluation.raw_result, evaluation.dbom_hash, evaluation.score) == (text, digest, 0.5)
            assert json.loads(evaluation.dbom or "") == {
                "dbom_version": "1.0",
                "battle_id": "b",
                "h_delta": digest,
                "v_intent": [0.25, -1.0],
                "score_cis": 0.5,
                "sigma_judge": json.loads(evaluation.dbom or "")["sigma_judge"],
                "timestamp": "2026-01-14T21:05:51.758624Z",
            }
            assert evaluation.dbom == json.dumps(json.loads(evaluation.dbom or ""), indent=2)
            assert store.evaluations.get("b") == evaluation
            assert self.files() == ({"dbom_b.json": evaluation.dbom} if self.disk else {})
            settled(store)
            assert store.dbom.verify(evaluation.dbom).verdict is Verdict.VALID
            sound(store)

    @pytest.mark.parametrize("what", BAD)
    def test_bad_input_is_a_typed_error_and_nothing_is_written(self, what: str) -> None:
        result, wrong = BAD[what]
        with self.open() as store:
            with pytest.raises(errors.InvalidInputError):
                store.evaluations.submit(result, **{**GOOD, **wrong})
            assert store.evaluations.list(ns=None).items == []
            assert store.keys.list(role="judge").items == []
            assert self.files() == {}

    def test_a_vector_of_another_length_than_configured_is_refused(self) -> None:
        with self.open(dimensions=3) as store:
            with pytest.raises(errors.InvalidInputError, match="3 numbers"):
                store.evaluations.submit({}, **GOOD)
            assert store.evaluations.list().items == []
            store.evaluations.submit({}, **{**GOOD, "intent": (1, 2, 3)})
            store.evaluations.submit({}, **{**GOOD, "intent": None})

    @pytest.mark.parametrize(
        "given", [[math.nan, 0.5], [0.5], ["a", "b"], None, 0.5], ids=["nan", "short", "texts", "nothing", "number"]
    )
    def test_an_embedder_that_gives_no_such_vector_is_refused_and_nothing_is_written(self, given: Any) -> None:
        with self.open(embedder=lambda _: given, dimensions=2) as store:
            with pytest.raises(errors.InvalidInputError):
                store.evaluations.submit({"task": "limit"}, evaluation_id="b", score=1)
            assert store.evaluations.list(ns=None).items == []
            assert self.files() == {}

    def test_the_vector_comes_from_the_embedder_or_is_empty_and_never_invented(self) -> None:
        asked: list[str] = []

        def embed(text: str) -> list[float]:
            asked.append(text)
            return [float(len(text)), 0.5]

        with self.open() as store:
            bare = store.evaluations.submit({"task": "limit"}, evaluation_id="bare", score=1)
            assert json.loads(bare.dbom or "")["v_intent"] == []
        with self.open(embedder=embed) as store:
            given: list[dict[str, Any]] = [{}, {"intent": "a text"}, {"intent": [9.0]}]
            for more in given:
                store.evaluations.submit({"task": "limit"}, evaluation_id=f"b{len(more)}{more}"[:20], score=1, **more)
            store.evaluations.submit({"no": "task"}, evaluation_id="none", score=1)
            vectors = [
                json.loads(each.dbom or "")["v_intent"] for each in reversed(store.evaluations.list(limit=4).items)
            ]
        assert vectors == [[5.0, 0.5], [6.0, 0.5], [9.0], []]
        assert asked == ["limit", "a text"]

    def test_an_async_embedder_works_on_the_async_face(self) -> None:
        async def embed(text: str) -> list[float]:
            await asyncio.sleep(0)
            return [float(len(text))]

        async def play() -> Any:
            async with holdproof.open(self.home, self.url, embedder=embed) as store:
                return await store.evaluations.submit({"task": "limit"}, evaluation_id="b", score=1)

        assert json.loads(asyncio.run(play()).dbom)["v_intent"] == [5.0]

    def test_a_second_submit_is_a_new_row_and_a_new_dbom_and_none_is_lost(self) -> None:
        with self.open() as store:
            made = [store.evaluations.submit({"run": run}, **GOOD) for run in range(3)]
            assert [each.evaluation_id for each in store.evaluations.list(evaluation_id="b").items] == ["b"] * 3
            assert store.evaluations.get("b") == made[2]
            assert store.evaluations.get("b", id=made[0].id) == made[0]
            names = [f"dbom_b.{made[0].id}.json", f"dbom_b.{made[1].id}.json", "dbom_b.json"]
            assert self.files() == ({n: m.dbom for n, m in zip(names, made, strict=True)} if self.disk else {})
            settled(store)
            assert {store.dbom.verify(each.dbom or "").verdict for each in made} == {Verdict.VALID}
            sound(store)

    def test_an_earlier_dbom_never_takes_the_file_name_of_another_battle(self) -> None:
        with self.open() as store:
            first = store.evaluations.submit({}, **GOOD)
            store.evaluations.submit({}, **{**GOOD, "evaluation_id": f"b.{first.id + 2}"})
            second = store.evaluations.submit({}, **GOOD)
            assert second.id > first.id + 2
            with pytest.raises(errors.AlreadyExistsError):
                store.evaluations.submit({}, **{**GOOD, "evaluation_id": f"b.{first.id}"})
            store.evaluations.submit({}, **GOOD)
            sound(store)

    def test_a_list_is_walked_in_pages_and_filtered(self) -> None:
        with self.open() as store:
            for number in range(7):
                store.evaluations.submit({"n": number}, evaluation_id=f"b{number % 3}", score=number / 10)
            seen: list[float | None] = []
            cursor: str | None = None
            while True:
                page = store.evaluations.list(cursor=cursor, limit=3)
                seen += [each.score for each in page.items]
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert seen == [number / 10 for number in reversed(range(7))], "the newest first"
            with pytest.raises(errors.InvalidInputError, match="cursor"):
                store.evaluations.list(cursor="no cursor")
            assert len(store.evaluations.list(evaluation_id="b0").items) == 3
            assert len(store.evaluations.list(min_score=0.2, max_score=0.4).items) == 3
            assert (
                store.evaluations.list(since="2999-01-01").items
                == store.evaluations.list(until="1999-01-01").items
                == []
            )
            assert store.evaluations.list(imported=True).items == []
            assert len(store.evaluations.list(imported=False).items) == 7
            with pytest.raises(errors.InvalidInputError):
                store.evaluations.list(limit=0)
            with pytest.raises(errors.NotFoundError):
                store.evaluations.get("b9")

    def test_namespaces_do_not_mix(self) -> None:
        with self.open() as store:
            store.evaluations.submit({"n": 1}, **GOOD)
            other = store.evaluations.submit({"n": 2}, **GOOD, ns="lab")
            assert store.evaluations.get("b", ns="lab") == other
            assert len(store.evaluations.list().items) == 1
            if self.disk:
                assert (self.dboms() / "lab" / "dbom_b.json").read_text() == other.dbom
            sound(store)

    def test_a_labelled_subject_is_sealed_everywhere_and_can_be_revealed(self) -> None:
        with self.open() as store:
            evaluation = store.evaluations.submit(
                {"who": "Ada Lovelace"}, **{**GOOD, "breakdown": "Ada did it"}, subject="Ada"
            )
            assert "Ada" not in json.dumps(evaluation.to_dict())
            assert json.loads(evaluation.dbom or "")["v_intent"] == []
            assert store.evaluations.reveal("b") == {"who": "Ada Lovelace"}
            sound(store)
            store.erase.subject("Ada")
            with pytest.raises(errors.NotFoundError):
                store.evaluations.get("b")
            assert self.files() == {}
            sound(store)

    def test_erasing_the_newest_gives_its_file_name_to_the_one_before(self) -> None:
        with self.open() as store:
            first = store.evaluations.submit({"n": 1}, **GOOD)
            store.evaluations.submit({"n": 2}, **GOOD, subject="Ada")
            store.erase.subject("Ada")
            assert self.files() == ({"dbom_b.json": first.dbom} if self.disk else {})
            sound(store)

    def test_racing_submits_of_one_battle_are_none_lost_and_all_verify(self) -> None:
        with self.open() as store:

            def play(caller: int) -> None:
                for turn in range(5):
                    store.evaluations.submit({"caller": caller, "turn": turn}, **GOOD)

            threads = [threading.Thread(target=play, args=(caller,)) for caller in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rows = store.evaluations.list().items
            assert len({row.raw_result for row in rows}) == 40
            assert len(store.keys.list(role="judge").items) == 1
            newest = store.evaluations.get("b")
            if self.disk:
                assert self.files() == {
                    f"dbom_b.{row.id}.json" if row != newest else "dbom_b.json": row.dbom for row in rows
                }
            settled(store)
            assert {store.dbom.verify(row.dbom or "").verdict for row in rows} == {Verdict.VALID}
            sound(store)

    def test_async_callers_are_none_lost(self) -> None:
        async def play() -> int:
            async with holdproof.open(self.home, self.url) as store:
                await asyncio.gather(
                    *(store.evaluations.submit({"n": n}, evaluation_id="b", score=n) for n in range(64))
                )
                return len((await store.evaluations.list()).items)

        assert asyncio.run(play()) == 64


class TestSqlite(BattleSuite):
    pass


class TestMemory(StoreInMemory, BattleSuite):
    pass


class TestPostgres(StoreOnPostgres, BattleSuite):
    pass


# --- two processes -------------------------------------------------------------------------------------------------

_SUBMITS = """
import sys
from holdproof import sync
with sync.open(sys.argv[1], sys.argv[2] or None) as store:
    for turn in range(20):
        store.evaluations.submit({"who": sys.argv[3], "turn": turn}, evaluation_id="b", score=turn)
"""


@pytest.mark.parametrize("server", [False, True], ids=["sqlite", "postgres"])
def test_two_processes_race_for_one_battle_from_the_very_first_submit(
    tmp_path: Path, server: bool, request: pytest.FixtureRequest
) -> None:
    url = str(request.getfixturevalue("postgres_url")) if server else ""
    words = [sys.executable, "-c", _SUBMITS, str(tmp_path), url]
    racers = [subprocess.Popen([*words, name], stderr=subprocess.PIPE, text=True) for name in "xy"]
    assert [racer.communicate(timeout=120)[1] for racer in racers] == ["", ""]
    with sync.open(tmp_path, url or None) as store:
        rows = store.evaluations.list(limit=100).items
        assert len({row.raw_result for row in rows}) == 40
        assert len(store.keys.list(role="judge").items) == 1
        settled(store)
        assert {store.dbom.verify(row.dbom or "").verdict for row in rows} == {Verdict.VALID}
        assert (tmp_path / "dboms" / "dbom_b.json").read_text() == store.evaluations.get("b").dbom
        assert len(list((tmp_path / "dboms").glob("*.json"))) == 40
        sound(store)


# --- files -------------------------------------------------------------------------------------------------------


def test_a_crash_between_commit_and_file_is_repaired_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sync.open(tmp_path) as store:
        store.evaluations.submit({"n": 1}, **GOOD)
        with monkeypatch.context() as patch:
            patch.setattr(evaluations, "write_files", lambda *_: None)
            patch.setattr("holdproof.evidence.crash_recovery.at_closing", lambda _: None)
            store.evaluations.submit({"n": 2}, **GOOD)
            store.evaluations.submit({"n": 3}, **{**GOOD, "evaluation_id": "c"})
            store.core.close()
    with sync.open(tmp_path) as store:
        newest = {name: store.evaluations.get(name).dbom for name in "bc"}
        assert {name: (tmp_path / "dboms" / f"dbom_{name}.json").read_text() for name in "bc"} == newest
        assert (tmp_path / "dboms" / "dbom_b.1.json").exists()
        sound(store)


def test_a_deleted_file_of_a_finished_battle_is_reported_and_written_again_under_lock(
    tmp_path: Path,
) -> None:
    with sync.open(tmp_path) as store:
        store.evaluations.submit({}, **GOOD)
    (tmp_path / "dboms" / "dbom_b.json").unlink()
    with sync.open(tmp_path) as store:
        assert not (tmp_path / "dboms" / "dbom_b.json").exists()
        assert [each.verdict for each in store.verify.run().findings] == [Verdict.MISSING_HERE]
        assert store.dbom.repair().written == []
        assert store.dbom.repair(full=True).written == [str(tmp_path / "dboms" / "dbom_b.json")]
        (tmp_path / "dboms" / "dbom_b.json").unlink()
        report = store.verify.run(lock=True)
        assert (report.verdict, report.locked, report.checked["DBOM files written again"]) == (Verdict.VALID, None, 1)
        assert "was deleted" in report.findings[0].what
        sound(store)


def test_submitting_again_looks_at_the_last_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    exists = Path.exists

    def look(path: Path) -> bool:
        looked.append(path.name)
        return exists(path)

    with sync.open(tmp_path) as store:
        for number in range(30):
            store.evaluations.submit({"n": number}, **GOOD)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "exists", look)
            store.evaluations.submit({"n": 30}, **GOOD)
        assert [name for name in looked if name.startswith("dbom_b.")] == ["dbom_b.30.json", "dbom_b.29.json"]
        sound(store)


def test_a_signed_file_below_an_imported_one_is_written_when_it_loses_the_plain_name(tmp_path: Path) -> None:
    folder = tmp_path / "dboms"
    with sync.open(tmp_path) as store:
        for number in range(2):
            store.evaluations.submit({"n": number}, **GOOD)
        store.write(lambda tx: tx.execute(_AS_IMPORTED, id=2))
        store.dbom.repair(full=True)
        assert sorted(path.name for path in folder.glob("dbom*")) == ["dbom_b.1.json", "dbom_b.2.json", "dbom_b.json"]
        (folder / "dbom_b.1.json").unlink()  # it has the plain name now
        store.evaluations.submit({"n": 3}, **GOOD)
        assert "dsse" in (folder / "dbom_b.1.json").read_text()
        assert "dsse" not in (folder / "dbom_b.2.json").read_text()


def test_rows_that_become_visible_late_get_their_file(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        for number in range(4):
            store.evaluations.submit({"n": number}, **GOOD)
        late = tmp_path / "dboms" / "dbom_b.2.json"
        text = late.read_text()
        late.unlink()
        DbomFolder(store.database, tmp_path / "dboms", tmp_path / "locks").publish("main", "b", 2)
        assert late.read_text() == text


def test_opening_looks_at_no_file_but_removes_what_a_crash_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        pytest.fail("a look at every file")

    with sync.open(tmp_path) as store:
        store.evaluations.submit({}, **GOOD)
    left = tmp_path / "dboms" / ".tmp" / "a7"
    left.write_text("half a DBOM")
    monkeypatch.setattr(Path, "rglob", refuse)
    sync.open(tmp_path).close()
    assert not left.exists()
    assert sorted(path.name for path in (tmp_path / "dboms").iterdir()) == [".tmp", "dbom_b.json"]


def test_a_full_repair_mends_edited_files_and_names_strangers(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        for number in range(3):
            store.evaluations.submit({"n": number}, **GOOD)
        for name in ("dbom_b.json", "dbom_b.1.json"):
            (tmp_path / "dboms" / name).write_text("{}")
        stranger = tmp_path / "dboms" / "dbom_nobody.json"
        stranger.write_text("{}")
        done = store.dbom.repair(full=True)
        assert (len(done.written), done.unknown) == (2, [str(stranger)])
        stranger.unlink()
        sound(store)


def test_a_file_that_cannot_be_written_costs_no_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with sync.open(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr("holdproof.evidence.dbom_files.os.replace", full)
            evaluation = store.evaluations.submit({}, **GOOD)
        assert "not in its file yet" in caplog.text
        assert store.evaluations.get("b") == evaluation
        assert store.dbom.repair().written == [str(tmp_path / "dboms" / "dbom_b.json")]
        sound(store)


def test_files_that_cannot_be_repaired_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise errors.UnavailableError("the folder is gone")

    monkeypatch.setattr("holdproof.evidence.dbom_files.DbomFolder.repair", broken)
    with caplog.at_level("WARNING"):
        sync.open(tmp_path).close()
    assert caplog.text.count("DBOM files could not be repaired") == 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(min_size=1, max_size=60), score=st.floats(allow_nan=False, allow_infinity=False))
def test_any_battle_id_is_either_refused_or_kept_inside_the_folder(tmp_path: Path, name: str, score: float) -> None:
    with sync.open(tmp_path / "home") as store:
        try:
            evaluation = store.evaluations.submit({"n": name}, evaluation_id=name, score=score)
        except (errors.InvalidInputError, errors.AlreadyExistsError):
            return
        assert store.evaluations.get(name, id=evaluation.id) == evaluation
        assert store.dbom.verify(evaluation.dbom or "").verdict is Verdict.VALID
        path = tmp_path / "home" / "dboms" / f"dbom_{name}.json"
        assert path.parent.resolve() == (tmp_path / "home" / "dboms").resolve()
        assert path.read_text() == evaluation.dbom
