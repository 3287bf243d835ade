"""CONTRIBUTING's worked example, followed to the letter on a copy of the package: a resource in four source files."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "holdproof"

_STEP = re.compile(r"^\*\*(\d)\. .*?`src/holdproof/([\w/.]+)`.*?^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps() -> dict[str, str]:
    """The files of the example and what it puts into each."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.split("### A worked example")[1].split("\n## ")[0]
    return {name: text for _, name, text in _STEP.findall(section)}


def declared(module: str, text: str) -> str:
    """Add the class of the example to the module of declarations: its import, named twice, and its resource."""
    module = module.replace("from holdproof.runtime import (\n", "from holdproof.runtime import (\n    counters,\n", 1)
    module = module.replace('"holdproof.runtime",\n            "', '"holdproof.runtime",\n            "counters ', 1)
    module = module.replace("class RuntimeResources(", f"{text}\n\nclass RuntimeResources(", 1)
    *_, last = re.finditer(r"^        self\.\w+ = \w+\(executor\)\n", module, re.MULTILINE)
    return f"{module[: last.end()]}        self.counters = Counters(executor)\n{module[last.end() :]}"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    copy = folder / "holdproof"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in steps().items():
        file = copy / name
        if file.exists():
            file.write_text(declared(file.read_text(), text))
        elif "NNNN" in name:
            numbers = [int(each.name[:4]) for each in file.parent.glob("*.sql")]
            file.with_name(file.name.replace("NNNN", f"{max(numbers) + 1:04}")).write_text(text)
        else:
            file.write_text(text)
    run(folder, [sys.executable, "-m", "holdproof.cli.index"])
    return folder


def run(package: Path, words: Sequence[str], *, code: int = 0) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDPROOF_", "XDG_", "PG"))}
    env = {**clean, "PYTHONPATH": str(package), "HOLDPROOF_HOME": str(package / "store")}
    done = subprocess.run(words, env=env, cwd=package, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


_PROGRAM = """
import asyncio, json, sys
import httpx
import holdproof
from holdproof import errors, sync
from holdproof.api.catalogue import entries
from holdproof.server import create_app, serve
from holdproof.server.mcp import Offer, named_resources
from holdproof.server.permissions import Caller, may

url = sys.argv[1] or None
with sync.open("here", url) as store:
    assert store.counters.add("orders", amount=3).value == 3
    try:
        store.counters.get("none")
    except errors.NotFoundError as error:
        assert error.exit_code == 3
    secret = store.tokens.create("ops").secret
    assert store.verify.run().verdict.sound

async def main():
    async with holdproof.open("here", url, create=False) as store:
        assert (await store.counters.add("orders")).value == 4
        app = create_app(store, parts=serve.parts(console=False))
        transport = httpx.ASGITransport(app)
        headers = {"Authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            answer = await client.post("/v1/counters/add", json={"name": "orders", "amount": 2})
            assert (answer.status_code, answer.json()["value"]) == (200, 6), answer.text
            answer = await client.get("/v1/counters/get", params={"name": "orders"})
            assert answer.json() == {"name": "orders", "value": 6, "ns": "main"}
            answer = await client.get("/v1/counters/get", params={"name": "none"})
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
            paths = (await client.get("/openapi.json")).json()["paths"]
            assert "post" in paths["/v1/counters/add"] and "get" in paths["/v1/counters/get"]

asyncio.run(main())
callers = {"operator": Caller("operator", "ann"), "auditor": Caller("auditor", "bob"),
           "agent": Caller("agent", "trader", "main", "trader")}
allowed = {name: [may(each, "counters", method) for method in ("add", "get")] for name, each in callers.items()}
print(json.dumps(allowed))
assert {spec.exposure.tool for (resource, _), spec in entries().items() if resource == "counters"} == {"decide"}
"""


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_example_works_in_python_over_http_and_keeps_agents_out(
    package: Path, database: str, request: pytest.FixtureRequest
) -> None:
    url = "" if database == "sqlite" else request.getfixturevalue("empty_postgres_url")
    shutil.rmtree(package / "here", ignore_errors=True)
    told = json.loads(run(package, [sys.executable, "-c", _PROGRAM, url]))
    assert told == {"operator": [True, True], "auditor": [False, True], "agent": [False, False]}


def test_the_example_works_on_the_command_line(package: Path) -> None:
    holdproof = [sys.executable, "-m", "holdproof"]
    assert "add" in run(package, [*holdproof, "counters", "--help"])
    run(package, [*holdproof, "counters", "get", "orders"], code=3)
    assert not (package / "store").exists()
    run(package, [*holdproof, "counters", "add", "orders", "--amount", "3"])
    assert json.loads(run(package, [*holdproof, "counters", "get", "orders", "--json"]))["value"] == 3


def test_the_example_takes_four_source_files() -> None:
    assert len(steps()) == 4
