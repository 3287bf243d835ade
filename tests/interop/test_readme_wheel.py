"""The README's Python blocks from the built wheel, in an empty environment of every Python that is here.

Each block runs as it is printed, with the output that the README shows for it: as a script, on a thread that runs an
event loop, and as a cell in the kernel of a notebook.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.default_run import is_thorough

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
# A kernel takes forty seconds to install, and what differs between versions shows in a script.
KERNELS = VERSIONS if is_thorough() else (f"{sys.version_info.major}.{sys.version_info.minor}",)
# A block, and the transcript of its run if one follows it at once.
BLOCKS = re.findall(
    r"^```python\n(.*?)^```\n(?:\n```text\n\$ python [^\n]*\n(.*?)^```$)?",
    (ROOT / "README.md").read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)

_IN_A_LOOP = """
import asyncio, runpy

async def main():
    runpy.run_path("block.py", run_name="__main__")

asyncio.run(main())
"""

_IN_A_KERNEL = """
import asyncio, sys
from pathlib import Path
from jupyter_client.manager import start_new_kernel

WAITS = '''
asyncio.get_running_loop()
store = holdproof.sync.open(home="./waiting")
store.agents.register("clerk", version="1.0.0")
with store.flows.run("clerk") as flow:
    print("waiting")
    flow.approve("may I?")
'''
GOES_ON = '''
print([each.ended for each in store.flows.list().items])
store.close()
async with holdproof.open(home="./waiting") as again:
    print([each.agent_id for each in (await again.flows.list()).items])
'''

manager, kernel = start_new_kernel(kernel_name="python3")

def cell(code):
    def show(message):
        if message["msg_type"] == "stream":
            print(message["content"]["text"], end="", flush=True)
            if "waiting" in message["content"]["text"]:
                manager.interrupt_kernel()

    answer = kernel.execute_interactive(code, timeout=120, output_hook=show)["content"]
    return answer.get("ename", answer["status"])

try:
    outcomes = [cell(code) for code in (Path("block.py").read_text(), "import asyncio", WAITS, GOES_ON)]
finally:
    kernel.stop_channels()
    manager.shutdown_kernel(now=True)
assert outcomes == ["ok", "ok", "KeyboardInterrupt", "ok"], outcomes
"""
_AFTER_THE_BLOCK = "waiting\n[False]\n['clerk']\n"


def interpreter(version: str) -> Path:
    """Where a Python of this version is: on the path, or among those of pyenv."""
    on_path = shutil.which(f"python{version}")
    if on_path is not None and "pyenv/shims" not in on_path:
        return Path(on_path)
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    of_pyenv = sorted(home.glob(f"versions/{version}.*/bin/python{version}"))
    if not of_pyenv:
        pytest.skip(f"no Python {version} here")
    return of_pyenv[-1]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program without the settings of this run and return its output; an assertion says what it wrote."""
    names = ("HOLDPROOF_", "PYTHON", "XDG_", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(python: Path, *packages: str | Path) -> None:
    """Install packages, or skip the test where there is no network to get them from."""
    words: list[str | Path] = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "0"]
    if uv := shutil.which("uv"):
        words = [uv, "pip", "install", "-q", "--python", python]
    done = subprocess.run([*words, *packages], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        pytest.skip(f"cannot install {packages[0]}: no package index is reachable")


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "readme-wheel"
    folder.mkdir(exist_ok=True)
    return folder


def once(path: Path, make: Callable[[Path], None]) -> Path:
    """Make something once, whichever worker comes first; the others wait for it."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = path.with_suffix(".ready")
        if not ready.exists():
            make(path)
            ready.touch()
    return path


@pytest.fixture(scope="session")
def wheel(workshop: Path) -> Path:
    def build(folder: Path) -> None:
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)

    [built] = once(workshop / "wheel", build).glob("holdproof-*.whl")
    return built


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def python(version: str, wheel: Path, workshop: Path) -> Path:
    """The Python of an environment in which the wheel is, and what it depends on, and nothing else."""
    return environment(workshop / f"empty-{version.replace('.', '-')}", version, wheel)


def environment(folder: Path, version: str, *packages: str | Path) -> Path:
    """The Python of an environment with these packages."""
    base = interpreter(version)

    def make(folder: Path) -> None:
        # Without pip in it, uv makes an environment in a moment.
        uv = shutil.which("uv")
        make_venv = (base, "-m", "venv") if uv is None else (uv, "venv", "-q", "--python", base)
        run(*make_venv, folder, cwd=folder.parent)
        install(folder / "bin" / "python", *packages)

    return once(folder, make) / "bin" / "python"


@pytest.fixture(params=BLOCKS, ids=range(1, len(BLOCKS) + 1))
def shown(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What the README shows as the output of one of its blocks, which is `block.py` in the test's folder."""
    block, output = request.param
    (tmp_path / "block.py").write_text(block, "utf-8")
    return str(output)


def test_the_readme_has_a_block_with_its_output() -> None:
    assert any(output for _, output in BLOCKS)


def test_it_runs_as_a_script(python: Path, shown: str, tmp_path: Path) -> None:
    assert run(python, "-W", "error", "block.py", cwd=tmp_path) == shown


def test_it_runs_inside_a_running_loop(python: Path, shown: str, tmp_path: Path) -> None:
    assert run(python, "-W", "error", "-c", _IN_A_LOOP, cwd=tmp_path) == shown


@pytest.mark.parametrize("version", KERNELS, indirect=True)
def test_it_runs_in_the_kernel_of_a_notebook_and_a_call_that_waits_can_be_interrupted(
    version: str, wheel: Path, workshop: Path, shown: str, tmp_path: Path
) -> None:
    python = environment(workshop / f"kernel-{version.replace('.', '-')}", version, wheel, "ipykernel")
    assert run(python, "-c", _IN_A_KERNEL, cwd=tmp_path) == shown + _AFTER_THE_BLOCK
