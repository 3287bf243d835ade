"""docs/reference/cli-transcripts.md is what commands print, at 80 columns and at 200; no line is wider.

`HOLDPROOF_UPDATE_DOCS=1` writes it anew instead of comparing it.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from holdproof import sync
from holdproof.cli import columns, times
from holdproof.cli.app import app
from holdproof.cli.call import CommandContext
from holdproof.testing import FrozenClock, SeededRandom
from tests.terminals import terminal

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli-transcripts.md"
_HEAD = """# What commands print

For people who want to see the command line before they use it. Lists fit the terminal: ids by their end (which commands
take), times as seen from now, the newest first; columns for which there is no room are named below. In a pipe and with
`--json` everything is whole. Made by a test: `HOLDPROOF_UPDATE_DOCS=1` writes it anew.
"""
COMMANDS = (
    "flows list --since 2h",
    "flows list --status waiting-escalation",
    "escalations list --status pending --order due",
    "agents list",
    "audit --since 1h --limit 6",
    "audit list --limit 4",
    "log list --limit 4",
    "objects list",
    "watch --once",
)
WIDTHS = (80, 200)
_FLOW_IDS = tuple(f"019b76da-a800-7000-8000-0000{end}" for end in ("98461e6f", "f53f557f", "88554b3c"))
_ROOT = "8b5cc672c9c2ab02"
"""Stands on the page for the log's root, which the keys of the store are part of: they differ from run to run."""


def _fill(store: sync.Holdproof, clock: FrozenClock) -> None:
    """Two agents, flows in several states, what they asked, recorded and remember."""
    store.agents.register("refunds", version="1.2.0")
    store.agents.register("incident-triage", version="2.0.1")
    clock.advance(86_400)
    agents = (("refunds", "refund"), ("incident-triage", "triage"), ("refunds", "refund"))
    for number, (agent, kind) in enumerate(agents):
        flow = store.flows.start(agent, flow_type=kind, flow_id=_FLOW_IDS[number]).flow_id
        store.flows.transition(flow, "RUNNING")
        store.audit.record(flow, "payment.checked", state="ok")
        clock.advance(900)
        if number == 0:
            store.flows.transition(flow, "COMPLETED")
            continue
        store.escalations.request(
            flow,
            reason=f"order o-{number}: refund {1200 * number} EUR, which is over the limit of this agent's contract",
            proposal={"amount": 1200 * number},
            deadline_s=3_600 * number,
            impact="HIGH_IMPACT" if number == 2 else "LOW_IMPACT",
        )
    store.objects.put("note/limits", type="note", content="refunds over 1,000 EUR need a person")
    store.objects.put("note/orders", type="note", content="o-17 was refunded twice")
    clock.advance(60)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sync.Holdproof]:
    clock = FrozenClock()
    with sync.open(tmp_path, clock=clock, random=SeededRandom(7)) as opened:
        _fill(opened, clock)
        monkeypatch.setattr(CommandContext, "open", lambda _, *, create: contextlib.nullcontext(opened))
        monkeypatch.setattr(times, "now", lambda: datetime.fromisoformat(opened.watch.look().at))
        yield opened


def _page(store: sync.Holdproof, monkeypatch: pytest.MonkeyPatch) -> str:
    parts = [_HEAD]
    root = store.log.head().checkpoint.root.hex()[: len(_ROOT)]
    for width in WIDTHS:
        monkeypatch.setattr(columns, "terminal_width", lambda width=width: width)
        parts.append(f"## {width} columns\n")
        for words in COMMANDS:
            parts.append(f"```text\n$ holdproof {words}\n{_output(words).replace(root, _ROOT)}```\n")
    return "\n".join(parts)


def _output(words: str) -> str:
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_page_shows_what_commands_print(store: sync.Holdproof, monkeypatch: pytest.MonkeyPatch) -> None:
    page = _page(store, monkeypatch)
    if os.environ.get("HOLDPROOF_UPDATE_DOCS") == "1":
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "write it anew: HOLDPROOF_UPDATE_DOCS=1"


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(store: sync.Holdproof, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(columns, "terminal_width", lambda: width)
    for words in COMMANDS:
        assert all(cell_len(line) <= width for line in _output(words).splitlines()), words


def test_the_end_of_an_id_is_enough_for_a_command(store: sync.Holdproof) -> None:
    newest = store.flows.list().items[0].flow_id
    assert newest in _output(f"flows get {newest[-8:]}")
    done = CliRunner().invoke(app, ["flows", "get", "00000000"])
    assert done.exit_code == 3, "what is the end of no id is an id that is not there"


def test_the_beginning_of_an_id_is_enough_where_only_one_begins_so(store: sync.Holdproof) -> None:
    ids = [each.flow_id for each in store.flows.list(limit=1000).items]
    assert len({each[:8] for each in ids}) == 1
    assert ids[0] in _output(f"flows get {ids[0][:-2]}")
    done = CliRunner().invoke(app, ["flows", "get", ids[0][:8]])
    assert done.exit_code == 2, done.output
    assert f"is a part of {len(ids)} ids" in done.output


@pytest.mark.parametrize("word", ["flows start refunds --flow-id {}", "flows enqueue refunds check --flow-id {}"])
def test_the_id_of_a_new_flow_is_not_taken_for_a_part_of_another(
    store: sync.Holdproof, tmp_path: Path, word: str
) -> None:
    store.flows.start("refunds", flow_id="0000-20261119")
    _output(word.format("20261119"))
    assert store.flows.get("20261119").flow_id == "20261119"


def test_an_id_that_somebody_chose_is_not_short_for_a_longer_one(store: sync.Holdproof) -> None:
    store.flows.start("refunds", flow_id="20261119-10")
    for words in ("flows get 20261119-1", "flows cancel 20261119-1 --reason mistyped", "flows get 20261119-"):
        done = CliRunner().invoke(app, words.split())
        assert done.exit_code == 3, done.output
    assert "20261119-10" not in CliRunner().invoke(app, ["audit", "--flow", "20261119-1"]).output
    assert store.flows.get("20261119-10").status == "CREATED"


def test_a_real_terminal_of_80_columns_gets_short_rows(tmp_path: Path) -> None:
    with sync.open(tmp_path) as opened:
        opened.agents.register("a-name-that-is-rather-long-for-an-agent", version="1.0.0")
        flow = opened.flows.start("a-name-that-is-rather-long-for-an-agent", flow_type="a-type-of-flow").flow_id
    words = [sys.executable, "-m", "holdproof", "--home", str(tmp_path), "flows", "list", "--since", "1h"]
    with terminal(words, columns=80) as screen:
        shown = screen.end()
    assert flow[-8:] in shown
    assert flow not in shown
    assert "ago" in shown or "now" in shown
    assert all(cell_len(line) <= 80 for line in shown.splitlines())
