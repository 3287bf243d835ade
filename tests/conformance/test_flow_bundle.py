"""Bundles of flows that ran a function: inputs, arguments and results go along and are proven, large ones too."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.filling import settled
from harness.forged_bundles import members
from holdproof import sync
from holdproof.api import OpenFlow
from holdproof.crypto import canonical
from holdproof.executors import SyncExecutor
from holdproof.model.verdicts import Verdict
from holdproof.upkeep import bundle
from holdproof.upkeep.verification import offline

Flow = OpenFlow[SyncExecutor]
_PAGES = ["tea, please. " * 2000, "coffee, please. " * 30_000]


def bought(store: sync.Holdproof) -> bytes:
    @store.flow(agent="trader")
    def buy(flow: Flow, pages: list[str], cents: int) -> dict[str, Any]:
        return {"read": flow.step("read", lambda pages: pages, pages), "cents": cents}

    buy.with_id("o-1")(_PAGES, 500)
    settled(store)
    return store.bundle.export("o-1", kind="flow")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    with sync.open(tmp_path_factory.mktemp("bundle")) as store:
        return bought(store)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of VERIFY.md, exactly as it stands there."""
    [program] = re.findall(r"^```python\n(.*?)^```$", offline.instructions().decode(), re.MULTILINE | re.DOTALL)
    path = tmp_path_factory.mktemp("page") / "check.py"
    path.write_text(program)
    return path


def stranger(page: Path, data: bytes) -> subprocess.CompletedProcess[str]:
    file = page.with_name("bundle.zip")
    file.write_bytes(data)
    command = [sys.executable, "-I", "-S", str(page), str(file)]
    return subprocess.run(command, capture_output=True, text=True, cwd=page.parent, check=False)


def test_a_bundle_holds_the_call_and_every_part_of_what_was_recorded(exported: bytes, page: Path) -> None:
    held = members(exported)
    about: Any = canonical.loads(held["bundle.json"])
    records = [each["projection"].partition("/")[0] for each in about["records"]]
    assert {"decision_flows", "flow_calls", "flow_steps", "flow_transitions"} <= {*records}
    assert {name for name in held if name.startswith("values/")} == {f"values/{cid}" for cid in about["values"]}
    assert any(_PAGES[0].encode() in data for data in held.values())
    assert offline.check(exported).verdict is Verdict.VALID
    answer = stranger(page, exported)
    assert "VALID" in answer.stdout, answer.stderr


def test_a_bundle_of_a_function_is_made_on_postgres_too(tmp_path: Path, postgres_url: str, page: Path) -> None:
    with sync.open(url=postgres_url, home=tmp_path) as store:
        data = bought(store)
    assert offline.check(data).verdict is Verdict.VALID
    assert "VALID" in stranger(page, data).stdout


@pytest.mark.parametrize("forgery", ["edited", "left out", "added", "inputs"])
def test_an_edited_value_or_input_is_refused_with_holdproof_and_without(
    exported: bytes, page: Path, forgery: str
) -> None:
    held = members(exported)
    about: Any = canonical.loads(held["bundle.json"])
    # The largest is the start of what a record names itself.
    name = max((name for name in held if name.startswith("values/")), key=lambda name: len(held[name]))
    if forgery == "edited":
        held[name] = held[name].replace(b"please", b"yachts")
    elif forgery == "left out":
        cids = {
            cid for cid in about["values"] if any(cid.encode() in data for at, data in held.items() if ".json" in at)
        }
        gone = min(cids & {*re.findall(r"b[a-z2-7]{58}", str([held[at] for at in held if at.startswith("records/")]))})
        del held[f"values/{gone}"]
        about["values"].remove(gone)
    elif forgery == "added":
        held["values/" + "b" + "a" * 58] = b"a yacht"
        about["values"] = sorted([*about["values"], "b" + "a" * 58])
    else:
        [call] = [each["name"] for each in about["records"] if each["projection"].startswith("flow_calls/")]
        held[f"{call}.json"] = held[f"{call}.json"].replace(b"500", b"900")
    held["bundle.json"] = canonical.dumps(about)
    forged = bundle.pack(held)
    assert offline.check(forged).verdict is Verdict.TAMPERED
    assert "REFUSED" in stranger(page, forged).stderr
