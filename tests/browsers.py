"""A real Chromium for tests, driven by playwright; skipped with a reason where either is absent."""

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

SHOTS = Path(__file__).resolve().parents[1] / "build" / "screenshots"
IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
PICTURES = {
    "light-today": "today",
    "light-inbox": "inbox",
    "light-question": "approval",
    "dark-question": "approval-dark",
    "phone-question": "approval-phone",
    "7-locked": "evidence",
}
"""The pictures of the documentation, by the screenshots that they are."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def _program() -> str:
    found = os.environ.get("HOLDPROOF_TEST_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("no Chromium: install one, or name it in HOLDPROOF_TEST_CHROMIUM")
    return found


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; its pages are used by the thread that opened it only."""
    playwright: Any = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    program = _program()
    with playwright.sync_playwright() as driver:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=program, args=flags)
        try:
            yield browser
        finally:
            browser.close()


def aside(fn: Callable[[], T]) -> T:
    """Use the store in another thread: playwright has a loop in this one, which the sync face would block."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(fn).result()


def axe() -> str:
    """The text of axe-core; runs in a page, whatever its policy on scripts."""
    package = find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        pytest.skip("no axe-core: pip install axe-playwright-python")
    return (Path(package.origin).parent / "axe.min.js").read_text()


def findings(page: Any, source: str, **options: Any) -> list[str]:
    """What axe finds serious or worse on a page that does not move: what still fades in has too little contrast."""
    page.emulate_media(reduced_motion="reduce")
    page.evaluate(source)
    told = page.evaluate("options => axe.run(options)", {"resultTypes": ["violations"], **options})
    return [
        f"{each['impact']} {each['id']}: {node['target']} {node['failureSummary']}"
        for each in told["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


BENT = """() => [...document.querySelectorAll("svg.chart rect")]
  .map((each) => [each, each.getBBox()])
  .filter(([each, box]) => ["x", "width", "height"].some((name) =>
    Math.abs(box[name] - parseFloat(each.getAttribute(name) ?? "0")) > 0.1))
  .map(([each, box]) => each.outerHTML.slice(0, 120) + " is drawn " + box.width + " wide")"""
"""The bars of drawings that a style sheet makes longer or shorter than they were laid out."""


def shot(page: Any, name: str) -> None:
    """Keep what a page looks like; the pictures of the documentation too, where they are to be made anew."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    picture = page.screenshot(path=str(SHOTS / f"{name}.png"))
    if name in PICTURES and os.environ.get("HOLDPROOF_UPDATE_DOCS"):
        (IMAGES / f"{PICTURES[name]}.png").write_bytes(picture)


def picture(page: Any, name: str) -> None:
    """Take a picture of the documentation anew where HOLDPROOF_UPDATE_DOCS asks for it; else keep it with the others.

    Times and ids differ from run to run, so that a picture is not compared.
    """
    if os.environ.get("HOLDPROOF_UPDATE_DOCS"):
        page.set_viewport_size({"width": 1180, "height": 760})
        page.screenshot(path=str(IMAGES / f"{name}.png"))
    else:
        shot(page, f"docs-{name}")
