"""A disaster drill restores what was written before it, with nothing of the old machine, and leaves that alone."""

import re
import shutil
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.filling import settled
from harness.servers import Postgres
from holdproof import errors, folders, sync
from holdproof.cli.app import app
from holdproof.model.verdicts import Verdict
from tests.store_locations import StoreLocation, everything, submit

_GUIDE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "disaster-drill.md"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    location = StoreLocation(tmp_path / "home", url)
    with location.open() as store:
        for number in range(20):
            submit(store, f"before-{number}", secret=f"answer {number}")
        settled(store)
    return location


def names(location: StoreLocation) -> set[str]:
    with location.open() as store:
        return {name for name, _ in everything(store)}


def move_code(place: StoreLocation, folder: Path) -> Path:
    """Move the recovery code to where the machine that is lost does not have it."""
    return Path(shutil.move(place.recovery, folder / "root-recovery.txt"))


def test_a_drill_under_load_restores_all_that_was_there_and_its_copy_needs_nothing_of_the_lost_machine(
    place: StoreLocation, tmp_path: Path
) -> None:
    code = move_code(place, tmp_path)
    stop = threading.Event()
    written: list[str] = []

    def write(store: sync.Holdproof) -> None:
        while not stop.is_set():
            name = f"during-{len(written)}"
            submit(store, name)
            written.append(name)

    with place.open() as store:
        writer = threading.Thread(target=write, args=(store,))
        writer.start()
        try:
            drill = sync.drill(tmp_path / "drill", place.home, place.url, root_recovery=code, keep=True)
        finally:
            stop.set()
            writer.join(60)
        settled(store)
    assert drill.verdict == Verdict.VALID.word
    assert [step.name for step in drill.steps] == ["backup", "check", "loss", "restore", "verify"]
    assert drill.written_since > 0
    assert drill.home is not None
    # Now the machine is lost in earnest.
    shutil.rmtree(place.home)
    restored = StoreLocation(Path(drill.home))
    there = names(restored)
    assert {f"before-{number}" for number in range(20)} <= there
    assert there - {*written} == {f"before-{number}" for number in range(20)}
    restored.sound()


def test_a_drill_leaves_the_store_and_no_files_behind(place: StoreLocation, tmp_path: Path) -> None:
    code = move_code(place, tmp_path)
    before = place.state()
    drill = sync.drill(tmp_path / "drill", place.home, place.url, root_recovery=code)
    assert (drill.home, drill.written_since) == (None, 0)
    assert not (tmp_path / "drill").exists()
    assert place.state() == before
    place.sound()


def test_a_drill_restores_into_a_database_of_a_server(place: StoreLocation, tmp_path: Path, postgres: Postgres) -> None:
    code = move_code(place, tmp_path)
    postgres.sql("CREATE DATABASE drilled")
    to = postgres.url("drilled")
    try:
        drill = sync.drill(tmp_path / "drill", place.home, place.url, root_recovery=code, to_url=to, keep=True)
        assert drill.home is not None
        assert names(StoreLocation(Path(drill.home), to)) == names(place)
        with pytest.raises(errors.AlreadyExistsError, match="name an empty database"):
            sync.drill(tmp_path / "again", place.home, place.url, root_recovery=code, to_url=to)
        assert not (tmp_path / "again").exists()
    finally:
        postgres.sql("DROP DATABASE drilled WITH (FORCE)")


def test_a_drill_never_restores_into_the_store_that_the_environment_names(
    place: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = move_code(place, tmp_path)
    before = place.state()
    if place.url is not None:
        monkeypatch.setenv("HOLDPROOF_DATABASE_URL", place.url)
    monkeypatch.setenv("HOLDPROOF_HOME", str(place.home))
    drill = sync.drill(tmp_path / "drill", root_recovery=code, keep=True)
    assert (tmp_path / "drill" / "machine" / "kernel.db").exists()
    assert drill.verdict == Verdict.VALID.word
    assert place.state() == before


def test_a_drill_without_the_recovery_code_fails_as_the_real_loss_would(place: StoreLocation, tmp_path: Path) -> None:
    move_code(place, tmp_path)
    with pytest.raises(errors.HoldproofError, match="root-recovery"):
        sync.drill(tmp_path / "drill", place.home, place.url)
    assert not (tmp_path / "drill").exists()
    (tmp_path / "drill").mkdir()
    with pytest.raises(errors.AlreadyExistsError, match="exists already"):
        sync.drill(tmp_path / "drill", place.home, place.url)
    place.sound()


def test_a_drill_that_is_called_wrongly_leaves_no_folder_and_says_what_is_wrong(
    place: StoreLocation, tmp_path: Path
) -> None:
    with pytest.raises(errors.NotFoundError, match="no-such-code"):
        sync.drill(tmp_path / "drill", place.home, place.url, root_recovery=tmp_path / "no-such-code")
    assert not (tmp_path / "drill").exists()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(errors.UnavailableError, match="file"):
        sync.drill(tmp_path / "file" / "drill", place.home, place.url, root_recovery=place.recovery)
    assert (tmp_path / "file").read_text() == "mine"


def test_of_two_drills_at_once_one_has_the_folder(
    place: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = folders.make

    def overtaken(folder: Path) -> None:
        make(folder)
        (tmp_path / "drill").mkdir(exist_ok=True)
        (tmp_path / "drill" / "theirs").touch()

    monkeypatch.setattr(folders, "make", overtaken)
    with pytest.raises(errors.AlreadyExistsError):
        sync.drill(tmp_path / "drill", place.home, place.url, root_recovery=place.recovery)
    assert (tmp_path / "drill" / "theirs").exists(), "who comes second removes nothing of the first"


def test_the_transcript_of_the_guide_is_what_the_command_prints(place: StoreLocation, tmp_path: Path) -> None:
    code = move_code(place, tmp_path)
    words = ["--home", str(place.home), "drill", str(tmp_path / "drill"), "--root-recovery", str(code)]
    if place.url is not None:
        words += ["--url", place.url]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output

    def shape(transcript: str) -> list[str]:
        """Leave out numbers, ids and the spaces before them: they differ from drill to drill."""
        return [re.sub(r"\S*\d\S*", "#", line).strip() for line in transcript.strip().splitlines()]

    [transcript] = re.findall(r"^```text\n\$ holdproof drill .*\n((?:.+\n)+?)```$", _GUIDE.read_text(), re.MULTILINE)
    assert shape(done.stdout) == shape(transcript)
