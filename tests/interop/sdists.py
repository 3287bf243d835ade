"""Source distributions of other packages, whose own tests are run on what is ours; a skip says why they cannot be had.

`HOLDPROOF_TEST_SDISTS` names a folder that caches them between runs. Nothing of them is part of this project.
"""

import importlib.metadata
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

DOWNLOAD_S, RUN_S = 240, 240


def sources(package: str, folder: Path) -> Path:
    """The unpacked source distribution of the version that is installed."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"not installed: pip install {package}")
    kept = Path(os.environ.get("HOLDPROOF_TEST_SDISTS") or folder)
    pattern = f"{package.replace('-', '_')}-{version}.tar.gz"
    if not list(kept.glob(pattern)):
        _download(f"{package}=={version}", kept)
    [archive] = kept.glob(pattern)
    with tarfile.open(archive) as opened:
        if hasattr(tarfile, "data_filter"):  # 3.11.4 and newer
            opened.extraction_filter = tarfile.data_filter
        opened.extractall(folder)
    return folder / archive.name.removesuffix(".tar.gz")


def _download(wanted: str, folder: Path) -> None:
    quiet = ["-q", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *quiet, "-d", str(folder), wanted]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{wanted} could not be downloaded within {DOWNLOAD_S} s: no network?")
    if done.returncode != 0:
        pytest.skip(f"{wanted} could not be downloaded: {done.stderr.strip()[-300:]}")


def run_tests(folder: Path, plugin: str, *words: str, **env: str) -> str:
    """Run tests of an unpacked distribution with a plugin of ours, all of which pass; return what pytest printed."""
    done = outcome(folder, plugin, words, env)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def outcome(
    folder: Path, plugin: str, words: Sequence[str], env: Mapping[str, str], limit_s: float = RUN_S
) -> subprocess.CompletedProcess[str]:
    """Run tests of an unpacked distribution in a process of their own, with a plugin of ours."""
    beside = str(Path(__file__).parent)  # their tests are called `tests` too, so the plugin is found by its own name
    path = os.pathsep.join([str(folder), beside, *(entry for entry in sys.path if entry)])
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), "-p", plugin]
    command += ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest", *words]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **env, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
