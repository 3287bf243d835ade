"""The README's Python blocks from the built wheel, in an empty environment of every Python that is here.

Each block runs as a script, in a notebook's kernel, and inside a running event loop. The sync client refuses to block
a loop it is called in, so in the latter two a block runs in a thread of its own, as its error advises.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)

_IN_A_LOOP = """
import asyncio, runpy
asyncio.run(asyncio.to_thread(runpy.run_path, "block.py"))
"""
_IN_A_KERNEL = """
import nbclient, nbformat
cell = "import asyncio, runpy\\nasyncio.get_running_loop()\\nawait asyncio.to_thread(runpy.run_path, 'block.py')"
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
"""


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


def run(*command: str | Path, cwd: Path) -> None:
    """Run a program without the settings of this run; an assertion says what it wrote."""
    names = ("HOLDPROOF_", "PYTHON", "XDG_", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def install(python: Path, *packages: str | Path) -> None:
    """Install packages, or skip the test where there is no network to get them from."""
    words: list[str | Path] = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "0"]
    if uv := shutil.which("uv"):
        words = [uv, "pip", "install", "-q", "--python", python]
    done = subprocess.run([*words, *packages], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        pytest.skip(
            f"cannot install {packages[0] if len(packages) > 1 else 'the wheel'}: no package index is reachable"
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    [built] = folder.glob("holdproof-*.whl")
    return built


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which the wheel is, and what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    run(interpreter(request.param), "-m", "venv", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    install(python, wheel)
    return python


@pytest.fixture(params=range(len(BLOCKS)), ids=lambda number: f"block {number + 1}")
def block(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with one block of the README in it."""
    (tmp_path / "block.py").write_text(BLOCKS[request.param], "utf-8")
    return tmp_path


def test_the_readme_has_blocks() -> None:
    assert BLOCKS


def test_it_runs_as_a_script(python: Path, block: Path) -> None:
    run(python, "-W", "error", "block.py", cwd=block)


def test_it_runs_inside_a_running_loop(python: Path, block: Path) -> None:
    run(python, "-W", "error", "-c", _IN_A_LOOP, cwd=block)


def test_it_runs_in_the_kernel_of_a_notebook(python: Path, block: Path) -> None:
    install(python, "ipykernel", "nbclient")
    run(python, "-c", _IN_A_KERNEL, cwd=block)
