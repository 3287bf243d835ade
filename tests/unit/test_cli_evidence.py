"""`holdproof evaluations`, `dbom`, `keys` and `import`, through click's runner; always a real store."""

import base64
import json
import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner, Result

from holdproof.cli.app import app
from holdproof.errors import InvalidInputError
from tests.fixtures import fixture


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("HOLDPROOF_", "XDG_"))]:
        if name != "HOLDPROOF_FIXTURES":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    (tmp_path / "result.json").write_text('{"task": "Rate Limiter", "passed": 9}')
    (tmp_path / "vector.json").write_text("[0.5, 0.25, 1]")
    return tmp_path / "home"


def run(*words: str, code: int = 0, **more: Any) -> Result:
    done = CliRunner().invoke(app, words, **more)
    assert done.exit_code == code, done.output
    return done


def parsed(*words: str, **more: Any) -> Any:
    return json.loads(run(*words, "--json", **more).stdout)


def submit(evaluation_id: str = "b-1", *more: str) -> Any:
    words = ("evaluations", "submit", "result.json", "--evaluation-id", evaluation_id, "--score", "0.5")
    return parsed(*words, "--intent", "vector.json", *more)


def judge() -> str:
    [keyid] = [key["keyid"] for key in parsed("keys", "list")["items"] if key["role"] == "judge"]
    return str(keyid)


def test_the_address_of_a_server_is_told_from_the_url_of_a_database() -> None:
    done = run("verify", "http://127.0.0.1:9", code=InvalidInputError.exit_code)
    assert "holdproof verify --server URL" in done.output


def test_a_battle_is_submitted_listed_shown_and_verified(home: Path) -> None:
    made = submit("b-1", "--breakdown", '"fine"')
    assert [each["evaluation_id"] for each in parsed("evaluations", "list")["items"]] == ["b-1"]
    assert parsed("evaluations", "list", "--since", "2999-01-01")["items"] == []
    run("evaluations", "list", "--since", "nonsense", code=2)
    assert parsed("evaluations", "get", "b-1") == made
    file = str(home / "dboms" / "dbom_b-1.json")
    assert parsed("dbom", "get", "b-1")["text"] == Path(file).read_text()
    assert json.loads(run("dbom", "get", "b-1").stdout) == json.loads(Path(file).read_text())
    assert parsed("dbom", "verify", file)["verdict"] == "VALID"
    assert "VALID" in run("dbom", "verify", file).stdout


def test_the_result_may_come_from_stdin() -> None:
    words = ("evaluations", "submit", "-", "--evaluation-id", "b", "--score", "1")
    assert parsed(*words, input='{"a": 1}')["raw_result"] == '{"a": 1}'


@pytest.mark.parametrize(("text", "code"), [("not json", 2), ('{"x": NaN}', 2)])
def test_a_bad_result_ends_with_the_code_of_its_error(tmp_path: Path, text: str, code: int) -> None:
    (tmp_path / "result.json").write_text(text)
    done = parsed("evaluations", "submit", "result.json", "--evaluation-id", "b", "--score", "1", code=code)
    assert done["error"]["code"] in ("format.invalid", "input.invalid")
    run("evaluations", "submit", "nowhere.json", "--evaluation-id", "b", "--score", "1", code=3)
    run("evaluations", "submit", "result.json", "--evaluation-id", "b", "--score", "nan", code=2)


def test_a_tampered_dbom_ends_with_20_and_repair_mends_it(home: Path) -> None:
    submit()
    file = home / "dboms" / "dbom_b-1.json"
    file.write_text(file.read_text().replace("0.5,", "0.6,"))
    assert parsed("dbom", "verify", str(file), code=20)["verdict"] == "TAMPERED"
    assert parsed("dbom", "repair")["written"] == []
    assert parsed("dbom", "repair", "--full")["written"] == [str(file)]
    run("dbom", "verify", str(file))


def test_an_envelope_is_exported(tmp_path: Path) -> None:
    submit()
    run("export", "dbom", "b-1", "--out", "b-1.dsse.json")
    envelope = json.loads((tmp_path / "b-1.dsse.json").read_text())
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    assert json.loads(run("export", "dbom", "b-1").stdout) == envelope
    bundle = json.loads(run("export", "dbom", "b-1", "--format", "sigstore").stdout)
    assert (bundle["dsseEnvelope"], bundle["verificationMaterial"]["publicKey"]) == (envelope, {"hint": judge()})
    run("export", "dbom", "b-1", "--format", "pdf", code=2)


def test_keys_are_rotated_and_revoked_with_a_root_at_hand(home: Path, tmp_path: Path) -> None:
    submit()
    first = judge()
    made = parsed("keys", "export-root", "--recovery", "recovery.txt")
    assert (made["on_disk"], "recovery" in made) == (True, False)
    assert parsed("keys", "rotate", "judge")["role"] == "judge"
    run("keys", "revoke", first[:10], "--from-index", "0", code=4)
    run("keys", "revoke", first[:10], "--from-index", "0", "--successors", "both", code=2)
    words = ("keys", "revoke", first[:10], "--from-index", "0", "--successors", "readmit")
    assert parsed(*words)["revoked_from"] == 0
    assert json.loads(run("keys", "readmission", first).stdout)["predicate"]["action"] == "readmit"
    assert parsed("dbom", "verify", str(home / "dboms" / "dbom_b-1.json"), code=12)["verdict"] == "REVOKED_KEY"
    run("keys", "trust", "--out", "trust.json")
    assert json.loads((tmp_path / "trust.json").read_text())["payloadType"] == "application/vnd.holdproof.trust+json"
    run("keys", "rotate", "nobody", code=2)
    run("keys", "revoke", "ffffffff", code=3)


def test_a_rotated_key_is_shown_with_the_index_of_its_leaf() -> None:
    submit()
    made = parsed("keys", "rotate", "log")
    [listed] = [key for key in parsed("keys", "list")["items"] if key["keyid"] == made["keyid"]]
    assert made["index"] == listed["index"] > 0
    assert re.search(r"^index +\d+$", run("keys", "rotate", "judge").stdout, re.MULTILINE)


def test_the_example_of_log_prove_names_a_whole_leaf_and_such_a_one_is_proven() -> None:
    leaf_id = submit()["leaf_id"]
    example = run("log", "prove", "--help").stdout.split("Example: holdproof log prove ")[1].split()[0]
    assert len(example) == len(leaf_id)
    assert leaf_id in base64.b64decode(parsed("log", "prove", leaf_id)["extra"]["$bytes"]).decode()


def test_an_offline_root_signs_elsewhere(home: Path, tmp_path: Path) -> None:
    submit()
    made = parsed("keys", "export-root", "--offline", "--recovery", "-")
    (tmp_path / "recovery.txt").write_text(made["recovery"])
    assert not (home / "config" / "keys" / "root.pem").exists()
    run("keys", "revoke", judge(), code=12)
    run("keys", "revocation", judge(), "--out", "revoke.json")
    run("keys", "sign", "revoke.json", "--recovery", "recovery.txt", "--out", "signed.json")
    assert parsed("keys", "import-statement", "signed.json")["keyid"] == judge()
    assert [key["revoked_from"] is None for key in parsed("keys", "list")["items"] if key["role"] == "judge"] == [False]
    run("keys", "statement", code=2)
    assert parsed("keys", "recover-root", "--recovery", "recovery.txt")["role"] == "root"
    run("keys", "export-root", "--recovery", "again.txt")
    assert (tmp_path / "again.txt").read_text() == made["recovery"]


def test_an_embedder_is_found_in_the_working_folder(tmp_path: Path) -> None:
    submit()
    (tmp_path / "my_model.py").write_text("def embed(text):\n    return [0.5, 0.25, 1.0]\n\nnumber = 7\n")
    assert parsed("dbom", "check-intent", "my_model:embed")["same"] == 1
    (tmp_path / "other_model.py").write_text("def embed(text):\n    return [1.0, 0.0, 0.0]\n")
    [drifted] = parsed("dbom", "check-intent", "other_model:embed", code=20)["drifted"]
    assert drifted["evaluation_id"] == "b-1"
    for wrong in ("my_model", "my_model:none", "no_such_module:embed", "my_model:number"):
        run("dbom", "check-intent", wrong, code=2)


def test_a_green_agent_is_imported_and_its_vectors_spread() -> None:
    source, dboms = str(fixture("green-agent/battles_75rows_22dup.db")), str(fixture("green-agent/dboms"))
    dry = parsed("import", "green-agent", source, "--dboms", dboms, "--dry-run")
    assert (dry["total"], dry["done"]) == (75, {})
    done = parsed("import", "green-agent", source, "--dboms", dboms)
    assert (done["verdicts"], done["done"]) == ({"DBOM_MISSING": 47, "VERIFIED": 28}, {"imported": 75})
    found = parsed("dbom", "spread", "--threshold", "0.95")
    assert (found["count"], found["dim"]) == (28, 384)
    run("dbom", "spread")


def test_dirs_database_is_imported_and_what_was_kept_is_listed(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "dir.db"))) as connection:
        connection.execute("CREATE TABLE agent_registry (agent_id TEXT PRIMARY KEY, contract JSON, status TEXT)")
        connection.execute("INSERT INTO agent_registry VALUES ('trader', '{}', 'ACTIVE'), ('', '{}', 'ACTIVE')")
    dry = parsed("import", "dir", "dir.db", "--dry-run")
    assert (dry["total"], dry["verdicts"], dry["done"]) == (2, {"KEPT": 1, "TAKEN": 1}, {})
    assert parsed("import", "dir", "dir.db")["done"] == {"imported": 2}
    assert parsed("import", "dir", "dir.db")["done"] == {"known": 2}
    [kept] = parsed("imports", "list", "--verdict", "KEPT")["items"]
    assert (kept["source_table"], kept["beside"]["agent_id"]) == ("agent_registry", "")
    run("imports", "list")
    assert parsed("verify")["verdict"] == "VALID"
    run("import", "dir", "none.db", code=3)


@pytest.mark.parametrize("resource", ["evaluations", "dbom", "keys", "import"])
def test_every_command_shows_an_example(resource: str) -> None:
    for name in app.entries[resource]["commands"]:
        assert f"Example: holdproof {resource} {name}" in run(resource, name, "--help").stdout
