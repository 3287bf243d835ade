"""What verification promises: a check that did not run is said, and an intact store is never called tampered with."""

import threading
from pathlib import Path

import psycopg
import pytest

from harness.filling import settled, submit
from holdproof import sync
from holdproof.model.verdicts import Verdict
from holdproof.upkeep.verification import dbom_check


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as server:
        for statement in statements:
            server.execute(statement.encode())


@pytest.fixture
def home(tmp_path: Path, postgres_url: str) -> Path:
    with sync.open(tmp_path / "home", postgres_url) as store:
        submit(store, "first", 0.5)
        settled(store)
    return tmp_path / "home"


def test_a_schema_of_any_name_does_not_blind_the_check_of_the_schema(home: Path, postgres_url: str) -> None:
    run(
        postgres_url,
        "CREATE SCHEMA holdproof_verify",
        "CREATE FUNCTION kernel.lie() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TRIGGER lie BEFORE INSERT ON kernel.flow_transitions FOR EACH ROW EXECUTE FUNCTION kernel.lie()",
    )
    report = sync.verify(home, postgres_url, lock=False)
    assert report.verdict is Verdict.TAMPERED
    assert "trigger flow_transitions.lie" in [each.row for each in report.findings]


def test_a_schema_that_cannot_be_compared_is_incomplete_and_never_valid(home: Path, postgres_url: str) -> None:
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    run(
        postgres_url,
        f"CREATE ROLE narrow_{name} LOGIN",
        f"GRANT holdproof_kernel TO narrow_{name}",
        "CREATE FUNCTION kernel.lie() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    )
    report = sync.verify(home, postgres_url.replace("postgres@", f"narrow_{name}@"), lock=False)
    assert report.verdict is Verdict.INCOMPLETE, report.to_dict()
    assert report.verdict.exit_code == 14
    assert {each.verdict for each in report.findings} == {Verdict.INCOMPLETE}
    assert "schema" in [each.table for each in report.findings]
    assert not report.ok
    assert not report.locks


@pytest.mark.parametrize("server", [False, True], ids=["sqlite", "postgres"])
def test_a_judge_key_rotated_while_verify_pages_is_no_tampering(
    tmp_path: Path, postgres_url: str, server: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dbom_check, "_PAGE", 1)
    with sync.open(tmp_path, postgres_url if server else None) as store:
        submit(store, "before", 0.5)
        submit(store, "too", 0.5)
        rotated: list[str] = []

        def rotate() -> None:
            rotated.append(store.keys.rotate("judge").keyid)
            submit(store, "after", 0.5)

        def progress(step: str, done: int, total: int) -> None:
            del total
            if step == "DBOMs" and done and not rotated:
                other = threading.Thread(target=rotate)  # another caller of the same store
                other.start()
                other.join()

        report = store.verify.run(progress=progress)
        assert rotated
        assert report.checked["DBOMs"] == 3
        assert [each for each in report.findings if each.verdict is not Verdict.PENDING] == []
