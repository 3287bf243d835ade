"""What we stand on and what we hand out: licences, the lock, and a wheel that anybody can build again."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from argparse import Namespace
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from proof import audit

PINNED = re.compile(r"^([a-z0-9._-]+)(?:\[[a-z,]+\])?==(\S+)(?: ; (.+?))? \\$", re.MULTILINE)


def test_every_dependency_has_a_licence_that_asks_for_nothing_or_an_explained_one() -> None:
    found = dict(audit.licences())
    assert {"apsw", "cryptography", "httpx"} <= found.keys()
    assert {name: text for name, text in found.items() if not audit.acceptable(name, text)} == {}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("License-Expression", "MIT OR Apache-2.0"), ("License", "x")], "MIT OR Apache-2.0"),
        ([("Classifier", "License :: OSI Approved :: ISC License (ISCL)")], "ISC License (ISCL)"),
        ([("License", "\n GPL-3.0 \nand more")], "GPL-3.0"),
        ([], ""),
    ],
)
def test_a_licence_is_read_from_wherever_it_is_said(fields: list[tuple[str, str]], said: str) -> None:
    about = Message()
    for name, value in fields:
        about[name] = value
    assert audit.licence(about) == said


def test_what_asks_for_more_is_not_acceptable_unless_explained() -> None:
    assert not audit.acceptable("somebody", "GPL-3.0-only")
    assert not audit.acceptable("somebody", "")
    assert audit.acceptable("psycopg", "LGPL-3.0-only")


def test_an_audit_that_reached_nobody_does_not_say_that_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    for told in ("", '{"dependencies": [{"name": "httpx", "skip_reason": "not found"}]}'):
        done = subprocess.CompletedProcess([], 0, told, "cannot reach it")
        monkeypatch.setattr("proof.audit.subprocess.run", lambda *_, done=done, **__: done)
        proof = audit.run(Namespace(seed=1, offline=False), lambda line: None)
        assert not proof.holds
        assert proof.counts["dependencies looked up"] == 0
        assert proof.counts["not looked up"] > 0


def test_a_known_vulnerability_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = '{"dependencies": [{"name": "x", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}]}'
    monkeypatch.setattr("proof.audit.subprocess.run", lambda *_, **__: subprocess.CompletedProcess([], 1, told, ""))
    proof = audit.run(Namespace(seed=1, offline=False), lambda line: None)
    assert proof.broken == ("x 1: CVE-1",)


def test_the_lock_pins_all_that_development_needs_with_hashes() -> None:
    text = audit.LOCK.read_text()
    pinned = {name for name, _, _ in PINNED.findall(text)}
    assert len(pinned) > 100
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text
    project = tomllib.loads((audit.ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    waiting, seen = [Requirement("holdproof[dev]"), *map(Requirement, project["dependencies"])], set[str]()
    while waiting:
        asked = waiting.pop()
        if asked.name == "holdproof":
            waiting += [Requirement(each) for extra in asked.extras for each in extras[extra]]
        else:
            seen.add(canonicalize_name(asked.name))
    assert seen <= pinned
    versions = {name: version for name, version, marker in PINNED.findall(text)}
    for line in extras["dev"]:
        wanted = Requirement(line)
        if wanted.name != "holdproof":
            assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)], prereleases=True), line


def build(tree: Path, mask: int) -> bytes:
    before = os.umask(mask)
    try:
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(audit.ROOT / name, tree / name)
        shutil.copytree(audit.ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for number, path in enumerate(sorted(tree.rglob("*"))):
            os.utime(path, (1_600_000_000 + number * mask, 1_600_000_000 + number * mask))
        words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tree / "out")]
        done = subprocess.run(words, cwd=tree, capture_output=True, text=True, check=False)
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    [wheel] = (tree / "out").glob("*.whl")
    return wheel.read_bytes()


@pytest.mark.slow
def test_a_wheel_built_elsewhere_and_at_another_time_is_the_same_wheel(tmp_path: Path) -> None:
    trees = [tmp_path / "here", tmp_path / "there" / "deeper"]
    for tree in trees:
        tree.mkdir(parents=True)
    first, second = (build(tree, mask) for tree, mask in zip(trees, (0o022, 0o077), strict=True))
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()
    [wheel] = (trees[0] / "out").glob("*.whl")
    with ZipFile(wheel) as found:
        names = found.namelist()
    assert not [name for name in names if not name.startswith("holdproof")]
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".env", ".pem"))]
