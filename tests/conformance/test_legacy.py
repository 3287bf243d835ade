"""Taking over data of kgents, on every database: all of it, once, and never at its cost."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdproof import errors, sync
from holdproof.db import open_database
from holdproof.importers import kgents as kgents_import
from holdproof.importers.kgents.files import key_of
from holdproof.model.legacy import LegacyReport, LegacySource, Outcome
from tests import kgents

ROOT = os.geteuid() == 0


def tree(root: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes; folders have none. New names count as the old ones."""
    return {
        str(path.relative_to(root)).replace(".migrated", ""): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
        if not path.is_symlink()
    }


def only(report: LegacyReport, name: str) -> LegacySource:
    [found] = [each for each in report.sources if Path(each.source).name == name]
    return found


class Legacy:
    """The suite; `url` says where the membrane is."""

    url: str | None = None

    @pytest.fixture(autouse=True)
    def _homes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for variable in [each for each in os.environ if each.startswith(("HOLDPROOF_", "XDG_"))]:
            monkeypatch.delenv(variable)
        self.user, self.home = tmp_path / "user", tmp_path / "home"
        self.user.mkdir()
        self.old, self.xdg = self.user / ".kgents", self.user / ".local" / "share" / "kgents"
        monkeypatch.setenv("HOME", str(self.user))
        monkeypatch.chdir(self.user)
        (self.home / "config").mkdir(parents=True)
        (self.home / "config" / "config.yaml").write_text("providers: {vector: {dimensions: 2}}\n")

    def migrate(self, **options: Any) -> LegacyReport:
        return sync.migrate_legacy(home=self.home, url=self.url, **options)

    @pytest.fixture
    def stores(self) -> Iterator[Any]:
        with closing(sync.storage(self.home, self.url)) as stores:
            yield stores

    def rows(self, stores: Any, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = stores.open("relational").fetch_all(f"SELECT * FROM {table} ORDER BY 1")
        return found

    # --- the seven rows of the table, and the XDG home -----------------------------------------------------------

    def test_all_seven_rows_of_the_table_are_taken_over(self, stores: Any) -> None:
        kgents.legacy(self.old)
        report = self.migrate()
        assert {each.outcome for each in report.sources} == {Outcome.MOVED}
        assert (report.exit_code, len(report.sources)) == (0, 8)
        assert [row["id"] for row in self.rows(stores, "cli_sessions")] == ["gone", "s1", "s2"]
        first = self.rows(stores, "cli_sessions")[1]
        assert (first["name"], first["tokens_used"], first["metadata"]) == ("My REPL", 7, '{"a": 1}')
        assert len(self.rows(stores, "cli_session_agents")) == len(self.rows(stores, "cli_session_artifacts")) == 1
        checkpoint = self.rows(stores, "prompt_checkpoints")[1]
        assert (checkpoint["id"], checkpoint["parent_id"], checkpoint["before_sections"]) == ("c2", "c1", '["x"]')
        states = {row["agent_id"]: (row["genus"], row["state"]) for row in self.rows(stores, "agent_state")}
        assert states["soul"] == ("k-gent", '{"mood":  "calm"}')
        assert states["soul/eigen"] == ("other", '{"genus": "other", "v": 1}')
        assert states["hypnagogia"] == ("hypnagogia", '{"dreams": [1, 2]}')
        assert states["witness"] == ("witness", '{"trust": 2}')
        assert json.loads(states["prompt-history/c1"][1]) == {"mood": "calm"}
        blobs = stores.open("blobs")
        ghosts = ["ghost/%63on", "ghost/deep/large.bin", "ghost/empty", "ghost/health.status"]
        assert blobs.list().items == ["atelier/piece-1.json", *ghosts, "soul/notes.txt"]
        assert (blobs.get("ghost/deep/large.bin"), blobs.get("ghost/empty")) == (kgents.LARGE, b"")
        assert (self.home / "cache" / "legacy" / "witness.log").read_text() == "started\n"
        assert blobs.check() == []

    def test_the_xdg_home_is_taken_over(self, stores: Any) -> None:
        kgents.xdg(self.xdg)
        report = self.migrate()
        assert [each.outcome for each in report.sources] == [Outcome.MOVED] * 4
        assert [row["id"] for row in self.rows(stores, "shapes")] == ["shape1"]
        vectors, blobs = stores.open("vectors"), stores.open("blobs")
        assert (vectors.count(), vectors.search([1.0, 0.0], 1)[0].id) == (5, "v0")
        assert blobs.list().items == ["backups/today.bak", "notes.meta"]
        assert blobs.stat("backups/today.bak").content_type == "text/plain"
        events = stores.open("telemetry").query()
        assert [event.event_type for event in events] == ["tick", "tick", "instance.started"]

    def test_what_is_said_of_vectors_survives_the_vectors(self, stores: Any) -> None:
        kgents.xdg(self.xdg)
        self.migrate()
        [said] = self.rows(stores, "embedding_metadata")
        assert (said["source_id"], said["model_name"], said["content"]) == ("v1", "mini", "a text")
        assert stores.open("vectors").count() == 5

    def test_a_source_that_somebody_writes_to_meanwhile_keeps_its_name(self, stores: Any) -> None:
        kgents.write(self.old / "ghost" / "one", "1")

        def tell(step: str, done: int, total: int) -> None:
            if step == "verified":
                kgents.write(self.old / "ghost" / "two", "2")

        source = only(self.migrate(progress=tell), "ghost")
        assert (source.outcome, (self.old / "ghost").is_dir()) == (Outcome.FAILED, True)
        assert only(self.migrate(), "ghost").moved == {"blobs": 1}
        assert stores.open("blobs").list().items == ["ghost/one", "ghost/two"]

    def test_a_place_that_cannot_be_looked_at_is_told_and_the_other_goes_on(self) -> None:
        kgents.write(self.old, "a file where a folder should be")
        kgents.xdg(self.xdg)
        report = self.migrate()
        assert [each.outcome for each in report.sources] == [Outcome.FAILED] + [Outcome.MOVED] * 4
        assert report.exit_code == 6

    def test_nothing_is_deleted_and_every_byte_stays_under_the_new_name(self) -> None:
        kgents.legacy(self.old)
        before = tree(self.old)
        self.migrate()
        assert tree(self.old) == before
        assert all(".migrated" in name for name in os.listdir(self.old))

    def test_a_second_run_moves_nothing_and_says_so(self, stores: Any) -> None:
        kgents.legacy(self.old)
        kgents.xdg(self.xdg)
        self.migrate()
        before = [self.rows(stores, table) for table in ("cli_sessions", "agent_state", "legacy_moves")]
        again = self.migrate()
        assert {each.outcome for each in again.sources} == {Outcome.MOVED_BEFORE}
        assert all(each.moved == {} for each in again.sources)
        assert [self.rows(stores, table) for table in ("cli_sessions", "agent_state", "legacy_moves")] == before
        assert stores.open("telemetry").count() == 3

    def test_a_dry_run_reads_everything_and_touches_nothing(self) -> None:
        kgents.legacy(self.old)
        kgents.xdg(self.xdg)
        before = tree(self.user)
        report = self.migrate(dry_run=True)
        assert {each.outcome for each in report.sources} == {Outcome.WOULD_MOVE}
        assert only(report, "history.db").counts == {
            "cli_sessions": 3,
            "cli_session_events": 2,
            "cli_session_agents": 1,
            "cli_session_artifacts": 1,
        }
        assert tree(self.user) == before
        assert sorted(os.listdir(self.home)) == ["config"]

    def test_another_folder_can_be_named_and_must_be_there(self, tmp_path: Path, stores: Any) -> None:
        kgents.legacy(self.old)
        kgents.write(tmp_path / "other" / "soul" / "state.json", "{}")
        report = self.migrate(source=tmp_path / "other")
        assert [Path(each.source).name for each in report.sources] == ["soul"]
        assert (self.old / "soul").is_dir()
        with pytest.raises(errors.NotFoundError):
            self.migrate(source=tmp_path / "nowhere")

    def test_the_place_where_this_store_lives_is_no_legacy(self) -> None:
        with pytest.raises(errors.InvalidInputError, match="is the data folder of this store"):
            self.migrate(source=self.home)

    def test_without_anything_to_take_over_nothing_is_made(self) -> None:
        assert self.migrate().sources == []
        assert not (self.home / "membrane.db").exists()

    # --- children without parents, columns of another kind --------------------------------------------------------

    def test_a_child_whose_session_is_gone_is_kept_under_one_that_is_marked(self, stores: Any) -> None:
        kgents.database(self.old / "history.db", kgents.SESSIONS)
        self.migrate()
        lost = self.rows(stores, "cli_sessions")[0]
        assert (lost["id"], lost["name"], lost["state"]) == ("gone", "(lost)", "interrupted")
        assert json.loads(lost["metadata"]) == {"legacy": {"missing": "no row in the source"}}
        assert len(self.rows(stores, "cli_session_events")) == 2

    def test_other_words_and_more_columns_are_kept(self, stores: Any) -> None:
        kgents.database(
            self.old / "history.db",
            "CREATE TABLE sessions (id INTEGER PRIMARY KEY, name TEXT, type TEXT, created_at TEXT, colour TEXT);"
            "INSERT INTO sessions VALUES (1, 'x', 'flow', '2025-01-01T00:00:00Z', 'red')",
        )
        assert only(self.migrate(), "history.db").outcome is Outcome.MOVED
        [row] = self.rows(stores, "cli_sessions")
        assert (row["id"], row["session_type"], row["started_at"]) == (
            "legacy/cli_sessions/1",
            "flow",
            "2025-01-01T00:00:00Z",
        )
        assert json.loads(row["metadata"]) == {"legacy": {"colour": "red"}}

    def test_tables_that_are_not_ours_are_counted_and_the_exit_code_says_so(self, stores: Any) -> None:
        kgents.database(self.xdg / "membrane.db", kgents.MEMBRANE + "CREATE TABLE own (x); INSERT INTO own VALUES (1);")
        report = self.migrate()
        assert only(report, "membrane.db").skipped == {"rows of the unknown table own": 1}
        assert (report.exit_code, len(self.rows(stores, "shapes"))) == (8, 1)

    def test_vectors_of_another_length_are_left_out_and_counted(self, stores: Any) -> None:
        vectors = {"a": [1.0, 0.0], "b": [0.0, 1.0], "short": [1.0], "zero": [0.0, 0.0]}
        kgents.write(self.xdg / "vectors.json", json.dumps({"vectors": vectors, "metadata": {"a": {"k": 1}}}))
        report = self.migrate()
        assert only(report, "vectors.json").moved == {"vectors": 2}
        assert list(only(report, "vectors.json").skipped.values()) == [2]
        assert report.exit_code == 8
        assert stores.open("vectors").search([1.0, 0.0], 1)[0].metadata == {"k": 1}

    def test_vectors_that_do_not_fit_the_settings_wait_and_settle_nothing(self) -> None:
        kgents.xdg(self.xdg, dimensions=3)
        report = self.migrate()
        waiting = only(report, "vectors.json")
        assert (waiting.outcome, waiting.code, report.exit_code) == (Outcome.FAILED, "vectors.dimensions", 2)
        (self.home / "config" / "config.yaml").write_text("providers: {vector: {dimensions: 3}}\n")
        assert only(self.migrate(), "vectors.json").outcome is Outcome.MOVED

    # --- hostile sources -------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("history.db", b"no database at all, but long enough to be looked at as one" * 20),
            ("history.db", b""),
            ("soul/state.json", b"{broken"),
            ("soul/state.json", b'{"x": "\xff"}'),
            ("soul/state.json", b"[" * 100_000),
            ("hypnagogia/x.json", b""),
            ("prompt-history/checkpoints/c1.json", b"[]"),
            ("witness.json", b"nope"),
            ("witness.jsonl", b'{"a": 1}\n{"b"'),
            ("vectors.json", b'{"a": "not a vector"}'),
            ("vectors.json", b'{"a": [1, null]}'),
            ("vectors.json", b"7"),
            ("vectors.json", b'[{"id": ["a"], "vector": [1]}]'),
            ("vectors.json", b'{"vectors": {"a": [1]}, "metadata": [1]}'),
            ("vectors.json", b'[{"id": "a", "vector": [1]}, {"id": "a", "vector": [2]}]'),
            ("telemetry.db", b"x" * 5000),
        ],
    )
    def test_a_damaged_source_is_left_untouched_and_the_others_go_on(
        self, name: str, content: bytes, stores: Any
    ) -> None:
        kgents.legacy(self.old)
        path = self.old / name
        if path.exists():
            path.unlink()
        kgents.write(path, content)
        before = tree(self.old)
        report = self.migrate()
        source = only(report, Path(name).parts[0])
        assert (source.outcome, source.moved, source.renamed) == (Outcome.DAMAGED, {}, "")
        assert source.why
        assert source.code
        assert report.exit_code == 8
        assert path.read_bytes() == content
        assert [each.outcome for each in report.sources if each is not source] == [Outcome.MOVED] * (
            len(report.sources) - 1
        )
        assert tree(self.old) == before

    def test_wrong_columns_are_damage(self) -> None:
        kgents.database(self.old / "history.db", "CREATE TABLE sessions (colour); INSERT INTO sessions VALUES (1)")
        kgents.database(self.xdg / "membrane.db", "CREATE TABLE dreams (id, other); INSERT INTO dreams VALUES (1, 2)")
        report = self.migrate()
        assert [each.outcome for each in report.sources] == [Outcome.DAMAGED] * 2
        assert "has no id" in only(report, "history.db").why

    def test_half_of_a_damaged_source_is_never_seen(self, stores: Any) -> None:
        kgents.database(self.old / "history.db", kgents.SESSIONS + "INSERT INTO sessions (id) VALUES ('no name');")
        assert only(self.migrate(), "history.db").outcome is Outcome.DAMAGED
        assert self.rows(stores, "cli_sessions") == []

    def test_links_are_never_followed(self, tmp_path: Path, stores: Any) -> None:
        secret = tmp_path / "secret"
        kgents.write(secret / "state.json", '{"password": 1}')
        kgents.write(self.old / "ghost" / "real", "x")
        (self.old / "ghost" / "file").symlink_to(secret / "state.json")
        (self.old / "ghost" / "folder").symlink_to(secret)
        (self.old / "soul").symlink_to(secret)
        (self.old / "witness.json").symlink_to(secret / "state.json")
        report = self.migrate()
        assert only(report, "soul").outcome is only(report, "witness.json").outcome is Outcome.REFUSED
        assert only(report, "ghost").skipped == {"links": 2}
        assert report.exit_code == 8
        assert stores.open("blobs").list().items == ["ghost/real"]
        assert self.rows(stores, "agent_state") == []
        assert (self.old / "soul").is_symlink()

    def test_pipes_and_sockets_are_passed_over_without_waiting(self) -> None:
        kgents.write(self.old / "ghost" / "real", "x")
        os.mkfifo(self.old / "ghost" / "pipe")
        with closing(socket.socket(socket.AF_UNIX)) as server:
            os.chdir(self.old / "ghost")
            server.bind("socket")
        os.mkfifo(self.old / "witness.pipe")
        report = self.migrate()
        assert only(report, "ghost").skipped == {"pipes, sockets and devices": 2}
        assert only(report, "witness.pipe").outcome is Outcome.REFUSED

    @pytest.mark.skipif(ROOT, reason="root reads everything")
    def test_what_cannot_be_read_is_told_and_left(self) -> None:
        kgents.legacy(self.old)
        (self.old / "ghost" / "health.status").chmod(0)
        try:
            report = self.migrate()
        finally:
            (self.old / "ghost" / "health.status").chmod(0o600)
        assert (only(report, "ghost").outcome, report.exit_code) == (Outcome.FAILED, 6)
        assert only(self.migrate(), "ghost").outcome is Outcome.MOVED

    def test_a_file_that_vanishes_meanwhile_is_told_and_the_source_keeps_its_name(self) -> None:
        kgents.legacy(self.old)

        def tell(step: str, done: int, total: int) -> None:
            if step == "keep files" and (done, total) == (1, 4):
                (self.old / "ghost" / "health.status").unlink(missing_ok=True)

        report = self.migrate(progress=tell)
        assert (only(report, "ghost").outcome, report.exit_code) == (Outcome.FAILED, 6)
        assert (self.old / "ghost").is_dir()
        assert only(report, "history.db").outcome is Outcome.MOVED

    def test_a_name_that_is_no_key_gets_one_of_its_own(self, stores: Any) -> None:
        names = ["con", "%63on", "back\\slash", "tab\there", "  ", "nul.txt", os.fsdecode(b"\xff\xfe"), "x" * 255]
        for number, name in enumerate(names):
            kgents.write(self.old / "ghost" / name, str(number))
        assert only(self.migrate(), "ghost").moved == {"blobs": len(names)}
        blobs = stores.open("blobs")
        assert sorted(blobs.get(key) for key in blobs.list(limit=1_000)) == sorted(
            str(n).encode() for n in range(len(names))
        )

    def test_a_file_that_another_program_is_writing_is_read_with_its_log(self, stores: Any) -> None:
        path = self.old / "history.db"
        kgents.database(path, kgents.SESSIONS)
        with closing(apsw.Connection(str(path))) as writer:
            writer.pragma("journal_mode", "wal")
            writer.execute("INSERT INTO sessions (id, name, started_at) VALUES ('live', 'x', 'y')")
            assert only(self.migrate(), "history.db").outcome is Outcome.MOVED
        assert "live" in [row["id"] for row in self.rows(stores, "cli_sessions")]

    def _changer(self, name: str) -> Callable[[], None]:
        """What changes a source, once."""
        path = (self.xdg if name == "telemetry.db" else self.old) / name
        left = [1]

        def change() -> None:
            if not left or not path.exists():
                return
            if name == "history.db":
                kgents.database(path, "INSERT INTO sessions (id, name, started_at) VALUES ('late', 'x', 'y')")
            elif name == "telemetry.db":
                kgents.database(path, "INSERT INTO events (event_type, timestamp) VALUES ('tick', '2025-01-01')")
            elif path.is_dir():
                kgents.write(path / "late", "late")
            else:
                kgents.write(path, '{"trust": 3}')
            left.clear()

        return change

    @pytest.mark.parametrize("step", ["write", "verified", "rename"])
    @pytest.mark.parametrize("name", ["history.db", "witness.json", "witness.log", "ghost", "soul", "telemetry.db"])
    def test_what_another_program_writes_meanwhile_is_never_left_behind(
        self, name: str, step: str, stores: Any
    ) -> None:
        home = kgents.xdg(self.xdg) if name == "telemetry.db" else kgents.legacy(self.old)
        for other in home.iterdir():
            if other.name != name:
                other.rename(self.user / other.name)
        changed = self._changer(name)

        def meddle(at: str, done: int, total: int) -> None:
            del total
            if at == step and (done == 0 or at == "verified"):
                changed()

        first = {Path(each.source).name: each for each in self.migrate(progress=meddle).sources}[name]
        assert (first.outcome, first.code, first.renamed) == (Outcome.FAILED, "database.busy", "")
        assert only(self.migrate(), name).outcome in {Outcome.MOVED, Outcome.CONFLICT}
        if name == "telemetry.db":
            assert stores.open("telemetry").count() == 4
        if name == "history.db":
            assert "late" in [row["id"] for row in self.rows(stores, "cli_sessions")]
        if name == "ghost":
            assert stores.open("blobs").get("ghost/late") == b"late"

    # --- what is there already -------------------------------------------------------------------------------------

    def test_what_is_there_with_other_values_is_a_conflict_and_never_overwritten(self, stores: Any) -> None:
        kgents.legacy(self.old)
        stores.open("relational").execute("INSERT INTO agent_state (agent_id, state) VALUES ('soul', 'new')")
        stores.open("blobs").put("ghost/health.status", b"new")
        report = self.migrate()
        assert only(report, "soul").outcome is only(report, "ghost").outcome is Outcome.CONFLICT
        assert report.exit_code == 4
        assert [row["state"] for row in self.rows(stores, "agent_state") if row["agent_id"] == "soul"] == ["new"]
        assert stores.open("blobs").list("ghost/").items == ["ghost/health.status"]
        assert stores.open("blobs").get("ghost/health.status") == b"new"
        assert (self.old / "ghost").is_dir()
        assert only(report, "history.db").outcome is Outcome.MOVED

    def test_what_comes_back_to_the_old_path_is_warned_of_and_taken_over_beside_the_first(self, stores: Any) -> None:
        kgents.write(self.old / "ghost" / "one", "1")
        self.migrate()
        assert kgents_import.returned() == []
        kgents.write(self.old / "ghost" / "two", "2")
        [warning] = kgents_import.returned()
        assert str(self.old / "ghost") in warning
        report = self.migrate()
        assert stores.open("blobs").list().items == ["ghost/one", "ghost/two"]
        assert sorted(os.listdir(self.old)) == ["ghost.migrated", "ghost.migrated-2"]
        assert [each.outcome for each in report.sources] == [Outcome.MOVED, Outcome.MOVED_BEFORE]

    def test_events_that_come_back_as_they_were_are_not_appended_twice(self, stores: Any) -> None:
        for _ in range(2):
            kgents.database(self.xdg / "telemetry.db", kgents.EVENTS)
            self.migrate()
        assert stores.open("telemetry").count() == 3

    def test_a_first_start_hints_at_what_waits(self) -> None:
        assert kgents_import.hint() is None
        kgents.legacy(self.old)
        assert "migrate-legacy" in str(kgents_import.hint())
        self.migrate()
        assert kgents_import.hint() is None

    def test_a_damaged_source_that_is_mended_is_taken_over_by_the_next_run(self) -> None:
        kgents.write(self.old / "soul" / "state.json", "{broken")
        assert only(self.migrate(), "soul").outcome is Outcome.DAMAGED
        kgents.write(self.old / "soul" / "state.json", "{}")
        assert only(self.migrate(), "soul").outcome is Outcome.MOVED


class TestOnSqlite(Legacy):
    def test_a_store_of_holdproof_is_no_membrane_of_kgents(self) -> None:
        self.xdg.mkdir(parents=True)
        open_database(self.xdg / "membrane.db", space="membrane").close()
        source = only(self.migrate(), "membrane.db")
        assert source.outcome is Outcome.DAMAGED
        assert "is a store of Holdproof" in source.why

    def test_memory_is_no_place_to_take_anything_over_to(self) -> None:
        kgents.legacy(self.old)
        (self.home / "config" / "config.yaml").write_text("providers: {relational: {type: memory}}\n")
        report = self.migrate()
        assert only(report, "history.db").outcome is Outcome.FAILED
        assert (self.old / "history.db").exists()


class TestOnPostgres(Legacy):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_url: str) -> None:
        self.url = postgres_url


def test_no_two_names_share_a_key() -> None:
    names = ["con", "%63on", "CON", "%", "%2", "%25", "%2563on", "a%b", "a\\b", "a%5Cb", " ", "%20", "x" * 300, "aux.x"]
    keys = [key_of("ghost", name) for name in names]
    assert len(set(keys)) == len(names)
    assert len({key_of("ghost", *["d" * 200] * 6, name) for name in names}) == len(names)
