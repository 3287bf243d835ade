"""A library of npm as the judge: installed into a temporary folder, asked by a script; a skip says why it cannot be."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

INSTALL_S, RUN_S = 180, 60

_FS = 'const fs = require("node:fs");\n'
_ASK = """
(async () => {
  const answers = [];
  for (const [name, ...args] of JSON.parse(fs.readFileSync(process.argv[2]))) answers.push(await calls[name](...args));
  console.log(JSON.stringify(answers));
})();
"""


class Node:
    """A folder with packages in it, and a script that defines `calls`: functions by name."""

    def __init__(self, folder: Path, script: str, *packages: str) -> None:
        if shutil.which("npm") is None or shutil.which("node") is None:
            pytest.skip("no npm or node on the path")
        self.folder = folder
        (folder / "package.json").write_text('{"private": true}')
        (folder / "ask.cjs").write_text(_FS + script + _ASK)
        self._install(packages)

    def _install(self, packages: tuple[str, ...]) -> None:
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefer-offline"]
        patience = ["--fetch-retries=1", "--fetch-timeout=30000"]
        command = ["npm", "install", *quiet, *patience, *packages]
        try:
            done = subprocess.run(
                command, cwd=self.folder, capture_output=True, text=True, timeout=INSTALL_S, check=False
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm install took more than {INSTALL_S} s: no network?")
        if done.returncode != 0:
            pytest.skip(f"npm install failed: {done.stderr.strip()[-300:]}")

    def run(self, *calls: list[Any]) -> list[Any]:
        """The answers of the library to some calls, in one process."""
        asked = self.folder / "calls.json"
        asked.write_text(json.dumps(calls))
        done = subprocess.run(
            ["node", "ask.cjs", str(asked)], cwd=self.folder, capture_output=True, text=True, timeout=RUN_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))
