"""The commands of the runtime and of retention, through click's runner; always a real store."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from holdproof import sync
from holdproof.cli import draw
from holdproof.cli.app import ResourceGroup, app
from tests.unit.test_cli_evidence import home, parsed, run

__all__ = ["home"]  # every test has a home of its own


@pytest.fixture
def store(home: Path) -> Iterator[sync.Holdproof]:
    """The same store, as a program has it open."""
    with sync.open(home) as store:
        store.agents.register("trader", version="1.0.0")
        yield store


@pytest.fixture
def existing(home: Path) -> None:
    """A store that is there already: commands that read create none."""
    sync.open(home).close()


def running(store: sync.Holdproof, **options: Any) -> str:
    flow_id = store.flows.start("trader", **options).flow_id
    store.flows.transition(flow_id, "RUNNING")
    return flow_id


def test_an_agent_is_registered_shown_and_suspended(tmp_path: Path) -> None:
    (tmp_path / "contract.json").write_text('{"limit": 10}')
    made = parsed("agents", "register", "trader", "--version", "1.2.0", "--contract", "contract.json")
    assert (made["agent"]["contract"], len(made["token"])) == ({"limit": 10}, 43)
    assert parsed("agents", "get", "trader") == made["agent"]
    run("agents", "set-status", "trader", "SUSPENDED", "--reason", "under review")
    [agent] = parsed("agents", "list", "--status", "SUSPENDED")["items"]
    assert (agent["agent_id"], agent["suspension_reason"]) == ("trader", "under review")
    assert "under review" in run("agents", "list").stdout
    assert parsed("agents", "list", "--status", "ACTIVE")["items"] == []
    assert run("agents", "list", "--status", "ACTIVE").stdout == "none\n"


def test_what_the_kernel_refuses_has_its_exit_code() -> None:
    run("agents", "get", "nobody", code=3)
    run("agents", "register", "trader", "--version", "2.0.0", "--supported", "1.x", code=4)
    run("agents", "register", "trader", "--version", "1.0.0")
    run("agents", "set-status", "trader", "ASLEEP", code=2)
    run("agents", "list", "--limit", "0", code=2)
    for words in (
        ("flows", "timeline", "x"),
        ("audit", "get", "1"),
        ("escalations", "get", "1"),
        ("sagas", "get", "x"),
    ):
        assert parsed(*words, code=3)["error"]["code"] == "not_found"


def test_flows_are_listed_by_filter_and_page_by_page(store: sync.Holdproof) -> None:
    first, second = running(store, flow_type="trade"), running(store, flow_type="check")
    store.flows.transition(second, "COMPLETED")
    assert [flow["flow_id"] for flow in parsed("flows", "list", "--flow-type", "trade")["items"]] == [first]
    assert [flow["flow_id"] for flow in parsed("flows", "list", "--status", "COMPLETED")["items"]] == [second]
    assert parsed("flows", "list", "--status", "completed") == parsed("flows", "list", "--status", "COMPLETED")
    assert parsed("flows", "list", "--agent-id", "nobody")["items"] == []
    assert parsed("flows", "list", "--since", "2999-01-01T00:00:00Z")["items"] == []
    page = parsed("flows", "list", "--limit", "1")
    assert [flow["flow_id"] for flow in page["items"]] == [second]
    assert run("flows", "list", "--limit", "1").stdout.endswith(f"more: --cursor {shlex.quote(page['next_cursor'])}\n")
    rest = parsed("flows", "list", "--cursor", page["next_cursor"])
    assert ([flow["flow_id"] for flow in rest["items"]], rest["next_cursor"]) == ([first], None)
    run("flows", "list", "--since", "yesterday", code=2)


def test_what_a_list_says_of_its_next_page_leads_there(store: sync.Holdproof) -> None:
    for n, flow_id in enumerate((running(store), running(store))):
        store.sagas.mark_dirty(flow_id, "pay")
        store.escalations.request(flow_id, reason="may I?")
        store.state.put("trader", {"n": n})
        store.objects.put("a b", type="note", content=str(n))
    words = ("flows list", "escalations list", "sagas list")
    for said in map(str.split, words):
        first, _, hint = run(*said, "--limit", "1").stdout.rpartition("more: ")
        further = run(*said, "--limit", "1", *shlex.split(hint)).stdout
        assert first, said
        assert further.partition("more: ")[0] not in {first, "none\n"}, said


def _told(store: sync.Holdproof) -> str:
    """A flow with a step, a child with two, and a question."""
    with store.flows.run("trader", flow_type="trade") as flow:
        flow.step("quote", lambda: 7)
        with store.flows.run("trader", parent=flow.flow_id, flow_type="check") as child:
            child.step("look", lambda: 1)
            child.step("look", lambda: 2)
        asked = store.escalations.request(flow.flow_id, reason="over limit")
        store.escalations.resolve(asked.id, "approve", by="ann", comment="[bold]fine[/bold]\x1b[2J")
        return flow.flow_id


def test_a_flow_is_shown_as_a_tree_with_its_steps_and_a_timeline(store: sync.Holdproof) -> None:
    flow_id = _told(store)
    tree, _, happened = run("flows", "timeline", flow_id).stdout.partition("\n\n")
    lines = tree.splitlines()
    assert lines[0].startswith(f"{flow_id}  COMPLETED  trade 1.0 by trader  ")
    assert lines[1].startswith("├─ quote  DONE  ")
    assert "  COMPLETED  check 1.0 by trader" in lines[2]
    assert lines[3].startswith("   ├─ look  DONE  ")
    assert lines[4].startswith("   └─ look (2)  DONE  ")
    rows = happened.splitlines()
    assert rows[0].split() == ["AT", "FLOW", "WHAT"]
    assert [row.split()[2] for row in rows[1:]].count("transition") == 6
    assert "[bold]fine[/bold][U+001B][2J" in happened
    assert happened.splitlines()[-1].split()[-2:] == ["transition", "COMPLETED"]


def test_a_timeline_goes_on_where_the_page_before_ended(store: sync.Holdproof) -> None:
    flow_id = _told(store)
    whole = parsed("flows", "timeline", flow_id)
    page = parsed("flows", "timeline", flow_id, "--limit", "5")
    rest = parsed("flows", "timeline", flow_id, "--cursor", page["next_cursor"])
    assert page["events"] + rest["events"] == whole["events"]
    more = f"more: --cursor {shlex.quote(page['next_cursor'])}"
    assert more in run("flows", "timeline", flow_id, "--limit", "5").stdout


def test_trees_are_drawn_in_ascii_where_the_terminal_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    flow: dict[str, Any] = {"status": "RUNNING", "flow_type": "t", "flow_version": "1", "agent_id": "a"}
    flow |= {"started_at": None, "completed_at": None}

    def node(flow_id: str, *below: Any) -> dict[str, Any]:
        return {"flow": {**flow, "flow_id": flow_id}, "children": below}

    tree = node("root", node("left", node("leaf")), node("right"))
    monkeypatch.setattr(draw, "_unicode", lambda: False)
    drawn = draw.timeline(
        {"tree": tree, "steps": (), "events": (), "next_cursor": None, "call": None}
    ).plain.splitlines()
    assert [line.split("  RUNNING")[0] for line in drawn[:4]] == ["root", "|- left", "|  `- leaf", "`- right"]


def test_steps_and_orphans_are_listed(store: sync.Holdproof) -> None:
    flow_id = _told(store)
    assert [(step["name"], step["result"]) for step in parsed("flows", "steps", flow_id)] == [("quote", 7)]
    assert "quote" in run("flows", "steps", flow_id).stdout
    lost = running(store)
    store.flows.lease(lost, "gone", lease_s=0.001)
    [orphan] = parsed("flows", "orphans")
    assert (orphan["flow_id"], orphan["worker"]) == (lost, "gone")
    assert lost in run("flows", "orphans").stdout


_AGENTS = """
def register(store):
    @store.flow(name="trade", agent="trader")
    def trade(flow, amount):
        return flow.step("buy", lambda: amount)

not_a_function = 1
"""


def test_what_a_dead_worker_left_is_run_again_by_its_function(store: sync.Holdproof, tmp_path: Path) -> None:
    (tmp_path / "my_agents.py").write_text(_AGENTS)

    @store.flow(name="trade", agent="trader", lease_s=0.001)
    def trade(flow: Any, amount: int) -> None:
        raise KeyboardInterrupt  # as if the worker were stopped

    with pytest.raises(KeyboardInterrupt):
        trade(7)
    plain = running(store)
    store.flows.lease(plain, "gone", lease_s=0.001)
    assert {orphan["name"] for orphan in parsed("flows", "orphans")} == {"trade", None}
    done = parsed("flows", "recover", "--register", "my_agents:register", "--worker", "cron")
    assert [again["flow"]["status"] for again in done["reruns"]] == ["COMPLETED"]
    assert [left["flow_id"] for left in done["orphans"]] == [plain]
    for wrong in ("my_agents:none", "no_such_module", "my_agents.py", "my_agents:not_a_function", "json"):
        run("flows", "recover", "--register", wrong, code=2)
    assert "a module has no .py, `my_agents`" in run("worker", "my_agents.py", code=2).stderr
    assert "name the module, `my_agents`" in run("worker", "./my_agents.py", code=2).stderr
    assert "name a module, as `orders`" in run("worker", ".", code=2).stderr
    assert "write `def register(store):`" in run("worker", "json", code=2).stderr


def test_a_program_with_a_store_of_its_own_excludes_another_one(tmp_path: Path) -> None:
    own = "import holdproof\nstore = holdproof.sync.open(':memory:')\n"
    (tmp_path / "own_store.py").write_text(own + "store.flow(agent='a')(lambda flow: None)\n")
    (tmp_path / "own_empty.py").write_text(own)
    (tmp_path / "own_two.py").write_text(own + "other = holdproof.sync.open(':memory:')\n")
    (tmp_path / "own_alias.py").write_text(own + "app = store\n")
    (tmp_path / "own_async.py").write_text(
        "import holdproof\nstore = holdproof.client.Holdproof.__new__(holdproof.client.Holdproof)\n"
    )
    assert "leave out --home" in run("worker", "own_store", "--home", str(tmp_path / "other"), code=2).stderr
    assert "registers no flow" in run("worker", "own_empty", code=2).stderr
    assert "registers no flow" in run("worker", "own_alias", code=2).stderr, "one store, by two names"
    assert "opens 2 stores: name one, as own_two:store" in run("worker", "own_two", code=2).stderr
    assert "belongs to the loop" in run("worker", "own_async:store", code=2).stderr


def test_a_flow_is_moved_by_hand_along_legal_edges_only(store: sync.Holdproof) -> None:
    flow_id = running(store)
    assert parsed("flows", "transition", flow_id, "CANCELLED", "--reason", "stuck")["status"] == "CANCELLED"
    assert store.flows.transitions(flow_id)[-1].reason == "stuck"
    assert parsed("flows", "transition", flow_id, "RUNNING", code=4)["error"]["code"] == "flow.illegal_transition"


def test_locks_are_listed_and_released(store: sync.Holdproof) -> None:
    flow_id = running(store)
    store.locks.try_acquire(flow_id, {"usd": 3, "eur": 1}, capacity=10)
    assert [lock["resource_id"] for lock in parsed("locks", "list", "--flow-id", flow_id)["items"]] == ["eur", "usd"]
    assert "usd" not in run("locks", "list", "--resource", "eur").stdout
    assert parsed("locks", "release", flow_id, "usd") is True
    assert parsed("locks", "release", flow_id, "usd", code=3) is False


def test_a_question_is_listed_shown_and_answered_once(store: sync.Holdproof) -> None:
    flow_id = running(store)
    asked = store.escalations.request(flow_id, reason="over limit", proposal={"buy": 9}, impact="HIGH_IMPACT")
    assert "over limit" in run("escalations", "list", "--status", "PENDING", "--agent-id", "trader").stdout
    assert [each["id"] for each in parsed("escalations", "list", "--status", "PENDING")["items"]] == [asked.id]
    assert run("escalations", "list").stdout.splitlines()[1].split()[:2] == [str(asked.id), "pending"]
    assert parsed("escalations", "get", str(asked.id))["proposal"] == {"buy": 9}
    run("escalations", "resolve", str(asked.id), "approve", code=2)  # by whom?
    run("escalations", "resolve", str(asked.id), "maybe", "--by", "ann", code=2)
    made = parsed("escalations", "resolve", str(asked.id), "approve", "--by", "ann", "--comment", "fine")
    assert (made["status"], made["human_decision"], made["resolved_by"]) == ("APPROVED", "OVERRIDE", "ann")
    again = parsed("escalations", "resolve", str(asked.id), "reject", "--by", "bob", code=4)
    assert (again["error"]["code"], again["error"]["by"]) == ("escalations.resolved", "ann")


@pytest.mark.parametrize(
    ("decision", "status", "onward"), [("reject", "REJECTED", "FAILED"), ("cancel", "CANCELLED", "CANCELLED")]
)
def test_an_answer_moves_its_flow_on(store: sync.Holdproof, decision: str, status: str, onward: str) -> None:
    flow_id = running(store)
    asked = store.escalations.request(flow_id, reason="?")
    assert parsed("escalations", "resolve", str(asked.id), decision, "--by", "ann")["status"] == status
    assert store.flows.get(flow_id).status == onward


def test_another_proposal_is_approved_only(store: sync.Holdproof, tmp_path: Path) -> None:
    asked = store.escalations.request(running(store), reason="?", proposal={"buy": 9})
    (tmp_path / "less.json").write_text('{"buy": 1}')
    run("escalations", "resolve", str(asked.id), "reject", "--by", "ann", "--proposal", "less.json", code=2)
    made = parsed("escalations", "resolve", str(asked.id), "approve", "--by", "ann", "--proposal", "less.json")
    assert (made["human_decision"], made["answer"], made["proposal"]) == ("MODIFY", {"buy": 1}, {"buy": 9})


def test_people_read_an_outcome_in_plain_words_and_no_code_of_dir(store: sync.Holdproof, tmp_path: Path) -> None:
    (tmp_path / "less.json").write_text('{"buy": 1}')
    answers = {"approved as proposed": (), "approved with changes": ("--proposal", "less.json")}
    for outcome, more in answers.items():
        asked = store.escalations.request(running(store), reason="?", proposal={"buy": 9})
        resolved = run("escalations", "resolve", str(asked.id), "approve", "--by", "ann", *more).stdout
        for shown in (resolved, run("escalations", "get", str(asked.id)).stdout):
            assert outcome in shown
            assert "human_decision" not in shown
        assert outcome in run("escalations", "list").stdout.splitlines()[1]


def test_events_are_listed_searched_and_shown(store: sync.Holdproof) -> None:
    flow_id, other = running(store), running(store)
    first = store.audit.record(flow_id, "LOOKED", detail={"a": 1})
    second = store.audit.record(other, "FAILED", severity="ERROR")
    assert [event["id"] for event in parsed("audit", "list", "--flow-id", flow_id)["items"]] == [first.id]
    assert [event["id"] for event in parsed("audit", "list", "--severity", "ERROR")["items"]] == [second.id]
    assert [event["id"] for event in parsed("audit", "list", "--event-type", "LOOKED")["items"]] == [first.id]
    page = parsed("audit", "list", "--limit", "1")
    assert [event["id"] for event in page["items"]] == [second.id]
    assert [event["id"] for event in parsed("audit", "list", "--cursor", page["next_cursor"])["items"]] == [first.id]
    assert parsed("audit", "get", str(first.id))["detail"] == {"a": 1}
    assert "FAILED" in run("audit", "list").stdout
    run("audit", "list", "--severity", "LOUD", code=2)


def test_dirty_flows_are_listed_shown_and_cleared(store: sync.Holdproof) -> None:
    flow_id = running(store)
    store.sagas.mark_dirty(flow_id, "pay", {"order": 1})
    assert [each["flow_id"] for each in parsed("sagas", "list")["items"]] == [flow_id]
    assert parsed("sagas", "get", flow_id)["partial_state"] == {"order": 1}
    assert "pay" in run("sagas", "list").stdout
    assert parsed("sagas", "clear", flow_id, "--by", "ann") is True
    assert parsed("sagas", "clear", flow_id, "--by", "ann", code=3) is False


def test_a_sweep_says_what_it_put_away(store: sync.Holdproof) -> None:
    store.locks.try_acquire(running(store), {"usd": 1}, ttl_s=0.001)
    assert parsed("sweep", "run")["locks"] == 1


def test_what_has_had_its_time_is_counted_then_removed(store: sync.Holdproof) -> None:
    flow_id = _told(store)
    words = ("retention", "prune", "flows", "--older-than-days", "0", "--who", "ann")
    assert parsed(*words, "--dry-run")["count"] == 1
    assert store.flows.get(flow_id).ended
    done = parsed(*words)
    assert (done["count"], done["records"]["decision_flows"]) == (1, 2)
    run("flows", "timeline", flow_id, code=3)
    [told] = parsed("retention", "list")["items"]
    assert (told["what"], told["who"], told["count"]) == ("flows", "ann", 1)
    assert "ann" in run("retention", "list").stdout
    assert parsed("retention", "compact")["bytes_after"] > 0
    run("retention", "prune", "flows", code=2)
    run("retention", "prune", "battles", "--keep", "1", code=2)
    assert parsed("verify", "--full")["verdict"] == "VALID"


def test_no_command_looks_into_another_namespace(store: sync.Holdproof) -> None:
    flow_id = running(store)
    store.audit.record(flow_id, "LOOKED")
    store.locks.try_acquire(flow_id, {"usd": 1})
    for resource in ("agents", "flows", "locks", "sagas", "audit"):
        assert parsed(resource, "list", "--ns", "other")["items"] == []
    run("flows", "timeline", flow_id, "--ns", "other", code=3)
    run("agents", "get", "trader", "--ns", "other", code=3)


@pytest.mark.usefixtures("existing")
@pytest.mark.parametrize("resource", ["agents", "flows", "locks", "escalations", "audit", "sagas", "retention"])
def test_every_command_prints_one_json_document_even_when_it_fails(resource: str) -> None:
    root = click.Context(app)
    group = app.get_command(root, resource)
    assert isinstance(group, ResourceGroup)
    for name in group.list_commands(root):
        command = group.get_command(root, name)
        assert command is not None
        required = [each for each in command.params if each.required]
        words = ["1" for each in required if isinstance(each, click.Argument)]
        words += [f"{each.opts[0]}=1" for each in required if isinstance(each, click.Option)]
        done = CliRunner().invoke(app, [resource, name, "--json", *words])
        assert done.exit_code in {0, 2, 3, 4}, done.output
        for line in done.stdout.splitlines() if name == "export" else [done.stdout]:
            json.loads(line)


def test_json_and_people_are_told_the_same(store: sync.Holdproof) -> None:
    flow_id = _told(store)
    plain = json.dumps(parsed("flows", "timeline", flow_id))
    for row in run("flows", "timeline", flow_id).stdout.partition("\n\n")[2].splitlines()[1:]:
        assert row.split()[0] in plain


def test_replays_are_drawn_and_exit_with_4_where_the_code_differs(
    store: sync.Holdproof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
def register(store, name="pay"):
    @store.flow(agent="trader")
    def buy(flow, what):
        return flow.step(name, str.upper, what)
    return buy

def changed(store):
    register(store, "mail")
"""
    (tmp_path / "my_buyers.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    import my_buyers  # type: ignore[import-not-found] # noqa: PLC0415 (written above)

    my_buyers.register(store).with_id("o-1")("tea")
    timeline = run("flows", "timeline", "o-1").stdout
    assert 'buy("tea") = "TEA"' in timeline
    assert 'pay  DONE  ("tea") = "TEA"' in timeline
    assert "same  o-1  buy 1.0  1 steps" in run("flows", "replay", "--all", "my_buyers").stdout
    assert run("flows", "replay", "my_buyers:register", "o-1").stdout.endswith("1 replayed, 0 different\n")
    different = run("flows", "replay", "--all", "my_buyers:changed", code=4).stdout
    assert "    the code reached step mail where the flow recorded step pay" in different
    [replay] = json.loads(run("flows", "replay", "--json", "--all", "my_buyers:changed", code=4).stdout)
    assert (replay["flow_id"], replay["steps"]) == ("o-1", 0)
    run("flows", "replay", "my_buyers", code=2)
    run("flows", "replay", "my_buyers", "unknown", code=3)
