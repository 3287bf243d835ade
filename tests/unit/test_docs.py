"""The documentation tells the truth: its code runs, its commands work, its links lead somewhere, its tables are new.

`HOLDPROOF_UPDATE_DOCS=1` writes docs/reference/errors.md anew instead of comparing it.
"""

import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdproof import config, errors
from holdproof.cli.app import app
from holdproof.db import migrate
from holdproof.errors import HoldproofError
from holdproof.model.verdicts import Verdict
from tests.buckets import place_in

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ERRORS = ROOT / "docs" / "reference" / "errors.md"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_TARGET = re.compile(r"\]\([^)\s]*\)")
_PRIVATE = re.compile(
    r"\b(faces?|nouns?|verbs?|battles?|dfid|in hand|(?:take|takes|taken|taking|took) over|whoever|strangers?"
    r"|questions?|override|abort|mend(?:s|ed|ing)?|membrane|kernel(?!\.db)|holdfast)\b",
    re.IGNORECASE,
)
"""Words that mean nothing to a reader who does not know the code's past; docs/glossary.md has those of the field."""
_OTHER_WORDS = {"docs/build/dir.md", "docs/internals/seed-map.md", "CHANGELOG.md"}
"""Pages about systems that have words of their own, and the record of what was."""
_LARGE = {
    "docs/build/claude-agent.md": "claude_agent_sdk",
    "docs/build/crewai.md": "crewai",
    "docs/build/strands.md": "strands",
}
"""Pages whose framework is too large for `make test`, and its module: `make adapters` runs their blocks."""
_FIGURES = {"docs/internals/reliability.md", "docs/internals/benchmarks.md"}
"""Pages whose tables are made from measured figures."""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *kinds: str) -> Iterator[tuple[int, str]]:
    """Line number and text of each fenced block of these kinds."""
    text = page.read_text(encoding="utf-8")
    for fence in _FENCE.finditer(text):
        if fence[1] in kinds:
            yield text.count("\n", 0, fence.start(2)), fence[2]


def expected(page: Path) -> Iterator[str]:
    """Lines that the code of a page prints: those of a block of text right after it, as far as they are not shortened.

    A block that shows commands is none of them.
    """
    text = page.read_text(encoding="utf-8")
    fences = list(_FENCE.finditer(text))
    for code, output in pairwise(fences):
        follows = not text[code.end() : output.start()].strip()
        if (code[1], output[1]) == ("python", "text") and follows and not output[2].startswith(("$", "holdproof ")):
            yield from (line for line in output[2].splitlines() if "…" not in line)


def having(*kinds: str) -> list[Path]:
    return [page for page in PAGES if any(blocks(page, *kinds))]


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, a home of its own, and nothing else in the environment."""
    for variable in [each for each in os.environ if each.startswith(("HOLDPROOF_", "XDG_", "PG"))]:
        if variable != "HOLDPROOF_UPDATE_DOCS":
            monkeypatch.delenv(variable)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    return tmp_path


# --- what can be run ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("page", having("python"), ids=name)
def test_every_python_block_runs(page: Path, place: Path) -> None:
    """All blocks of a page are one program, padded so that its line numbers are those of the page.

    It prints what stands in the blocks of text that follow one of code.
    """
    large = _LARGE.get(name(page))
    if large and importlib.util.find_spec(large) is None:
        pytest.skip(f"{large} is not installed: make adapters")
    lines: list[str] = []
    for start, text in blocks(page, "python"):
        lines += [""] * (start - len(lines)) + text.splitlines()
    program = place / f"{page.stem}_page.py"  # its own name might be that of a package it imports
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    # A large framework warns of itself, speaks of itself, and writes into the home of its user.
    options = [] if large else ["-W", "error"]
    env = {**os.environ, "HOME": str(place), "CREWAI_DISABLE_TELEMETRY": "true"} if large else None
    done = subprocess.run(
        [sys.executable, *options, program], capture_output=True, text=True, timeout=300 if large else 60, env=env
    )
    assert (done.returncode, "" if large else done.stderr) == (0, ""), f"{name(page)}:\n{done.stderr}"
    printed = iter(done.stdout.splitlines())
    assert [line for line in expected(page) if line not in printed] == [], f"{name(page)} prints:\n{done.stdout}"


@pytest.mark.parametrize("page", having("console", "sh"), ids=name)
def test_every_holdproof_command_succeeds(
    page: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`$ echo TEXT > FILE` makes a file; `# exits with N` says which exit code is success.

    A page whose commands name a bucket has a real one.
    """
    if any(" s3://" in text for _, text in blocks(page, "console", "sh")):
        place_in(request.getfixturevalue("seaweed"), monkeypatch)
    for _, text in blocks(page, "console", "sh"):
        for line in text.splitlines():
            words = shlex.split(line, comments=True) if line.startswith("$ ") else []
            if words[1:2] == ["echo"]:
                Path(words[-1]).write_text(" ".join(words[2:-2]) + "\n", encoding="utf-8")
            elif words[1:2] == ["holdproof"]:
                done = CliRunner().invoke(app, words[2:])
                wanted = re.search(r"# exits with (\d+)", line)
                assert done.exit_code == int(wanted[1] if wanted else 0), f"{name(page)}: {line}\n{done.output}"


@pytest.mark.parametrize("page", having("yaml"), ids=name)
def test_every_settings_block_is_understood(page: Path) -> None:
    paths = config.Paths.find()
    paths.create()
    for _, text in blocks(page, "yaml"):
        paths.config_file.write_text(text, encoding="utf-8")
        variables = dict.fromkeys(re.findall(r"\$\{(?:env:)?(\w+)\}", text), "x")
        assert config.load(paths=paths, env=variables).warnings == ()


# --- what is said ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_internal_link_leads_somewhere(page: Path) -> None:
    for target in _LINK.findall(prose(page)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name(page)}: {target}"
        assert not anchor or anchor in anchors(file), f"{name(page)}: {target}"


def anchors(page: Path) -> set[str]:
    """The names that headings have as link targets."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(page)))
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "adr" not in page.parts and name(page) not in _OTHER_WORDS], ids=name
)
def test_no_page_uses_private_words(page: Path) -> None:
    plain = _TARGET.sub("]", _CODE.sub("", prose(page)))
    if name(page) in _FIGURES:
        plain = re.sub(r"^\|.*$", "", plain, flags=re.MULTILINE)
    private = [line.strip() for line in plain.splitlines() if _PRIVATE.search(line)]
    assert private == [], f"{name(page)}: say it in the words of docs/glossary.md"


def test_the_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    commands = [line for _, text in blocks(ROOT / "README.md", "sh") for line in text.splitlines()]
    wanted = [found[1] for line in commands if (found := re.match(r"make (\w+)", line))]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert wanted == ["run", "test"]
    assert set(wanted) <= set(targets)


def test_every_decision_is_listed_in_the_index_of_internals() -> None:
    listed = re.findall(r"\(\.\./adr/(\S+?)\)", prose(ROOT / "docs" / "internals" / "index.md"))
    assert listed == sorted(page.name for page in ROOT.glob("docs/adr/*.md"))


def test_every_dependency_is_explained() -> None:
    explained = (ROOT / "docs" / "adr" / "0002-dependencies.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [project["dependencies"], *project["optional-dependencies"].values()]
    packages = {re.split(r"[^\w-]", one)[0] for group in declared for one in group} - {"holdproof"}
    assert not {package for package in packages if f"`{package}" not in explained}


@pytest.mark.parametrize("space", ["kernel", "membrane", "telemetry"])
def test_every_table_is_in_the_format(space: str) -> None:
    documented = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
    scripts = "".join(step.text for step in migrate.shipped(space))
    tables = re.findall(r"CREATE TABLE (\w+)", scripts)
    assert [table for table in tables if f"`{table}`" not in documented] == []


# --- the page of errors ------------------------------------------------------------------------------------------


def error_page() -> str:
    """docs/reference/errors.md, made from the pages of the tree: their sections, and a row for each class."""
    lines = [
        "# Errors",
        "",
        "Made from `holdproof/errors/`; `HOLDPROOF_UPDATE_DOCS=1 make docs` writes it anew.",
        "",
        "Every error is a `HoldproofError`. It carries a stable `code`, an HTTP `status`, an `exit_code`, the facts of",
        "the case in `fields`, and what you can do about it in `remedy`, which a traceback shows too. `to_dict()`",
        "gives code, message, remedy and facts, as the command line prints them with `--json`.",
    ]
    for part in re.split(r"^# --- (.+?) -+$", _pages(), flags=re.MULTILINE):
        if not (classes := re.findall(r"^class (\w+)\((\w+)\)", part, re.MULTILINE)):
            lines += ["", f"## {part.capitalize()}"] if "\n" not in part else []
            continue
        lines += ["", "| error | code | HTTP | exit | what to do |", "|---|---|---|---|---|"]
        lines += [_row(child, parent) for child, parent in classes]
    return "\n".join(lines) + "\n"


def _pages() -> str:
    """The source of all modules of errors, the general ones first."""
    first = ["root", "ground", "evidence", "decisions"]
    names = [each.name for each in pkgutil.iter_modules(errors.__path__)]
    order = first + sorted(set(names) - set(first))
    return "".join(inspect.getsource(importlib.import_module(f"holdproof.errors.{name}")) for name in order)


def _row(child: str, parent: str) -> str:
    kind: type[errors.HoldproofError] = getattr(errors, child)
    remedy = " ".join((kind.__doc__ or "").split()).replace("|", r"\|")
    above = "" if parent in {"Exception", "HoldproofError"} else f", a kind of `{parent}`"
    return f"| `{child}`{above} | `{kind.code}` | {kind.status} | {kind.exit_code} | {remedy} |"


def test_the_page_of_errors_is_current() -> None:
    if os.environ.get("HOLDPROOF_UPDATE_DOCS") == "1":
        ERRORS.write_text(error_page(), encoding="utf-8")
    assert ERRORS.read_text(encoding="utf-8") == error_page(), "write it anew: HOLDPROOF_UPDATE_DOCS=1 make docs"


def test_no_two_errors_share_a_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    codes = [kind.code for kind in kinds if issubclass(kind, errors.HoldproofError)]
    assert sorted(set(codes)) == sorted(codes)


def test_every_exit_code_is_explained() -> None:
    table = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
    told = {int(number) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for number in row.split(",")}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HoldproofError)]
    assert {kind.exit_code for kind in kinds} <= told
    assert {verdict.exit_code for verdict in Verdict} <= told
    assert {70, 74, 130, 141} <= told, "what the command line adds"
