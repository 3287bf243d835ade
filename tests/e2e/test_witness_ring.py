"""Three servers that witness each other, and one of them shows two histories: which one, and who says so."""

import json
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from holdproof import errors, sync
from holdproof.crypto import checkpoint, tlog_policy
from holdproof.db import sql
from holdproof.model.verdicts import Verdict
from tests.e2e.test_up import HOLDPROOF, environment, up

NAMES = ("a.example", "b.example", "c.example")


def run(home: Path, *words: str, code: int = 0) -> Any:
    """What a command prints as JSON."""
    done = subprocess.run(
        [*HOLDPROOF, *words, "--json"], env=environment(home), capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout or done.stderr)


def ring(folder: Path, stack: ExitStack) -> dict[str, str]:
    """Start a server of each name that cosigns for the two others; return their addresses as witnesses."""
    logs: dict[str, str] = {}
    for name in NAMES:
        with sync.open(folder / name) as store:
            [logs[name]] = store.log.verifier_keys()
    addresses = {}
    for name in NAMES:
        others = [word for other in NAMES if other != name for word in ("--cosign", logs[other])]
        words = ("--no-console", "--witness", name, *others)
        _, told = stack.enter_context(up(folder / name, *words))
        addresses[name] = f"{told['address']}/witness"
    return addresses


def test_three_servers_witness_each_other_and_a_split_view_is_named(tmp_path: Path) -> None:
    with ExitStack() as stack:
        addresses = ring(tmp_path, stack)
        asking, honest = tmp_path / "a.example", {name: addresses[name] for name in NAMES[1:]}
        for name, url in honest.items():
            offered = run(asking, "witness", "add", url, code=errors.InvalidInputError.exit_code)
            key = httpx.get(f"{url}/key").text.strip()
            assert key in offered["error"]["message"], "shown, and not trusted"
            locks = ("--locks",) if name == "c.example" else ()
            run(asking, "witness", "add", url, "--key", key, *locks)
        assert {each["witness"] for each in run(asking, "witness", "ask")} == set(honest)
        policy = tmp_path / "log.policy"
        run(asking, "witness", "policy", "--quorum", "2", "--out", str(policy))
        witnessed = run(asking, "witness", "check", str(policy))
        assert sorted(witnessed["witnesses"]) == sorted(honest)
        tlog_policy.verify(tlog_policy.parse(policy.read_text()), checkpoint.parse(witnessed["head"].encode()))
        # The split view: the same store and keys twice, and each goes on in its own way.
        other = tmp_path / "other view"
        with sync.open(asking) as store:
            store.flows.list()
        shutil.copytree(asking, other)
        for home, agent in ((asking, "trader"), (other, "buyer")):
            run(home, "agents", "register", agent, "--version", "1.0.0")
            run(home, "agents", "register", f"{agent}-2", "--version", "1.0.0")
        run(asking, "witness", "ask")
        refused = run(other, "witness", "ask", code=errors.ProofError.exit_code)
        assert refused["error"]["verdict"] == "FORKED"
        # Named in the entries, in the status, in the level of the log, in verify; and the one that may locks the store.
        listed = {each["name"]: each["dispute"] for each in run(other, "witness", "list")["items"]}
        assert all("FORKED" in listed[name] for name in honest), listed
        status = run(other, "status")
        assert status["log"] == "DISPUTED 2/2"
        assert all(any(url in each for each in status["degraded"]) for url in honest.values())
        locked = run(other, "lockdown", "status")
        assert (locked["verdict"], addresses["c.example"] in locked["reason"]) == ("FORKED", True)
        with sync.open(other, readonly=True) as store:
            disputes = store.read(lambda tx: tx.all(sql("SELECT url FROM witness_disputes ORDER BY url")))
            assert [url for (url,) in disputes] == sorted(honest.values())
        report = sync.verify(other)
        assert report.verdict is Verdict.FORKED
        # The view that the witnesses know is untouched.
        assert sync.verify(asking).verdict is Verdict.VALID
        assert run(asking, "log", "level")["name"] == "WITNESSED"


def test_a_server_that_is_no_witness_says_so_and_a_long_request_is_refused(tmp_path: Path) -> None:
    with up(tmp_path, "--no-console", "--witness", "w.example") as (_, told):
        url = f"{told['address']}/witness"
        assert httpx.post(f"{url}/add-checkpoint", content=b"nonsense").status_code == 400
        assert httpx.post(f"{url}/add-checkpoint", content=b"x" * (1 << 17)).status_code == 413
        with sync.open(tmp_path) as store:
            refused = httpx.post(f"{url}/add-checkpoint", content=b"old 0\n\n" + store.log.head().encode())
        assert (refused.status_code, refused.text.startswith("unknown log")) == (404, True)
    with up(tmp_path, "--no-console") as (_, told):
        assert httpx.get(f"{told['address']}/witness/key").status_code == 404
    run(tmp_path, "up", "--cosign", "KEY", code=errors.InvalidInputError.exit_code)
