"""The files under `deploy`: what they copy, run and ask for is there. No container is built, their commands are run."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from holdproof.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
UNIT = (DEPLOY / "holdproof.service").read_text()
WORKER_UNIT = (DEPLOY / "holdproof-worker.service").read_text()


def copied() -> list[str]:
    """What is copied from the repository into the image."""
    lines = [line.split()[1:] for line in DOCKERFILE.splitlines() if line.startswith("COPY") and "--from" not in line]
    return [name for *names, _ in lines for name in names]


def said(words: list[str]) -> None:
    """The command line knows these words."""
    command = app.get_command(click.Context(app), words[0])
    assert command is not None
    known = {option for each in command.params for option in each.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_what_an_image_is_built_from_builds_and_nothing_is_left_behind(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for name in copied():
        place = ROOT / name
        shutil.copytree(place, source / name) if place.is_dir() else shutil.copy(place, source / name)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "made")]
    subprocess.run(build, check=True, cwd=source, capture_output=True)
    [wheel] = (tmp_path / "made").glob("holdproof-*.whl")
    files = (each for each in (ROOT / "src").rglob("*") if each.is_file() and "__pycache__" not in each.parts)
    assert {str(each.relative_to(ROOT / "src")) for each in files} <= {*zipfile.ZipFile(wheel).namelist()}


def test_an_image_installs_extras_that_there_are() -> None:
    [extras] = re.findall(r"'\.\[([a-z,]+)\]'", DOCKERFILE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert project["scripts"]["holdproof"]


def test_an_image_begins_with_words_that_the_command_line_knows() -> None:
    [words] = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    said(json.loads(words))
    said(COMPOSE["services"]["holdproof"]["command"])
    [begun] = re.findall(r"^ExecStart=\S+ (.*)$", UNIT, re.MULTILINE)
    said(shlex.split(begun))


def test_workers_are_started_with_options_that_there_are() -> None:
    said(COMPOSE["services"]["worker"]["command"])
    [begun] = re.findall(r"^ExecStart=\S+/holdproof (.*)$", WORKER_UNIT, re.MULTILINE)
    said(shlex.split(begun))


def test_compose_is_told_all_that_it_asks_for() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    example = (DEPLOY / ".env.example").read_text()
    for name, required in re.findall(r"\$\{([A-Z_]+):(\?)?", text):
        assert not required or re.search(rf"^{name}=", example, re.MULTILINE), f"{name} is not in .env.example"
    services = COMPOSE["services"]
    build = services["holdproof"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    assert services["holdproof"]["depends_on"].keys() <= services.keys()
    mounts = [each for service in services.values() for each in service["volumes"]]
    # What is mounted from the folder beside the file is no volume.
    named = {each.split(":")[0] for each in mounts if isinstance(each, str)}
    assert named == COMPOSE["volumes"].keys()
    assert all(each.startswith("127.0.0.1:") for each in services["holdproof"]["ports"]), "for this machine only"


def test_the_unit_of_systemd_is_one(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze on this machine")
    unit = tmp_path / "holdproof.service"
    unit.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT, flags=re.MULTILINE))
    checked = subprocess.run([program, "verify", str(unit)], capture_output=True, text=True, check=False)
    about = [line for line in checked.stderr.splitlines() if "holdproof.service" in line and "User" not in line]
    assert about == []
