"""What a new user does in the first hour, as programs of their own: the ten lines of the README as `async def`, Ctrl-C.

The ten lines as they stand run as a script, in a running loop and in a notebook in tests/interop/test_readme_wheel.py.
"""

import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from holdproof import sync
from tests.e2e.test_up import environment

ROOT = Path(__file__).resolve().parents[2]
_TEN_LINES = re.search(
    r"^```python\n(.*?)^```\n\n```text\n\$ python refund.py\n(.*?)^```$",
    (ROOT / "README.md").read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)
_AWAITED = ("flow.step(", "flow.approve(", "store.flows.recover(", "refund(")


def with_the_async_client(block: str) -> str:
    """Change what the comment in the ten lines says, and nothing else."""
    before, body = block.split("with holdproof.sync.open(")
    for call in _AWAITED:
        body = re.sub(rf"(?<!def ){re.escape(call)}", f"await {call}", body)
    body = body.replace("def refund(", "async def refund(")
    main = f"async def main():\n{textwrap.indent(f'async with holdproof.open({body}', '    ')}"
    return f"import asyncio\n{before}{main}\n\nasyncio.run(main())\n"


@pytest.mark.parametrize("cents", [None, "60000"])
def test_the_ten_lines_of_the_readme_work_as_async_def_too(tmp_path: Path, cents: str | None) -> None:
    assert _TEN_LINES is not None, "the README has ten lines and what they print"
    block, output = _TEN_LINES.groups()
    (tmp_path / "refund.py").write_text(with_the_async_client(block))
    more = {} if cents is None else {"CENTS": cents}
    script = subprocess.Popen(
        [sys.executable, "-W", "error", "refund.py"],
        cwd=tmp_path,
        env=environment(tmp_path / "unused") | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with script:
        if cents is not None:
            approve(tmp_path / "store", script)
            output = output.replace("4900", cents)
        printed, complaints = script.communicate(timeout=120)
    assert (printed, complaints) == (output, "")


def approve(home: Path, script: "subprocess.Popen[str]") -> None:
    """Approve what the script asks, as soon as it does."""
    end = time.monotonic() + 120
    while not (home / "kernel.db").exists():
        assert time.monotonic() < end
        assert script.poll() is None
        time.sleep(0.05)
    with sync.open(home) as store:
        while not (pending := store.escalations.list(status="PENDING").items):
            assert time.monotonic() < end
            assert script.poll() is None
            time.sleep(0.05)
        store.escalations.resolve(pending[0].id, "approve", by="ann")


_WORKER = """
import time
from pathlib import Path

import holdproof


def wait_for_the_bank(order: str) -> str:
    Path("begun").touch()
    while not Path("open").exists():
        time.sleep(0.01)
    return f"{order} paid"


with holdproof.sync.open("./store") as store:

    @store.flow(agent="clerk")
    def refund(flow, order: str) -> str:
        return flow.step(wait_for_the_bank, order)

    handle = refund.enqueue("o-17")
    with store.worker():
        handle.result()
"""


def test_ctrl_c_in_a_script_with_a_worker_lets_the_step_under_way_end_and_be_recorded(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_WORKER)
    script = subprocess.Popen(
        [sys.executable, "shop.py"],
        cwd=tmp_path,
        env=environment(tmp_path / "unused"),
        stderr=subprocess.PIPE,
        text=True,
    )
    with script:
        end = time.monotonic() + 120
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        script.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            script.wait(0.3)  # it waits for the step
        (tmp_path / "open").touch()
        _, complaints = script.communicate(timeout=120)
    assert complaints.rstrip().endswith("KeyboardInterrupt"), complaints
    with sync.open(tmp_path / "store") as store:
        [flow] = store.flows.list().items
        [step] = store.flows.steps(flow.flow_id)
        assert (step.state, flow.status, store.flows.result(flow.flow_id)) == ("DONE", "COMPLETED", "o-17 paid")
        assert store.workers.list() == ()
