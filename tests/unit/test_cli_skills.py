"""The commands of skills, through click's runner; always a real store and real files."""

import json
from base64 import b64decode
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdproof import sync
from holdproof.cli.app import app
from tests.unit.test_cli_evidence import home, parsed, run

__all__ = ["home"]  # every test has a home of its own

GOOD = "* Deploy\n#+begin_src sh\nship\n#+end_src\n"


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "deploy.org"
    path.write_text(GOOD)
    return path


@pytest.fixture
def existing(home: Path) -> None:
    """A store that is there already: commands that read create none."""
    sync.open(home).close()


def test_a_skill_is_looked_at_approved_loaded_and_listed(skill: Path) -> None:
    seen = parsed("skills", "fingerprint", str(skill))
    assert [block["kind"] for block in seen["blocks"]] == ["headline", "code"]
    made = parsed("skills", "approve", str(skill), "--by", "ada", "--comment", "fine", "--root", seen["root"])
    assert (made["root"], made["approved_by"], made["comment"], made["n"]) == (seen["root"], "ada", "fine", 1)
    assert run("skills", "load", str(skill)).stdout == GOOD
    assert b64decode(parsed("skills", "load", str(skill))["data"]["$bytes"]).decode() == GOOD
    run("skills", "load", str(skill), "--out", "copy.org")
    assert skill.with_name("copy.org").read_bytes() == skill.read_bytes()
    assert parsed("skills", "status", str(skill))["state"] == "APPROVED"
    [listed] = parsed("skills", "list")["items"]
    assert listed["approval"] == made
    assert "APPROVED" in run("skills", "list").stdout
    assert parsed("skills", "verify")["items"] == [listed]


def test_a_changed_skill_has_its_exit_code_and_says_which_block(skill: Path) -> None:
    run("skills", "approve", str(skill), "--by", "ada")
    skill.write_text(GOOD.replace("ship", "steal"))
    only = run("skills", "verify", "--no-lock", code=5)
    assert "the code block 'sh' at line 2 was changed" in only.stdout
    error = parsed("skills", "load", str(skill), code=5)["error"]
    assert (error["code"], error["changes"]) == ("locked.skill", ["the code block 'sh' at line 2 was changed"])
    assert "LOCKED" in run("skills", "verify", str(skill), code=5).stdout
    assert "LOCKED" in run("skills", "list").stdout
    run("skills", "approve", str(skill), "--by", "ada", "--root", "00", code=4)
    run("skills", "approve", str(skill), "--by", "ada")
    assert "steal" in run("skills", "load", str(skill)).stdout


@pytest.mark.usefixtures("existing")
def test_a_revoked_unlisted_or_missing_skill_has_its_exit_code(skill: Path) -> None:
    run("skills", "revoke", str(skill), "--by", "ada", code=3)
    run("skills", "load", str(skill), code=5)
    run("skills", "load", str(skill.with_name("no.org")), code=3)
    run("skills", "approve", str(skill.with_name("no.org")), "--by", "ada", code=3)
    run("skills", "approve", str(skill), "--by", "ada")
    assert parsed("skills", "revoke", str(skill), "--by", "ada")["action"] == "revoke"
    run("skills", "load", str(skill), code=5)


def test_what_a_skill_holds_is_shown_and_not_sent_to_the_terminal(skill: Path) -> None:
    skill.write_bytes(b"* \x1b[31mred\n\xff\n")
    run("skills", "approve", str(skill), "--by", "ada")
    assert "\x1b" not in run("skills", "load", str(skill)).stdout
    assert b64decode(parsed("skills", "load", str(skill))["data"]["$bytes"]) == skill.read_bytes()


def test_a_watcher_prints_a_line_of_json_for_each_skill(skill: Path) -> None:
    other = skill.with_name("other.md")
    other.write_text("# Other\n")
    for path in (skill, other):
        run("skills", "approve", str(path), "--by", "ada")
    lines = (
        CliRunner().invoke(app, ["skills", "watch", "--rounds", "2", "--every-s", "0.01", "--json"]).stdout.splitlines()
    )
    assert [json.loads(line)["path"] for line in lines] == [str(skill), str(other)]
    shown = run("skills", "watch", str(other), "--rounds", "1").stdout
    assert str(other) in shown
    assert str(skill) not in shown
    run("skills", "watch", "--every-s", "0", code=2)
